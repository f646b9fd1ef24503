"""What is known of a training: its operators, the clock of the host, and the steps whose operators were timed.

All times are nanoseconds of `time.perf_counter_ns`. Steps count from 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from runner.core.graph import Graph
from runner.core.primitive import Node, Primitive
from runner.observe.profile.cost import Cost, cost
from runner.types import TensorType

Part = Literal["data", "forward", "backward", "aggregation", "update"]
COLLECTIVES = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll"}
DATA, WRITERS, HOST, WORKERS, EXCHANGES = "data", "writers", "host", "data workers", "exchanges"  # tracks
GRADIENTS, DATASET = "Gradients/", "Dataset/"


@dataclass(frozen=True)
class Operator:
    """One operator of a step. `number` is the one in its full name."""

    name: str
    op: Primitive
    number: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    part: Part = "forward"

    @property
    def kind(self) -> str:
        """Its type, such as `Conv2D`."""
        return self.op.name

    @property
    def short(self) -> str:
        """The last part of its full name, such as `Conv2D-op3`."""
        return self.name.rpartition("/")[2]

    @property
    def subgraph(self) -> str:
        """The first part of its full name."""
        return self.name.partition("/")[0]

    @property
    def cost(self) -> Cost:
        """The work of one execution."""
        return cost(self.op, self.inputs, self.outputs)


class Moment(NamedTuple):
    """The execution of one node. `operators` are the full names of all that it stands for, the one whose work it mainly
    is first; there are none for copies of results.
    """

    operators: tuple[str, ...]
    node: str
    start: int
    stop: int


class Look(NamedTuple):
    """A step whose operators were timed: the device worked on it from `start` to `stop`."""

    step: int
    start: int
    stop: int
    moments: Sequence[Moment]


class Call(NamedTuple):
    """One call to the device: `steps` steps from the number `first` on.

    The host waited `waited` ns for its data before. `looked`: whether operators were timed in it. `exchanges` with
    other ranks: start and stop, waiting for those included.
    """

    first: int
    steps: int
    start: int
    stop: int
    waited: int
    looked: bool
    exchanges: tuple[tuple[int, int], ...] = ()


class Span(NamedTuple):
    """Something that the host did."""

    name: str
    start: int
    stop: int


@dataclass
class Record:
    """All facts of one training. `origin` is when it began, `sunk` whether many steps go down in one call; `tracks` are
    spans by who made them."""

    origin: int
    sunk: bool = False
    operators: dict[str, Operator] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)  # of those steps, and of those that warm up
    tracks: dict[str, list[Span]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)  # batches that were ready when one was asked for
    remarks: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)  # by counters of the processor, in all calls to the device
    missing: dict[str, str] = field(default_factory=dict)  # counters that there are not, and why

    def know(self, operators: Iterable[Operator]) -> None:
        """Learn operators."""
        for operator in operators:
            self.operators.setdefault(operator.name, operator)


def operators_of(nodes: Iterable[Node]) -> list[Operator]:
    """The operators of a graph's nodes, by number."""
    made = [
        Operator(n.name, n.op, n.number, tuple([x.type for x in n.inputs]), tuple([y.type for y in n.outputs]))
        for n in nodes
    ]
    return with_parts(made)


def operators_in(*graphs: Graph) -> list[Operator]:
    """The operators of graphs that run one after the other."""
    return [operator for graph in graphs for operator in operators_of(graph.nodes)]


def with_parts(operators: Iterable[Operator]) -> list[Operator]:
    """The same operators in the order of their numbers, each with the part of the step that it belongs to.

    Gradients are known by their scope; what has a higher number than the first of them and is none belongs to the
    update.
    """
    listed = sorted(operators, key=lambda operator: operator.number)
    first = min((o.number for o in listed if o.name.startswith(GRADIENTS)), default=None)
    return [_in_part(operator, first) for operator in listed]


def _in_part(o: Operator, first_gradient: int | None) -> Operator:
    part: Part = "forward"
    if o.name.startswith(DATASET):
        part = "data"
    elif o.kind in COLLECTIVES:
        part = "aggregation"
    elif o.name.startswith(GRADIENTS):
        part = "backward"
    elif first_gradient is not None and o.number > first_gradient:
        part = "update"
    return Operator(o.name, o.op, o.number, o.inputs, o.outputs, part)
