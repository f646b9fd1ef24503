"""Train a network with onnxruntime and numpy only, from the directory that `runner export` writes.

    runner export RUN_DIR --to exported
    python examples/train_exported.py exported batches.npz weights.safetensors
    runner eval RUN_DIR checkpoint.load=weights.safetensors

`batches.npz` has preprocessed rows for each input of the network and for the target, named as in `signature.json`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

BATCH, STEPS = 32, 200
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file: the length of a header in JSON, the header, the elements."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8:start]).items():
        first, end = (start + offset for offset in entry["data_offsets"])
        arrays[name] = np.frombuffer(content[first:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    names, header, end = {dtype: name for name, dtype in TYPES.items()}, {}, 0
    for name, array in arrays.items():
        place, end = end, end + array.nbytes
        header[name] = {"dtype": names[array.dtype.str], "shape": array.shape, "data_offsets": [place, end]}
    text = json.dumps(header).encode()
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays.values())]))


folder, data = Path(sys.argv[1]), np.load(sys.argv[2])
signature = json.loads((folder / "signature.json").read_text())
step = signature["models"]["train_step"]
session = ort.InferenceSession(folder / step["file"], providers=["CPUExecutionProvider"])
stored, entries = read(folder / signature["initial"]["file"]), signature["initial"]["entries"]
roles = {value["name"]: value["role"] for value in step["inputs"]}
state = {name: stored[entries[name]] for name in roles if name in entries}
batches = np.arange(len(data[data.files[0]]) // BATCH * BATCH).reshape(-1, BATCH)
for number in range(STEPS):
    rows = batches[number % len(batches)]
    known = {"learning_rate": np.array(signature["learning_rate"], np.float32), "step": np.array(number)}
    given = {name: role for name, role in roles.items() if name not in state}
    feeds = {name: known[role] if role in known else data[name][rows] for name, role in given.items()}
    results = session.run(None, state | feeds)
    for output, value in zip(step["outputs"], results, strict=True):
        if output["feeds"]:
            state[output["feeds"]] = value
    print(f"step {number + 1} loss {results[0]:.8g}")
write(Path(sys.argv[3]), {entries[name]: value for name, value in state.items()})
