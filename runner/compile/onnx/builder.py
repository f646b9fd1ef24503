"""The object that operators lower into: it collects ONNX nodes and constants, each only once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.core.lowering import LAST, PLAIN, TILED, Layout, physical_shape
from runner.dtype import DType
from runner.errors import InternalError
from runner.host.lazy import lazy_import
from runner.types import Shape, TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

onnx = lazy_import("onnx")  # takes 45 ms, and PyNative mode needs it only when the run is over


def load_onnx() -> None:
    """Load the library now, when it is not loaded yet."""
    onnx.defs.onnx_opset_version()


FULL_NAME = re.compile(r"[\w/-]+-op\d+(?=/)")
OPERATORS = "operators"  # metadata of nodes that stand for several operators: full names, one a line


def element_type(dtype: DType) -> int:
    """ONNX's number for an element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))


def stands_for(node: NodeProto) -> tuple[str, ...]:
    """The full names of the operators that asked for a node, or that were fused into it: first the one whose work it
    mainly is. None for nodes that only copy a result.
    """
    noted = [entry.value for entry in node.metadata_props if entry.key == OPERATORS]
    if noted:
        return tuple(noted[0].split("\n"))
    found = FULL_NAME.match(node.name)
    return (found[0],) if found else ()


def stand_for(node: NodeProto, operators: Iterable[str]) -> None:
    """Note the operators that a node stands for."""
    for entry in [entry for entry in node.metadata_props if entry.key == OPERATORS]:
        node.metadata_props.remove(entry)
    node.metadata_props.add(key=OPERATORS, value="\n".join(dict.fromkeys(operators)))


def operators_in(graph: GraphProto) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names of the nodes, those of inner graphs too, with the operators that they stand for."""
    for node in graph.node:
        yield node.name, stands_for(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators_in(attribute.g)


class OnnxBuilder:
    """Nodes in the order in which they are asked for. Nodes are named after the operator that is being lowered.

    `on_host` says that the nodes are for the CPU, and may be those that only onnxruntime knows.
    """

    def __init__(self, on_host: bool = False) -> None:
        self.on_host = on_host
        self.list: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.operator = ""
        self._arrays: dict[str, np.ndarray] = {}  # of the constants
        self._types: dict[str, TensorType] = {}
        self._shapes: dict[str, Shape] = {}  # as the value lies on the device
        self._reshaped: dict[str, str] = {}
        self._made: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._asked: dict[tuple[str, ...], NodeProto] = {}  # the nodes, by their outputs
        self._named: Counter[str] = Counter()

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, or find the equal one that is there."""
        return self.nodes(kind, inputs, 1, domain, **attributes)[0]

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs, or find the equal one that is there."""
        written = {name: _written(value) for name, value in sorted(attributes.items())}
        key = kind, tuple(inputs), outputs, repr(written)
        if key not in self._made:
            number = self._named[self.operator]
            self._named[self.operator] += 1
            name = f"{self.operator}/{kind}_{number}"
            made = tuple(f"{name}:{k}" for k in range(outputs))
            self.list.append(onnx.helper.make_node(kind, list(inputs), list(made), name=name, domain=domain, **written))
            self._made[key] = made
            self._asked[made] = self.list[-1]
            self._note_shape(kind, inputs, made[0], attributes)
        elif not self._asked[self._made[key]].name.startswith(f"{self.operator}/"):
            node = self._asked[self._made[key]]
            stand_for(node, (*stands_for(node), self.operator))
        return self._made[key]

    def _note_shape(self, kind: str, inputs: Sequence[str], made: str, attributes: dict[str, Any]) -> None:
        """Remember the shape of what later passes may fuse: products, and convolutions that scale rows."""
        given = [self._shapes.get(name) for name in inputs[:2]]
        if kind == "Gemm" and given[0] and given[1]:
            turns = attributes.get("transA", 0), attributes.get("transB", 0)
            self._shapes[made] = given[0][turns[0]], given[1][1 - turns[1]]
        if kind == "Conv" and given[0] and given[1] == (attributes.get("group"), 1, 1, 1):
            self._shapes[made] = given[0]

    def const(self, value: Any, like: str | None = None) -> str:
        """A constant; ints become Int64, floats take the element type of `like`."""
        if isinstance(value, float):
            if like is None:
                raise InternalError(
                    "a float constant needs a value whose type it takes", operator=self.operator, value=value
                )
            value = np.asarray(value, self.type(like).dtype.numpy)
        array = value if isinstance(value, np.ndarray) else np.asarray(value, np.int64)
        key = "const", array.dtype.str, array.shape, array.tobytes()
        if key not in self._made:
            name = f"const:{len(self.constants)}"  # a colon, because no parameter has one
            self.constants[name] = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
            self._arrays[name], self._types[name] = array, TensorType.of(array)
            self._made[key] = (name,)
        return self._made[key][0]

    def type(self, name: str) -> TensorType:
        """Type of a value of the graph."""
        return self._types[name]

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value in another shape; a value that was reshaped before is taken as it was."""
        constant = self.value(name)
        if constant is not None and constant.size == 1:
            return self.const(constant.reshape(shape))
        type, name = self._types.get(name), self._reshaped.get(name, name)
        made = name
        if self._shapes.get(name) != tuple(shape):
            made = self.node("Reshape", (name, self.const(list(shape))))
            self._reshaped[made] = name
        if -1 not in shape:
            self._shapes[made] = tuple(shape)
            if type is not None:
                self._types.setdefault(made, type.with_shape(*shape))
        return made

    def turned(self, name: str, type: TensorType, lies: Layout, wanted: Layout) -> str:
        """A value of that type, turned around in memory."""
        if lies is not LAST and wanted is not LAST:
            return self.turned(self.turned(name, type, lies, LAST), type, LAST, wanted)
        batch, rest = type.shape[0], type.size // type.shape[0]
        if lies is TILED:
            made = self.node("Transpose", (name,), perm=(2, 3, 0, 4, 1, 5))
        elif wanted is TILED:
            _, channels, height, width = type.shape
            split = self.reshape(name, (channels, height // 2, 2, width // 2, 2, batch))
            made = self.node("Transpose", (split,), perm=(2, 4, 0, 1, 3, 5))
        else:
            made = self.reshape(name, (batch, rest) if lies is PLAIN else (rest, batch))
            made = self.node("Transpose", (made,), perm=(1, 0))
        return self.reshape(made, physical_shape(type.shape, wanted))

    def shape(self, name: str) -> Shape | None:
        """The shape of a value as it lies on the device, if it is known."""
        return self._shapes.get(name)

    def value(self, name: str) -> np.ndarray | None:
        """The array of a constant; None for what is only known when the graph runs."""
        return self._arrays.get(name)

    def declare(self, name: str, type: TensorType, lies: Layout = PLAIN) -> None:
        """Tell the type of an operand or a result, and how it lies."""
        self._types[name] = type
        self._shapes.setdefault(name, physical_shape(type.shape, lies))


def _written(value: Any) -> Any:
    if isinstance(value, DType):
        return element_type(value)
    return list(value) if isinstance(value, tuple | list) else value
