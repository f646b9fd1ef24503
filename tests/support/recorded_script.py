"""A script that records its run: `python train.py MODE SINK EPOCHS DIRECTORY`. Tests copy it and start the copy.

Environment: STOP is the step after which it waits for a signal, KILL the step in which it is killed, FAIL the step in
which a callback of the script raises, RESUME and FORCE are arguments of `record`.
"""

import os
import signal
import sys

import numpy as np

import runner
import runner.dataset as ds
from runner import Model, context, nn
from runner.train.callback import Callback

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
SINKS = {"off": (False, -1), "-1": (True, -1), "4": (True, 4)}


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        layers = [nn.Dense(4, 8), nn.ReLU(), nn.Dropout(0.8), nn.Dense(8, 2)]
        self.layers = nn.SequentialCell(layers)

    def construct(self, x):
        return self.layers(x)


class Accident(Callback):
    """What happens to the script, at the step that the environment has."""

    def step_end(self, run_context):
        step = run_context.original_args().cur_step_num
        if step >= number("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        if step >= number("FAIL"):
            raise ZeroDivisionError("the script is wrong")
        if step == number("STOP"):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            print("waiting", flush=True)
            os.read(read, 1)


def number(name):
    return int(os.environ.get(name, 10**9))


def points(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    columns = {"x": x, "label": (x[:, 0] > 0).astype(np.int32)}
    return ds.NumpySlicesDataset(columns, shuffle=True).batch(6)


def main(mode, sink, epochs, folder, **how):
    runner.set_seed(7)
    context.set_context(mode=MODES[mode])
    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.Adam(net.trainable_params(), 0.01), {"accuracy", "loss"})
    with runner.record(folder, {"rate": 0.01}, checkpoint={"every_steps": 3}, dataset="points", **how) as run:
        run.train(model, epochs, points(1), [Accident()], *SINKS[sink], test_dataset=points(2))
        return run.evaluate(model, points(3))


if __name__ == "__main__":
    options = {name.lower(): os.environ[name] == "1" for name in ("RESUME", "FORCE") if name in os.environ}
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], **options))
