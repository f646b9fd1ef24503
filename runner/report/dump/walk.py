"""Comparison of two dumps: by iteration, by operator in the execution order of A, one tensor at a time.

`DumpWalk` yields the comparisons of the entries that two `Dump`s have in common, and `Verdict` says what they mean.
`tables.py` shows both.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from runner.dtype import DType
from runner.errors import DataError, MismatchError
from runner.host.files import names, real_path
from runner.observe.dump.files import INPUT, sanitised
from runner.observe.graph.listing import Operation, read as read_listing
from runner.observe.tolerance import UNSCALED, Measures, Tolerance, comparable, measure
from runner.report.dump.match import GRADIENTS, DumpSide, EntryPair, Matching, match
from runner.report.dump.reader import (
    VIEWS,
    DumpEntry,
    DumpLocation,
    SavedTensor,
    find_iterations,
    read_entries,
    read_text,
)
from runner.types import TensorType

# A dump as read from its folder: iterations, their entries in execution order, and the operators in its graphs.


class Dump:
    """The dump of one network on one device; takes a path and raises errors as `find_iterations` does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.locations: dict[int, list[DumpLocation]] = {}
        for location in find_iterations(path):
            self.locations.setdefault(location.iteration, []).append(location)
        self.device = next(iter(self.locations.values()))[0].device
        self._orders: dict[int | None, list[str]] = {}

    @property
    def iterations(self) -> tuple[int, ...]:
        """The numbers of the iterations, ascending."""
        return tuple(self.locations)

    @property
    def is_one_folder(self) -> bool:
        """Whether the path is that of a single iteration, whose number is then irrelevant."""
        return len(self.locations) == 1 and real_path(self.path) in [p.folder for (p, *_) in self.locations.values()]

    def entries(self, iteration: int) -> list[DumpEntry]:
        """Parameters and constants by name, then operators in execution order. Raises DataError."""
        found: dict[str, DumpEntry] = {}
        position: dict[str, int] = {}
        for location in self.locations[iteration]:
            order = self.order(location.graph)
            full_names = {sanitised(name): name for name in order}
            for entry in read_entries(location.folder, full_names):
                found.setdefault(entry.name, entry)
            position |= {name: len(position) + k for k, name in enumerate(order)}

        def key(entry: DumpEntry) -> tuple[object, ...]:
            return not entry.is_value, position.get(entry.name, len(position)), entry.number, entry.name

        return sorted(found.values(), key=key)

    def side(self, iteration: int) -> DumpSide:
        """What is known about an iteration for matching it with that of another dump. Raises DataError."""
        orders = [self.order(location.graph) for location in self.locations[iteration]]
        executed = list(dict.fromkeys(name for order in orders for name in order))
        return DumpSide(self.entries(iteration), executed, self.operation, self.producer)

    def order(self, graph: int | None) -> list[str]:
        """Full names in execution order of one graph, or of all (None). Empty if the dump does not have them."""
        if graph not in self._orders:
            lines: dict[str, None] = {}
            for file in self._graph_files("execution_order", "ms_execution_order_graph", "csv", graph):
                lines |= dict.fromkeys(read_text(file).splitlines()[1:])
            self._orders[graph] = [line for line in lines if line]
        return self._orders[graph]

    def operation(self, name: str) -> Operation | None:
        """An operator in the IR file of its graph; None if there is no such file or it has another format."""
        return self._operations.get(sanitised(name))

    def producer(self, operand: str) -> Operation | None:
        """The operator that produces an operand such as `%12`."""
        return self._producers.get(operand)

    @cached_property
    def _operations(self) -> dict[str, Operation]:
        found: dict[str, Operation] = {}
        for file in self._graph_files("graphs", "ms_output_trace_code_graph", "ir", None):
            try:
                listing = read_listing(file)
            except DataError:
                continue  # of another version; it would only add details to a report
            for graph in listing.subgraphs:
                found |= {sanitised(operation.full_name): operation for operation in graph.operations}
        return found

    @cached_property
    def _producers(self) -> dict[str, Operation]:
        return {result: operation for operation in self._operations.values() for result in operation.results}

    def _graph_files(self, folder: str, stem: str, suffix: str, graph: int | None) -> Iterator[Path]:
        pattern = re.compile(rf"{stem}_(\d{{1,18}})\.{suffix}")
        numbered = [(int(found[1]), name) for name in names(self.device / folder) if (found := pattern.fullmatch(name))]
        for number, name in sorted(numbered):
            if graph is None or number == graph:
                yield self.device / folder / name


# The result for an operator, parameter or constant, and the verdict on all of them.

GROWTH = 4.0  # of the 573 operators of a step of ResNet-50, one mode against the other, none has more than 2.2
MAX_INPUT_DISTANCE = 0.1  # inputs with a larger distance are different data, so that the rest is not rounding
DISCONTINUOUS = {
    *("ReluGrad", "ReLU6Grad", "MaxPoolGrad", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
    *("Sign", "Floor", "Cast", "Argmax", "Argmin"),
}
FLIPPED = 1e-3  # share of elements, but at least one
_TYPE = re.compile(r"([A-Za-z0-9]+)-op\d+$")


class DiffStatus(StrEnum):
    """The result of comparing an operator.

    DIFFERS: the operator is the cause. An output is outside of tolerance, and its |A - B| / |B| is more than GROWTH
    times that of the inputs. INPUTS: the inputs are outside of tolerance. GROWS: the inputs are within tolerance and
    the outputs are not, because rounding errors accumulate in deep networks. Rounding may flip a few elements of
    DISCONTINUOUS operators; that is GROWS, too.
    """

    SAME = "same"
    DIFFERS = "differs"
    INPUTS = "inputs differ"
    GROWS = "grows"


@dataclass(frozen=True)
class TensorPair:
    """A tensor of both dumps. `measures` is None if the types cannot be compared, which counts as a difference."""

    label: str
    types: tuple[TensorType, TensorType]
    formats: tuple[str, str]
    measures: Measures | None

    @property
    def differs(self) -> bool:
        """Whether an element is outside of tolerance."""
        return self.measures is None or self.measures.outside > 0

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the operator; otherwise it is an output."""
        return self.label.startswith(INPUT)

    @property
    def distance(self) -> float:
        """|A - B| / |B|."""
        return math.inf if self.measures is None else self.measures.l2

    @property
    def has_few_differences(self) -> bool:
        """Whether so few elements differ that rounding may have flipped them."""
        return self.measures is not None and self.measures.outside <= max(1.0, FLIPPED * self.measures.elements)


@dataclass(frozen=True)
class EntryComparison:
    """An operator, or a parameter or constant (`is_value`), of both dumps.

    `only` are the labels of tensors that one of the dumps lacks, `foreign` those of inputs that come from operators
    which are not partners, because a network has an operator more.
    """

    iteration: int
    names: tuple[str, str]
    is_value: bool
    pairs: Sequence[TensorPair]
    only: Sequence[str]
    foreign: frozenset[str] = frozenset()

    @property
    def status(self) -> DiffStatus:
        """The status of its outputs relative to its inputs. Foreign inputs may differ if the outputs agree."""
        differing = [pair for pair in self.pairs if pair.differs]
        has_outputs = any(not pair.is_input for pair in self.pairs)
        if not differing or (has_outputs and all(pair.label in self.foreign for pair in differing)):
            return DiffStatus.SAME
        if any(self._is_cause(pair) for pair in differing if not pair.is_input):
            return DiffStatus.DIFFERS
        return DiffStatus.INPUTS if any(pair.is_input for pair in differing) else DiffStatus.GROWS

    def _is_cause(self, output: TensorPair) -> bool:
        inputs = max((pair.distance for pair in self.pairs if pair.is_input), default=0.0)
        if not inputs:
            return True
        is_discontinuous = (found := _TYPE.search(self.names[0])) is not None and found[1] in DISCONTINUOUS
        is_flip = is_discontinuous and output.has_few_differences
        return inputs <= MAX_INPUT_DISTANCE and output.distance > GROWTH * inputs and not is_flip


@dataclass
class Verdict:
    """The first difference among the comparisons added so far.

    `first` is the cause; `earlier` is an entry before it that is outside of tolerance without being a cause. `first`
    is None if the iteration of `earlier` has no cause: rounding errors accumulated, or the input data differ.
    """

    first: EntryComparison | None = None
    earlier: EntryComparison | None = None

    def add(self, found: EntryComparison) -> bool:
        """Add the next comparison. Returns whether later ones may still change the verdict."""
        if self.first is not None or (self.earlier is not None and found.iteration != self.earlier.iteration):
            return False  # later differences follow from this one
        if found.status is DiffStatus.DIFFERS:
            self.first = found
        elif found.status is not DiffStatus.SAME:
            self.earlier = self.earlier or found
        return self.first is None


# The loss scales of two dumps: gradients of a scaled loss are compared with those of an unscaled one.

SCALE = "scale_sense"  # the parameter of a step with loss scaling


@dataclass(frozen=True)
class LossScales:
    """The scale of each dump, None without loss scaling.

    If only one dump has it, the gradients of the other one are multiplied by it, and not its own gradients divided: the
    type in which they were rounded has its smallest number there. Two scales that differ are a difference of the runs.
    """

    a: float | None
    b: float | None

    @classmethod
    def of(cls, a: Sequence[DumpEntry], b: Sequence[DumpEntry]) -> "LossScales":
        """Read the scales of an iteration. Raises DataError for a damaged file."""
        return cls(*map(_scale, (a, b)))

    @property
    def factors(self) -> tuple[float, float]:
        """What gradients of A and of B are multiplied by to be comparable."""
        if (self.a is None) == (self.b is None):
            return 1.0, 1.0
        return self.b or 1.0, self.a or 1.0

    @staticmethod
    def multiply(entry: DumpEntry) -> bool:
        """Whether an entry may have values that are multiplied by the loss scale."""
        return entry.name.startswith((f"{GRADIENTS}/", f"{GRADIENTS}_"))

    def __str__(self) -> str:
        one, other = ("A", "B") if self.b is None else ("B", "A")
        scale = self.a if self.b is None else self.b
        return f"only {one} has a loss scale, {scale:g}: gradients of {other} are multiplied by it to be compared"


def _scale(entries: Sequence[DumpEntry]) -> float | None:
    for entry in entries:
        if entry.is_value and entry.name == SCALE:
            return next((float(tensor.array().reshape(-1)[0]) for tensor in entry.tensors().values()), None)
    return None


# The comparison.

CONSTANT = re.compile(r"cst\d+")  # numbered in the order of use, which passes change


class DumpWalk:
    """Iterates over the comparisons of the entries that two dumps have in common.

    Afterwards `only_a` and `only_b` have the entries that only one side has, `pairs` the full names of paired
    operators, `renamed` the scopes whose names differ, and `notes` the remarks. `coarser` is the coarsest element type
    of the operators up to here: rounding to it is in what they compute, so its tolerance applies to all later tensors.
    Raises MismatchError if the dumps have no iteration or no operator in common, and DataError for damaged files.
    """

    def __init__(self, a: Dump, b: Dump, tolerance: Tolerance) -> None:
        self.a, self.b, self.tolerance = a, b, tolerance
        self.only_a: dict[str, DumpEntry] = {}
        self.only_b: dict[str, DumpEntry] = {}
        self.pairs: dict[tuple[str, str], None] = {}
        self.renamed: dict[tuple[str, str], None] = {}
        self.coarser: DType | None = None
        self.notes: dict[str, None] = {}
        self.iterations = self._iterations()

    def _iterations(self) -> list[tuple[int, int]]:
        ours, theirs = self.a.iterations, self.b.iterations
        if self.a.is_one_folder and self.b.is_one_folder:
            return [(ours[0], theirs[0])]
        common = [(number, number) for number in ours if number in theirs]
        if not common:
            hint = "the paths of two iterations are compared whatever their numbers"
            rows = {"iterations_of_A": _listed(ours), "iterations_of_B": _listed(theirs)}
            raise MismatchError("the dumps have no iteration in common", **rows, hint=hint)
        if len(common) < max(len(ours), len(theirs)):
            self.notes["only these iterations are in both dumps: " + _listed(number for number, _ in common)] = None
        return common

    def __iter__(self) -> Iterator[EntryComparison]:
        for number, other in self.iterations:
            yield from self._iteration(number, self.a.side(number), self.b.side(other))

    def _iteration(self, number: int, a: DumpSide, b: DumpSide) -> Iterator[EntryComparison]:
        found = match(a, b)
        names = [[entry.name for entry in side.entries if not entry.is_value] for side in (a, b)]
        operators = [(one.name, other.name) for one, other in found.pairs if not one.is_value]
        if not found.pairs or (all(names) and not operators):
            raise _nothing_in_common(number, *names)
        self.pairs |= dict.fromkeys(operators)
        self.renamed |= dict.fromkeys(found.renamed)
        ignored = self._constants(found)
        scales = LossScales.of(a.entries, b.entries)
        if scales.factors != UNSCALED:
            self.notes[str(scales)] = None
        if number:  # parameters have the rounding of earlier steps
            self._round_to(entry for pair in found.pairs for entry in pair)
        passed = _Passed(a.entries, found.only_a), _Passed(b.entries, found.only_b)
        for one, other in found.pairs:
            if one.is_value and one.name in ignored:
                continue
            self._round_to([*passed[0].before(one), *passed[1].before(other), one, other])
            factors = scales.factors if scales.multiply(one) else UNSCALED
            foreign = frozenset() if one.is_value else found.foreign_inputs(a, b, one.name, other.name)
            yield self._compare(number, one, other, factors, foreign)

    def _round_to(self, entries: Iterable[DumpEntry]) -> None:
        """Use the tolerance of the coarsest floating type of these operators, and of those before, from here on."""
        found = (tensor.dtype for entry in entries if not entry.is_value for tensor in entry.tensors().values())
        types = {dtype for dtype in found if dtype.is_float} | ({self.coarser} if self.coarser else set())
        self.coarser = min(types, key=lambda kind: kind.size, default=None)

    def _constants(self, found: Matching) -> set[str]:
        """Record the entries of one side, and return the constants of both that are not comparable."""
        constants = [pair for pair in found.pairs if _is_constant(pair[0])]
        others = [entry for entry in (*found.only_a, *found.only_b) if _is_constant(entry)]
        ignored = {pair[0].name for pair in constants} if others or not all(map(_same_types, constants)) else set()
        if ignored or others:
            self.notes["constants are not compared: the graphs have different ones"] = None
        self.only_a |= {entry.name: entry for entry in found.only_a if not _is_constant(entry)}
        self.only_b |= {entry.name: entry for entry in found.only_b if not _is_constant(entry)}
        return ignored

    def _compare(
        self, number: int, a: DumpEntry, b: DumpEntry, factors: tuple[float, float], foreign: frozenset[str]
    ) -> EntryComparison:
        ours, theirs, tolerance = a.tensors(), b.tensors(), replace(self.tolerance, coarser=self.coarser)
        pairs = [_pair(label, ours[label], theirs[label], tolerance, factors) for label in ours if label in theirs]
        only = sorted(ours.keys() ^ theirs.keys())
        return EntryComparison(number, (a.name, b.name), a.is_value, pairs, only, foreign)


class _Passed:
    """The operators of one side only, in execution order."""

    def __init__(self, entries: Sequence[DumpEntry], only: Iterable[DumpEntry]) -> None:
        self._place = {id(entry): place for place, entry in enumerate(entries)}
        self._waiting = sorted(only, key=lambda entry: -self._place[id(entry)])

    def before(self, entry: DumpEntry) -> Iterator[DumpEntry]:
        """Those before an entry that were not returned yet."""
        while self._waiting and self._place[id(self._waiting[-1])] < self._place[id(entry)]:
            yield self._waiting.pop()


def _pair(label: str, a: SavedTensor, b: SavedTensor, tolerance: Tolerance, factors: tuple[float, float]) -> TensorPair:
    """Compare two tensors, and with the loss scale if they differ without."""
    measures = None
    if comparable(a.type, b.type):
        # Formats with padding are not converted if both dumps have the same one.
        is_same_layout = a.format == b.format and a.shape == b.shape and a.format not in VIEWS
        x, y = (a.raw(), b.raw()) if is_same_layout else (a.array(), b.array())
        if x.shape == y.shape:
            measures = measure(x, y, tolerance)
            if measures.outside and factors != UNSCALED and a.dtype.is_float:
                measures = min(measures, measure(x, y, tolerance, factors=factors), key=lambda found: found.outside)
    return TensorPair(label, (a.type, b.type), (a.format, b.format), measures)


def _nothing_in_common(iteration: int, a: Sequence[str], b: Sequence[str]) -> MismatchError:
    first = {"first_of_A": a[0] if a else "nothing", "first_of_B": b[0] if b else "nothing"}
    reason = "operators are paired by scope, type and order in the scope, and renamed scopes by position"
    hint = "two networks without a common part cannot be compared; --metrics compares losses and metrics"
    return MismatchError("the dumps have no operator in common", iteration=iteration, **first, reason=reason, hint=hint)


def _is_constant(entry: DumpEntry) -> bool:
    return entry.is_value and CONSTANT.fullmatch(entry.name) is not None


def _same_types(pair: EntryPair) -> bool:
    a, b = ([tensor.type for tensor in entry.tensors().values()] for entry in pair)
    return a == b


def _listed(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return ", ".join(listed if len(listed) <= 8 else [*listed[:7], "...", listed[-1]])
