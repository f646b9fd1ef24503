"""Small networks with parameters, buffers and computed constants, by name: what makes one, and what makes its batch."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS, WIDTH, LENGTH, CLASSES = 6, 8, 5, 3


class Pixels(nn.Module):
    """Mean and deviation of pixels are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([1.2, 1.3, 1.25]).view(1, 3, 1, 1))
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv((x - self.mean) / self.deviation).mean((2, 3)))


class Blur(nn.Module):
    """The kernel of a blur is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2, 1]) / 4
        self.register_buffer("kernel", (row[:, None] * row).repeat(4, 1, 1, 1))
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(F.conv2d(self.conv(x), self.kernel, groups=4)).mean((2, 3)))


class Sines(nn.Module):
    """A table of positions is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(10.0)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(1e4) / WIDTH))
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.dense(x) + self.table[: x.shape[1]]).mean(1))


class Positions(nn.Module):
    """Positions and a class token are parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(1, LENGTH, WIDTH))
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, WIDTH))
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.dense(x) + self.positions)
        return self.head(torch.tanh(torch.cat([self.token.expand(len(x), -1, -1), x], 1)).mean(1))


def layer() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)


class Token(nn.Module):
    """A fresh class token is zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.dense, self.layer, self.head = nn.Linear(WIDTH, WIDTH), layer(), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.repeat(len(x), 1, 1), self.dense(x)], 1)
        return self.head(self.layer(x)[:, 0])


class Encoder(nn.Module):
    """Layers are copies of one."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.dense(x)).mean(1))


class Groups(nn.Module):
    """Normalizations of groups, fresh ones or after a training."""

    def __init__(self, is_trained: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, CLASSES)
        self.m, self.n = nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)
        for norm in (self.m, self.n) if is_trained else ():
            nn.init.normal_(norm.weight, 1, 0.1)
            nn.init.normal_(norm.bias, 0, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.n(self.b(F.relu(self.m(self.a(x)))))).mean((2, 3)))


class Instances(nn.Module):
    """A normalization without scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class Norms(nn.Module):
    """One normalization has parameters, the other none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.m, self.n = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.n(self.b(F.gelu(self.m(self.a(x))))))


class Rms(nn.Module):
    """A normalization in single operators."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dense(x)
        return self.head(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale)


class Lstm(nn.Module):
    """The state from which it starts is zeros, or zeros that are trained."""

    def __init__(self, is_trained: bool = False) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(WIDTH, 5, batch_first=True), nn.Linear(5, CLASSES)
        self.starts = nn.Parameter(torch.zeros(2, 1, 1, 5)) if is_trained else None

    def forward(self, x: Tensor) -> Tensor:
        start = None
        if self.starts is not None:
            start = tuple(one.expand(-1, len(x), -1).contiguous() for one in self.starts.unbind(0))
        return self.head(self.layer(x, start)[0][:, -1])


class Gru(nn.Module):
    """ONNX has the weights of both directions in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(WIDTH, 5, batch_first=True, bidirectional=True), nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Scalars(nn.Module):
    """Parameters without axes, and one for all channels."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.factor = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(1.5))
        self.dense, self.head, self.slope = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES), nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.gate * self.slope(self.dense(x))) * self.factor


class Temperature(nn.Module):
    """The exporter writes the exponential of the parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.head = nn.Parameter(torch.tensor(0.4)), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * self.temperature.exp()


class LayerScale(nn.Module):
    """Two scales that are equal at first."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first, self.second = (nn.Parameter(0.1 * torch.ones(WIDTH)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first * torch.tanh(self.a(x))
        return self.head(x + self.second * torch.tanh(self.b(x)))


class Tied(nn.Module):
    """An embedding that is also the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dense = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 11, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.last(torch.tanh(self.dense(self.embedding(words))))[:, -1, :CLASSES]


class Rotary(nn.Module):
    """Sines, cosines and a mask are computed by the exporter."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("steps", 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1]).float()[:, None] * self.steps
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        weights = torch.softmax(self.turned(self.q(x)) @ self.turned(self.k(x)).transpose(1, 2) + mask, -1)
        return self.head((weights @ x).mean(1))


class Causal(nn.Module):
    """A mask that is compared, as a buffer with the name of a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("bias", torch.tril(torch.ones(LENGTH, LENGTH)))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(WIDTH)
        return self.head((scores.masked_fill(self.bias == 0, -1e9).softmax(-1) @ self.v(x)).mean(1))


class Flags(nn.Module):
    """A mask that is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.mask @ torch.tanh(self.dense(x))).mean(1))


class Splines(nn.Module):
    """The grid of the splines is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-2, 2, 6))
        self.weights, self.head = nn.Parameter(0.1 * torch.randn(WIDTH, 6, WIDTH)), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.einsum("nik,iko->no", torch.exp(-((x[..., None] - self.grid) ** 2)), self.weights))


class Helpers(nn.Module):
    """Zeros, ones and a line that are made in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.zeros_like(x) + self.dense(x) * torch.ones(len(x), 1) * 0.5
        return self.head(x + torch.linspace(0, 1, WIDTH))


class Scatter(nn.Module):
    """Rows are added to zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.register_buffer("places", torch.tensor([0, 1, 1, 2, 0]))

    def forward(self, x: Tensor) -> Tensor:
        places = self.places[None, :, None].expand(len(x), -1, WIDTH)
        return self.head(torch.tanh(torch.zeros(len(x), 3, WIDTH).scatter_add(1, places, self.dense(x))).mean(1))


class Attention(nn.Module):
    """A fresh bias of zeros is not in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Copies(nn.Module):
    """Three copies of a layer, or one layer three times."""

    def __init__(self, is_one: bool = False) -> None:
        super().__init__()
        one = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.layers = nn.Sequential(*(one if is_one else copy.deepcopy(one) for _ in range(3)))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


class ZeroBiases(nn.Module):
    """Biases that start as zeros, of layers of a matrix and of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        for one in (self.a, self.b, self.head):
            nn.init.zeros_(one.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)).unsqueeze(1))).mean(1))


class ZeroConvolutions(nn.Module):
    """Biases that start as zeros, of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2, 2), nn.Linear(4, CLASSES)
        for one in (self.a, self.b):
            nn.init.zeros_(one.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.b(F.relu(self.a(x)))).mean((2, 3)))


class Embedded(nn.Module):
    """Positions are rows of an embedding, which the exporter looks up itself."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        places = self.places(torch.arange(words.shape[1]))
        return self.head(self.norm(self.words(words) + places).mean(1))


class Softplus(nn.Module):
    """The exporter writes a positive function of the parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.randn(WIDTH)), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * F.softplus(self.scale))


class Relative(nn.Module):
    """One parameter for all pairs of positions with one distance."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head, self.biases = nn.Linear(WIDTH, CLASSES), nn.Parameter(torch.randn(2 * LENGTH - 1))
        steps = torch.arange(LENGTH)
        self.register_buffer("distances", steps[:, None] - steps + LENGTH - 1)

    def forward(self, x: Tensor) -> Tensor:
        biases = self.biases[self.distances.view(-1)].view(LENGTH, LENGTH)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(WIDTH) + biases
        return self.head((scores.softmax(-1) @ self.v(x)).mean(1))


class Queries(nn.Module):
    """Trained rows that are repeated for each sample, and meet the samples in a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(1, LENGTH, WIDTH))
        self.dense, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.rows.repeat(len(x), 1, 1) + self.dense(x)).mean(1))


def images() -> Tensor:
    return torch.randn(ROWS, 3, 7, 7)


def rows() -> Tensor:
    return torch.randn(ROWS, WIDTH)


def sequences() -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH)


def words() -> Tensor:
    return torch.randint(0, 11, (ROWS, LENGTH))


NETWORKS = {
    **{name: (make, images) for name, make in (("pixels", Pixels), ("blur", Blur), ("groups", Groups))},
    "trained_groups": (lambda: Groups(True), images),
    **{name: (make, images) for name, make in (("instances", Instances), ("zero_convolutions", ZeroConvolutions))},
    **{name: (make, sequences) for name, make in (("sines", Sines), ("positions", Positions), ("token", Token))},
    **{name: (make, sequences) for name, make in (("encoder", Encoder), ("lstm", Lstm), ("gru", Gru))},
    "lstm_starts": (lambda: Lstm(True), sequences),
    **{name: (make, sequences) for name, make in (("rotary", Rotary), ("causal", Causal), ("flags", Flags))},
    **{name: (make, sequences) for name, make in (("scatter", Scatter), ("attention", Attention))},
    **{name: (make, rows) for name, make in (("norms", Norms), ("rms", Rms), ("scalars", Scalars))},
    **{name: (make, rows) for name, make in (("temperature", Temperature), ("layer_scale", LayerScale))},
    **{name: (make, rows) for name, make in (("splines", Splines), ("helpers", Helpers), ("copies", Copies))},
    "shared": (lambda: Copies(True), rows),
    "zero_biases": (ZeroBiases, rows),
    "softplus": (Softplus, rows),
    **{name: (make, sequences) for name, make in (("relative", Relative), ("queries", Queries))},
    **{name: (make, words) for name, make in (("tied", Tied), ("embedded", Embedded))},
}
