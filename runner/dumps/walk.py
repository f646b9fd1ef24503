"""Two dumps side by side: iteration by iteration, operator by operator in the order of A, one tensor at a time."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runner.dumps.matching import forms, match
from runner.dumps.measures import Measures, Tolerance, comparable, measure
from runner.dumps.names import INPUT
from runner.dumps.reader import Dump
from runner.dumps.saved import VIEWS, Entry, Saved
from runner.errors import MismatchError
from runner.types import TensorType

CONSTANT = re.compile(r"cst\d+")  # numbered in the order of use, which passes change
Held = tuple[Entry, Entry]


class Status(StrEnum):
    """What was found of an operator. One whose inputs differ is no cause of differences, whatever it makes of them."""

    SAME = "same"
    DIFFERS = "differs"
    INPUTS = "inputs differ"


@dataclass(frozen=True)
class Pair:
    """A tensor of both dumps. `measures` is None when the types cannot be compared, which is a difference too."""

    label: str
    types: tuple[TensorType, TensorType]
    formats: tuple[str, str]
    measures: Measures | None

    @property
    def differs(self) -> bool:
        """Whether an element is outside of tolerance."""
        return self.measures is None or self.measures.outside > 0


@dataclass(frozen=True)
class Compared:
    """An operator, parameter or constant of both dumps; `only` are the labels of tensors that one of them lacks."""

    iteration: int
    names: tuple[str, str]
    is_held: bool
    pairs: Sequence[Pair]
    only: Sequence[str]

    @property
    def status(self) -> Status:
        """Judged by its inputs first."""
        differing = [pair.label.startswith(INPUT) for pair in self.pairs if pair.differs]
        return Status.INPUTS if any(differing) else Status.DIFFERS if differing else Status.SAME


class Walk:
    """What two dumps have in common, one after the other; `only_a`, `only_b`, `notes` tell of the rest afterwards.

    Raises MismatchError when they have no iteration or no operator in common, and DataError for damaged files.
    """

    def __init__(self, a: Dump, b: Dump, tolerance: Tolerance) -> None:
        self.a, self.b, self.tolerance = a, b, tolerance
        self.only_a: dict[str, None] = {}
        self.only_b: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.iterations = self._iterations()

    def _iterations(self) -> list[tuple[int, int]]:
        ours, theirs = self.a.iterations, self.b.iterations
        if self.a.is_one_folder and self.b.is_one_folder:
            return [(ours[0], theirs[0])]
        common = [(number, number) for number in ours if number in theirs]
        given = {"iterations_of_A": _listed(ours), "iterations_of_B": _listed(theirs)}
        if not common:
            hint = "paths of two iterations are compared whatever their numbers"
            raise MismatchError("the dumps have no iteration in common", **given, hint=hint)
        if len(common) < max(len(ours), len(theirs)):
            self.notes["only some iterations are in both: " + _listed(number for number, _ in common)] = None
        return common

    def __iter__(self) -> Iterator[Compared]:
        for number, other in self.iterations:
            yield from self._iteration(number, self.a.entries(number), self.b.entries(other))

    def _iteration(self, number: int, a: Sequence[Entry], b: Sequence[Entry]) -> Iterator[Compared]:
        operators = _operators(a), _operators(b)
        found = match(a, b, *forms(*operators))
        if not found.pairs or (all(operators) and all(one.is_held for one, _ in found.pairs)):
            first = {"first_of_A": a[0].name if a else "nothing", "first_of_B": b[0].name if b else "nothing"}
            raise MismatchError("the dumps have no operator in common", iteration=number, **first)
        constants = [pair for pair in found.pairs if pair[0].is_held and CONSTANT.fullmatch(pair[0].name)]
        others = [entry for entry in (*found.only_a, *found.only_b) if entry.is_held and CONSTANT.fullmatch(entry.name)]
        ignored = [pair[0] for pair in constants] if others or not all(map(_same_types, constants)) else []
        if ignored or others:
            self.notes["constants are not compared: the graphs do not have the same ones"] = None
        self.only_a |= dict.fromkeys([entry.name for entry in found.only_a if entry not in others])
        self.only_b |= dict.fromkeys([entry.name for entry in found.only_b if entry not in others])
        for pair in found.pairs:
            if pair[0] not in ignored:
                yield self._compared(number, *pair)

    def _compared(self, number: int, a: Entry, b: Entry) -> Compared:
        ours, theirs = a.tensors(), b.tensors()
        pairs = [self._pair(label, ours[label], theirs[label]) for label in ours if label in theirs]
        return Compared(number, (a.name, b.name), a.is_held, pairs, sorted(ours.keys() ^ theirs.keys()))

    def _pair(self, label: str, a: Saved, b: Saved) -> Pair:
        measured = None
        if comparable(a.type, b.type):
            alike = a.format == b.format and a.shape == b.shape and a.format not in VIEWS
            x, y = (a.lying(), b.lying()) if alike else (a.array(), b.array())
            measured = measure(x, y, self.tolerance) if x.shape == y.shape else None
        return Pair(label, (a.type, b.type), (a.format, b.format), measured)


@dataclass
class Verdict:
    """The first operator that differs, as far as it was seen.

    `first` makes results outside of tolerance from inputs within it; `earlier` is an operator before it whose inputs
    differ already. `first` is None when only the inputs of some operator differ: the cause is outside of the dump.
    """

    first: Compared | None = None
    earlier: Compared | None = None

    def see(self, found: Compared) -> bool:
        """Look at the next operator; whether another one may still change the verdict."""
        if self.first is not None or (self.earlier is not None and found.iteration != self.earlier.iteration):
            return False  # what comes later has its cause here
        if found.status is Status.DIFFERS:
            self.first = found
        elif found.status is Status.INPUTS:
            self.earlier = self.earlier or found
        return self.first is None


def _operators(entries: Iterable[Entry]) -> list[str]:
    return [entry.name for entry in entries if not entry.is_held]


def _same_types(pair: Held) -> bool:
    a, b = ([saved.type for saved in entry.tensors().values()] for entry in pair)
    return a == b


def _listed(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return ", ".join(listed if len(listed) <= 8 else [*listed[:7], "...", listed[-1]])
