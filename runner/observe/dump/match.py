"""Matches the entries of two dumps by name.

Parts of a name that do not identify the operator are ignored: `/` and other characters that `sanitised` replaces, the
scope that data sinking adds above the step (`Default/network-TrainOneStepCell/`, or `Default/network/` in names
without classes), and class names if only one of the runs has them. Operator types and `op{N}` are kept.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from runner.observe.dump.file_names import sanitised
from runner.observe.dump.reader import DumpEntry

NameForm = Callable[[str], str]


def _form(name: str, is_classless: bool, is_sunk: bool) -> str:
    *scope, operator = name.split("/")
    if is_classless:
        scope = [part.partition("-")[0] for part in scope]
    form = sanitised("/".join([*scope, operator]))
    step = "network" if is_classless else "network-TrainOneStepCell"
    return re.sub(rf"(Gradients_)?Default_{step}_", r"\1Default_", form, count=1) if is_sunk else form


FORMS: Sequence[NameForm] = [partial(_form, is_classless=c, is_sunk=s) for c, s in product((False, True), repeat=2)]


@dataclass(frozen=True)
class Matching:
    """Pairs of entries in the order of A, and the entries that only one side has."""

    pairs: Sequence[tuple[DumpEntry, DumpEntry]]
    only_a: Sequence[DumpEntry]
    only_b: Sequence[DumpEntry]


def best_forms(a: Iterable[str], b: Iterable[str]) -> tuple[NameForm, NameForm]:
    """The forms of full names in which the dumps have most operators in common; in a tie, the first ones in FORMS.

    >>> one = ["Default/network-Loss/conv-Conv2d/Conv2D-op0", "Gradients/Default/network-Loss/gradMul/Mul-op1"]
    >>> sunk = [name.replace("Default", "Default/network-TrainOneStepCell") for name in one]
    >>> first, second = best_forms(one, sunk)
    >>> [first(name) for name in one] == [second(name) for name in sunk]
    True
    """
    names = list(a), list(b)
    formed = [[{form(name) for name in side} for form in FORMS] for side in names]
    choices = product(range(len(FORMS)), repeat=2)
    first, second = max(choices, key=lambda choice: (len(formed[0][choice[0]] & formed[1][choice[1]]), -sum(choice)))
    return FORMS[first], FORMS[second]


def match(a: Sequence[DumpEntry], b: Sequence[DumpEntry], first: NameForm, second: NameForm) -> Matching:
    """Pair the entries of two iterations by the given forms of their names."""

    def keys(side: Sequence[DumpEntry], form: NameForm) -> dict[tuple[bool, str], DumpEntry]:
        return {
            (entry.is_value, sanitised(entry.name) if entry.is_value else form(entry.name)): entry for entry in side
        }

    ours, theirs = keys(a, first), keys(b, second)
    common = [key for key in ours if key in theirs]
    only_a, only_b = (
        [e for key, e in one.items() if key not in other] for one, other in ((ours, theirs), (theirs, ours))
    )
    return Matching([(ours[key], theirs[key]) for key in common], only_a, only_b)
