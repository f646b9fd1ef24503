"""Names in the ONNX model: of a graph's values, in each layout, and of inputs that are columns of a dataset."""

import re
from collections.abc import Collection, Mapping, Sequence

from runner.compile.onnx.builder import OnnxBuilder
from runner.core.lowering import LAST, PLAIN, Layout
from runner.core.values import Value


def free_names(columns: Sequence[str], taken: Collection[str]) -> list[str]:
    """A different name for each column: its own as far as other programs accept it and no other value has it.

    Columns may have any name, also that of a parameter, of a result, or of a node.

    >>> free_names(["image", "loss", "a b", "a:b"], {"loss"})
    ['image', 'loss_1', 'a_b', 'a_b_1']
    """
    names: list[str] = []
    for column in columns:
        plain = name = re.sub(r"[^\w.-]", "_", column)
        number = 0
        while name in taken or name in names:
            number += 1
            name = f"{plain}_{number}"
        names.append(name)
    return names


class ValueNames:
    """The ONNX name of every value. A value is converted to another layout once, when it is first requested."""

    def __init__(self, builder: OnnxBuilder, given: Mapping[Value, str]) -> None:
        self._builder = builder
        self._names: dict[Value, dict[Layout, str]] = {}
        for value, name in given.items():
            self.bind(value, name)

    def bind(self, value: Value, name: str, layout: Layout = PLAIN) -> None:
        """Set the name and the layout of an input, a constant or a result."""
        layout = layout if value.ndim > 1 else PLAIN
        self._names[value] = {layout: name}
        self._builder.declare(name, value.type, layout)

    def of(self, value: Value, layout: Layout = PLAIN) -> str:
        """The name of a value in a layout."""
        layout, names = layout if value.ndim > 1 else PLAIN, self._names[value]
        if layout not in names:
            source = LAST if LAST in names else next(iter(names))
            names[layout] = self._builder.convert(names[source], value.type, source, layout)
        self._builder.declare(names[layout], value.type, layout)
        return names[layout]
