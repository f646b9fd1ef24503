# mypy: ignore-errors
"""Export the networks of benchmarks/peers/torch_eager.py as ONNX files in training form.

    pip install torch==2.13.0 onnx onnxscript
    python benchmarks/peers/torch_onnx.py outputs/onnx

Batches may have any size without `--batch`; onnxruntime-training 1.19.2 trains resnet18 only with a fixed one. Nothing
is folded, so that BatchNormalization and Dropout can be trained.
"""

import argparse
import warnings
from pathlib import Path

import torch
from timing import MORE_NETS, shape_of
from torch_eager import network_of

OPSET = 17  # old enough for onnxruntime-training 1.19


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--net", nargs="+", choices=MORE_NETS, default=["lenet5", "resnet18", "mobilenet_v2"])
    parser.add_argument("--batch", type=int, help="the only size of a batch; by default it is free")
    o = parser.parse_args()
    free = None if o.batch else {"input": {0: "batch"}, "logits": {0: "batch"}}
    o.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # the exporter that keeps training form is deprecated
    for net in o.net:
        path = o.folder / f"{net}.onnx"
        torch.onnx.export(
            network_of(net).train(),
            (torch.randn(o.batch or 2, *shape_of(net)),),
            str(path),
            input_names=["input"],
            output_names=["logits"],
            dynamic_axes=free,
            opset_version=OPSET,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            dynamo=False,
        )
        print(path)


if __name__ == "__main__":
    main()
