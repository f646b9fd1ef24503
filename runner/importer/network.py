"""`OnnxNetwork`: a cell made from an ONNX file, with the names of the file.

Before it: weights that the file has several times, which initializers are trained, and what cannot be imported.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from runner import ops, register
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, ShapeError, known_names, some
from runner.host.console import LOG
from runner.importer.file import OnnxGraph, OnnxNode, OnnxValue, read_model
from runner.importer.node_call import NodeCall, OtherBatch, Values, register_lines, value_of, values_of
from runner.importer.rules import RULES
from runner.nn.cell import Cell
from runner.types import Shape, TensorType
from runner.validation.rules import Rule

# Weights with several uses: torch writes them once, with Identity nodes, or again as a transposed matrix.

# What the inputs of operators with weights are, by the names of PyTorch.
SCALED = "", "weight", "bias"
KINDS = {
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization", "Conv", "Gemm"), SCALED),
    "ConvTranspose": SCALED,
    "BatchNormalization": (*SCALED, "running_mean", "running_var"),
}


def without_copies(graph: OnnxGraph) -> OnnxGraph:
    """The graph without Identity nodes of initializers, and without second copies of tied weights.

    Where all elements are equal, as in the scales of fresh normalizations, parameters were equal by chance: each
    becomes an initializer of its own, with the name of the node's output. Others are one parameter with several uses.
    """
    arrays, weights, names = dict(graph.initializers), set(graph.weights), dict[str, str]()
    kept: list[OnnxNode] = []
    results = {value.name for value in graph.outputs}
    for node in graph.nodes:
        source = names.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        if node.operator != "Identity" or source not in arrays or node.outputs[0] in results:
            kept.append(_renamed(node, names))
        elif np.unique(arrays[source]).size == 1 and arrays[source].ndim:
            arrays[node.outputs[0]] = arrays[source].copy()
            weights.add(node.outputs[0])
        else:
            names[node.outputs[0]] = source
    return _without_transposes(
        _with_own_weights(replace(graph, nodes=tuple(kept), initializers=arrays, weights=weights))
    )


def _with_own_weights(graph: OnnxGraph) -> OnnxGraph:
    """The graph with a weight of its own for each layer, where a file has one for all that are equal by chance.

    So PyTorch writes fresh scales and biases, without Identity nodes: the scale of a normalization is its variance too.
    """
    uniform = {name for name in graph.weights if _is_uniform(graph.initializers[name])}
    places = [(node, k, name) for node in graph.nodes for k, name in enumerate(node.inputs) if name in uniform]
    kinds = {(node.number, k): kind for node, k, name in places if (kind := _kind(node, k, name))}
    labels = Counter(f"{node.layer}.{kinds[node.number, k]}" for node, k, _ in places if (node.number, k) in kinds)
    arrays, owners = dict(graph.initializers), defaultdict[str, list[tuple[int, int, str]]](list)
    for node, k, name in places:
        if (node.number, k) in kinds:
            label = f"{node.layer}.{kinds[node.number, k]}"
            is_layer = node.layer and labels[label] == 1
            owners[name].append((node.number, k, label if is_layer else f"{node.name}.{kinds[node.number, k]}"))
    own: dict[tuple[int, int], str] = {}
    for name, claims in owners.items():
        first = next((claim for claim in claims if claim[2] == name), claims[0])  # this one keeps the name of the file
        for number, k, label in claims:
            if (number, k) != first[:2]:
                own[number, k] = label
                arrays[label] = arrays[name].copy()
    nodes = tuple(_with_inputs(node, own) for node in graph.nodes)
    return replace(graph, nodes=nodes, initializers=arrays, weights={*graph.weights, *own.values()})


def _with_inputs(node: OnnxNode, own: Mapping[tuple[int, int], str]) -> OnnxNode:
    inputs = tuple(own.get((node.number, k), name) for k, name in enumerate(node.inputs))
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _kind(node: OnnxNode, position: int, name: str) -> str:
    """What a weight at a place of a layer is; empty at places that take no weights."""
    if node.op_type in ("Add", "Mul") and "." in name:
        return name.rpartition(".")[2]
    kinds = KINDS.get(node.op_type, ())
    return kinds[position] if position < len(kinds) else ""


def _is_uniform(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim > 0 and array.size > 0 and bool((array == array.flat[0]).all())


def _without_transposes(graph: OnnxGraph) -> OnnxGraph:
    """The graph with one parameter where a file has a matrix and the same matrix transposed.

    So exporters write an embedding that is also the last layer. A Transpose node of the first one replaces the other.
    """
    matrices = [
        (name, array) for name, array in graph.initializers.items() if name in graph.weights and _is_matrix(array)
    ]
    gathered = {node.inputs[0] for node in graph.nodes if node.operator == "Gather"}
    sources = [(name, array) for name, array in matrices if name in gathered]
    nodes, arrays = list(graph.nodes), dict(graph.initializers)
    for name, array in matrices:
        for source, other in sources:
            if name not in gathered and array.shape == other.shape[::-1] and np.array_equal(array, other.T):
                number = min(node.number for node in graph.nodes if name in node.inputs)
                label = f"{source}.transposed"
                transpose = OnnxNode(label, "Transpose", "", graph.nodes[0].opset, (source,), (name,), {}, number)
                nodes.insert(0, transpose)
                del arrays[name]
                break
    return replace(graph, nodes=tuple(nodes), initializers=arrays)


def _is_matrix(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim == 2 and min(array.shape) > 1 and bool((array != array.flat[0]).any())


def _renamed(node: OnnxNode, names: Mapping[str, str]) -> OnnxNode:
    if not names.keys() & set(node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


# Which initializers of an ONNX graph are trained: parameters, moving statistics, or constants.

TRAINED, STATISTICS, CONSTANT = "parameter", "statistics", "constant"
# Where operators take weights: Constant nodes there are parameters too, as some exporters write them.
WEIGHTS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("MatMul", "PRelu"), (1,)),
    "BatchNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
}
STATES = dict.fromkeys(("LSTM", "GRU", "RNN"), (5, 6))  # where layers take what they start from: zeros are not learnt
LOWEST_WEIGHT = -1e4  # masks of attention add numbers below this
HIGHEST_OF_MASKS = -9.0  # in masks of two numbers, 0 and one below this
# Names that exporters make for results of their own arithmetic; parameters have names of layers.
COMPUTED = re.compile(r"_?(?:val|scalar_tensor_default|onnx::\w+|const\w*?)_?\d+", re.IGNORECASE)


def roles_of(graph: OnnxGraph) -> dict[str, str]:
    """The role of each initializer, by name.

    A parameter is a float with axes that an operator reads as a value. Numbers without axes, masks, and what an
    operator must know at import (shapes, scales) are constants, so are values of Constant nodes that are no weights,
    and one number in all places that an exporter computed, like the scale of attention.
    """
    uses = defaultdict[str, list[tuple[OnnxNode, int]]](list)
    for node in graph.all_nodes():
        for position, name in enumerate(node.inputs):
            uses[name].append((node, position))
    inner = {name for node in graph.nodes for part in node.graphs for name in part.captures}
    arrays = dict(_arrays(graph))
    return {
        name: _role(name, array, uses[name], name in graph.weights or name in inner) for name, array in arrays.items()
    }


def _arrays(graph: OnnxGraph) -> Iterator[tuple[str, np.ndarray]]:
    yield from graph.initializers.items()
    for node in graph.nodes:
        for part in node.graphs:
            yield from _arrays(part)


def _role(name: str, array: np.ndarray, uses: list[tuple[OnnxNode, int]], is_initializer: bool) -> str:
    if array.dtype.kind != "f" or not array.size or not array.ndim:
        return CONSTANT
    if any(node.op_type == "BatchNormalization" and position > 2 for node, position in uses):
        return STATISTICS
    is_at_weight = any(position in WEIGHTS.get(node.op_type, ()) for node, position in uses)
    if not is_at_weight and (not is_initializer or _is_computed(name, array)):
        return CONSTANT
    reads = [(RULES[node.operator], position) for node, position in uses if node.operator in RULES]
    if all(rule.is_static(position) for rule, position in reads):
        return CONSTANT
    starts = all(position in STATES.get(node.op_type, ()) for node, position in uses) and not array.any()
    return CONSTANT if starts or _is_mask(array) else TRAINED


def _is_computed(name: str, array: np.ndarray) -> bool:
    return COMPUTED.fullmatch(name) is not None and bool((array == array.flat[0]).all())


def _is_mask(array: np.ndarray) -> bool:
    """Whether it has numbers that no weight has: infinite ones, and those that make attention ignore a position."""
    if not np.isfinite(array).all() or bool((array < LOWEST_WEIGHT).any()):
        return True
    lowest = float(array.min())
    return lowest < HIGHEST_OF_MASKS and bool(np.isin(array, (0.0, lowest)).all())


# All reasons why a graph cannot be imported, in one error.

QUANTIZED = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
    *("ConvInteger", "MatMulInteger", "QLinearAdd", "QLinearMul", "QLinearGlobalAveragePool", "QLinearConcat"),
}
NO_GRADIENT = "a quantized model: rounding has no gradient, so it cannot be trained"


def unsupported(graph: OnnxGraph) -> dict[str, list[OnnxNode]]:
    """The nodes without a rule, by operator."""
    found = defaultdict[str, list[OnnxNode]](list)
    for node in graph.all_nodes():
        if node.operator not in RULES:
            found[node.operator].append(node)
    return dict(found)


def require_supported(graph: OnnxGraph) -> None:
    """Raise ConfigError that lists all operators without a rule, with their nodes."""
    missing = unsupported(graph)
    if not missing:
        return
    if is_quantized(missing):
        rows = {"operators": ", ".join(sorted(missing)), "repair": "import the model from before quantization"}
        raise ConfigError(NO_GRADIENT, **rows)
    lines = [_line(operator, nodes) for operator, nodes in sorted(missing.items())]
    repair = "`runner inspect FILE` lists all operators; a model exported with other ones"
    what = f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of an ONNX file cannot be imported"
    raise ConfigError(what, operators="\n".join(lines), repair=repair)


def is_quantized(operators: Iterable[str]) -> bool:
    """Whether some of the operators are those of quantized models."""
    return any(operator.rpartition(".")[2] in QUANTIZED for operator in operators)


def _line(operator: str, nodes: list[OnnxNode]) -> str:
    return f"{operator}, opset {nodes[0].opset}: {some([node.name for node in nodes], 3)}"


# The cell.

NOTHING: Mapping[str, Any] = {}
LABELS = "ZipMap", "ai.onnx.ml.ZipMap"


@register.network("onnx")
class OnnxNetwork(Cell):
    """The network of an ONNX file, trained from the weights of the file.

    Float initializers become parameters of their names. Each node is executed under a scope of its name. Normalizations
    and dropout behave as in training while the network is trained.

    Raises DataError for a damaged file, ConfigError for operators that cannot be imported, all at once.

    Args:
        path: the .onnx file
        output: the output that is trained; the first one of floats if empty
        logits: leave out a Softmax at the end, which losses of logits apply themselves
    """

    def __init__(self, path: Annotated[str, Rule(path=True)], output: str = "", logits: bool = True) -> None:
        super().__init__()
        self.file = Path(path).absolute()
        self.graph = imported(self.file, output, logits)
        require_supported(self.graph)
        register_lines(self.file, self.graph)
        parameters = {}
        for name, role in roles_of(self.graph).items():
            if role != CONSTANT:
                parameters[name] = Parameter(self.graph.initializers[name], name, role == TRAINED)
                self.insert_param_to_cell(name, parameters[name], check_name=False)
        self.graph = self.graph.without_initializers(parameters)  # arrays that the first step replaces
        self._values = values_of(self.graph, parameters)
        self._calls = {id(g): self._calls_of(g) for g in _graphs(self.graph)}
        self.other_batch: OtherBatch | None = None
        self._shapes: dict[tuple[TensorType, ...], dict[str, Shape]] = {}
        self._known: dict[tuple[TensorType, ...], dict[str, np.ndarray]] = {}  # what nodes compute from shapes

    @property
    def source_files(self) -> Sequence[Path]:
        """The file, and those with its external data."""
        return self.file, *self.graph.files

    def _calls_of(self, graph: OnnxGraph) -> tuple[NodeCall, ...]:
        return tuple(NodeCall(node, RULES[node.operator], self, self.file) for node in graph.nodes)

    def construct(self, *inputs: Value) -> Value:
        return self._result(self.values(*inputs))

    def _result(self, values: Values) -> Value:
        result: Value | np.ndarray = value_of(values, self.graph.outputs[0].name)
        return Tensor(result) if isinstance(result, np.ndarray) else result

    def values(self, *inputs: Value) -> Values:
        """All values of the file's graph by name, for these inputs: tensors, and arrays of what is known at import."""
        given = self._checked(inputs)
        self.__dict__["other_batch"] = self._other_batch([x.type for x in given])
        return self._values_for(given)

    def _values_for(self, inputs: Sequence[Value]) -> Values:
        own = {value.name: x for value, x in zip(self.graph.inputs, inputs, strict=True)}
        types = tuple([x.type for x in inputs])
        known = self._known.get(types, {})
        values = self._executed(self.graph, {**self._values, **known, **own}, known)
        if types not in self._known:
            written = [name for node in self.graph.nodes for name in node.outputs if name in values]
            self._known[types] = {name: values[name] for name in written if isinstance(values[name], np.ndarray)}
        return values

    def _other_batch(self, given: Sequence[TensorType]) -> OtherBatch | None:
        """What is known of the batch size that the file fixes, where the batch has another one."""
        declared = {value.shape[0] for value in self.graph.inputs if value.shape}
        rows = given[0].shape[0] if given and given[0].shape else 0
        length = min(declared, key=str, default="")
        if len(declared) != 1 or isinstance(length, str) or length == rows or not all(t.shape for t in given):
            return None
        types = tuple(TensorType(kind.dtype, (length, *kind.shape[1:])) for kind in given)
        if types not in self._shapes:
            self.__dict__["other_batch"] = None
            self._shapes[types] = self._shapes_for(types)
        return OtherBatch(length, rows, self._shapes[types])

    def _shapes_for(self, types: Sequence[TensorType]) -> dict[str, Shape]:
        """The shapes of all values for inputs of these types."""
        found: dict[str, Shape] = {}

        def shapes(*inputs: Value) -> Value:
            values = self._values_for(inputs)
            found.update({name: tuple(value.shape) for name, value in values.items()})
            return self._result(values)

        trace(shapes, types, "shapes")
        return found

    def execute(self, graph: OnnxGraph, outer: Mapping[str, Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a graph inside of a node, which reads values of the graph around it."""
        own = {value.name: x for value, x in zip(graph.inputs, inputs, strict=True)}
        values = self._executed(graph, {**outer, **graph.initializers, **own})
        return tuple(value_of(values, value.name) for value in graph.outputs)

    def _executed(self, graph: OnnxGraph, values: Values, known: Mapping[str, Any] = NOTHING) -> Values:
        for call in self._calls[id(graph)]:
            if not (known and known.keys() & set(call.node.outputs)):
                call.execute(values)
        return values

    def change_outputs(self, weight: Parameter, before: int, now: int) -> None:
        """The nodes that depend on the weight of a new head adapt the shapes of the file."""
        self._shapes.clear()
        self._known.clear()
        names = {weight.name}
        for call in self._calls[id(self.graph)]:
            if names & set(call.node.inputs):
                names.update(call.node.outputs)
                call.new_outputs = before, now

    def _checked(self, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        declared = self.graph.inputs
        if len(inputs) != len(declared):
            rows = {"file": self.file, "inputs": ", ".join(map(str, declared)), "given": len(inputs)}
            repair = "dataset.inputs=[columns in the order of the file's inputs]"
            raise ShapeError("the network of an ONNX file has another number of inputs", **rows, repair=repair)
        return tuple(self._converted(value, x) for value, x in zip(declared, inputs, strict=True))

    def _converted(self, declared: OnnxValue, x: Value) -> Value:
        shape = declared.shape
        fits = shape is None or (
            len(shape) == x.ndim
            and all(isinstance(n, str) or n == m for n, m in zip(shape[1:], x.shape[1:], strict=True))
        )
        if not fits:
            rows = {"input": declared, "given": x.type, "file": self.file}
            repair = "a transform of the dataset that makes this shape, or a model exported with free axes"
            raise ShapeError("an input of an ONNX file has another shape", **rows, repair=repair)
        if declared.dtype is None or x.dtype is declared.dtype or (x.dtype.is_float and declared.dtype.is_float):
            return x
        return ops.Cast()(x, declared.dtype)


def imported(path: Path, output: str = "", logits: bool = True) -> OnnxGraph:
    """The part of a file that a network is made of: what its output needs, without a Softmax at its end."""
    graph = without_copies(read_model(path))
    try:
        graph = main_part(graph, output)
    except ConfigError as error:
        raise error.add(file=path) from None
    return _without_softmax(graph, path) if logits else graph


def main_part(graph: OnnxGraph, output: str = "") -> OnnxGraph:
    """What an output needs, by default the first one of floats. Raises ConfigError when there is no such output."""
    graph = _without_labels(graph)
    return graph.pruned(_chosen_output(graph, output))


def _graphs(graph: OnnxGraph) -> Iterator[OnnxGraph]:
    yield graph
    for node in graph.nodes:
        for part in node.graphs:
            yield from _graphs(part)


def _without_labels(graph: OnnxGraph) -> OnnxGraph:
    """The graph with tensors as outputs where classifiers of scikit-learn return dictionaries by class."""
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.operator in LABELS}
    outputs = tuple(replace(v, name=sources[v.name]) if v.name in sources else v for v in graph.outputs)
    return replace(graph, outputs=outputs)


def _chosen_output(graph: OnnxGraph, name: str) -> str:
    names = [value.name for value in graph.outputs]
    if name and name not in names:
        raise ConfigError(
            "an ONNX file has no such output", key="network.output", value=name, **known_names(name, names)
        )
    floats = [value.name for value in graph.outputs if value.dtype is None or value.dtype.is_float]
    if not floats:
        rows = {"outputs": ", ".join(map(str, graph.outputs))}
        raise ConfigError("an ONNX file without an output of floats cannot be trained", **rows)
    return name or floats[0]


def _without_softmax(graph: OnnxGraph, path: Path) -> OnnxGraph:
    nodes, result = list(graph.nodes), graph.outputs[0].name
    while nodes and nodes[-1].operator == "Identity" and nodes[-1].outputs[0] == result:
        result = nodes.pop().inputs[0]
    if not nodes or nodes[-1].operator != "Softmax" or nodes[-1].outputs[0] != result:
        return graph
    last = nodes.pop()
    LOG.info("%s: the Softmax %s at the end is left out, since losses of logits apply it", path.name, last.name)
    return replace(graph, nodes=tuple(nodes), outputs=(replace(graph.outputs[0], name=last.inputs[0]),))


# A cell that returns every value of an imported network, to compare them with those of onnxruntime.


class AllValues(Cell):
    """Executes an imported network; `names` are those of the values that it returns, node after node."""

    def __init__(self, network: OnnxNetwork) -> None:
        super().__init__()
        self.network = network
        self.names: tuple[str, ...] = ()

    def construct(self, *inputs: Value) -> tuple[Value, ...]:
        values = self.network.values(*inputs)
        written = [name for node in self.network.graph.nodes for name in node.outputs if name in values]
        computed = [name for name in written if isinstance(values[name], Value)]
        self.__dict__["names"] = tuple(computed)
        return tuple(values[name] for name in computed)
