"""Comparison of two dumps: by iteration, by operator in the execution order of A, one tensor at a time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from runner.dtype import DType
from runner.errors import MismatchError
from runner.observe.dump.diff import EntryComparison, TensorPair
from runner.observe.dump.dump import Dump
from runner.observe.dump.loss_scale import LossScales
from runner.observe.dump.match import EntryPair, Matching, match
from runner.observe.dump.metrics import UNSCALED, Tolerance, comparable, measure
from runner.observe.dump.operator_traits import DumpSide
from runner.observe.dump.reader import VIEWS, DumpEntry, SavedTensor

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
