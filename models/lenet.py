"""LeNet-5 for one-channel images of 32 x 32 (LeCun et al., 1998, with ReLU and max-pooling)."""

from typing import Annotated

from runner import nn, register
from runner.common.initializer import TruncatedNormal
from runner.core.value import Value
from runner.validation.rules import MAX_COUNT

Count = Annotated[int, register.key(low=1, high=MAX_COUNT)]
Channels = Annotated[int, register.key(low=1, high=65536)]


def conv(in_channels: int, out_channels: int, kernel_size: int) -> nn.Conv2d:
    """A convolution without bias and without padding."""
    return nn.Conv2d(in_channels, out_channels, kernel_size, pad_mode="valid", weight_init=TruncatedNormal(0.02))


def dense(in_channels: int, out_channels: int) -> nn.Dense:
    """A fully connected layer with random initial weight and bias."""
    return nn.Dense(in_channels, out_channels, TruncatedNormal(0.02), TruncatedNormal(0.02))


@register.network("lenet5")
class LeNet5(nn.Cell):
    """(N, num_channels, 32, 32) to logits (N, num_classes).

    Args:
        num_classes: number of outputs
        num_channels: channels of the input
    """

    def __init__(self, num_classes: Count = 10, num_channels: Channels = 1) -> None:
        super().__init__()
        self.conv1 = conv(num_channels, 6, 5)
        self.conv2 = conv(6, 16, 5)
        self.fc1 = dense(16 * 5 * 5, 120)
        self.fc2 = dense(120, 84)
        self.fc3 = dense(84, num_classes)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x: Value) -> Value:
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        x = self.fc3(x)
        return x
