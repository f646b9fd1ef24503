"""Operators without outputs, which act in every step: Print, the summary operators, and `ObserveStep`.

PyNative mode emits their operands at once, graph mode after the step, a sink after its call (`core.operators.Effect`).
"""

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np

from runner.core.interpreter import current
from runner.core.operators import Effect, family, primitive
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, ShapeError
from runner.ops import print_file
from runner.types import TensorType


@primitive
class Print(Effect):
    """`Print()("x is", x, 3)` prints strings, tensors, arrays and numbers, each on its own line; it has no output.

    A tuple or list is printed as Python does, such as `x.shape`; one with tensors, element by element.

    It prints whenever the network runs, also in every step of a sink, to the screen or to the file `print_file_path` of
    the context. `parts` are the strings of one application, with None in place of tensors. Raises ConfigError for
    values of other types.
    """

    parts: tuple[str | None, ...] = ()

    def __call__(self, *parts: Any) -> None:  # type: ignore[override]  # it has no value
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
        rest = iter(arrays)
        print_file.write([next(rest) if part is None else part for part in self.parts])


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


# Summary operators: they mark values of a network for `SummaryRecord`, which writes them into event files.
#
# An operator emits in every step, in both modes and inside sinks. `NewestValues` keeps the newest value of each name; a
# network whose values are not recorded only computes them.

_collections: list["NewestValues"] = []  # those that are open


class NewestValues:
    """The newest value of each summary operator by plugin and name, while it is open."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], np.ndarray] = {}

    def __enter__(self) -> Self:
        _collections.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self in _collections:
            _collections.remove(self)

    def keep(self, plugin: str, tag: str, value: np.ndarray) -> None:
        """Replace the value of a name by a copy of this one: its memory belongs to the step."""
        self._values[plugin, tag] = np.array(value)

    def take(self) -> dict[tuple[str, str], np.ndarray]:
        """The values since the last call, in the order in which their names were first emitted."""
        taken, self._values = self._values, {}
        return taken


@family
class SummaryOperator(Effect):
    """Base: `plugin` is the kind of data, `rank` what `allowed` describes; `tag` is the name of one application."""

    plugin: ClassVar[str]
    allowed: ClassVar[str]
    tag: str = ""

    def __call__(self, name: str, value: Any) -> None:  # type: ignore[override]  # it has no value
        """Mark `value` under `name` in this step (PyNative mode), or in every run of the graph.

        Raises ConfigError unless the name is a str with characters and the value a tensor, ShapeError for its shape.
        """
        op = type(self)(name if isinstance(name, str) else "")
        if not op.tag:
            rows = {"given": repr(name), "allowed": "a str with at least one character"}
            raise current().add_location(ConfigError("a summary needs a name", **rows), self, ())
        if not isinstance(value, Value):
            rows = {"name": name, "given": type(value).__name__, "allowed": "a tensor"}
            raise current().add_location(ConfigError("a summary needs a tensor", **rows), self, ())
        current().bind(op, (value,))

    def infer(self, value: TensorType) -> tuple[TensorType, ...]:
        """No outputs. Raises ShapeError for a shape that the plugin does not have."""
        if not self.accepts(value):
            rows = {"name": self.tag, "given": value, "allowed": self.allowed}
            raise ShapeError(f"{self.name} cannot take a tensor of this shape", **rows)
        return ()

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        """Whether the plugin has values of this type."""
        return len(kind.shape) > 0

    def emit(self, *arrays: np.ndarray) -> None:
        for collection in _collections:
            collection.keep(self.plugin, self.tag, arrays[0])


@primitive
class ScalarSummary(SummaryOperator):
    """`ScalarSummary()("loss", loss)` marks a number, a tensor of shape () or (1,)."""

    plugin: ClassVar = "scalar"
    allowed: ClassVar = "shape () or (1,)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        return kind.shape in ((), (1,))


@primitive
class ImageSummary(SummaryOperator):
    """`ImageSummary()("input", x)` marks images (N, C, H, W) with one or three channels."""

    plugin: ClassVar = "image"
    allowed: ClassVar = "four axes: (N, C, H, W)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        return len(kind.shape) == 4


@primitive
class TensorSummary(SummaryOperator):
    """`TensorSummary()("weight", w)` marks a tensor with at least one axis."""

    plugin: ClassVar = "tensor"
    allowed: ClassVar = "at least one axis"


@primitive
class HistogramSummary(SummaryOperator):
    """`HistogramSummary()("weight", w)` marks the distribution of a tensor with at least one axis."""

    plugin: ClassVar = "histogram"
    allowed: ClassVar = "at least one axis"


# `ObserveStep`: passes values of a training step to a function on the host.


@primitive
class ObserveStep(Effect):
    """`ObserveStep(receive)(x, y, ...)` calls `receive` with the operands as arrays, once per step and in their order.

    PyNative mode calls it at once, graph mode after the step, a sink after the call to the device that executed the
    step. `receive` must not change the arrays. Raises ConfigError when it cannot be called.
    """

    receive: Callable[..., object] = field(compare=False)

    def __post_init__(self) -> None:
        if not callable(self.receive):
            raise ConfigError(
                "ObserveStep needs a function", given=type(self.receive).__name__, takes="receive(*arrays)"
            )

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return ()

    def emit(self, *arrays: np.ndarray) -> None:
        self.receive(*arrays)
