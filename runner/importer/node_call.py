"""`NodeCall`: a node of an imported network with its rule, executed once in each step."""

import linecache
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from runner.core.eager import Eager
from runner.core.operators import current
from runner.core.source import SourceLine
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, RunnerError
from runner.importer.graph import OnnxGraph, OnnxNode
from runner.importer.other_batch import OtherBatch
from runner.importer.table import OnnxRule

Known: TypeAlias = np.ndarray | None
Values: TypeAlias = MutableMapping[str, Any]  # by name: values of the step, and arrays for what is known at import
_REQUIRED = object()


class Network(Protocol):
    """What a node needs of its network."""

    training: bool
    other_batch: OtherBatch | None

    def execute(self, graph: OnnxGraph, outer: Mapping[str, Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a graph inside of a node."""


class NodeCall:
    """A node of an imported network, as its rule sees it."""

    def __init__(self, node: OnnxNode, rule: OnnxRule, network: Network, path: Path) -> None:
        self.node, self.rule, self.network = node, rule, network
        self.line = SourceLine(str(path), node.number)
        self.new_outputs: tuple[int, int] | None = None  # of a new head before it: their number in the file, and now

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
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.error("an attribute is missing", attribute=name)
        return default

    def setting(self, name: str, given: np.ndarray | None, default: Any = None) -> Any:
        """What newer opsets pass as an input and older ones as an attribute: as plain numbers, or a list of them."""
        return self.attribute(name, default) if given is None else given.tolist()

    def known(self, name: str) -> Known:
        """An input, by its name in the rule, if it is known when the network is imported."""
        position = self.rule.inputs.index(name)
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

    @property
    def other_batch(self) -> OtherBatch | None:
        """What is known of the batch size that the file fixes, where the batch has another one."""
        return self.network.other_batch

    def inner(self, graph: OnnxGraph, *inputs: Any) -> tuple[Any, ...]:
        """Execute a graph that is an attribute, in the values that this node sees."""
        return self.network.execute(graph, self._values, inputs)

    def execute(self, values: Values) -> None:
        """Execute the node: its outputs are added to `values`."""
        self._values = values
        inputs = [values[name] if name else None for name in self.node.inputs]
        is_known = all(x is None or isinstance(x, np.ndarray) for x in inputs)
        if is_known and self.node.inputs and not self.node.graphs:  # which read values that are not inputs
            with np.errstate(all="ignore"), Eager(tape=False):
                outputs = [_known(x) for x in self._apply(inputs)]
        else:
            outputs = list(self._apply(inputs))
            self._check_batch(inputs, outputs)
        for name, output in zip(self.node.outputs, outputs, strict=False):
            if output is not None:
                values[name] = output

    def _check_batch(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Raise ConfigError where the file reads samples of its own batch by their numbers."""
        other = self.other_batch
        if other is None or self.node.op_type.startswith(("Reduce", "Global")):
            return
        sources = [(name, x.shape) for name, x in zip(self.node.inputs, inputs, strict=True) if x is not None]
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
        except RunnerError as error:
            raise error.add(node=self.node.name, line=self.line) from None
        finally:
            interpreter.line = outer
            interpreter.scope.pop()
        return made if isinstance(made, tuple) else (made,)

    def _operands(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) > len(self.rule.inputs) and not self.rule.is_variadic:
            raise self.error("a node has too many inputs", given=len(inputs), allowed=len(self.rule.inputs))
        return [self._operand(k, x) for k, x in enumerate(inputs)]

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


def _known(value: Any) -> Known:
    return value.asnumpy() if isinstance(value, Value) else value  # type: ignore[attr-defined, no-any-return]


def register_lines(path: Path, graph: OnnxGraph) -> None:
    """Make the nodes the lines of the file, for errors, dumps and comparisons: line 12 is node 12."""
    lines: dict[int, str] = {node.number: f"{node}\n" for node in graph.all_nodes()}
    text = [lines.get(number, "\n") for number in range(1, max(lines, default=0) + 1)]
    linecache.cache[str(path)] = (0, None, text, str(path))


def values_of(graph: OnnxGraph, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """What the nodes of a graph read besides its inputs: parameters, and arrays that are constants."""
    return {**graph.initializers, **parameters}
