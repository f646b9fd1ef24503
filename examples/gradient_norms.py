"""Write the norm of every gradient of every step into the run directory; a training that goes on repeats no row.

    python examples/gradient_norms.py FOLDER [--epochs 2] [--pynative]

LeNet-5 on the digits that come with runner. FOLDER gets `gradient_norms.jsonl`, a line for each step such as
{"global_step": 1, "norm": 2.31, "conv1.weight": 0.84, ...}, and `state-{step}.ckpt` after each epoch. Started again
with more epochs, it goes on from the newest of these; rows of later steps (the process may have been killed) are
removed first, so that in the end the file has the bytes of a training that was never interrupted.
"""

import argparse
import json
import math
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
import runner.dataset.vision.c_transforms as CV
from runner import (
    Model,
    context,
    dtype as mstype,
    load_checkpoint,
    load_param_into_net,
    nn,
    save_checkpoint,
    set_seed,
)
from runner.train.callback import Callback, LossMonitor, RunContext, StepValues

sys.path.insert(0, str(Path(__file__).parents[1]))
from models.lenet import LeNet5


class GradientNorms(Callback):
    """Appends one row per step to a file; `begin` removes the rows of steps that are executed again.

    A norm that is not finite, because a step overflowed, is null: JSON has no infinity.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, run_context: RunContext) -> None:
        """Keep the rows before the first step, open the file for the others."""
        done = run_context.original_args().cur_step_num
        rows = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        self.file: IO[bytes] = self.path.open("wb")
        self.file.writelines(row for row in rows if step_of(row) <= done)

    def step_gradients(self, run_context: RunContext, values: StepValues) -> None:
        """Called for every step, also inside of a sink, in order."""
        squares = {name: float(np.sum(np.square(g, dtype=np.float64))) for name, g in values.gradients.items()}
        norms = {name: square**0.5 for name, square in {"norm": sum(squares.values()), **squares}.items()}
        finite = {name: norm if math.isfinite(norm) else None for name, norm in norms.items()}
        self.file.write(json.dumps({"global_step": values.global_step, **finite}).encode() + b"\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The end of the training, also of one that has failed."""
        self.file.close()


def step_of(row: bytes) -> float:
    """The step of a row; infinite for a row that a kill has cut."""
    with suppress(ValueError):
        return int(json.loads(row)["global_step"])
    return math.inf


class SaveState(Callback):
    """Saves all parameters after each epoch, when the rows before them are in the file."""

    def __init__(self, folder: Path, norms: GradientNorms) -> None:
        self.folder, self.norms = folder, norms

    def epoch_end(self, run_context: RunContext) -> None:
        """The rows first: a state that has no rows could not be continued exactly."""
        run = run_context.original_args()
        self.norms.file.flush()
        save_checkpoint(run.train_network, str(self.folder / f"state-{run.cur_step_num}.ckpt"))


def digits() -> ds.Dataset:
    """Batches of 32 images, 32 x 32 pixels in 0..1, and their labels; the seed decides the order of each epoch."""
    data = ds.DigitsDataset("train").map(CT.TypeCast(mstype.int32), "label")
    data = data.map([CV.Resize((32, 32)), CV.Rescale(1 / 16, 0.0), CV.HWC2CHW()], "image")
    return data.shuffle(buffer_size=10000).batch(32, drop_remainder=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pynative", action="store_true")
    words = parser.parse_args()
    words.folder.mkdir(parents=True, exist_ok=True)
    set_seed(1)
    context.set_context(mode=context.PYNATIVE_MODE if words.pynative else context.GRAPH_MODE)
    network = LeNet5(num_classes=10, num_channels=1)
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), optimizer)
    states = {int(path.stem.partition("-")[2]): path for path in words.folder.glob("state-*.ckpt")}
    done = max(states, default=0)
    if done:
        load_param_into_net(model.train_network, load_checkpoint(str(states[done])))
    norms = GradientNorms(words.folder / "gradient_norms.jsonl")
    callbacks = [LossMonitor(44), norms, SaveState(words.folder, norms)]
    model.train(words.epochs, digits(), callbacks, first_step=done)


if __name__ == "__main__":
    main()
