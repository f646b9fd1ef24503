"""`Print`: prints values of a network while it runs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.core.operators import Effect, current, primitive
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.ops.print import destination
from runner.types import TensorType

__all__ = ["Print"]


@primitive
class Print(Effect):
    """`Print()("x is", x, 3)` prints strings, tensors, arrays and numbers, each on its own line; it has no output.

    A tuple or list is printed as Python does, such as `x.shape`; one with tensors, element by element.

    It prints whenever the network runs, also in every step of a sink, to the screen or to the file `print_file_path` of
    the context. `parts` are the strings of one application, with None in place of tensors. Raises ConfigError for
    values of other types.
    """

    parts: tuple[str | None, ...] = ()

    def __call__(self, *parts: Any) -> None:
        """Print now (PyNative mode), or in every run of the graph."""
        flat = [(position, one) for position, part in enumerate(parts) for one in _flat(part)]
        op = Print(tuple([part if isinstance(part, str) else None for _, part in flat]))
        current().bind(op, tuple([op.operand(k, part) for k, part in flat if not isinstance(part, str)]))

    def operand(self, position: int, part: Any) -> Value:
        """The tensor of an argument. Raises ConfigError when it cannot be converted to one."""
        if isinstance(part, Value):
            return part
        error = ConfigError("a value of this type cannot be printed", given=type(part).__name__)
        if isinstance(part, bool | int | float | np.ndarray | np.generic):
            try:
                return Tensor(part)
            except ConfigError as reason:
                error = reason
        error.add(position=position + 1, allowed="strings, tensors, arrays, numbers, and tuples of them")
        raise current().add_location(error, self, ())

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """No outputs. Raises ShapeError unless there is one tensor for each None in `parts`."""
        if len(types) != self.parts.count(None):
            raise ShapeError(
                "Print needs one tensor for each None in parts", places=self.parts.count(None), given=len(types)
            )
        return ()

    def emit(self, *arrays: np.ndarray) -> None:
        """Print the strings and the tensors of one step."""
        rest = iter(arrays)
        destination.write([next(rest) if part is None else part for part in self.parts])


def _flat(part: object) -> Iterator[object]:
    """A part, or the text of a sequence whose elements are known, or the parts of another sequence."""
    if not isinstance(part, tuple | list):
        yield part
    elif _is_known(part):
        yield str(part)
    else:
        for element in part:
            yield from _flat(element)


def _is_known(part: object) -> bool:
    """Whether all elements are Python's numbers and strings, whose text does not depend on numpy's version."""
    return all(map(_is_known, part)) if isinstance(part, tuple | list) else type(part) in (bool, int, float, str)
