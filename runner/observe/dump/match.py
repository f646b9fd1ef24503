"""Which operator of one dump is which of another.

Names are compared without what says nothing about the operator: `/` and what else `sanitised` replaces, the level that
data sinking puts above the step (`Default/network-TrainOneStepCell/`, or `Default/network/` where names have no
classes), and the names of classes when one run keeps them and the other does not. Operator types and `op{N}` stay.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from runner.observe.dump.file_names import sanitised
from runner.observe.dump.reader import Entry

Form = Callable[[str], str]
_SUNK = re.compile(r"(Gradients_)?Default_network-TrainOneStepCell_")
_SUNK_CLASSLESS = re.compile(r"(Gradients_)?Default_network_")


def _sunk(name: str) -> str:
    return _SUNK.sub(r"\1Default_", sanitised(name), count=1)


def _plain(name: str) -> str:
    *scope, operator = name.split("/")
    kept = [part.partition("-")[0] for part in scope]
    return sanitised("/".join([*kept, operator]))


def _sunk_plain(name: str) -> str:
    return _SUNK_CLASSLESS.sub(r"\1Default_", _plain(name), count=1)


FORMS: Sequence[Form] = (sanitised, _sunk, _plain, _sunk_plain)


@dataclass(frozen=True)
class Matching:
    """Pairs of entries in the order of A, and what only one side has."""

    pairs: Sequence[tuple[Entry, Entry]]
    only_a: Sequence[Entry]
    only_b: Sequence[Entry]


def forms(a: Iterable[str], b: Iterable[str]) -> tuple[Form, Form]:
    """The forms of full names in which most operators of both dumps are the same; the plainest of those that tie.

    >>> one = ["Default/network-Loss/conv-Conv2d/Conv2D-op0", "Gradients/Default/network-Loss/gradMul/Mul-op1"]
    >>> sunk = [name.replace("Default", "Default/network-TrainOneStepCell") for name in one]
    >>> first, second = forms(one, sunk)
    >>> [first(name) for name in one] == [second(name) for name in sunk]
    True
    """
    names = list(a), list(b)
    formed = [[{form(name) for name in side} for form in FORMS] for side in names]
    choices = product(range(len(FORMS)), repeat=2)
    first, second = max(choices, key=lambda choice: (len(formed[0][choice[0]] & formed[1][choice[1]]), -sum(choice)))
    return FORMS[first], FORMS[second]


def match(a: Sequence[Entry], b: Sequence[Entry], first: Form, second: Form) -> Matching:
    """Pair the entries of two iterations."""

    def keys(side: Sequence[Entry], form: Form) -> dict[tuple[bool, str], Entry]:
        return {(entry.is_held, sanitised(entry.name) if entry.is_held else form(entry.name)): entry for entry in side}

    ours, theirs = keys(a, first), keys(b, second)
    common = [key for key in ours if key in theirs]
    only_a, only_b = (
        [e for key, e in one.items() if key not in other] for one, other in ((ours, theirs), (theirs, ours))
    )
    return Matching([(ours[key], theirs[key]) for key in common], only_a, only_b)
