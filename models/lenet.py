"""LeNet-5 for one-channel images of 32 x 32 (LeCun et al., 1998, with ReLU and max-pooling)."""

from typing import Annotated, Literal

from runner import nn, register
from runner.common.initializer import HeNormal, Initializer, TruncatedNormal
from runner.core.values import Value
from runner.validation.rules import MAX_COUNT

Count = Annotated[int, register.key(low=1, high=MAX_COUNT)]
Channels = Annotated[int, register.key(low=1, high=65536)]


Weights = Literal["truncated_normal", "he_normal"]


@register.network("lenet5")
class LeNet5(nn.Cell):
    """(N, num_channels, 32, 32) to logits (N, num_classes).

    Args:
        num_classes: number of outputs
        num_channels: channels of the input
        weight_init: truncated_normal, with deviation 0.02 as in MindSpore; he_normal learns from the first epoch
    """

    def __init__(
        self, num_classes: Count = 10, num_channels: Channels = 1, weight_init: Weights = "truncated_normal"
    ) -> None:
        super().__init__()
        self._weight_init = weight_init
        self.conv1 = self._conv(num_channels, 6)
        self.conv2 = self._conv(6, 16)
        self.fc1 = self._dense(16 * 5 * 5, 120)
        self.fc2 = self._dense(120, 84)
        self.fc3 = self._dense(84, num_classes)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def _conv(self, in_channels: int, out_channels: int) -> nn.Conv2d:
        """A convolution of 5 x 5 without bias and without padding."""
        return nn.Conv2d(in_channels, out_channels, 5, pad_mode="valid", weight_init=self._initializer())

    def _dense(self, in_channels: int, out_channels: int) -> nn.Dense:
        """A fully connected layer."""
        bias = "zeros" if self._weight_init == "he_normal" else self._initializer()
        return nn.Dense(in_channels, out_channels, self._initializer(), bias)

    def _initializer(self) -> Initializer:
        return HeNormal() if self._weight_init == "he_normal" else TruncatedNormal(0.02)

    def construct(self, x: Value) -> Value:
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        x = self.fc3(x)
        return x
