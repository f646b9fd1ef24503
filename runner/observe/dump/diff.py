"""Comparison of two dumps: by iteration, by operator in the execution order of A, one tensor at a time."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from runner.dtype import DType
from runner.errors import MismatchError
from runner.observe.dump.dump import Dump
from runner.observe.dump.file_names import INPUT
from runner.observe.dump.loss_scale import LossScales
from runner.observe.dump.match import EntryPair, Matching, match
from runner.observe.dump.metrics import UNSCALED, Measures, Tolerance, comparable, measure
from runner.observe.dump.operator_traits import DumpSide
from runner.observe.dump.reader import VIEWS, DumpEntry, SavedTensor
from runner.types import TensorType

CONSTANT = re.compile(r"cst\d+")  # numbered in the order of use, which passes change
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

    `only` are the labels of tensors that one of the dumps lacks.
    """

    iteration: int
    names: tuple[str, str]
    is_value: bool
    pairs: Sequence[TensorPair]
    only: Sequence[str]

    @property
    def status(self) -> DiffStatus:
        """The status of its outputs relative to its inputs."""
        differing = [pair for pair in self.pairs if pair.differs]
        if not differing:
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


class DumpWalk:
    """Iterates over the comparisons of the entries that two dumps have in common.

    Afterwards `only_a` and `only_b` have the entries that only one side has, `pairs` the full names of paired
    operators, `renamed` the scopes whose names differ, `coarser` the coarser type if operators compute in different
    ones (its tolerance then applies), and `notes` the remarks. Raises MismatchError if the dumps have no iteration or
    no operator in common, and DataError for damaged files.
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
        operators = [(one.name, other.name) for one, other in found.pairs if not one.is_value]
        names = [[entry.name for entry in side.entries if not entry.is_value] for side in (a, b)]
        if not found.pairs or (all(names) and not operators):
            raise _nothing_in_common(number, *names)
        self.pairs |= dict.fromkeys(operators)
        self.renamed |= dict.fromkeys(found.renamed)
        self.coarser = found.coarser
        ignored = self._constants(found)
        tolerance = replace(self.tolerance, coarser=found.coarser)
        scales = LossScales.of(a.entries, b.entries)
        if scales.factors != UNSCALED:
            self.notes[str(scales)] = None
        for pair in found.pairs:
            if pair[0].name not in ignored or not pair[0].is_value:
                factors = scales.factors if scales.multiply(pair[0]) else UNSCALED
                yield self._compare(number, *pair, tolerance, factors)

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
        self, number: int, a: DumpEntry, b: DumpEntry, tolerance: Tolerance, factors: tuple[float, float]
    ) -> EntryComparison:
        ours, theirs = a.tensors(), b.tensors()
        pairs = [_pair(label, ours[label], theirs[label], tolerance, factors) for label in ours if label in theirs]
        return EntryComparison(number, (a.name, b.name), a.is_value, pairs, sorted(ours.keys() ^ theirs.keys()))


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
