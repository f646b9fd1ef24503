"""Embeddings: rows of a trained table, with the signatures and defaults of r1.2."""

import numpy as np

from runner import dtype as dt, ops
from runner.common.initializer import Initial, initializer
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.mindspore.nn.math import ClipByNorm
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.validation.arguments import above, flag, one_of, whole


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
        self.dtype, self.padding_idx = dtype, padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size), dtype)
        if padding_idx is not None:
            table = self._with_zero_row(table, padding_idx)
        self.embedding_table = Parameter(table, "embedding_table")
        self.gather, self.reshape = ops.Gather(), ops.Reshape()
        self.one_hot, self.matmul = ops.OneHot(depth=vocab_size, dtype=dtype), ops.MatMul()

    def construct(self, ids: Value) -> Value:
        if not self.use_one_hot:
            return self.gather(self.embedding_table, ids)
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

    def extend_repr(self) -> str:
        names = "vocab_size", "embedding_size", "use_one_hot", "embedding_table", "dtype", "padding_idx"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class EmbeddingLookup(Cell):
    """Rows of a table, without the options of `Embedding`; rows longer than `max_norm` are shortened to it.

    `target` (CPU or DEVICE), `slice_mode`, `manual_shapes`, `sparse` and `vocab_cache_size` say where the reference
    keeps the table and how it is distributed; they are checked, and the table is one parameter here.
    """

    BATCH_SLICE = "batch_slice"
    FIELD_SLICE = "field_slice"
    TABLE_ROW_SLICE = "table_row_slice"
    TABLE_COLUMN_SLICE = "table_column_slice"

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        param_init: Initial = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        manual_shapes: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        vocab_cache_size: int = 0,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole(where, 1, vocab_size=vocab_size, embedding_size=embedding_size)
        whole(where, 0, vocab_cache_size=vocab_cache_size)
        one_of(where, ("CPU", "DEVICE"), target=target)
        slices = self.BATCH_SLICE, self.FIELD_SLICE, self.TABLE_ROW_SLICE, self.TABLE_COLUMN_SLICE
        one_of(where, slices, slice_mode=slice_mode)
        flag(where, sparse=sparse)
        if max_norm is not None:
            above(where, 0.0, max_norm=max_norm)
        self.vocab_size, self.embedding_size, self.max_norm = vocab_size, embedding_size, max_norm
        self.target, self.manual_shapes = target, manual_shapes
        self.embedding_table = Parameter(initializer(param_init, (vocab_size, embedding_size)), "embedding_table")
        self.gather = ops.Gather()

    def construct(self, indices: Value) -> Value:
        rows: Value = self.gather(self.embedding_table, indices)
        if self.max_norm is None:
            return rows
        result: Value = ClipByNorm(rows.ndim - 1)(rows, Tensor(self.max_norm, dt.float32))
        return result


class MultiFieldEmbeddingLookup(EmbeddingLookup):
    """Rows times weights, combined by field: indices, weights and field numbers (N, L) to (N, field_size, E).

    `operator` is SUM, MEAN (weighted by the absolute weights) or MAX. Elements of weight 0 do not count; a field
    without others is 0. `feature_num_list` is checked as little as in the reference.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        field_size: int,
        param_init: Initial = "normal",
        target: str = "CPU",
        slice_mode: str = "batch_slice",
        feature_num_list: tuple[int, ...] | None = None,
        max_norm: float | None = None,
        sparse: bool = True,
        operator: str = "SUM",
    ) -> None:
        where = slice_mode, feature_num_list, max_norm, sparse
        super().__init__(vocab_size, embedding_size, param_init, target, *where)
        whole({"layer": type(self).__name__}, 1, field_size=field_size)
        one_of({"layer": type(self).__name__}, ("SUM", "MEAN", "MAX"), operator=operator)
        self.field_size, self.operator = field_size, operator
        self.hot = ops.OneHot(depth=field_size)
        self.product, self.select, self.largest = ops.BatchMatMul(transpose_a=True), ops.Select(), ops.ReduceMax(axis=1)

    def construct(self, input_indices: Value, input_values: Value, field_ids: Value) -> Value:  # type: ignore[override]
        shapes = {"input_indices": input_indices, "input_values": input_values, "field_ids": field_ids}
        fits = input_indices.ndim == 2 and len({x.shape for x in shapes.values()}) == 1
        require(fits, f"{type(self).__name__} needs three (N, L)", **{name: x.type for name, x in shapes.items()})
        rows = super().construct(input_indices) * input_values[:, :, None]
        field = self.hot(field_ids)  # (N, L, F)
        weight = self.product(field, ops.Abs()(input_values)[:, :, None])  # (N, F, 1)
        if self.operator == "MAX":
            lowest, counts = Tensor(np.float32(-np.inf)), (field * input_values[:, :, None])[:, :, :, None] != 0.0
            total = self.largest(self.select(counts, rows[:, :, None, :], lowest))
        else:
            total = self.product(field, rows)
        if self.operator == "MEAN":
            total = total / self.select(weight > 0.0, weight, Tensor(1.0, dt.float32))
        return self.select(weight > 0.0, total, Tensor(0.0, dt.float32))
