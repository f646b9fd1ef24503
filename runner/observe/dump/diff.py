"""Two dumps side by side: iteration by iteration, operator by operator in the order of A, one tensor at a time."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runner.errors import MismatchError
from runner.observe.dump.file_names import INPUT
from runner.observe.dump.match import forms, match
from runner.observe.dump.metrics import Measures, Tolerance, comparable, measure
from runner.observe.dump.reader import VIEWS, Entry, Saved
from runner.observe.dump.recording import Dump
from runner.types import TensorType

CONSTANT = re.compile(r"cst\d+")  # numbered in the order of use, which passes change
Held = tuple[Entry, Entry]
GROWTH = 4.0  # of the 573 operators of a step of ResNet-50, one mode against the other, none has more than 2.2
NEAR = 0.1  # inputs that are further apart than this are other data, and what follows from them is no rounding
TIPPING = {"ReluGrad", "ReLU6Grad", "MaxPoolGrad", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"}
TIPPING |= {"Sign", "Floor", "Cast", "Argmax", "Argmin"}
TIPPED = 1e-3  # share of elements, but at least one
_TYPE = re.compile(r"([A-Za-z0-9]+)-op\d+$")


class Status(StrEnum):
    """What was found of an operator.

    One that DIFFERS is the cause: a result is outside of tolerance, and |A - B| / |B| of it is more than GROWTH times
    that of the inputs. Otherwise the inputs are outside of tolerance (INPUTS), or they are within, and their distance
    has passed the tolerance on the way (GROWS): rounding does that in deep networks. Operators that compare (TIPPING)
    may tip a few elements because of rounding; that is GROWS, too.
    """

    SAME = "same"
    DIFFERS = "differs"
    INPUTS = "inputs differ"
    GROWS = "grows"


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

    @property
    def is_input(self) -> bool:
        """Whether the operator takes it; otherwise it makes it."""
        return self.label.startswith(INPUT)

    @property
    def distance(self) -> float:
        """|A - B| / |B|."""
        return math.inf if self.measures is None else self.measures.l2

    @property
    def is_tipped(self) -> bool:
        """Whether so few elements differ that rounding may have tipped them."""
        return self.measures is not None and self.measures.outside <= max(1.0, TIPPED * self.measures.elements)


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
        """Judged by its results in the light of its inputs."""
        differing = [pair for pair in self.pairs if pair.differs]
        if not differing:
            return Status.SAME
        if any(self._is_cause(pair) for pair in differing if not pair.is_input):
            return Status.DIFFERS
        return Status.INPUTS if any(pair.is_input for pair in differing) else Status.GROWS

    def _is_cause(self, made: Pair) -> bool:
        taken = max((pair.distance for pair in self.pairs if pair.is_input), default=0.0)
        if not taken:
            return True
        tips = (found := _TYPE.search(self.names[0])) is not None and found[1] in TIPPING
        return taken <= NEAR and made.distance > GROWTH * taken and not (tips and made.is_tipped)


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

    `first` is the cause; `earlier` is outside of tolerance before it, but no cause. `first` is None when there is no
    cause in the iteration of `earlier`: rounding has grown, or the inputs came from elsewhere.
    """

    first: Compared | None = None
    earlier: Compared | None = None

    def see(self, found: Compared) -> bool:
        """Look at the next operator; whether another one may still change the verdict."""
        if self.first is not None or (self.earlier is not None and found.iteration != self.earlier.iteration):
            return False  # what comes later has its cause here
        if found.status is Status.DIFFERS:
            self.first = found
        elif found.status is not Status.SAME:
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
