"""Networks of the kinds that have no usual package, as their authors publish them."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import weight_norm


class LeNet(nn.Module):
    """The network of PyTorch's introduction, with fewer channels."""

    def __init__(self, channels: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 5, padding=2)
        self.conv2 = nn.Conv2d(channels, 2 * channels, 5)
        self.fc1 = nn.Linear(2 * channels * 5 * 5, 24)
        self.fc2 = nn.Linear(24, 20)
        self.fc3 = nn.Linear(20, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Chomp1d(nn.Module):
    """Cuts what a causal convolution padded at the right."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    """Two dilated causal convolutions with weight normalization, and a residual connection."""

    def __init__(self, before: int, after: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        pad = (kernel - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(before, after, kernel, padding=pad, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(after, after, kernel, padding=pad, dilation=dilation))
        first = (self.conv1, Chomp1d(pad), nn.ReLU(), nn.Dropout(dropout))
        second = (self.conv2, Chomp1d(pad), nn.ReLU(), nn.Dropout(dropout))
        self.net = nn.Sequential(*first, *second)
        self.downsample = nn.Conv1d(before, after, 1) if before != after else None
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rest = x if self.downsample is None else self.downsample(x)
        return self.relu(self.net(x) + rest)


class TCN(nn.Module):
    """A temporal convolutional network (Bai, Kolter, Koltun 2018) that classifies by its last element."""

    def __init__(self, inputs: int, classes: int, channels: tuple[int, ...], kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        pairs = zip((inputs, *channels), channels, strict=False)
        blocks = [TemporalBlock(a, b, kernel, 2**n, dropout) for n, (a, b) in enumerate(pairs)]
        self.tcn = nn.Sequential(*blocks)
        self.linear = nn.Linear(channels[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.tcn(x)[:, :, -1])


class Autoencoder(nn.Module):
    """Strided convolutions to a code, and transposed ones back to the image."""

    def __init__(self, width: int = 6, code: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2)),
            *(nn.Flatten(), nn.Linear(2 * width * 7 * 7, code)),
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(code, 2 * width * 7 * 7), nn.ReLU(), nn.Unflatten(1, (2 * width, 7, 7))),
            *(nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm2d(width)),
            *(nn.ReLU(), nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Sigmoid()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))


class DoubleConv(nn.Sequential):
    """Convolution, normalization, ReLU, twice."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            *(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)),
            *(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)),
        )


class Up(nn.Module):
    """Doubles the size, pads to that of the skip connection, and joins the two."""

    def __init__(self, before: int, after: int, up: str) -> None:
        super().__init__()
        if up == "transposed":
            self.up: nn.Module = nn.ConvTranspose2d(before, before // 2, 2, stride=2)
            joined = before
        else:
            self.up = nn.Upsample(scale_factor=2, mode=up, **({"align_corners": True} if up == "bilinear" else {}))
            joined = before + before // 2
        self.conv = DoubleConv(joined, after)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        high, wide = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    """A U-Net (Ronneberger 2015) with padded convolutions; `ups` are the ways in which its levels grow."""

    def __init__(self, channels: int, classes: int, width: int, ups: tuple[str, ...]) -> None:
        super().__init__()
        self.inc = DoubleConv(channels, width)
        widths = [width * 2**n for n in range(len(ups) + 1)]
        self.downs = nn.ModuleList([nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)) for a, b in pairwise(widths)])
        self.ups = nn.ModuleList([Up(2 * a, a, up) for a, up in zip(widths[-2::-1], ups, strict=True)])
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)
