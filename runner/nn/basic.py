"""Dense, Flatten, Dropout and Embedding layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from runner import dtype as dt, ops
from runner.common.initializer import Initial, initializer
from runner.communication.world import world
from runner.core.value import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.host.seed import get_seed, next_number
from runner.nn.activation import get_activation
from runner.nn.cell import Cell
from runner.validation.arguments import flag, whole

__all__ = ["Dense", "Dropout", "Embedding", "Flatten"]


class Dense(Cell):
    """x W^T + b over the last axis; weight: (out_channels, in_channels)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bias: bool = True,
        activation: str | Cell | None = None,
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels)), "weight")
        self.matmul, self.reshape = ops.MatMul(transpose_b=True), ops.Reshape()
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()
        self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Value) -> Value:
        lead = x.shape[:-1]
        flat = x if x.ndim == 2 else self.reshape(x, (-1, x.shape[-1]))
        output: Value = self.matmul(flat, self.weight)
        if self.has_bias:
            output = self.bias_add(output, self.bias)
        if self.activation is not None:
            output = self.activation(output)
        return output if x.ndim == 2 else self.reshape(output, (*lead, self.out_channels))


class Flatten(Cell):
    """(N, ...) to (N, product of the other axes)."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = ops.Flatten()

    def construct(self, x: Value) -> Value:
        output: Value = self.flatten(x)
        return output


class Dropout(Cell):
    """In training, keeps each element with probability `keep_prob` and divides it by `keep_prob`; otherwise returns x.

    Both modes drop the same elements. The parameter `counter` counts steps, so a resumed run drops the same elements.
    """

    def __init__(self, keep_prob: float = 0.5) -> None:
        super().__init__()
        # Ranks have different samples, and drop different elements.
        seed = get_seed() * 1_000_003 + next_number() + world().rank * 65_537
        self.dropout = ops.Dropout(float(keep_prob), seed % 2**31)
        self.counter = Parameter(Tensor(0, dt.int64), "counter", requires_grad=False)

    def construct(self, x: Value) -> Value:
        if not self.training or self.dropout.keep_prob == 1.0:
            return x
        output: Value = self.dropout(x, self.counter)[0]
        self.assign(self.counter, self.counter + 1)
        return output


class Embedding(Cell):
    """Rows of a table: ids of any shape (Int32 or Int64, 0 to vocab_size - 1) to (*ids.shape, embedding_size).

    embedding_table: (vocab_size, embedding_size), given by values or an initializer; the row `padding_idx` starts as
    zeros. `use_one_hot` multiplies one-hot vectors by the table instead of gathering rows.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        use_one_hot: bool = False,
        embedding_table: Initial = "normal",
        dtype: dt.DType = dt.float32,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, vocab_size=vocab_size, embedding_size=embedding_size)
        flag({"layer": "Embedding"}, use_one_hot=use_one_hot)
        self.vocab_size, self.embedding_size, self.use_one_hot = vocab_size, embedding_size, use_one_hot
        table = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            table = self._with_zero_row(table, padding_idx)
        self.embedding_table = Parameter(table, "embedding_table")
        self.gather, self.reshape = ops.Gather(), ops.Reshape()
        self.one_hot, self.matmul = ops.OneHot(depth=vocab_size, dtype=dtype), ops.MatMul()

    def construct(self, ids: Value) -> Value:
        if not self.use_one_hot:
            output: Value = self.gather(self.embedding_table, ids)
            return output
        hot = self.reshape(self.one_hot(ids), (-1, self.vocab_size))
        output = self.reshape(self.matmul(hot, self.embedding_table), (*ids.shape, self.embedding_size))
        return output

    def _with_zero_row(self, table: Tensor, row: int) -> Tensor:
        if type(row) is not int or not 0 <= row < self.vocab_size:
            raise ConfigError(
                "padding_idx must be a row of the table", layer="Embedding", given=repr(row), rows=self.vocab_size
            )
        values = table.asnumpy().copy()
        values[row] = 0
        return Tensor(values)
