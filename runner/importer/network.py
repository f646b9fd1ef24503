"""`OnnxNetwork`: a cell made from an ONNX file, with the names of the file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from runner import ops, register
from runner.core.dependence import NOTES
from runner.core.graph import Graph
from runner.core.interpreter import Eager
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, RunnerError, ShapeError, known_names, some
from runner.host.console import LOG
from runner.importer.batch import axes_of_file, axis_of_samples, fits, fitting, length_of, output_axes, with_axis
from runner.importer.ending import ending_of, left_out
from runner.importer.file import OnnxGraph, OnnxValue, read_model
from runner.importer.float_types import in_float32
from runner.importer.node_call import (
    LOST,
    NodeCall,
    OnnxRule,
    OtherBatch,
    Values,
    register_lines,
    shape_of,
    value_of,
    values_of,
)
from runner.importer.refusals import require_supported
from runner.importer.roles import CONSTANT, TRAINED, roles_of, summary
from runner.importer.rules import RULES
from runner.importer.tensors import lost_parameters, own_tensors
from runner.nn.cell import Cell
from runner.nn.loss.losses import LossInput
from runner.types import Shape, TensorType
from runner.validation.rules import Rule

# The rule of an operator that has none, which is refused before its node is executed.
REFUSED = OnnxRule("", lambda call, *inputs: (LOST,) * call.outputs, (), frozenset(), True)

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
        batch_axis: the axis of the inputs that is the batch; null: that of their symbolic axes, or of the data's rows
    """

    def __init__(
        self,
        path: Annotated[str, Rule(path=True)],
        output: str = "",
        logits: bool | None = None,
        train: tuple[str, ...] = (),
        constant: tuple[str, ...] = (),
        untie: tuple[str, ...] | None = None,
        batch_axis: Annotated[int | None, Rule(low=0, high=7)] = None,
    ) -> None:
        super().__init__()
        self.file = Path(path).absolute()
        self.graph = imported(self.file, output, untie)
        require_supported(self.graph)
        register_lines(self.file, self.graph)
        roles = roles_of(self.graph, train, constant)
        if any(role.kind != CONSTANT or role.in_doubt for role in roles.values()):
            LOG.warning("%s: %s", self.file.name, summary(roles, lost_parameters(self.graph)))
        self.graph = in_float32(self.graph, [x for x, role in roles.items() if role.kind != CONSTANT], self.file)
        self._ending, self._logits, self._loss = ending_of(self.graph), logits, ("", LossInput(None, None))
        self._left_out = self._ending.instead if logits else {}
        if self._left_out:
            LOG.warning("%s: %s is left out, as `logits` says", self.file.name, self._ending)
        parameters = {}
        for name, role in roles.items():
            if role.kind != CONSTANT:
                parameters[name] = Parameter(self.graph.initializers[name], name, role.kind == TRAINED)
                self._params[name] = parameters[name]  # no attribute: a file may call one `values` or `training`
        self.graph = self.graph.without_initializers(parameters)  # arrays that the first step replaces
        self._values = values_of(self.graph, parameters)
        self._calls = {id(g): self._calls_of(g) for g in _graphs(self.graph)}
        self.other_batch: OtherBatch | None = None
        self._named, self._given_axis = axes_of_file(self.graph), batch_axis
        self._axes: tuple[int, ...] | None = None
        self._rows: tuple[TensorType, ...] | None = None
        self._output_axis = 0  # of the batch in the file, where inputs are rows of a dataset
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

    def attach_data(self, types: Sequence[TensorType]) -> None:
        """Find where the file has the batch of these inputs, whose first axis it is. Raises ConfigError if two axes can
        be it."""
        rows = tuple(kind.with_shape(*kind.shape[1:]) for kind in types)
        if rows == self._rows or len(types) != len(self.graph.inputs) or not all(kind.shape for kind in types):
            return  # another number of inputs is an error of the first call
        axes = self._axes_of(types)
        places = output_axes(self.graph, axes)
        if len(places) != 1 and any(axes):
            places = [self._separates(axes, types) or 0]
        output = 0 if 0 in places or not places else places[0]
        if any((*axes, output)) and (axes, output) != (self._axes, self._output_axis):
            ends = [*zip(self.graph.inputs, axes, strict=True), (self.graph.outputs[0], output)]
            text = ", ".join(f"axis {axis} of {value.name}" for value, axis in ends)
            LOG.warning("%s: the batch is %s", self.file.name, text)
        self.__dict__.update(_axes=axes, _output_axis=output, _rows=rows)

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The axis of the batch in each input of the file."""
        return self._axes or tuple(axis or 0 for axis in self._named)

    def _axes_of(self, types: Sequence[TensorType]) -> tuple[int, ...]:
        """The axes of the batch in the inputs of the file, for inputs of these types with rows first."""
        ends, given = zip(self.graph.inputs, types, self._named, strict=True), self._given_axis
        each = [
            fitting(value, kind.shape[1:], axis) if given is None or given >= len(kind.shape) else [given]
            for value, kind, axis in ends
        ]
        choices = [*product(*each)]
        for test in (self._computes, self._separates):
            if len(choices) > 1:
                choices = [axes for axes in choices if test(axes, types) is not None] or choices[:1]
        if len(choices) > 1 and all(length_of(self.graph.inputs, axes) for axes in choices):
            rows = {"file": self.file, "inputs": ", ".join(map(str, self.graph.inputs)), "rows": str(types[0])}
            allowed = " or ".join(str(axes[0]) for axes in choices)
            what, repair = "an ONNX file can have the batch in several axes", f"network.batch_axis={choices[0][0]}"
            raise ConfigError(what, key="network.batch_axis", **rows, allowed=allowed, repair=repair)
        self._shapes.clear()  # of axes that were tried
        self._known.clear()
        return choices[0]

    def _kinds(self, axes: tuple[int, ...], types: Sequence[TensorType]) -> list[TensorType]:
        """The types of inputs as the file has them, with the batch in these axes: of its size, or of two."""
        rows = max(2, length_of(self.graph.inputs, axes) or 0)
        return [kind.with_shape(*with_axis(kind.shape[1:], k, rows)) for kind, k in zip(types, axes, strict=True)]

    def _computes(self, axes: tuple[int, ...], types: Sequence[TensorType]) -> Graph | None:
        """What is computed if the batch is in these axes; None if nothing can be."""
        try:
            return trace(lambda *x: self._result(self._values_of(x, axes)), self._kinds(axes, types), "batch")
        except RunnerError:
            return None

    def _separates(self, axes: tuple[int, ...], types: Sequence[TensorType]) -> int | None:
        """The axis of the output along which samples are separate if the batch is in these axes; None if they are not,
        or if nothing can be computed so."""
        training = self.training
        self.__dict__["training"] = False

        def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
            with NOTES.apart(), Eager(tape=False), np.errstate(all="ignore"):  # a trial: no run depends on it
                result = self._result(self._values_of(tuple(map(Tensor, arrays)), axes))
            return result.asnumpy()  # type: ignore[attr-defined, no-any-return]

        try:
            return axis_of_samples(run, self._kinds(axes, types), axes)
        except RunnerError:
            return None
        finally:
            self.__dict__["training"] = training

    def construct(self, *inputs: Value) -> Value:
        return _moved(self._result(self.values(*inputs)), self._output_axis, 0)

    def _result(self, values: Values) -> Value:
        name = self.graph.outputs[0].name
        result: Value | np.ndarray = value_of(values, name)
        if isinstance(result, tuple):
            rows = {"value": name, "repair": "network.output=NAME, of a tensor"}
            raise ConfigError("the output of an ONNX file is a sequence", **rows)
        return Tensor(result) if isinstance(result, np.ndarray) else result

    def values(self, *inputs: Value) -> Values:
        """All values of the file's graph by name, for these inputs: tensors, and arrays of what is known at import."""
        given, axes = inputs, self._axes
        if axes is None:
            ends = zip(self.graph.inputs, given, self._named, strict=False)
            axes = tuple(axis if axis and fits(value, x.shape, axis) else 0 for value, x, axis in ends)
        elif len(given) == len(axes):
            given = tuple(_moved(x, 0, axis) for x, axis in zip(given, axes, strict=True))
        return self._values_of(given, axes)

    def _values_of(self, inputs: tuple[Value, ...], axes: tuple[int, ...]) -> Values:
        """All values for inputs as the file has them, with the batch in these axes."""
        given = self._checked(inputs, axes)
        self.__dict__["other_batch"] = self._other_batch([x.type for x in given], axes)
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

    def _other_batch(self, given: Sequence[TensorType], axes: tuple[int, ...]) -> OtherBatch | None:
        """What is known of the batch size that the file fixes, where the batch has another one."""
        length = length_of(self.graph.inputs, axes)
        if length is None or not all(axis < len(kind.shape) for kind, axis in zip(given, axes, strict=True)):
            return None
        rows = given[0].shape[axes[0]]
        if length == rows:
            return None
        pairs = [(kind, (*kind.shape[:k], *kind.shape[k + 1 :]), k) for kind, k in zip(given, axes, strict=True)]
        types = tuple(kind.with_shape(*with_axis(row, k, length)) for kind, row, k in pairs)
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
                operands = [value_of(values, name) for name in call.node.inputs]
                values[call.node.outputs[0]] = self._left_out[call.node](*operands)
            elif not (known and known.keys() & set(call.node.outputs)):
                call.execute(values)
        if self._seen is not None:
            self._seen.update({name: shape_of(value) for name, value in values.items() if value is not LOST})
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

    def _checked(self, inputs: tuple[Value, ...], axes: tuple[int, ...]) -> tuple[Value, ...]:
        declared = self.graph.inputs
        if len(inputs) != len(declared):
            rows = {"file": self.file, "inputs": ", ".join(map(str, declared)), "given": len(inputs)}
            repair = "dataset.inputs=[columns in the order of the file's inputs]"
            raise ShapeError("the network of an ONNX file has another number of inputs", **rows, repair=repair)
        for value, x, axis in zip(declared, inputs, axes, strict=True):
            if not fits(value, x.shape, axis):
                rows = {"input": value, "given": x.type, "file": self.file}
                repair = "a transform of the dataset to this shape, network.batch_axis, or a model with free axes"
                raise ShapeError("an input of an ONNX file has another shape", **rows, repair=repair)
        return tuple(self._converted(value, x) for value, x in zip(declared, inputs, strict=True))

    def _converted(self, declared: OnnxValue, x: Value) -> Value:
        return x if declared.dtype in (None, x.dtype) else ops.Cast()(x, declared.dtype)


def _moved(x: Value, source: int, place: int) -> Value:
    """x with an axis at another place."""
    order = [k for k in range(x.ndim) if k != source]
    order.insert(place, source)
    return x if source == place or x.ndim <= max(source, place) else ops.Transpose()(x, tuple(order))


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
