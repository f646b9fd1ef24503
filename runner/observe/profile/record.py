"""What a profile measures: `Clock` collects a `ProfileRecord` while a training runs, which `Analysis` then reads.

In this order: counters of the processor, the nodes in onnxruntime's profile, the peak of the machine, the work of an
operator; the record with operators, times on the host's clock and the steps whose operators were timed; the clock. All
times are nanoseconds of `time.perf_counter_ns`. Steps count from 0.
"""

import ctypes
import json
import os
import platform
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

import numpy as np

from runner.core.graph import Graph
from runner.core.operators import Collective, Node, Primitive
from runner.host.threads import compute_parts, kernel_threads, slices
from runner.observe.profile.settings import ENDLESS, ProfileSettings, schedule
from runner.types import TensorType

# Hardware counters of the processor, where the kernel permits them: `perf_event_open(2)`. They count for the whole
# process, so for whole steps and not for single operators.

SYSCALLS = {"x86_64": 298, "aarch64": 241}
HARDWARE, CACHE = 0, 3  # perf_type_id
INHERIT = 1 << 1  # flag: include threads that are started later
EXCLUDE_KERNEL = 1 << 5 | 1 << 6  # flags: exclude kernel and hypervisor
ATTRIBUTE_BYTES = 112
L1D, LL = 0, 2  # perf_hw_cache_id
READ, WRITE = 0, 1
ACCESS, MISS = 0, 1


class Counter(NamedTuple):
    """A counter by the numbers of linux/perf_event.h, and the bytes of one count (0: it does not count bytes)."""

    name: str
    kind: int
    config: int
    bytes: int = 0


def _cache(cache: int, operation: int, result: int) -> int:
    return cache | operation << 8 | result << 16


LINE = 64
COUNTERS: dict[str, tuple[Counter, ...]] = {
    "Memory": (
        Counter("main_mem_read", CACHE, _cache(LL, READ, MISS), LINE),
        Counter("main_mem_write", CACHE, _cache(LL, WRITE, MISS), LINE),
        Counter("l2_read", CACHE, _cache(LL, READ, ACCESS), LINE),
        Counter("l2_write", CACHE, _cache(LL, WRITE, ACCESS), LINE),
    ),
    "MemoryL0": (
        Counter("l0_read", CACHE, _cache(L1D, READ, ACCESS)),
        Counter("l0_read_miss", CACHE, _cache(L1D, READ, MISS)),
        Counter("l0_write", CACHE, _cache(L1D, WRITE, ACCESS)),
    ),
    "ResourceConflictRatio": (
        Counter("cycles", HARDWARE, 0),
        Counter("stalled_cycles_frontend", HARDWARE, 7),
        Counter("stalled_cycles_backend", HARDWARE, 8),
    ),
}


class Counters:
    """Running counters, until the process ends. `missing`: the reasons for those that are not available, by name.

    Virtual machines often have none, and `kernel.perf_event_paranoid` may forbid them.
    """

    def __init__(self, requested: tuple[Counter, ...]) -> None:
        self._open: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        for counter in requested:
            handle = _open_counter(counter)
            if isinstance(handle, int):
                self._open[counter.name] = handle
            else:
                self.missing[counter.name] = handle

    def read(self) -> dict[str, int]:
        """The current counts by name."""
        return {name: int.from_bytes(os.read(handle, 8), "little") for name, handle in self._open.items()}


def _open_counter(counter: Counter) -> int | str:
    """The file descriptor of a counter, or the reason why it is not available."""
    number = SYSCALLS.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        return f"perf_event_open is not known on {platform.system()} {platform.machine()}"
    attribute = bytearray(ATTRIBUTE_BYTES)
    attribute[0:16] = b"".join(
        value.to_bytes(size, "little") for value, size in ((counter.kind, 4), (ATTRIBUTE_BYTES, 4), (counter.config, 8))
    )
    attribute[40:48] = (INHERIT | EXCLUDE_KERNEL).to_bytes(8, "little")
    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.syscall(number, (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attribute), 0, -1, -1, 0)
    return handle if handle >= 0 else _reason(ctypes.get_errno())


def _reason(code: int) -> str:
    try:
        level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    except OSError:
        level = "unknown"
    return f"perf_event_open: {os.strerror(code)} (kernel.perf_event_paranoid is {level})"


# The nodes of every step, from onnxruntime's profile of a session.

EVENT_CAP = 1_000_000  # onnxruntime/core/common/profiler.h
EXECUTE, RUN, KERNEL = "SequentialExecutor::Execute", "model_run", "_kernel_time"
SCAN = "sink" + KERNEL  # the node around all steps of a sink


class OrtEvent(NamedTuple):
    """One event: microseconds since the start of the profile."""

    name: str
    start: int
    length: int

    @property
    def stop(self) -> int:
        """Its end."""
        return self.start + self.length


class OrtStep(NamedTuple):
    """One execution of the graph of a step, with its nodes in the order of execution."""

    start: int
    stop: int
    nodes: list[OrtEvent]


class OrtRun(NamedTuple):
    """One call of the session."""

    start: int
    stop: int
    steps: list[OrtStep]


class OrtProfile(NamedTuple):
    """The content of a profile; `full` when onnxruntime may have dropped events because of its limit."""

    runs: list[OrtRun]
    full: bool


def read(lines: Iterable[str], sunk: bool, cap: int = EVENT_CAP) -> OrtProfile:
    """The profile in the lines of a file of onnxruntime.

    It has one event per line: `model_run` for each call, `SequentialExecutor::Execute` for each execution of a graph
    (so for each step of a sink, whose graph is the body of a Scan), and `{node}_kernel_time` for each executed node.
    Times are whole microseconds since the start of the profile, on a clock of onnxruntime's own. It silently stops
    after `EVENT_CAP` events.

    `sunk`: whether a call runs many steps, in the body of a Scan. It contains complete calls only: a call that was cut
    off by the cap is missing.
    """
    events = list(_events(lines))
    executions = [e for e in events if e.name == EXECUTE]
    nodes = sorted((e for e in events if e.name.endswith(KERNEL) and e.name != SCAN), key=lambda e: (e.start, e.stop))
    runs = []
    for run in (e for e in events if e.name == RUN):
        # By their starts: times are cut to microseconds, so an execution may stop one later than the call around it.
        inside = sorted((e for e in executions if run.start <= e.start < run.stop), key=lambda e: e.start)
        steps = _steps(run, inside[1:] if sunk else inside[:1])
        runs.append(OrtRun(run.start, run.stop, [OrtStep(*step, _between(nodes, *step)) for step in steps]))
    return OrtProfile(runs, len(events) >= cap)


def _events(lines: Iterable[str]) -> Iterator[OrtEvent]:
    for line in lines:
        head, found, _ = line.partition(',"args"')  # the rest is long and not needed
        if found:
            event = json.loads(head + "}")
            yield OrtEvent(event["name"], int(event["ts"]), int(event["dur"]))


def _steps(run: OrtEvent, executions: Sequence[OrtEvent]) -> Iterable[tuple[int, int]]:
    """Start and stop of the steps, which cover the whole call.

    Time between two steps counts for the earlier one, time before the first one for the first one.
    """
    starts = [run.start, *(execution.start for execution in executions[1:])] if executions else []
    return pairwise([*starts, run.stop])


def _between(nodes: Sequence[OrtEvent], start: int, stop: int) -> list[OrtEvent]:
    first, last = (bisect_left(nodes, at, key=lambda e: e.start) for at in (start, stop))
    return [e._replace(name=e.name.removesuffix(KERNEL)) for e in nodes[first:last]]


# The peak performance of this machine, measured in a tenth of a second. The product of matrices is that of PyNative
# mode: threads compute blocks of it, each with a BLAS of one thread.

SIZE, BLOCK = 768, 64  # of the matrices, and rows of a block
COPIED = 16 << 20  # bytes per thread, more than fits into caches
CACHED = 1 << 20  # bytes of an operator's values that stay in caches; they are moved several times as fast
REPEATS = 4


class Peak(NamedTuple):
    """Operations per second, and bytes per second from memory and `cached`, of at most `CACHED` bytes."""

    flops: float
    bytes: float
    cached: float


def measure_peak(threads: int) -> Peak:
    """The best of a few products of square matrices, and of copies of large and small arrays (read + write)."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE), np.float32)
    result = np.empty((SIZE, SIZE), np.float32)
    blocks = slices(SIZE, BLOCK)

    def multiply() -> None:
        compute_parts(lambda block: np.matmul(a[block], b, out=result[block]), blocks, 2 * SIZE**3)

    with kernel_threads(threads):
        product = _best(multiply)
    sources, targets = (np.ones((threads, COPIED), np.uint8) for _ in range(2))
    with ThreadPoolExecutor(threads, thread_name_prefix="peak") as pool:
        copy = _best(lambda: list(pool.map(np.copyto, targets, sources)))
        small = [array[:, : CACHED // 2] for array in (targets, sources)]  # together they are `CACHED` bytes
        again = _best(lambda: list(pool.map(_copy_often, *small)))
    rate = 2 * sources.nbytes / copy
    return Peak(2 * SIZE**3 / product, rate, max(rate, 2 * sources.nbytes / again))


def _copy_often(target: np.ndarray, source: np.ndarray) -> None:
    """Copy as many bytes as once for large arrays."""
    for _ in range(COPIED // source.nbytes):
        np.copyto(target, source)


def _best(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


# The work of an operator: floating-point operations, and the minimum of bytes that must be moved.


class Cost(NamedTuple):
    """Floating-point operations and bytes of one execution."""

    flops: int
    bytes: int


def cost(op: Primitive, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Cost:
    """The work of one execution of an operator on values of these types."""
    return Cost(op.flops(inputs, outputs), sum(value.nbytes for value in (*inputs, *outputs)))


# The record.

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


# The clock.

SHORTEST = 20_000  # ns; shorter spans are not recorded
SPANS = 20_000  # of one track; later ones are only counted
CALLS = 200_000  # to the device; later ones are only counted


class Clock:
    """Collects the `record` of a training. `is_profiled` says whether the operators of a step are timed."""

    def __init__(self, settings: ProfileSettings) -> None:
        self.settings = settings
        self.begin(0, 0)
        self._lock = Lock()  # the dataset's threads add spans too
        self.counters = Counters(COUNTERS.get(settings.ai_core_metrics or "", ()))

    def begin(self, first_step: int, total: int, sunk: bool = False) -> None:
        """Start the record of a training of the steps from `first_step` to `total`."""
        self.record = ProfileRecord(time.perf_counter_ns(), sunk)
        self.schedule = schedule(first_step, total, self.settings.operators)
        self._waited = self._prepared = self._unrecorded_steps = 0
        self._profiles: dict[Hashable, tuple[list[ProfiledOperator], list[ProfiledStep]]] = {}
        self._exchanges: list[tuple[int, int]] = []
        self._dropped: dict[str, int] = {}

    def is_profiled(self, step: int) -> bool:
        """Whether the operators of a step are timed."""
        return self.settings.steps and self.schedule.is_profiled(step)

    def run_length(self, step: int) -> int:
        """The number of steps from this one on that can run in one call."""
        return self.schedule.run_length(step) if self.settings.steps else ENDLESS

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time the block as a wait for data."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._waited += stop - start
        self.add_span(DATA, "wait for data", start, stop)

    @contextmanager
    def span(self, track: str, name: str) -> Iterator[None]:
        """Time the block as a span of a track."""
        start = time.perf_counter_ns()
        yield
        self.add_span(track, name, start, time.perf_counter_ns())

    @contextmanager
    def preparing(self, name: str) -> Iterator[None]:
        """Time the block as preparation of the next call, such as compiling."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._prepared += stop - start
        self.add_span(HOST, name, start, stop)

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Time the block as an exchange with other ranks, including the wait for them."""
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        self._exchanges.append((start, stop))
        self.add_span(EXCHANGES, "exchange with other ranks", start, stop)

    @contextmanager
    def calling(self, first: int, steps: int, profiled: bool) -> Iterator[None]:
        """Time the block as a call to the device for `steps` steps from the number `first` on.

        `profiled`: whether operators are timed in it.
        """
        self._exchanges = []
        before = self.counters.read()
        start = time.perf_counter_ns()
        yield
        stop = time.perf_counter_ns()
        for name, count in self.counters.read().items():
            self.record.counters[name] = self.record.counters.get(name, 0) + count - before[name]
        exchanges = tuple(self._exchanges)
        self._add_call(DeviceCall(first, steps, start, stop, self._waited, profiled, exchanges, self._prepared))
        self._waited = self._prepared = 0

    def _add_call(self, call: DeviceCall) -> None:
        if len(self.record.calls) < CALLS:
            self.record.add_call(call, self.schedule.is_counted)
        else:
            self._unrecorded_steps += call.steps

    def add_span(self, track: str, name: str, start: int, stop: int) -> None:
        """Add a span to a track. Thread-safe."""
        if stop - start < SHORTEST:
            return
        with self._lock:
            spans = self.record.tracks.setdefault(track, [])
            if len(spans) < SPANS:
                spans.append(Span(name, start, stop))
            else:
                self._dropped[track] = self._dropped.get(track, 0) + 1

    def sample_queue(self, batches: int) -> None:
        """Record the number of batches that were ready when one was requested."""
        if len(self.record.queue_sizes) < CALLS:
            self.record.queue_sizes.append(batches)

    def add_profiled_steps(
        self, program: Hashable, operators: Iterable[ProfiledOperator], steps: Iterable[ProfiledStep]
    ) -> None:
        """Add steps of a program whose operators were timed, and these operators.

        The record gets those of the program with the most steps: times of a smaller last batch are no times of others.
        """
        steps = list(steps)
        self.record.windows |= {step.step: (step.start, step.stop) for step in steps}
        known = self._profiles.setdefault(program, ([], []))
        known[0].extend(operators)
        known[1].extend(step for step in steps if self.schedule.is_counted(step.step))

    def end(self) -> ProfileRecord:
        """The complete record; no step follows."""
        for track, count in self._dropped.items():
            self.record.remarks.append(f"the timeline leaves out {count} later entries of the track {track!r}")
        if self._unrecorded_steps:
            self.record.remarks.append(
                f"the last {self._unrecorded_steps} steps are not in the profile: it has {CALLS} calls at most"
            )
        self._add_profile()
        self.record.missing_counters = self.counters.missing
        return self.record

    def _add_profile(self) -> None:
        chosen = max(self._profiles.values(), key=lambda profile: len(profile[1]), default=([], []))
        self.record.add_operators(chosen[0])
        self.record.profiled_steps = sorted(chosen[1])
        if left := sum(len(steps) for _, steps in self._profiles.values()) - len(chosen[1]):
            self.record.remarks.append(f"{left} timed steps with batches of another size are not in the figures")
