"""What the values of a graph are called in the ONNX model, each way round."""

from collections.abc import Mapping

from runner.compile.builder import OnnxBuilder
from runner.core.value import Value


class Names:
    """The ONNX name of every value; a value that is asked for the other way round is turned once."""

    def __init__(self, builder: OnnxBuilder, given: Mapping[Value, str]) -> None:
        self._builder = builder
        self._names: dict[tuple[Value, bool], str] = {}
        for value, name in given.items():
            self.give(value, name)

    def give(self, value: Value, name: str, last: bool = False) -> None:
        """Tell the name of a value that is an input, a constant or a result, and whether it lies batch last."""
        self._names[value, last and value.ndim > 1] = name
        self._builder.declare(name, value.type, last)

    def of(self, value: Value, last: bool = False) -> str:
        """The name of a value as its type says, or batch last."""
        last = last and value.ndim > 1
        if (value, last) not in self._names:
            self._names[value, last] = self._builder.turned(self._names[value, not last], value.type, last)
        name = self._names[value, last]
        self._builder.declare(name, value.type, last)
        return name
