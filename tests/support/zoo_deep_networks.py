"""Deeper classification networks of MindSpore's ModelZoo, in its way of writing them: MobileNetV2, GoogLeNet and
DenseNet. Widths and depths are parameters, so that a test can build small ones; the defaults are those of the papers.
"""

import math

from runner import nn, ops as P
from runner.common import initializer as weight_init
from runner.common.initializer import TruncatedNormal


def _make_divisible(v, divisor, min_value=None):
    new_v = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return new_v + divisor if new_v < 0.9 * v else new_v


class ConvBNReLU(nn.Cell):
    def __init__(self, in_planes, out_planes, kernel_size=3, stride=1, groups=1):
        super().__init__()
        padding = (kernel_size - 1) // 2
        conv = nn.Conv2d(
            in_planes, out_planes, kernel_size, stride, pad_mode="pad", padding=padding, group=groups, has_bias=False
        )
        self.features = nn.SequentialCell([conv, nn.BatchNorm2d(out_planes), nn.ReLU6()])

    def construct(self, x):
        return self.features(x)


class InvertedResidual(nn.Cell):
    def __init__(self, inp, oup, stride, expand_ratio):
        super().__init__()
        hidden_dim = round(inp * expand_ratio)
        self.use_res_connect = stride == 1 and inp == oup
        layers = []
        if expand_ratio != 1:
            layers.append(ConvBNReLU(inp, hidden_dim, kernel_size=1))
        layers.extend(
            [
                ConvBNReLU(hidden_dim, hidden_dim, stride=stride, groups=hidden_dim),
                nn.Conv2d(hidden_dim, oup, kernel_size=1, stride=1, has_bias=False),
                nn.BatchNorm2d(oup),
            ]
        )
        self.conv = nn.SequentialCell(layers)
        self.add = P.Add()

    def construct(self, x):
        identity = x
        x = self.conv(x)
        return self.add(identity, x) if self.use_res_connect else x


class GlobalAvgPooling(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mean = P.ReduceMean(keep_dims=False)

    def construct(self, x):
        return self.mean(x, (2, 3))


class MobileNetV2(nn.Cell):
    """Sandler and others (2018)."""

    def __init__(self, num_classes=10, width_mult=1.0, last_channel=1280, round_nearest=8):
        super().__init__()
        # expand ratio, channels, number, stride
        setting = [
            [1, 16, 1, 1],
            [6, 24, 2, 2],
            [6, 32, 3, 2],
            [6, 64, 4, 2],
            [6, 96, 3, 1],
            [6, 160, 3, 2],
            [6, 320, 1, 1],
        ]
        input_channel = _make_divisible(32 * width_mult, round_nearest)
        self.out_channels = _make_divisible(last_channel * max(1.0, width_mult), round_nearest)
        features = [ConvBNReLU(3, input_channel, stride=2)]
        for t, c, n, s in setting:
            output_channel = _make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                features.append(InvertedResidual(input_channel, output_channel, s if i == 0 else 1, expand_ratio=t))
                input_channel = output_channel
        features.append(ConvBNReLU(input_channel, self.out_channels, kernel_size=1))
        self.features = nn.SequentialCell(features)
        self.head = nn.SequentialCell([GlobalAvgPooling(), nn.Dropout(0.8), nn.Dense(self.out_channels, num_classes)])
        self._initialize_weights()

    def _initialize_weights(self):
        for _, m in self.cells_and_names():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                normal = weight_init.Normal(math.sqrt(2.0 / n))
                m.weight.set_data(weight_init.initializer(normal, m.weight.shape, m.weight.dtype))
                if m.bias is not None:
                    m.bias.set_data(weight_init.initializer("zeros", m.bias.shape))
            elif isinstance(m, nn.BatchNorm2d):
                m.gamma.set_data(weight_init.initializer("ones", m.gamma.shape))
                m.beta.set_data(weight_init.initializer("zeros", m.beta.shape))

    def construct(self, x):
        return self.head(self.features(x))


class Conv2dBlock(nn.Cell):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, pad_mode="same"):
        super().__init__()
        weight = TruncatedNormal(0.05)
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, pad_mode=pad_mode, padding=0, weight_init=weight
        )
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.relu(self.bn(self.conv(x)))


class Inception(nn.Cell):
    def __init__(self, in_channels, n1x1, n3x3red, n3x3, n5x5red, n5x5, pool_planes):
        super().__init__()
        self.b1 = Conv2dBlock(in_channels, n1x1, kernel_size=1)
        self.b2 = nn.SequentialCell([Conv2dBlock(in_channels, n3x3red, 1), Conv2dBlock(n3x3red, n3x3, 3)])
        self.b3 = nn.SequentialCell([Conv2dBlock(in_channels, n5x5red, 1), Conv2dBlock(n5x5red, n5x5, 3)])
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=1, pad_mode="same")
        self.b4 = Conv2dBlock(in_channels, pool_planes, kernel_size=1)
        self.concat = P.Concat(axis=1)

    def construct(self, x):
        return self.concat((self.b1(x), self.b2(x), self.b3(x), self.b4(self.maxpool(x))))


class GoogleNet(nn.Cell):
    """Szegedy and others (2015), with batch normalisation; `share` of the channels of the paper."""

    def __init__(self, num_classes=10, share=1.0):
        super().__init__()

        def block(*channels):
            return Inception(*(int(n * share) for n in channels))

        self.conv1 = Conv2dBlock(3, int(64 * share), kernel_size=7, stride=2)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")
        self.conv2 = Conv2dBlock(int(64 * share), int(64 * share), kernel_size=1)
        self.conv3 = Conv2dBlock(int(64 * share), int(192 * share), kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")
        self.block3 = nn.CellList([block(192, 64, 96, 128, 16, 32, 32), block(256, 128, 128, 192, 32, 96, 64)])
        self.maxpool3 = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same")
        self.block4 = nn.SequentialCell(
            block(480, 192, 96, 208, 16, 48, 64),
            block(512, 160, 112, 224, 24, 64, 64),
            block(512, 128, 128, 256, 24, 64, 64),
            block(512, 112, 144, 288, 32, 64, 64),
            block(528, 256, 160, 320, 32, 128, 128),
        )
        self.maxpool4 = nn.MaxPool2d(kernel_size=2, stride=2, pad_mode="same")
        self.block5 = nn.SequentialCell(
            block(832, 256, 160, 320, 32, 128, 128), block(832, 384, 192, 384, 48, 128, 128)
        )
        self.mean = P.ReduceMean(keep_dims=True)
        self.dropout = nn.Dropout(keep_prob=0.8)
        self.flatten = nn.Flatten()
        self.classifier = nn.Dense(int(1024 * share), num_classes, weight_init=TruncatedNormal(0.02), bias_init="zeros")

    def construct(self, x):
        x = self.maxpool1(self.conv1(x))
        x = self.maxpool2(self.conv3(self.conv2(x)))
        for cell in self.block3:
            x = cell(x)
        x = self.block4(self.maxpool3(x))
        x = self.block5(self.maxpool4(x))
        x = self.mean(x, (2, 3))
        return self.classifier(self.dropout(self.flatten(x)))


class _DenseLayer(nn.Cell):
    def __init__(self, num_input_features, growth_rate, bn_size):
        super().__init__()
        width = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(num_input_features, width, kernel_size=1, stride=1, has_bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, growth_rate, kernel_size=3, stride=1, pad_mode="pad", padding=1)

    def construct(self, features):
        bottleneck = self.conv1(self.relu1(self.norm1(features)))
        return self.conv2(self.relu2(self.norm2(bottleneck)))


class _DenseBlock(nn.Cell):
    def __init__(self, num_layers, num_input_features, bn_size, growth_rate):
        super().__init__()
        self.cell_list = nn.CellList()
        for i in range(num_layers):
            self.cell_list.append(_DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size))
        self.concat = P.Concat(axis=1)

    def construct(self, init_features):
        features = init_features
        for layer in self.cell_list:
            features = self.concat((features, layer(features)))
        return features


class _Transition(nn.Cell):
    def __init__(self, num_input_features, num_output_features):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.BatchNorm2d(num_input_features),
            nn.ReLU(),
            nn.Conv2d(num_input_features, num_output_features, kernel_size=1, stride=1, has_bias=False),
            nn.AvgPool2d(kernel_size=2, stride=2),
        )

    def construct(self, x):
        return self.features(x)


class DenseNet(nn.Cell):
    """Huang and others (2017); the defaults are DenseNet121."""

    def __init__(self, num_classes=10, growth_rate=32, block_config=(6, 12, 24, 16), num_init_features=64, bn_size=4):
        super().__init__()
        layers = [
            nn.Conv2d(3, num_init_features, kernel_size=7, stride=2, pad_mode="pad", padding=3),
            nn.BatchNorm2d(num_init_features),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same"),
        ]
        channels = num_init_features
        for i, num_layers in enumerate(block_config):
            layers.append(_DenseBlock(num_layers, channels, bn_size, growth_rate))
            channels += num_layers * growth_rate
            if i != len(block_config) - 1:
                layers.append(_Transition(channels, channels // 2))
                channels = channels // 2
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        self.features = nn.SequentialCell(layers)
        self.mean = P.ReduceMean(True)
        self.flatten = nn.Flatten()
        self.classifier = nn.Dense(channels, num_classes)
        for _, cell in self.cells_and_names():
            if isinstance(cell, nn.Conv2d | nn.Dense):
                uniform = weight_init.XavierUniform()
                cell.weight.set_data(weight_init.initializer(uniform, cell.weight.shape, cell.weight.dtype))

    def construct(self, x):
        x = self.mean(self.features(x), (2, 3))
        return self.classifier(self.flatten(x))
