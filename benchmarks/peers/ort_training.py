# mypy: ignore-errors
"""One training step of onnxruntime-training on the CPU, as benchmarks/step.py measures runner's.

    python3.11 -m venv ort && ort/bin/pip install onnxruntime-training-cpu==1.19.2 "onnx<1.17" "numpy<2" torch
    ort/bin/python benchmarks/peers/ort_training.py lenet5 --onnx outputs/onnx --threads 2

1.19.2 is the last release; it needs Python 3.8 to 3.11, and torch, which it imports but does not declare. The networks
are those that benchmarks/peers/torch_onnx.py has written into the folder `--onnx`. It has SGD without momentum, which
is less work than what the other contenders do. A network that it cannot train ends this script with its error. Prints
one JSON object.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer
from timing import LEARNING_RATE, MORE_NETS, arguments, first_row, parsed, report, rows_of, shape_of, timed

MOVING = ("running_mean", "running_var")


def trainer(path: Path, folder: str, threads: int) -> tuple[Module, Optimizer, int]:
    """The training step that its tools make of a network, and the number of trained weights."""
    model = onnx.load(path)
    weights = {x.name: int(np.prod(x.dims)) for x in model.graph.initializer if x.data_type == onnx.TensorProto.FLOAT}
    frozen = [name for name in weights if name.endswith(MOVING)]
    trained = [name for name in weights if name not in frozen]
    loss, optimizer = artifacts.LossType.CrossEntropyLoss, artifacts.OptimType.SGD
    artifacts.generate_artifacts(
        model, requires_grad=trained, frozen_params=frozen, loss=loss, optimizer=optimizer, artifact_directory=folder
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
    module = Module(f"{folder}/training_model.onnx", state, device="cpu", session_options=options)
    step = Optimizer(f"{folder}/optimizer_model.onnx", module)
    step.set_learning_rate(LEARNING_RATE)
    return module, step, sum(weights[name] for name in trained)


def main() -> None:
    """Command line."""
    o = parsed(arguments(__doc__, MORE_NETS))
    with tempfile.TemporaryDirectory() as folder:
        module, optimizer, parameters = trainer(o.onnx / f"{o.net}.onnx", folder, o.threads)
    module.train()
    count, rng = rows_of(o.net, o.batch), np.random.default_rng(0)
    images = rng.standard_normal((count, *shape_of(o.net)), np.float32)
    labels, order = rng.integers(0, 10, count, np.int64), rng.permutation(count)

    def run(steps: int) -> float:
        for i in range(steps):
            start = first_row(i, o.net, o.batch)
            rows = order[start : start + o.batch]
            loss = module(images[rows], labels[rows])
            optimizer.step()
            module.lazy_reset_grad()
        return float(loss)

    version = onnxruntime.__version__
    report("onnxruntime.training", o, version=version, parameters=parameters, **timed(run, o.steps))


if __name__ == "__main__":
    main()
