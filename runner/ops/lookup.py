"""Rows of a part of a table, and the different elements of a tensor."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ConfigError
from runner.ops.array import Reshape
from runner.ops.compare import GreaterEqual, Less, LogicalAnd, Select
from runner.ops.composition import ComposedOperator, as_value
from runner.ops.rows import Gather

__all__ = ["EmbeddingLookup", "Unique"]


@dataclass(frozen=True)
class EmbeddingLookup(ComposedOperator):
    """The rows of `params` (K, ...) with the numbers `indices - offset`, zeros for numbers that are not 0 to K - 1."""

    def compose(self, params: Value, indices: Value, offset: int) -> Value:
        numbers = as_value(indices) - offset
        inside = LogicalAnd()(GreaterEqual()(numbers, 0), Less()(numbers, params.shape[0]))
        safe = Select()(inside, numbers, Tensor(np.zeros((), numbers.dtype.numpy)))
        rows = Gather(0)(params, safe)
        mask = Reshape((*inside.shape, *(1,) * (params.ndim - 1)))(inside)
        result: Value = Select()(mask, rows, Tensor(np.zeros((), rows.dtype.numpy)))
        return result


@dataclass(frozen=True)
class Unique(ComposedOperator):
    """The different elements of x, in the order in which they first appear, and the place there of each (Int32).

    How many there are depends on the elements, so they must be known: raises ConfigError in graph mode.
    """

    def compose(self, x: Any) -> tuple[Value, Value]:
        value = as_value(x)
        if not isinstance(value, Tensor):
            repair = "ops.Sort, or run this network with mode=pynative"
            raise ConfigError("the shape of the result depends on elements", x=value.type, repair=repair)
        found, first, places = np.unique(value.asnumpy(), return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.argsort(order)[places.reshape(value.shape)]
        return Tensor(found[order]), Tensor(numbers, dt.int32)
