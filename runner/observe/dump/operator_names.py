"""Full names of operators, taken into their parts: `{scope}/{Type}-op{N}`.

Parts of a name that do not identify the operator are ignored: `/` and other characters that `sanitised` replaces, the
scope that data sinking adds above the step (`Default/network-TrainOneStepCell/`, or `Default/network/` in names
without classes), and class names if only one of the runs has them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from runner.observe.dump.file_names import sanitised

Cell = tuple[str, ...]
GRADIENTS = "Gradients"
CAST = "Cast"
_OPERATOR = re.compile(r"(?:(.*)[/_])?([^/_]+)-op(\d{1,18})")
_STEP = re.compile(r"((?:Gradients_)*Default_)network(?:-[A-Za-z0-9]+)?_")
_STEP_PART = re.compile(r"network(-[^/]*)?(/|$)")
_GRADIENT_PART = re.compile(r"grad[A-Z]\w*")


@dataclass(frozen=True)
class OperatorName:
    """The parts of a full name.

    `depth` is the order of the derivative (0 in the network itself), `cell` the scope of the cell that the operator or
    its derivative belongs to, `part` the rest of the scope (`gradConv2D`), `scope` all of them as one sanitised text.
    `number` is N of `op{N}`, None if the name has none.
    """

    full: str
    depth: int
    cell: Cell
    part: Cell
    scope: str
    type: str
    number: int | None


@dataclass(frozen=True)
class NameForm:
    """What to ignore in the names of one dump: class names, the scope that data sinking adds."""

    is_classless: bool
    is_sunk: bool

    def parse(self, name: str, is_flat: bool = False) -> OperatorName:
        """The parts of a full or sanitised name; the cell of a sanitised name, or with `is_flat`, is one text.

        >>> NameForm(False, True).parse("Gradients/Default/network-Step/fc-Dense/gradMatMul/MatMul-op7").cell
        ('Default', 'fc-Dense')
        """
        found = _OPERATOR.fullmatch(name)
        scope, kind = (found[1] or "", found[2]) if found else (name.rpartition("/")[0], name.rpartition("/")[2])
        number = int(found[3]) if found else None
        if "/" not in name:
            flat = _STEP.sub(r"\1", f"{scope}_", count=1).removesuffix("_") if self.is_sunk else scope
            return _flat_name(name, flat, kind, number)
        parts = [part.partition("-")[0] for part in scope.split("/")] if self.is_classless else scope.split("/")
        depth = len(list(takewhile(GRADIENTS.__eq__, parts)))
        if self.is_sunk and parts[depth : depth + 1] == ["Default"] and _STEP_PART.match("/".join(parts[depth + 1 :])):
            del parts[depth + 1]
        flat = sanitised("/".join(parts))
        if is_flat:
            return _flat_name(name, flat, kind, number)
        end = len(parts) - (depth and len(list(takewhile(_GRADIENT_PART.fullmatch, reversed(parts)))))
        return OperatorName(name, depth, tuple(parts[depth:end]), tuple(parts[end:]), flat, kind, number)


def _flat_name(name: str, scope: str, kind: str, number: int | None) -> OperatorName:
    prefix = f"{GRADIENTS}_"
    return OperatorName(name, int(scope.startswith(prefix)), (scope.removeprefix(prefix),), (), scope, kind, number)


FORMS: Sequence[NameForm] = [NameForm(*choice) for choice in product((False, True), repeat=2)]


def best_forms(a: Iterable[str], b: Iterable[str]) -> tuple[NameForm, NameForm]:
    """The forms in which the operators of two dumps have most scopes and types in common; in a tie, the first in FORMS.

    >>> one = ["Default/network-Loss/conv-Conv2d/Conv2D-op0", "Gradients/Default/network-Loss/gradMul/Mul-op1"]
    >>> sunk = [name.replace("Default", "Default/network-TrainOneStepCell") for name in one]
    >>> first, second = best_forms(one, sunk)
    >>> [first.parse(name).scope for name in one] == [second.parse(name).scope for name in sunk]
    True
    """
    names = list(a), list(b)
    formed = [[{(x.scope, x.type) for x in map(form.parse, side)} for form in FORMS] for side in names]
    choices = product(range(len(FORMS)), repeat=2)
    first, second = max(choices, key=lambda choice: (len(formed[0][choice[0]] & formed[1][choice[1]]), -sum(choice)))
    return FORMS[first], FORMS[second]
