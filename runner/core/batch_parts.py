"""Operators that graphs have where a batch is computed in parts: they split a value into parts and join them again."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import LAST, Builder, Form
from runner.core.operators import Primitive, graph_operator
from runner.types import TensorType


@graph_operator
class SplitBatch(Primitive):
    """`count` equal parts of a value (N, ...) along its first axis."""

    computes: ClassVar = False

    count: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(x.shape[0] // self.count, *x.shape[1:]),) * self.count

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(x, self.count))

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        return b.nodes("Split", (x,), self.count, axis=0, num_outputs=self.count)

    def forms(self, x: TensorType) -> Sequence[Form]:
        return Form("plain", self.lower), Form("last", self._lower_last, (LAST,), (LAST,) * self.count)

    def _lower_last(self, b: Builder, x: str) -> tuple[str, ...]:
        return b.nodes("Split", (x,), self.count, axis=-1, num_outputs=self.count)


@graph_operator
class JoinBatch(Primitive):
    """Parts (n, ...) of a batch, one after the other along their first axis."""

    computes: ClassVar = False

    def infer(self, *parts: TensorType) -> TensorType:
        return parts[0].with_shape(sum(part.shape[0] for part in parts), *parts[0].shape[1:])

    def kernel(self, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts)

    def lower(self, b: Builder, *parts: str) -> str:
        return b.node("Concat", parts, axis=0)

    def forms(self, *parts: TensorType) -> Sequence[Form]:
        return Form("plain", self.lower), Form("last", self._lower_last, (LAST,) * len(parts), (LAST,))

    def _lower_last(self, b: Builder, *parts: str) -> str:
        return b.node("Concat", parts, axis=-1)
