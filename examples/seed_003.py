"""LeNet-5 on MNIST with data sinking: ten times a thousand steps in one call each (after the page on running a model).

    python examples/seed_003.py [FOLDER]

FOLDER has MNIST's four files, plain or .gz, there or in `train` and `test`; without it ./datasets/MNIST_Data. An epoch
is 1,000 of the 1,875 batches, and the next one goes on where it ended. Takes about half a minute on two CPU cores.
"""

import sys

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
import runner.dataset.vision.c_transforms as CV
import runner.nn as nn
import runner.ops as ops
from runner import Model, context, dtype as mstype, set_seed
from runner.common.initializer import TruncatedNormal
from runner.dataset.vision import Inter
from runner.nn import Accuracy
from runner.train.callback import LossMonitor

BATCH_SIZE = 32
MEAN, DEVIATION = 0.1307, 0.3081  # of all pixels of the training images, where 1 is white


def create_dataset(folder: str, usage: str, batch_size: int = BATCH_SIZE, repeat_size: int = 1) -> ds.Dataset:
    """Batches of normalised images of 32 x 32 pixels, and their labels."""
    mnist = ds.MnistDataset(folder, usage=usage)
    mnist = mnist.map(operations=CT.TypeCast(mstype.int32), input_columns="label")
    mnist = mnist.map(
        operations=[
            CV.Resize((32, 32), interpolation=Inter.LINEAR),
            CV.Rescale(1.0 / 255.0, 0.0),
            CV.Rescale(1 / DEVIATION, -MEAN / DEVIATION),
            CV.HWC2CHW(),
        ],
        input_columns="image",
    )
    return mnist.shuffle(buffer_size=10000).batch(batch_size, drop_remainder=True).repeat(repeat_size)


def convolution(in_channels: int, out_channels: int) -> nn.Conv2d:
    """5 x 5, without bias and without padding."""
    return nn.Conv2d(in_channels, out_channels, 5, weight_init=TruncatedNormal(0.02), has_bias=False, pad_mode="valid")


def dense(in_channels: int, out_channels: int) -> nn.Dense:
    """Weights and biases start at random."""
    return nn.Dense(in_channels, out_channels, TruncatedNormal(0.02), TruncatedNormal(0.02))


class LeNet5(nn.Cell):
    """Images (BATCH_SIZE, 1, 32, 32) to the scores of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = convolution(1, 6), convolution(6, 16)
        self.fc1, self.fc2, self.fc3 = dense(16 * 5 * 5, 120), dense(120, 84), dense(84, 10)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.reshape = ops.Reshape()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.reshape(x, (BATCH_SIZE, -1))
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def main(folder: str, epochs: int = 10, sink_size: int = 1000) -> None:
    """Train on the training images, then test on the others."""
    context.set_context(mode=context.GRAPH_MODE, device_target="CPU")
    set_seed(1)
    network = LeNet5()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(network, loss, optimizer, metrics={"Accuracy": Accuracy()})
    print("============== Starting Training ==============")
    data, monitors = create_dataset(folder, "train"), [LossMonitor()]
    model.train(epochs, data, callbacks=monitors, dataset_sink_mode=True, sink_size=sink_size)
    print("============== Starting Testing ==============")
    print(model.eval(create_dataset(folder, "test")))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "./datasets/MNIST_Data")
