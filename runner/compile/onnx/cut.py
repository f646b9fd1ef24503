"""A model cut into pieces that run one after the other, where some of its inputs are known only later than others.

A node belongs to the first piece that reads a result of it, so values are computed when they are needed; later pieces
read the same results, such as the columns of a convolution. A Reshape costs nothing where it is computed of an input,
and a copy where it makes an output, so pieces pass on what values are reshaped of and repeat the Reshape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from runner.compile.onnx.builder import onnx, operands_of
from runner.compile.onnx.model import OPSET, make_model

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
FREE = "Reshape"


class Piece(NamedTuple):
    """A model, and after which step its inputs are known; `inputs` and `outputs` are names of values of the whole."""

    level: int
    model: ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Cut:
    """The `pieces` of a model whose inputs are known from these levels on, and whose outputs are needed at theirs.

    `levels` has both. With `views`, which arrays of the host have, Reshapes are free. `sources` are the outputs of the
    model that are reshaped of other values, which pieces have as outputs instead.
    """

    def __init__(self, model: ModelProto, levels: Mapping[str, int], views: bool) -> None:
        graph, self._free = model.graph, FREE if views else None
        self._constants = {constant.name: constant for constant in graph.initializer}
        self._makers = {output: node for node in graph.node for output in node.output}
        self._types = {entry.name: entry.type.tensor_type.elem_type for entry in graph.input}
        self._types |= {name: constant.data_type for name, constant in self._constants.items()}
        for node in graph.node:
            self._types.update(output_types(node, self._types))
        self._nodes: dict[int, list[NodeProto]] = defaultdict(list)
        needed = {entry.name: levels[entry.name] for entry in graph.output}  # by the first that reads a value
        for node in reversed(graph.node):
            level = min([needed[output] for output in node.output if output in needed], default=-1)
            if level < 0:
                continue  # nothing reads it
            for name in operands_of(node):
                needed[name] = min(level, needed.get(name, level))
            if node.op_type != self._free:
                self._nodes[level].insert(0, node)
        results = {entry.name: self._source(entry.name) for entry in graph.output}
        self.sources = {name: source for name, source in results.items() if name != source}
        read: dict[int, set[str]] = {level: self._read(nodes) for level, nodes in self._nodes.items()}
        self.pieces = [self._piece(level, read, set(results.values()), graph.name) for level in sorted(self._nodes)]

    def _source(self, name: str) -> str:
        """The value that a value is reshaped of."""
        while name in self._makers and self._makers[name].op_type == self._free:
            name = self._makers[name].input[0]
        return name

    def _read(self, nodes: list[NodeProto]) -> set[str]:
        """The values that nodes read, but for the Reshapes between."""
        return {self._source(name) for node in nodes for name in operands_of(node) if name in self._types}

    def _piece(self, level: int, read: Mapping[int, set[str]], results: set[str], name: str) -> Piece:
        nodes = self._nodes[level]
        made = [output for node in nodes for output in node.output if output]
        later = results.union(*[names for other, names in read.items() if other != level])
        outputs = tuple([output for output in made if output in later])
        inputs = tuple(sorted(read[level].difference(made, self._constants)))
        whole, used = self._with_reshapes(nodes), set[str]()
        for node in whole:
            used.update(operands_of(node))
        constants = [constant for constant in self._constants.values() if constant.name in used]
        entries = [[self._info(value) for value in side] for side in (inputs, outputs)]
        graph = onnx.helper.make_graph(whole, f"{name}_{level}", *entries, constants)
        return Piece(level, make_model(graph, checked=False), inputs, outputs)

    def _with_reshapes(self, nodes: list[NodeProto]) -> list[NodeProto]:
        """The nodes, with the Reshapes of what they read, which other pieces have too."""
        found: dict[str, NodeProto] = {}
        whole: list[NodeProto] = []

        def add(name: str) -> None:
            node = self._makers.get(name)
            if node is not None and node.op_type == self._free and name not in found:
                add(node.input[0])
                found[name] = node
                whole.append(node)

        for node in nodes:
            for name in operands_of(node):
                add(name)
            whole.append(node)
        return whole

    def _info(self, name: str) -> object:
        return onnx.helper.make_tensor_value_info(name, self._types[name], None)


def output_types(node: NodeProto, types: Mapping[str, int]) -> dict[str, int]:
    """The element types of the outputs of a node, by those of its inputs: a number of the enumeration in TensorProto.

    Of operators that ONNX does not define, onnxruntime's, they are those of the first input.
    """
    given = [types.get(name, 0) for name in node.input]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.domain or not onnx.defs.has(node.op_type):
        return dict.fromkeys(node.output, given[0])
    if "to" in attributes:
        return {node.output[0]: attributes["to"].i}
    schema = onnx.defs.get_schema(node.op_type, OPSET)
    by_name = {limit.type_param_str: _fixed(limit.allowed_type_strs) for limit in schema.type_constraints}
    by_name |= {parameter.type_str: kind for parameter, kind in zip(schema.inputs, given, strict=False) if kind}
    kinds = [by_name.get(parameter.type_str) or _fixed([parameter.type_str]) for parameter in schema.outputs]
    kinds += kinds[-1:] * (len(node.output) - len(kinds))
    return {name: kind or given[0] for name, kind in zip(node.output, kinds, strict=False) if name}


def _fixed(allowed: Sequence[str]) -> int:
    """The element type, where only one is allowed, as in `tensor(int64)`; else 0."""
    name = allowed[0].removeprefix("tensor(").removesuffix(")").upper() if len(allowed) == 1 else ""
    return int(dict(onnx.TensorProto.DataType.items()).get(name, 0))
