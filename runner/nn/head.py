"""Fine-tuning: a network gets another head (`network.head=replace`), and parameters are frozen (`network.freeze`).

The head, its last linear layer, is found in what is executed: the network is traced, and its graph walked backwards
from the outputs to the matrix products and convolutions that come last.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from runner.common.initializer import Uniform, initializer
from runner.core.graph import Graph
from runner.core.operators import Node, Primitive
from runner.core.trace import trace
from runner.core.values import Parameter, Value
from runner.errors import ConfigError, RunnerError, nearest, raise_all, some
from runner.nn.cell import Cell
from runner.types import Shape, TensorType
from runner.validation.arguments import whole
from runner.validation.rules import Frozen

NOWHERE: Mapping[str, object] = {}
OWN_CODE = "a network of your own may name its parameters: head_parameters()"
Axes = Mapping[int, int]  # of an operator: the axis of the outputs in each operand that can be its weight


def _of_product(op: Primitive, ndim: int) -> Axes:
    transposed = op.attributes()
    return {1: ndim - (2 if transposed["transpose_b"] else 1), 0: ndim - (1 if transposed["transpose_a"] else 2)}


LINEAR: dict[str, Callable[[Primitive, int], Axes]] = {
    "MatMul": _of_product,
    "BatchMatMul": _of_product,
    "Conv2D": lambda op, ndim: {1: 0},
}
BIASED = ("Add", "BiasAdd", "Sub")  # with a parameter that has one element for each output


class Head(Frozen):
    """The parameters of a linear layer, the weight first, each with its axis of outputs; `name` is the operator's."""

    name: str
    axes: Mapping[Parameter, int]

    @property
    def weight(self) -> Parameter:
        """Its matrix or filters."""
        return next(iter(self.axes))

    def __str__(self) -> str:
        return ", ".join(f"{p.name} {p.type}" for p in self.axes) + f": {self.name}"


def replace_head(
    network: Cell, types: Sequence[TensorType], count: int, where: Mapping[str, object] = NOWHERE
) -> tuple[Parameter, ...]:
    """Give the last linear layer `count` outputs and new values, and return its parameters, the weight first.

    `types` are those of the network's inputs. The weight is uniform within +-sqrt(1 / inputs), drawn from the seed; a
    bias is 0. Parameters keep their names. `where` are rows of errors. Raises ConfigError when there is no such layer,
    or several, and when the network does not work with as many outputs.
    """
    whole(dict(where), 1, count=count)
    given = network.head_parameters()
    head = Head(name=type(network).__name__, axes=given) if given else _found(_graph(network, types), network, where)
    before, outputs = str(head), head.weight.shape[head.axes[head.weight]]
    for parameter, axis in head.axes.items():
        shape = (*parameter.shape[:axis], count, *parameter.shape[axis + 1 :])
        rule = Uniform(math.sqrt(count / math.prod(shape))) if parameter is head.weight else "zeros"
        parameter.set_data(initializer(rule, shape, parameter.dtype), slice_shape=True)
        parameter.sliced = False  # it is whole
    for _, cell in network.cells_and_names():
        if any(p is head.weight for p in cell.get_parameters(expand=False)):
            cell.change_outputs(head.weight, outputs, count)
    try:
        _graph(network, types)
    except RunnerError as error:
        rows = {"head": before, "outputs": count, "reason": error.what}
        raise ConfigError("the network needs as many outputs as its head had", **where, **rows, **error.rows) from None
    return tuple(head.axes)


def _graph(network: Cell, types: Sequence[TensorType]) -> Graph:
    return trace(network.compute, types, type(network).__name__)


def _found(graph: Graph, network: Cell, where: Mapping[str, object]) -> Head:
    walk = _Walk(graph)
    heads = list(walk.heads.values())
    rows = {**where, "network": type(network).__name__}
    if walk.blocking is not None:
        found = f"{walk.blocking.name} reads {some([p.name for p in walk.parameters_of(walk.blocking)], 3)}"
        allowed = "Dense, Conv2d, or a matrix product or convolution with a parameter"
        raise ConfigError("the last layer is not linear", **rows, found=found, allowed=allowed, repair=OWN_CODE)
    if not heads:
        raise ConfigError("no linear layer leads to the outputs", **rows, repair=OWN_CODE)
    if len(heads) > 1:
        candidates = "\n".join(map(str, heads))
        raise ConfigError("several linear layers are the last one", **rows, candidates=candidates, repair=OWN_CODE)
    (head,) = heads
    if walk.uses(head.weight) > 1:
        raise ConfigError("the weight of the last linear layer has another use", **rows, head=head, repair=OWN_CODE)
    return head


class _Walk:
    """The walk from the outputs of a graph to the last linear layers.

    `heads` are these by their weights; `blocking` is another operator before them that has a weight, or None.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers: dict[Value, Node] = {y: node for node in graph.nodes for y in node.outputs}
        self.parameters: dict[Value, Parameter] = {symbol: p for p, symbol in graph.parameters.items()}
        self.blocking: Node | None = None
        after: list[tuple[Node, Parameter]] = []  # what the operators after the heads read
        last: dict[Parameter, tuple[Node, int]] = {}
        todo: list[Value] = list(graph.outputs)
        seen = set[int]()
        while todo:
            node = self.producers.get(todo.pop())
            if node is None or node.number in seen:
                continue
            seen.add(node.number)
            if (weight := self.weight_of(node)) is not None:
                last[weight[0]] = node, weight[1]
                continue
            read = {x: self.parameter_behind(x, 0) for x in node.inputs}
            after += [(node, found[0]) for found in read.values() if found is not None]
            todo += [x for x, found in read.items() if found is None]
        ordered = sorted(last.items(), key=lambda item: item[1][0].number)
        self.heads = {weight: self._head(weight, *place, after) for weight, place in ordered}
        self.blocking = next((node for node, p in after if _is_matrix(p)), self.blocking)

    def weight_of(self, node: Node) -> tuple[Parameter, int] | None:
        """The weight of a linear operator, and its axis of outputs; None for other operators."""
        if node.op.name not in LINEAR:
            return None
        for operand, axis in LINEAR[node.op.name](node.op, node.inputs[1].ndim).items():
            found = self.parameter_behind(node.inputs[operand], axis)
            if found is not None and found[1] is not None:
                return found[0], found[1]
        return None

    def parameter_behind(self, value: Value, axis: int) -> tuple[Parameter, int | None] | None:
        """The parameter whose elements a value has, and which of its axes `axis` is, if it is one."""
        place: int | None = axis
        while (node := self.producers.get(value)) is not None:
            if node.op.computes or len(node.inputs) != 1:
                return None
            place = None if place is None else _axis_before(node, place)
            value = node.inputs[0]
        found = self.parameters.get(value)
        return None if found is None else (found, place)

    def parameters_of(self, node: Node) -> list[Parameter]:
        """The parameters that an operator reads."""
        found = (self.parameter_behind(x, 0) for x in node.inputs)
        return [one[0] for one in found if one is not None]

    def uses(self, parameter: Parameter) -> int:
        """How many operators read a parameter itself."""
        symbol = self.graph.parameters[parameter]
        return sum(any(x is symbol for x in node.inputs) for node in self.graph.all_nodes)

    def _head(self, weight: Parameter, node: Node, axis: int, after: Sequence[tuple[Node, Parameter]]) -> Head:
        axes, count = {weight: axis}, weight.shape[axis]
        for reader, parameter in after:
            if parameter.size == count and count in parameter.shape:
                if reader.op.name in BIASED:
                    axes[parameter] = _axis_of_bias(parameter.shape, count, node)
                elif count > 1:
                    self.blocking = reader
        return Head(name=node.name, axes=axes)


def _axis_of_bias(shape: Shape, count: int, node: Node) -> int:
    """Which axis of a bias has the outputs of a linear operator: of several, that which broadcasts to them."""
    aligned = len(shape) - (node.outputs[0].ndim - 1 if node.op.name == "Conv2D" else 1)
    return aligned if aligned >= 0 and shape[aligned] == count else shape.index(count)


def _is_matrix(parameter: Parameter) -> bool:
    """Whether it is a weight, rather than a bias or a scale."""
    return sum(length > 1 for length in parameter.shape) > 1


def _axis_before(node: Node, axis: int) -> int | None:
    """Which axis of its operand an axis of an operator's output is; None if it is none."""
    before, after = node.inputs[0].shape, node.outputs[0].shape
    if (perm := node.op.attributes().get("perm")) is not None:
        return int(perm[axis])
    if before == after:
        return axis
    if after[len(after) - len(before) :] == before:  # broadcast, or with new axes before
        return axis - (len(after) - len(before)) if axis >= len(after) - len(before) else None
    if math.prod(before) != math.prod(after):
        return None
    starts = [int(np.prod(before[:k])) for k in range(len(before))]
    start, length = int(np.prod(after[:axis])), after[axis]
    return next((k for k, n in enumerate(before) if starts[k] == start and n == length), None)


# Parameters that a training leaves as they are (`network.freeze`).

MOST_NAMES = 5  # in an error


def freeze(
    network: Cell, patterns: Sequence[str], trained: Collection[Parameter] = (), where: Mapping[str, object] = NOWHERE
) -> list[Parameter]:
    """Freeze the parameters whose names match a pattern, and return those that a training would have changed.

    `*` stands for any text, `?` for one character, `[ab]` for one of these; dots and slashes are the same character.
    A frozen parameter has `frozen` and no `requires_grad`, so optimizers do not get it. A batch normalization whose
    gamma and beta are frozen normalizes with its moving statistics in training too, and keeps them. Those of `trained`
    are never frozen. `where` are rows of errors. Raises ConfigError for a pattern that matches no parameter that would
    be trained, and when all are frozen; ConfigErrors for several.
    """
    others = set(trained)  # `in` a list would compare elements
    parameters = [p for p in network.get_parameters() if p not in others]
    trainable = [p for p in parameters if p.requires_grad]
    matched = {pattern: [p for p in parameters if matches(p.name, pattern)] for pattern in patterns}
    raise_all([_unmatched(pattern, matched[pattern], trainable, where) for pattern in _useless(matched)])
    frozen = {p for found in matched.values() for p in found}
    if patterns and not any(p.requires_grad for p in network.get_parameters() if p not in frozen):
        rows = {"value": ", ".join(patterns), "trainable": f"all {len(trainable)} parameters are frozen"}
        repair = "patterns that leave some, such as those of the last layer"
        raise ConfigError("no parameter is left to train", **where, **rows, repair=repair)
    for parameter in frozen:
        parameter.frozen, parameter.requires_grad = True, False
    return [p for p in trainable if p.frozen]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is that of a name.

    >>> matches("features.0.weight", "features/*"), matches("model/dense/kernel:0", "*.dense.*")
    (True, True)
    """
    name, pattern = (text.replace("/", ".") for text in (name, pattern))
    return name == pattern or fnmatchcase(name, pattern)


def _useless(matched: Mapping[str, Sequence[Parameter]]) -> list[str]:
    """The patterns without any parameter that would be trained."""
    return [pattern for pattern, found in matched.items() if not any(p.requires_grad for p in found)]


def _unmatched(
    pattern: str, found: Sequence[Parameter], trainable: Sequence[Parameter], where: Mapping[str, object]
) -> ConfigError:
    names = [p.name for p in trainable]
    rows: dict[str, object]
    if found:
        rows = {"value": pattern, "matches": some([p.name for p in found], MOST_NAMES)}
        return ConfigError("a pattern matches only parameters that are never trained", **where, **rows)
    below = [name for name in names if matches(name, f"{pattern}.*")]
    close = f"{pattern}.*" if below else nearest(pattern, [*_groups(names), *names])
    rows = {"value": pattern, "nearest": close, "parameters": some(below or names, MOST_NAMES)}
    return ConfigError("a pattern matches no parameter", **where, **rows)


def _groups(names: Sequence[str]) -> list[str]:
    """The patterns of whole layers: `layer1.*`, `layer1.0.*`."""
    groups = dict[str, None]()
    for name in names:
        parts = name.replace("/", ".").split(".")
        groups |= dict.fromkeys(".".join([*parts[:count], "*"]) for count in range(1, len(parts)))
    return list(groups)
