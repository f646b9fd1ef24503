"""What an operator may ask of the compiler while it lowers itself: it sees this and no ONNX."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from runner.types import TensorType


class Builder(Protocol):
    """Collects ONNX nodes. Values are known by name; asking twice for the same node or constant gives the same name."""

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with one output and return its name; an empty input name stands for one that is left out."""

    def nodes(self, kind: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Add a node with several outputs and return their names."""

    def const(self, value: Any, like: str | None = None) -> str:
        """A constant: an array as it is, ints as Int64, floats in the element type of `like`."""

    def type(self, name: str) -> TensorType:
        """Type of an operand of the operator that is being lowered."""

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value in another shape."""

    def value(self, name: str) -> np.ndarray | None:
        """The value of an operand that is known when the graph is compiled, else None."""
