"""The record of a profiled training: operators, times on the host's clock, and the steps whose operators were timed.

All times are nanoseconds of `time.perf_counter_ns`. Steps count from 0.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from runner.core.graph import Graph
from runner.core.operators import Collective, Node, Primitive
from runner.observe.profile.cost import Cost, cost
from runner.types import TensorType

Part = Literal["data", "forward", "backward", "aggregation", "update"]
DATA, WRITERS, HOST, WORKERS, EXCHANGES = "data", "writers", "host", "data workers", "exchanges"  # tracks
GRADIENTS, DATASET = "Gradients/", "Dataset/"


@dataclass(frozen=True)
class ProfiledOperator:
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


class NodeExecution(NamedTuple):
    """The execution of one node. `operators` are the full names of all operators that it implements, the main one
    first; there are none for copies of results.
    """

    operators: tuple[str, ...]
    node: str
    start: int
    stop: int


class ProfiledStep(NamedTuple):
    """A step whose operators were timed: the device worked on it from `start` to `stop`."""

    step: int
    start: int
    stop: int
    executions: Sequence[NodeExecution]


class DeviceCall(NamedTuple):
    """One call to the device: `steps` steps from the number `first` on.

    Before it the host waited `waited` ns for data, and compiled or opened sessions for `prepared` ns. `profiled`:
    whether operators were timed in it. `exchanges`: start and stop of the exchanges with other ranks, including the
    wait for those.
    """

    first: int
    steps: int
    start: int
    stop: int
    waited: int
    profiled: bool
    exchanges: tuple[tuple[int, int], ...] = ()
    prepared: int = 0


class Span(NamedTuple):
    """An activity of the host."""

    name: str
    start: int
    stop: int


@dataclass
class ProfileRecord:
    """All measurements of one training.

    `origin` is its start, `sunk` whether one call runs many steps, `threads` the number of one operator. `windows` are
    the start and stop of each profiled step by number, including steps that warm up; `profiled_steps` excludes those.
    `warm_up` are the numbers of all steps that no average includes: those with the preparation of a session, with the
    allocation of memory in its first call, and those in which a burst warms up. `tracks` are the spans of each track,
    `queue_sizes` the number of batches that were ready at each request, `counters` the processor's counters over all
    calls to the device, `missing_counters` the reasons for those that are not available.
    """

    origin: int
    sunk: bool = False
    threads: int = 1
    operators: dict[str, ProfiledOperator] = field(default_factory=dict)
    calls: list[DeviceCall] = field(default_factory=list)
    profiled_steps: list[ProfiledStep] = field(default_factory=list)
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    warm_up: set[int] = field(default_factory=set)
    tracks: dict[str, list[Span]] = field(default_factory=dict)
    queue_sizes: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    missing_counters: dict[str, str] = field(default_factory=dict)

    def add_operators(self, operators: Iterable[ProfiledOperator]) -> None:
        """Add operators that are not in the record yet."""
        for operator in operators:
            self.operators.setdefault(operator.name, operator)

    def add_call(self, call: DeviceCall, counted: Callable[[int], bool]) -> None:
        """Add a call; `counted` says which of its steps are counted if it is profiled."""
        steps = range(call.first, call.first + call.steps)
        is_first = bool(call.prepared) or not self.calls
        if call.profiled:
            self.warm_up |= {step for step in steps if not counted(step)} | ({call.first} if is_first else set())
        elif is_first:
            self.warm_up |= set(steps)  # they have equal shares of the time of the call
        self.calls.append(call)


def operators_in(*graphs: Graph) -> list[ProfiledOperator]:
    """The operators of graphs that run one after the other, by number in each."""
    return [operator for graph in graphs for operator in with_parts(map(_profiled, graph.nodes))]


def _profiled(node: Node) -> ProfiledOperator:
    inputs, outputs = (tuple([x.type for x in values]) for values in (node.inputs, node.outputs))
    return ProfiledOperator(node.name, node.op, node.number, inputs, outputs)


def with_parts(operators: Iterable[ProfiledOperator]) -> list[ProfiledOperator]:
    """The same operators in the order of their numbers, each with its part of the step.

    Gradients are identified by their scope; other operators with a higher number than the first gradient belong to the
    update.
    """
    ordered = sorted(operators, key=lambda operator: operator.number)
    first = min((o.number for o in ordered if o.name.startswith(GRADIENTS)), default=None)
    return [replace(operator, part=_part(operator, first)) for operator in ordered]


def _part(operator: ProfiledOperator, first_gradient: int | None) -> Part:
    if operator.name.startswith(DATASET):
        return "data"
    if isinstance(operator.op, Collective):
        return "aggregation"
    if operator.name.startswith(GRADIENTS):
        return "backward"
    return "update" if first_gradient is not None and operator.number > first_gradient else "forward"
