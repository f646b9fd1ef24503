"""Classification networks of MindSpore's ModelZoo, in its way of writing them: AlexNet, VGG16 and SqueezeNet.

Widths are parameters, so that a test can build small ones; the defaults are those of the papers.
"""

import math

from runner import dtype as mstype, nn, ops as P
from runner.common import initializer as weight_init


class AlexNet(nn.Cell):
    """Krizhevsky and others (2012), for images whose pools leave `side` x `side` pixels (6 of 224)."""

    def __init__(self, num_classes=10, channel=3, phase="train", side=6, hidden=4096):
        super().__init__()
        self.conv1 = nn.Conv2d(channel, 64, 11, stride=4, pad_mode="same", has_bias=True)
        self.conv2 = nn.Conv2d(64, 128, 5, pad_mode="same", has_bias=True)
        self.conv3 = nn.Conv2d(128, 192, 3, pad_mode="same", has_bias=True)
        self.conv4 = nn.Conv2d(192, 256, 3, pad_mode="same", has_bias=True)
        self.conv5 = nn.Conv2d(256, 256, 3, pad_mode="same", has_bias=True)
        self.relu = P.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="valid")
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(side * side * 256, hidden)
        self.fc2 = nn.Dense(hidden, hidden)
        self.fc3 = nn.Dense(hidden, num_classes)
        self.dropout = nn.Dropout(keep_prob=0.65 if phase == "train" else 1.0)

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.relu(self.conv3(x))
        x = self.relu(self.conv4(x))
        x = self.max_pool2d(self.relu(self.conv5(x)))
        x = self.flatten(x)
        x = self.dropout(self.relu(self.fc1(x)))
        x = self.dropout(self.relu(self.fc2(x)))
        return self.fc3(x)


VGG16 = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


class Vgg(nn.Cell):
    """Simonyan and Zisserman (2015), with batch normalisation; `share` of the channels of the paper."""

    def __init__(self, num_classes=10, side=7, hidden=4096, share=1.0):
        super().__init__()
        layers, channels = [], 3
        for v in VGG16:
            if v == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
                continue
            out = int(v * share)
            conv = nn.Conv2d(channels, out, 3, padding=1, pad_mode="pad", has_bias=False, weight_init="XavierUniform")
            layers += [conv, nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        self.layers = nn.SequentialCell(layers)
        self.flatten = nn.Flatten()
        self.classifier = nn.SequentialCell(
            [
                nn.Dense(channels * side * side, hidden),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Dense(hidden, hidden),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Dense(hidden, num_classes),
            ]
        )
        self.custom_init_weight()

    def construct(self, x):
        return self.classifier(self.flatten(self.layers(x)))

    def custom_init_weight(self):
        for _, cell in self.cells_and_names():
            if isinstance(cell, nn.Conv2d):
                init = weight_init.HeNormal(negative_slope=math.sqrt(5), mode="fan_out", nonlinearity="relu")
                cell.weight.set_data(weight_init.initializer(init, cell.weight.shape, cell.weight.dtype))
                if cell.bias is not None:
                    cell.bias.set_data(weight_init.initializer("zeros", cell.bias.shape, cell.bias.dtype))
            elif isinstance(cell, nn.Dense):
                normal = weight_init.initializer(weight_init.Normal(0.01), cell.weight.shape, cell.weight.dtype)
                cell.weight.set_data(normal)
                if cell.bias is not None:
                    cell.bias.set_data(weight_init.initializer("zeros", cell.bias.shape, cell.bias.dtype))


class Fire(nn.Cell):
    """Few channels, then many of size 1 and of size 3 side by side."""

    def __init__(self, inplanes, squeeze_planes, expand1x1_planes, expand3x3_planes):
        super().__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, kernel_size=1, has_bias=True)
        self.squeeze_activation = nn.ReLU()
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, kernel_size=1, has_bias=True)
        self.expand1x1_activation = nn.ReLU()
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, kernel_size=3, pad_mode="same", has_bias=True)
        self.expand3x3_activation = nn.ReLU()
        self.concat = P.Concat(axis=1)

    def construct(self, x):
        x = self.squeeze_activation(self.squeeze(x))
        return self.concat((self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))))


class SqueezeNet(nn.Cell):
    """Iandola and others (2016), version 1.0."""

    def __init__(self, num_classes=10):
        super().__init__()
        self.features = nn.SequentialCell(
            [
                nn.Conv2d(3, 96, kernel_size=7, stride=2, pad_mode="valid", has_bias=True),
                nn.ReLU(),
                nn.MaxPool2d(kernel_size=3, stride=2),
                Fire(96, 16, 64, 64),
                Fire(128, 16, 64, 64),
                Fire(128, 32, 128, 128),
                nn.MaxPool2d(kernel_size=3, stride=2),
                Fire(256, 32, 128, 128),
                Fire(256, 48, 192, 192),
                Fire(384, 48, 192, 192),
                Fire(384, 64, 256, 256),
                nn.MaxPool2d(kernel_size=3, stride=2),
                Fire(512, 64, 256, 256),
            ]
        )
        self.final_conv = nn.Conv2d(512, num_classes, kernel_size=1, has_bias=True)
        self.dropout = nn.Dropout(keep_prob=0.5)
        self.relu = nn.ReLU()
        self.mean = P.ReduceMean(keep_dims=True)
        self.flatten = nn.Flatten()
        self.custom_init_weight()

    def custom_init_weight(self):
        for _, cell in self.cells_and_names():
            if isinstance(cell, nn.Conv2d):
                init = weight_init.Normal() if cell is self.final_conv else weight_init.HeUniform()
                cell.weight.set_data(weight_init.initializer(init, cell.weight.shape, cell.weight.dtype))
                if cell.bias is not None:
                    cell.bias.set_data(weight_init.initializer("zeros", cell.bias.shape, mstype.float32))

    def construct(self, x):
        x = self.dropout(self.features(x))
        x = self.mean(self.relu(self.final_conv(x)), (2, 3))
        return self.flatten(x)
