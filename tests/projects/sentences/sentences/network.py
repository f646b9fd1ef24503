"""A small Transformer encoder."""

import math
from typing import Annotated

import runner
from runner import nn, ops

from .operator import CausalMask

Count = Annotated[int, runner.key(low=1, high=4096)]


class Attention(nn.Cell):
    """Causal self-attention with several heads: (N, L, width) to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Dense(width, 3 * width, weight_init="XavierUniform", has_bias=False)
        self.out = nn.Dense(width, width, weight_init="XavierUniform")
        self.mask, self.softmax, self.split = CausalMask(), nn.Softmax(), ops.Split(-1, 3)
        self.reshape, self.transpose = ops.Reshape(), ops.Transpose()
        self.compare, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def construct(self, x):
        q, k, v = (self._by_head(part) for part in self.split(self.qkv(x)))
        weights = self.softmax(self.mask(self.compare(q, k) * (1.0 / math.sqrt(self.size))))
        return self.out(self.reshape(self.transpose(self.mix(weights, v), (0, 2, 1, 3)), x.shape))

    def _by_head(self, x):
        rows, length, _ = x.shape
        return self.transpose(self.reshape(x, (rows, length, self.heads, self.size)), (0, 2, 1, 3))


class Layer(nn.Cell):
    """Attention and two dense layers, each normalized first and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.attention = Attention(width, heads)
        self.fc1 = nn.Dense(width, 2 * width, weight_init="XavierUniform", activation="gelu")
        self.fc2 = nn.Dense(2 * width, width, weight_init="XavierUniform")

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(self.fc1(self.norm2(x)))


@runner.register.network("encoder")
class Encoder(nn.Cell):
    """Embeddings of tokens and positions, layers of attention, the mean over positions: (N, L) to (N, num_classes).

    Args:
        num_classes: outputs, as many as the dataset has classes
        input_shape: (L,), the length of a row
        tokens: different tokens
        size: numbers for each token in a head
        heads: heads of attention
        depth: layers
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: tuple[int, ...],
        tokens: Count = 4,
        size: Count = 8,
        heads: Count = 4,
        depth: Count = 2,
    ) -> None:
        super().__init__()
        width = size * heads
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(input_shape[0], width)
        self.layers = nn.SequentialCell([Layer(width, heads) for _ in range(depth)])
        self.norm, self.mean = nn.LayerNorm((width,)), ops.ReduceMean()
        self.head = nn.Dense(width, num_classes, weight_init="XavierUniform")

    def construct(self, ids):
        x = self.tokens(ids) + self.positions.embedding_table
        return self.head(self.mean(self.norm(self.layers(x)), 1))


@runner.register.network("bag")
class Bag(nn.Cell):
    """The mean of the embeddings, which does not depend on their order, and two dense layers: a baseline.

    Args:
        num_classes: outputs, as many as the dataset has classes
        tokens: different tokens
        width: numbers for each token
    """

    def __init__(self, num_classes: int, tokens: Count = 4, width: Count = 32) -> None:
        super().__init__()
        self.tokens, self.mean = nn.Embedding(tokens, width), ops.ReduceMean()
        self.hidden = nn.Dense(width, width, weight_init="XavierUniform", activation="gelu")
        self.head = nn.Dense(width, num_classes, weight_init="XavierUniform")

    def construct(self, ids):
        return self.head(self.hidden(self.mean(self.tokens(ids), 1)))
