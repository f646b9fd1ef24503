"""`NodeCall`: a node of an imported network with its rule, executed once in each step.

Before it: batches of another size than that of the file, and the table of rules, which `rules/` fills.
"""

import inspect
import linecache
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from runner import ops
from runner.core.current import Current
from runner.core.interpreter import Eager, current
from runner.core.source import SourceLine
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, InternalError, RunnerError
from runner.importer.file import OnnxGraph, OnnxNode, default_of
from runner.types import Shape

# Batches of another size than the one that a file fixes, as files have it that were exported without free axes.
#
# Shapes in such a file are those of its own batch. `OtherBatch` has the shapes of all values of the file for that size;
# where a value has another shape now, the axis that carries the batch is known.


@dataclass(frozen=True, eq=False)
class OtherBatch:
    """The batch size of the file, that of the batch, and shapes of values by name, for the size of the file."""

    length: int
    rows: int
    shapes: Mapping[str, Shape]
    # For axes in which a batch is joined with others, by their lengths in the file and now: how many of the elements
    # of the axis differ before the batch does.
    _joined: dict[tuple[int, int], int] = field(default_factory=dict)
    repeated: set[tuple[str, int]] = field(default_factory=set)  # names and axes of what has equal samples in the file

    def reshaped(self, source: str, result: str, now: Shape) -> Shape | None:
        """The shape that a value gets by reshaping it, or None if it carries no batch; `now` is its shape."""
        before, wanted = self.shapes.get(source, now), self.shapes.get(result)
        axis = _changed(before, now)
        if axis is None or wanted is None:
            return None
        lengths = before[axis], now[axis]
        start = math.prod(before[:axis]) * self._joined.get(lengths, 1)
        place = self._place(wanted, start, before[axis + 1 :], lengths)
        new = wanted[place] * now[axis] // before[axis]
        self._joined[wanted[place], new] = max(1, start // math.prod(wanted[:place]))
        return tuple(new if k == place else n for k, n in enumerate(wanted))

    def expanded(self, source: str, result: str, now: Shape) -> Shape | None:
        """The shape to which a value is broadcast, or None if it is that of the file."""
        before, wanted = self.shapes.get(source, now), self.shapes.get(result)
        axis = _changed(before, now)
        if not wanted or (axis is None and (wanted[0] != self.length or (len(now) == len(wanted) and now[0] != 1))):
            return None
        place = 0 if axis is None else axis + len(wanted) - len(now)
        rows = self.rows if axis is None else now[axis]
        return tuple(rows if k == place else n for k, n in enumerate(wanted))

    def _place(self, wanted: Shape, start: int, rest: Shape, lengths: tuple[int, int]) -> int:
        """The axis of a new shape that gets the batch, which begins after `start` elements; `rest` are the axes after
        it.
        """
        fits = [k for k, n in enumerate(wanted) if n * lengths[1] % lengths[0] == 0]
        exact = [k for k in fits if math.prod(wanted[:k]) == start]
        alone = [k for k in exact if wanted[k] == self.length]
        inside = [k for k in fits if math.prod(wanted[:k]) <= start < math.prod(wanted[: k + 1])]
        if exact and not alone and exact[0] > 0 and self.length == 1 and len(wanted) - exact[0] <= len(rest):
            return exact[0] - 1  # (positions, 1, features) as (positions, features)
        return (alone or exact or inside or [0])[0]

    def is_lost(self, sources: Iterable[tuple[str, Shape]], result: str, now: Shape) -> bool:
        """Whether a result has no batch although one of the values of which it is made has one."""
        before = self.shapes.get(result)
        return before == now != () and any(self.shapes.get(name, shape) != shape for name, shape in sources)

    def sample(self, array: np.ndarray, shape: Shape) -> np.ndarray:
        """A constant that is the same for all samples of the file's batch, as one sample where a shape has another
        batch; other ones as they are."""
        for axis in range(-min(array.ndim, len(shape)), 0):
            if self.length != 1 and (array.shape[axis], shape[axis]) == (self.length, self.rows):
                first = array.take([0], axis)
                array = first if bool((array == first).all()) else array
        return array

    def is_constant(self, name: str, now: Shape) -> bool:
        """Whether a value has the batch size of the file in its first axis, and no batch."""
        return bool(now) and now[0] == self.length and self.shapes.get(name) == now


def shape_of(value: Any) -> tuple[Any, ...]:
    """The shape of a tensor or an array; of a sequence, those of its parts."""
    return tuple(map(shape_of, value)) if isinstance(value, tuple) else tuple(value.shape)


def _changed(before: Shape, now: Shape) -> int | None:
    """The axis that carries the batch: the one whose length is another one."""
    if len(before) != len(now):
        return None
    axes = [k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
    return axes[0] if len(axes) == 1 else None


# The table of ONNX operators: each has one rule, a function that applies ours. `rules/` fills it.

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class OnnxRule:
    """What an ONNX operator becomes: a function of the call and of the ONNX inputs.

    `static` are the inputs that must be known when the network is imported: it takes them as numpy arrays.
    `without_effect` are attributes that change nothing here; all others that a node has are read, or it is refused.
    """

    operator: str
    apply: Callable[..., Any]
    inputs: tuple[str, ...]
    static: frozenset[str]
    is_variadic: bool
    without_effect: frozenset[str] = frozenset()

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        return (inspect.getdoc(self.apply) or "").partition("\n")[0]

    def is_static(self, position: int) -> bool:
        """Whether the input at a position must be known at import."""
        return position < len(self.inputs) and self.inputs[position] in self.static


RULES: dict[str, OnnxRule] = {}


def onnx_operator(operator: str, *, static: Sequence[str] = (), without_effect: Sequence[str] = ()) -> Callable[[T], T]:
    """Declare the rule of an ONNX operator; one of another domain has its name, `com.microsoft.Gelu`.

    The parameters after the first are the ONNX inputs in their order, optional ones with the default None.
    """

    def add(function: T) -> T:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        inputs = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
        if operator in RULES or not set(static) <= set(inputs):
            raise InternalError(
                "an ONNX operator has two rules, or a static input that it does not have", name=operator
            )
        is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        RULES[operator] = OnnxRule(
            operator, function, inputs, frozenset(static), is_variadic, frozenset(without_effect)
        )
        return function

    return add


WITHOUT = "a model without it, or with the value that it has by default"


def _is_default(node: OnnxNode, name: str, value: Any) -> bool:
    default = default_of(node, name)
    return default is not None and value == default


# The call of a node.

Known: TypeAlias = np.ndarray | None
Values: TypeAlias = MutableMapping[str, Any]  # by name: values of the step, and arrays for what is known at import
_REQUIRED = object()


class Network(Protocol):
    """What a node needs of its network."""

    training: bool
    other_batch: OtherBatch | None

    def execute(self, graph: OnnxGraph, outer: Mapping[str, Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a graph inside of a node."""


# Errors of nodes that are collected, as `runner inspect` needs all of them, instead of raised.

REFUSALS: Current[list[RunnerError] | None] = Current("refusals", None)
LOST = object()  # stands for what a refused node would compute, and what would be computed from it


def refuse(error: RunnerError) -> None:
    """Raise an error, or collect it inside of `collected`."""
    refusals = REFUSALS.get()
    if refusals is None:
        raise error
    refusals.append(error)


@contextmanager
def collected() -> Iterator[list[RunnerError]]:
    """Context in which the errors of nodes are collected; what they would compute is `LOST`."""
    refusals: list[RunnerError] = []
    with REFUSALS.using(refusals):
        yield refusals


class NodeCall:
    """A node of an imported network, as its rule sees it."""

    def __init__(self, node: OnnxNode, rule: OnnxRule, network: Network, path: Path) -> None:
        self.node, self.rule, self.network = node, rule, network
        self.line = SourceLine(str(path), node.number)
        self.new_outputs: tuple[int, int] | None = None  # of a new head before it: their number in the file, and now
        self._constants: dict[int, np.ndarray] = {}  # the operands of the rule that are known at import
        self._read: set[str] | None = set()  # attributes, until the rule has been applied once

    @property
    def training(self) -> bool:
        """Whether the network is being trained."""
        return self.network.training

    @property
    def opset(self) -> int:
        """The opset of the node's domain."""
        return self.node.opset

    @property
    def outputs(self) -> int:
        """The number of outputs that the node has names for."""
        return len(self.node.outputs)

    def attribute(self, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute: a number, a text, an array, or a tuple of them. Raises ConfigError when it is missing."""
        value = self.node.attributes.get(name)
        if self._read is not None:
            self._read.add(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error("an attribute is missing", attribute=name)
        return default

    def setting(self, name: str, given: np.ndarray | None, default: Any = None) -> Any:
        """What newer opsets pass as an input and older ones as an attribute: a plain number, or a list of them."""
        return self.attribute(name, default) if given is None else given.tolist()

    def numbers(self, name: str, given: np.ndarray | None, default: Any = None) -> Any:
        """A setting that is a list; files have one number without axes too."""
        return self.setting(name, None if given is None else given.reshape(-1), default)

    def axis(self, default: int, ndim: int, name: str = "axis") -> int:
        """An attribute that is one of `ndim` axes, from 0. Raises ConfigError for one out of range."""
        return self.axes([self.attribute(name, default)], ndim)[0]

    def axes(self, given: Iterable[int], ndim: int) -> list[int]:
        """Different axes of `ndim` ones, from 0. Raises ConfigError for one out of range, and for one given twice."""
        given = list(given)
        if any(not -ndim <= axis < ndim for axis in given):
            allowed = f"{-ndim} to {ndim - 1}" if ndim else "none, since the operand has no axes"
            raise self.error("an axis is out of range", axes=given, allowed=allowed)
        found = [int(axis) % ndim for axis in given]
        if len(set(found)) < len(found):
            raise self.error("an axis is given twice", axes=given)
        return found

    def computes(self, name: str, value: Value) -> bool:
        """Whether an input, by its name in the rule, is computed by the network: no parameter, and not known."""
        return self.known(name) is None and not isinstance(value, Parameter)

    def known(self, which: str | int) -> Known:
        """An input, by its name in the rule or its position, if it is known when the network is imported."""
        position = self.rule.inputs.index(which) if isinstance(which, str) else which
        value = self._values.get(self.node.inputs[position]) if position < len(self.node.inputs) else None
        return value if isinstance(value, np.ndarray) else None

    def choice(self, name: str, default: Any, *allowed: Any) -> Any:
        """An attribute of which only some values are supported. Raises ConfigError for others."""
        value = self.attribute(name, default)
        if value not in allowed:
            raise self.error("a setting is not supported", attribute=name, value=value, allowed=allowed)
        return value

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Give a parameter a new value, as moving statistics get."""
        current().assign(parameter, value)

    def error(self, what: str, **rows: Any) -> ConfigError:
        """An error of this node."""
        allowed = rows.get("allowed")
        if isinstance(allowed, tuple):
            rows["allowed"] = ", ".join(map(str, allowed))
        where = {"node": self.node.name, "operator": f"{self.node.operator}, opset {self.opset}", "line": self.line}
        return ConfigError(what, **rows, **where)

    def adapted(self, shape: list[int]) -> list[int]:
        """A shape of the file, with the number of outputs of a new head; its first axis is the batch."""
        if self.new_outputs is None or self.new_outputs[0] not in shape[1:]:
            return shape
        place = shape.index(self.new_outputs[0], 1)
        return [*shape[:place], self.new_outputs[1], *shape[place + 1 :]]

    def fixed_batch(self, length: int, x: Value, axis: int = 0) -> bool:
        """Whether a length is the batch size that the file fixes, and x has an axis with the rows of another batch."""
        other = self.other_batch
        return other is not None and length == other.length and x.ndim > axis and x.shape[axis] == other.rows

    def broadcast(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Two operands that are broadcast, where constants of the file's batch fit another one."""
        return self.fitted(a, b.shape), self.fitted(b, a.shape)

    def fitted(self, x: Value, shape: Shape) -> Value:
        """`OtherBatch.sample` of an operand, if it is known at import, and the batch another one than the file's."""
        known = self._constants.get(id(x))
        if known is None or self.other_batch is None:
            return x
        sample = self.other_batch.sample(known, shape)
        return x if sample is known else Tensor(sample)

    def with_rows(self, x: Value) -> Value:
        """A constant operand that is the same for all samples of the file's batch, with a row for each sample."""
        other = self.other_batch
        if other is None or not x.ndim:
            return x
        one = self.fitted(x, (other.rows, *x.shape[1:]))
        return x if one is x else ops.BroadcastTo((other.rows, *x.shape[1:]))(one)

    @property
    def other_batch(self) -> OtherBatch | None:
        """What is known of the batch size that the file fixes, where the batch has another one."""
        return self.network.other_batch

    def inner(self, graph: OnnxGraph, *inputs: Any) -> tuple[Any, ...]:
        """Execute a graph that is an attribute, in the values that this node sees."""
        return self.network.execute(graph, self._values, inputs)

    def execute(self, values: Values) -> None:
        """Execute the node: its outputs are added to `values`."""
        if REFUSALS.get() is None:
            self._execute(values)
            return
        try:
            if any(values.get(name) is LOST for name in self.node.reads):
                values.update(dict.fromkeys(self.node.outputs, LOST))
            else:
                self._execute(values)
        except RunnerError as error:
            refuse(error)
            values.update(dict.fromkeys(self.node.outputs, LOST))

    def _execute(self, values: Values) -> None:
        self._values = values
        inputs = [value_of(values, name) if name else None for name in self.node.inputs]
        is_known = all(x is None or isinstance(x, np.ndarray) for x in inputs)
        if is_known and self.node.inputs and not self.node.graphs:  # which read values that are not inputs
            with np.errstate(all="ignore"), Eager(tape=False):
                outputs = [_known(x) for x in self._apply(inputs)]
        else:
            outputs = list(self._apply(inputs))
            self._check_batch(inputs, outputs)
        for name, output in zip(self.node.outputs, outputs, strict=False):
            if name and output is not None:
                values[name] = output

    def _check_batch(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Raise ConfigError where the file reads samples of its own batch by their numbers."""
        other = self.other_batch
        if other is None or self.node.op_type.startswith(("Reduce", "Global")):
            return
        sources = [(name, shape_of(x)) for name, x in zip(self.node.inputs, inputs, strict=True) if x is not None]
        for name, y in zip(self.node.outputs, outputs, strict=False):
            if isinstance(y, Value) and other.is_lost(sources, name, y.shape):
                rows = {"batch of the file": other.length, "batch": other.rows}
                repair = "export it with a free first axis (dynamic_axes, dynamic_shapes), or batches of that size"
                raise self.error(
                    "a node of a file with a fixed batch size reads samples by number", **rows, repair=repair
                )

    def _apply(self, inputs: Sequence[Any]) -> Sequence[Any]:
        interpreter = current()
        interpreter.scope.append(self.node.name)
        outer, interpreter.line = interpreter.line, self.line
        try:
            made = self.rule.apply(self, *self._operands(inputs))
            self._require_all_read()
        except RunnerError as error:
            raise error.add(node=self.node.name, line=self.line) from None
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            kinds = ", ".join(str(x.type) if isinstance(x, Value) else "known" for x in inputs if x is not None)
            reason = f"{type(error).__name__}: {error}"
            raise self.error("a node does not fit what it reads", reason=reason, operands=kinds) from error
        finally:
            interpreter.line = outer
            interpreter.scope.pop()
        return made if isinstance(made, tuple) else (made,)

    def _require_all_read(self) -> None:
        """Raise ConfigError for an attribute that the rule has not read, since it may change what is computed.

        One with the value that it has where it is left out changes nothing, nor does the branch that is not taken.
        """
        read, self._read = self._read, None
        if read is None:
            return
        for name, value in self.node.attributes.items():
            known = name in read or name in self.rule.without_effect or isinstance(value, OnnxGraph)
            if not known and not _is_default(self.node, name, value):
                raise self.error("an attribute is not supported", attribute=name, value=value, repair=WITHOUT)

    def _operands(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) > len(self.rule.inputs) and not self.rule.is_variadic:
            raise self.error("a node has too many inputs", given=len(inputs), allowed=len(self.rule.inputs))
        operands = [self._operand(k, x) for k, x in enumerate(inputs)]
        if self.other_batch is not None:
            pairs = zip(operands, inputs, strict=True)
            self._constants = {id(x): array for x, array in pairs if isinstance(array, np.ndarray)}
        return operands

    def _operand(self, position: int, value: Any) -> Any:
        if value is None:
            return None
        if not self.rule.is_static(position):
            return Tensor(value) if isinstance(value, np.ndarray) else value
        if isinstance(value, Parameter):
            return value.asnumpy()
        if not isinstance(value, np.ndarray):
            name, repair = self.rule.inputs[position], "a model whose shapes follow from those of its inputs"
            raise self.error("an input must be known when the network is imported", input=name, repair=repair)
        return value


def _known(value: Any) -> Any:
    """A value as an array, or those of a sequence."""
    if isinstance(value, tuple):
        return tuple(map(_known, value))
    return value.asnumpy() if isinstance(value, Value) else value  # type: ignore[attr-defined]


def register_lines(path: Path, graph: OnnxGraph) -> None:
    """Make the nodes the lines of the file, for errors, dumps and comparisons: line 12 is node 12."""
    lines: dict[int, str] = {node.number: f"{node}\n" for node in graph.all_nodes()}
    text = [lines.get(number, "\n") for number in range(1, max(lines, default=0) + 1)]
    linecache.cache[str(path)] = (0, None, text, str(path))


def value_of(values: Values, name: str) -> Any:
    """The value of this name. Raises ConfigError for a result of a node that its rule does not compute, and for a name
    that nothing in the file writes."""
    if name not in values:
        hint = "masks of Dropout and statistics of a batch are not computed, nor what no node of the file writes"
        raise ConfigError("a value of an ONNX file is not computed", value=name, hint=hint)
    return values[name]


def values_of(graph: OnnxGraph, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """What the nodes of a graph read besides its inputs: parameters, and arrays that are constants."""
    return {**graph.initializers, **parameters}
