"""`OnnxNetwork`: a cell made from an ONNX file, with the names of the file. Before it: what cannot be imported."""

from collections import defaultdict
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
from runner.importer.ending import ending_of, left_out
from runner.importer.file import OnnxGraph, OnnxNode, OnnxValue, read_model
from runner.importer.float_types import in_float32
from runner.importer.node_call import (
    LOST,
    NodeCall,
    OnnxRule,
    OtherBatch,
    Values,
    refuse,
    register_lines,
    value_of,
    values_of,
)
from runner.importer.roles import CONSTANT, TRAINED, roles_of, summary
from runner.importer.rules import RULES
from runner.importer.tensors import lost_parameters, own_tensors
from runner.nn.cell import Cell
from runner.nn.loss.losses import LossInput
from runner.types import Shape, TensorType
from runner.validation.rules import Rule

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


# The rule of an operator that has none, which is refused before its node is executed.
REFUSED = OnnxRule("", lambda call, *inputs: (LOST,) * call.outputs, (), frozenset(), True)


def require_supported(graph: OnnxGraph) -> None:
    """Raise ConfigError that lists all operators without a rule, with their nodes, or collect it."""
    missing = unsupported(graph)
    if missing:
        refuse(_missing(missing))


def _missing(missing: Mapping[str, list[OnnxNode]]) -> ConfigError:
    if is_quantized(missing):
        rows = {"operators": ", ".join(sorted(missing)), "repair": "import the model from before quantization"}
        return ConfigError(NO_GRADIENT, **rows)
    lines = [_line(operator, nodes) for operator, nodes in sorted(missing.items())]
    repair = "`runner inspect FILE` lists all operators; a model exported with other ones"
    what = f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of an ONNX file cannot be imported"
    return ConfigError(what, operators="\n".join(lines), repair=repair)


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
        logits: leave out a Softmax or Sigmoid at the end (true), keep it (false), or as the loss needs it (null)
        train: names or patterns of tensors that are trained, whatever the file has as evidence
        constant: names or patterns of tensors that are not trained
        untie: tensors of several layers that are one parameter for each; null decides by evidence, [] keeps all
    """

    def __init__(
        self,
        path: Annotated[str, Rule(path=True)],
        output: str = "",
        logits: bool | None = None,
        train: tuple[str, ...] = (),
        constant: tuple[str, ...] = (),
        untie: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__()
        self.file = Path(path).absolute()
        self.graph = imported(self.file, output, untie)
        require_supported(self.graph)
        register_lines(self.file, self.graph)
        roles = roles_of(self.graph, train, constant)
        LOG.warning("%s: %s", self.file.name, summary(roles, lost_parameters(self.graph)))
        self.graph = in_float32(self.graph, [x for x, role in roles.items() if role.kind != CONSTANT], self.file)
        self._ending, self._logits, self._loss = ending_of(self.graph), logits, ("", LossInput(None, None))
        self._left_out = self._ending.instead if logits else {}
        if self._left_out:
            LOG.info("%s: %s is left out, as `logits` says", self.file.name, self._ending)
        parameters = {}
        for name, role in roles.items():
            if role.kind != CONSTANT:
                parameters[name] = Parameter(self.graph.initializers[name], name, role.kind == TRAINED)
                self.insert_param_to_cell(name, parameters[name], check_name=False)
        self.graph = self.graph.without_initializers(parameters)  # arrays that the first step replaces
        self._values = values_of(self.graph, parameters)
        self._calls = {id(g): self._calls_of(g) for g in _graphs(self.graph)}
        self.other_batch: OtherBatch | None = None
        self._shapes: dict[tuple[TensorType, ...], dict[str, Shape]] = {}
        self._seen: dict[str, Shape] | None = None  # collects the shapes of values, also in branches
        self._known: dict[tuple[TensorType, ...], dict[str, np.ndarray]] = {}  # what nodes compute from shapes

    @property
    def source_files(self) -> Sequence[Path]:
        """The file, and those with its external data."""
        return self.file, *self.graph.files

    def _calls_of(self, graph: OnnxGraph) -> tuple[NodeCall, ...]:
        return tuple(NodeCall(node, RULES.get(node.operator, REFUSED), self, self.file) for node in graph.nodes)

    def attach_loss(self, loss_fn: Cell) -> None:
        """Leave out the activation at the end if the loss applies it itself. Raises ConfigError where outputs cannot be
        right, and for a second loss that needs other ones."""
        (first, _), loss = self._loss, (type(loss_fn).__name__, LossInput.of(loss_fn))
        if self._logits is not None or self._loss == loss:
            return
        chosen = left_out(self._ending, loss_fn, self.file)
        if first and chosen.keys() != self._left_out.keys():
            rows = {"file": self.file, "first": first, "second": loss[0]}
            repair = "a network for each loss, or logits=True or False, which says what both get"
            raise ConfigError("two losses need different outputs of one network", **rows, repair=repair)
        self.__dict__.update(_left_out=chosen, _loss=loss)
        self.__dict__.pop("_graphs", None)  # what it has compiled without a loss

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
        self.__dict__["_seen"] = found

        def shapes(*inputs: Value) -> tuple[()]:
            self._values_for(inputs)
            return ()

        try:
            trace(shapes, types, "shapes")
        finally:
            self.__dict__["_seen"] = None
        return found

    def execute(self, graph: OnnxGraph, outer: Mapping[str, Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a graph inside of a node, which reads values of the graph around it."""
        own = {value.name: x for value, x in zip(graph.inputs, inputs, strict=True)}
        values = self._executed(graph, {**outer, **own})
        return tuple(value_of(values, value.name) for value in graph.outputs)

    def _executed(self, graph: OnnxGraph, values: Values, known: Mapping[str, Any] = NOTHING) -> Values:
        for call in self._calls[id(graph)]:
            if call.node in self._left_out:
                values[call.node.outputs[0]] = self._left_out[call.node](value_of(values, call.node.inputs[-1]))
            elif not (known and known.keys() & set(call.node.outputs)):
                call.execute(values)
        if self._seen is not None:
            self._seen.update({name: tuple(value.shape) for name, value in values.items() if value is not LOST})
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
        return x if declared.dtype in (None, x.dtype) else ops.Cast()(x, declared.dtype)


def imported(path: Path, output: str = "", untie: Sequence[str] | None = None) -> OnnxGraph:
    """The part of a file that a network is made of: what its output needs."""
    try:
        made = own_tensors(read_model(path), untie)
        graph = main_part(made.graph, output)
    except ConfigError as error:
        raise error.add(file=path) from None
    if made.copies:
        names = some([*made.copies], 4)
        LOG.warning("%s: equal weights of several layers are a parameter for each: %s", path.name, names)
    return graph


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
