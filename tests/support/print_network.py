"""A network that prints on its way, forward and backward, and a model that trains it.

All numbers are whole or halves, so that both modes compute them without rounding and texts can be compared.
"""

import numpy as np

from runner import Model, Parameter, nn, ops
from runner.dataset import NumpySlicesDataset
from runner.device import Device

X = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)
SHOWN = (
    "Tensor(shape=[2, 2], dtype=Float32, value=\n"
    "[[ 1.00000000e+00 -2.00000000e+00]\n [ 5.00000000e-01  4.00000000e+00]])\n"
)


class Net(nn.Cell):
    """A linear map that prints on its way, forward and backward."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(np.array([[1.0], [2.0]], np.float32), "w")
        self.print, self.hook = ops.Print(), ops.InsertGradientOf(self.seen)

    def seen(self, dout):
        self.print("gradient", dout)
        return dout

    def construct(self, x):
        self.print("rows", x)
        y = self.hook(ops.MatMul()(x, self.w))
        self.print("made", y, "of", self.w, self.training)
        return y


class Error(nn.Cell):
    """Sum of differences times a half: its gradient is a half everywhere."""

    def construct(self, y, label):
        return ops.ReduceSum()(y - label) * 0.5


def rows(count=7):
    numbers = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    return NumpySlicesDataset((numbers, numbers[:, :1] * 2), ["x", "y"])


def model(mode, rate=0.5):
    net = Net()
    return Model(net, Error(), nn.SGD(net.trainable_params(), rate), {"loss"}, mode=mode, device=Device(threads=1))
