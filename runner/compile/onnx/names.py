"""What the values of a graph are called in the ONNX model, in each layout."""

from collections.abc import Mapping

from runner.compile.onnx.builder import OnnxBuilder
from runner.core.lowering import LAST, PLAIN, Layout
from runner.core.value import Value


class Names:
    """The ONNX name of every value; a value that is asked for in another layout is turned around once."""

    def __init__(self, builder: OnnxBuilder, given: Mapping[Value, str]) -> None:
        self._builder = builder
        self._names: dict[Value, dict[Layout, str]] = {}
        for value, name in given.items():
            self.give(value, name)

    def give(self, value: Value, name: str, lies: Layout = PLAIN) -> None:
        """Tell the name of a value that is an input, a constant or a result, and how it lies."""
        lies = lies if value.ndim > 1 else PLAIN
        self._names[value] = {lies: name}
        self._builder.declare(name, value.type, lies)

    def of(self, value: Value, wanted: Layout = PLAIN) -> str:
        """The name of a value in a layout."""
        wanted, names = wanted if value.ndim > 1 else PLAIN, self._names[value]
        if wanted not in names:
            lies = LAST if LAST in names else next(iter(names))
            names[wanted] = self._builder.turned(names[lies], value.type, lies, wanted)
        self._builder.declare(names[wanted], value.type, wanted)
        return names[wanted]
