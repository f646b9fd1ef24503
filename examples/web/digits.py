"""Write the handwritten digits that runner has built in to digits.safetensors, next to the page: python digits.py

Images are bytes [N, 8, 8], as they are before preprocessing, and labels Int32 [N], of the splits `train` and `test`.
"""

from pathlib import Path

from safetensors.numpy import save_file

from runner.dataset import DigitsDataset

arrays = {}
for split in ("train", "test"):
    data = DigitsDataset(split)
    (rows,) = data.batch(data.get_dataset_size()).create_dict_iterator(num_epochs=1, output_numpy=True)
    arrays |= {f"{split}_images": rows["image"][..., 0], f"{split}_labels": rows["label"]}
save_file(arrays, Path(__file__).with_name("digits.safetensors"))
