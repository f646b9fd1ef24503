"""The builder that operators lower into: it collects ONNX nodes and constants without duplicates."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.core.lowering import LAST, PLAIN, TILED, Layout, physical_shape
from runner.core.values import Value
from runner.dtype import DType
from runner.errors import InternalError
from runner.host.lazy import lazy_import
from runner.types import Shape, TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto
onnx = lazy_import("onnx")  # takes 45 ms; PyNative mode needs it only at the end of a run


def load_onnx() -> None:
    """Load the library now if it is not loaded yet."""
    onnx.defs.onnx_opset_version()


FULL_NAME = re.compile(r"[\w/-]+-op\d+(?=/)")
OPERATORS = "operators"  # metadata of nodes that implement several operators: full names, one per line


def element_type(dtype: DType) -> int:
    """ONNX's number for an element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))


def source_operators(node: NodeProto) -> tuple[str, ...]:
    """The full names of the operators that a node implements, the main one first; empty for copies of results."""
    recorded = [entry.value for entry in node.metadata_props if entry.key == OPERATORS]
    if recorded:
        return tuple(recorded[0].split("\n"))
    found = FULL_NAME.match(node.name)
    return (found[0],) if found else ()


def set_source_operators(node: NodeProto, operators: Iterable[str]) -> None:
    """Record the operators that a node implements."""
    for entry in [entry for entry in node.metadata_props if entry.key == OPERATORS]:
        node.metadata_props.remove(entry)
    node.metadata_props.add(key=OPERATORS, value="\n".join(dict.fromkeys(operators)))


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs in attributes of its nodes."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """The graphs in attributes of a node."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def operands_of(node: NodeProto) -> list[str]:
    """The values that a node reads, or that its inner graphs read from outside or from themselves."""
    inner = [name for graph in inner_graphs(node) for inside in graph.node for name in operands_of(inside)]
    return [*node.input, *inner]


def rename_operands(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Let a node and its inner graphs read other values."""
    node.input[:] = [renamed.get(name, name) for name in node.input]
    for graph in inner_graphs(node):
        for inside in graph.node:
            rename_operands(inside, renamed)


class OnnxBuilder:
    """Nodes in the order in which they were added, named after `operator`, the operator that is being lowered.

    `on_host` says that the nodes are for the CPU and may be specific to onnxruntime. A builder of an inner graph knows
    the values of the `outer` one, which its nodes may read.
    """

    def __init__(self, on_host: bool = False, outer: OnnxBuilder | None = None) -> None:
        self.on_host = on_host
        self.list: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.operator = ""
        self.declared: dict[str, TensorType] = {}  # outputs of users' operators, for ONNX's check
        self._arrays: dict[str, np.ndarray] = {}  # of the constants
        self._types: dict[str, TensorType] = {}
        self._shapes: dict[str, Shape] = {}  # on the device, in the layout of the value
        self._reshaped: dict[str, str] = {}
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}  # outputs of nodes and constants by content
        self._nodes: dict[tuple[str, ...], NodeProto] = {}  # by their outputs
        self._unshared = ""  # the operator whose nodes are not shared with others
        self._counts: Counter[str] = Counter()  # of nodes, by operator
        self._constant_numbers = count()
        if outer is not None:
            self._look_into(outer)

    def _look_into(self, outer: OnnxBuilder) -> None:
        self._counts, self._constant_numbers = outer._counts, outer._constant_numbers  # names differ in all graphs
        for name in ("_arrays", "_types", "_shapes", "_reshaped", "_known", "_nodes"):
            setattr(self, name, dict(getattr(outer, name)))

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one output unless there is an equal one; returns the output."""
        return self.nodes(kind, inputs, 1, domain, **attributes)[0]

    def nodes(
        self, kind: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs unless there is an equal one; returns the outputs."""
        values = {name: _attribute(value) for name, value in sorted(attributes.items())}
        key = kind, tuple(inputs), outputs, repr(values), self._unshared
        if key not in self._known:
            results = self.new_names(kind, outputs)
            name = results[0].rpartition(":")[0]
            node = onnx.helper.make_node(kind, list(inputs), list(results), name=name, domain=domain, **values)
            self.list.append(node)
            self._known[key] = results
            self._nodes[results] = node
            self._record_shape(kind, inputs, results[0], attributes)
        elif not self._nodes[self._known[key]].name.startswith(f"{self.operator}/"):
            node = self._nodes[self._known[key]]
            set_source_operators(node, (*source_operators(node), self.operator))
        return self._known[key]

    @contextmanager
    def unshared(self) -> Iterator[None]:
        """Inside, only nodes of this operator are shared, so that the operands of earlier ones are freed."""
        self._unshared = self.operator
        try:
            yield
        finally:
            self._unshared = ""

    def new_names(self, kind: str, outputs: int) -> tuple[str, ...]:
        """Names of the outputs of a new node: its own name, a colon and their numbers."""
        number = self._counts[self.operator]
        self._counts[self.operator] += 1
        return tuple([f"{self.operator}/{kind}_{number}:{k}" for k in range(outputs)])

    def _record_shape(self, kind: str, inputs: Sequence[str], output: str, attributes: dict[str, Any]) -> None:
        """Record the shape of nodes that `fuse` may change: products, and convolutions that scale rows."""
        operands = [self._shapes.get(name) for name in inputs[:2]]
        if kind == "Gemm" and operands[0] and operands[1]:
            transposed = attributes.get("transA", 0), attributes.get("transB", 0)
            self._shapes[output] = operands[0][transposed[0]], operands[1][1 - transposed[1]]
        if kind == "Conv" and operands[0] and operands[1] == (attributes.get("group"), 1, 1, 1):
            self._shapes[output] = operands[0]

    def const(self, value: Any, like: str | None = None) -> str:
        """A constant; ints become Int64, floats get the element type of `like`. Raises InternalError without `like`."""
        if isinstance(value, float):
            if like is None:
                raise InternalError(
                    "a float constant needs a value whose type it takes", operator=self.operator, value=value
                )
            value = np.asarray(value, self.type(like).dtype.numpy)
        array = value if isinstance(value, np.ndarray) else np.asarray(value, np.int64)
        key = "const", array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            name = f"const:{next(self._constant_numbers)}"  # with a colon, which no parameter name contains
            self.constants[name] = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
            self._arrays[name], self._types[name] = array, TensorType.of(array)
            self._known[key] = (name,)
        return self._known[key][0]

    def type(self, name: str) -> TensorType:
        """The type of a value of the graph."""
        return self._types[name]

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The value in another shape. A Reshape of a Reshape takes the input of the first one."""
        constant = self.value(name)
        if constant is not None and constant.size == 1:
            return self.const(constant.reshape(shape))
        type, name = self._types.get(name), self._reshaped.get(name, name)
        output = name
        if self._shapes.get(name) != tuple(shape):
            zeros: dict[str, Any] = {"allowzero": 1} if 0 in shape else {}  # or else 0 means the length of the operand
            output = self.node("Reshape", (name, self.const(list(shape))), **zeros)
            self._reshaped[output] = name
        if -1 not in shape:
            self._shapes[output] = tuple(shape)
            if type is not None:
                self._types.setdefault(output, type.with_shape(*shape))
        return output

    def convert(self, name: str, type: TensorType, source: Layout, target: Layout) -> str:
        """A value of that type, converted from one layout to another."""
        if source is not LAST and target is not LAST:
            return self.convert(self.convert(name, type, source, LAST), type, LAST, target)
        batch, rest = type.shape[0], math.prod(type.shape[1:])
        if source is TILED:
            transposed = self.node("Transpose", (name,), perm=(2, 3, 0, 4, 1, 5))
        elif target is TILED:
            _, channels, height, width = type.shape
            split = self.reshape(name, (channels, height // 2, 2, width // 2, 2, batch))
            transposed = self.node("Transpose", (split,), perm=(2, 4, 0, 1, 3, 5))
        else:
            matrix = self.reshape(name, (batch, rest) if source is PLAIN else (rest, batch))
            transposed = self.node("Transpose", (matrix,), perm=(1, 0))
        return self.reshape(transposed, physical_shape(type.shape, target))

    def shape(self, name: str) -> Shape | None:
        """The shape of a value on the device, in its layout; None if it is not known."""
        return self._shapes.get(name)

    def value(self, name: str) -> np.ndarray | None:
        """The array of a constant; None for values that are computed at run time."""
        return self._arrays.get(name)

    def declare(self, name: str, type: TensorType, layout: Layout = PLAIN) -> None:
        """Set the type and the layout of an operand or a result."""
        self._types[name] = type
        self._shapes.setdefault(name, physical_shape(type.shape, layout))


def _attribute(value: Any) -> Any:
    if isinstance(value, DType):
        return element_type(value)
    return list(value) if isinstance(value, tuple | list) else value


# Names in the ONNX model: of a graph's values, in each layout, and of inputs that are columns of a dataset.


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
