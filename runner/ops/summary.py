"""Summary operators: they mark values of a network for `SummaryRecord`, which writes them into event files.

An operator emits in every step, in both modes and inside sinks. `NewestValues` keeps the newest value of each name; a
network whose values are not recorded only computes them.
"""

from typing import Any, ClassVar, Self

import numpy as np

from runner.core.operators import Effect, current, family, primitive
from runner.core.values import Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

__all__ = ["HistogramSummary", "ImageSummary", "ScalarSummary", "TensorSummary"]

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

    def __call__(self, name: str, value: Any) -> None:
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
        """Keep the value of one step in all open collections."""
        for collection in _collections:
            collection.keep(self.plugin, self.tag, arrays[0])


@primitive
class ScalarSummary(SummaryOperator):
    """`ScalarSummary()("loss", loss)` marks a number, a tensor of shape () or (1,)."""

    plugin: ClassVar = "scalar"
    allowed: ClassVar = "shape () or (1,)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        """Whether it has one element and at most one axis."""
        return kind.shape in ((), (1,))


@primitive
class ImageSummary(SummaryOperator):
    """`ImageSummary()("input", x)` marks images (N, C, H, W) with one or three channels."""

    plugin: ClassVar = "image"
    allowed: ClassVar = "four axes: (N, C, H, W)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        """Whether it has four axes."""
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
