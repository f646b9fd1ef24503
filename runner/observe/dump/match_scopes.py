"""Matches the cells of two networks, as trees of scopes, from the root down.

Cells match by name. Of the remaining ones, those match that have the same attribute name and another class. Finally,
renamed cells match by position: those that follow the same matched cell, have the same operators in the same order, and
are equally many on both sides, so that there is only one way to pair them; or the only ones left there, of one class.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from runner.observe.dump.operator_names import CAST, Cell, OperatorName


@dataclass
class _Scope:
    """A scope with the types of the operators in and below it, in order, without casts and gradients."""

    children: "dict[str, _Scope]" = field(default_factory=dict)
    types: list[str] = field(default_factory=list)


def match_scopes(a: Iterable[OperatorName], b: Iterable[OperatorName]) -> dict[Cell, Cell]:
    """Cells of A to cells of B, for operators in the order of their execution."""
    found: dict[Cell, Cell] = {}
    open_pairs: list[tuple[Cell, Cell, _Scope, _Scope]] = [((), (), _tree(a), _tree(b))]
    while open_pairs:
        one, other, x, y = open_pairs.pop()
        found[one] = other
        for name, partner in _partners(x.children, y.children):
            open_pairs.append(((*one, name), (*other, partner), x.children[name], y.children[partner]))
    return found


def _tree(operators: Iterable[OperatorName]) -> _Scope:
    root = _Scope()
    for operator in operators:
        scope = root
        for part in operator.cell:
            scope = scope.children.setdefault(part, _Scope())
            if not operator.depth and operator.type != CAST:
                scope.types.append(operator.type)
    return root


def _partners(a: Mapping[str, _Scope], b: Mapping[str, _Scope]) -> Iterator[tuple[str, str]]:
    found = {name: name for name in a if name in b}
    found |= _same_attribute([name for name in a if name not in found], [name for name in b if name not in found])
    yield from found.items()
    gaps_a, gaps_b = _gaps(a, {name: name for name in found}), _gaps(b, {y: x for x, y in found.items()})
    for before in gaps_a:
        yield from _same_position(a, b, gaps_a[before], gaps_b.get(before, []))


def _same_attribute(a: list[str], b: list[str]) -> dict[str, str]:
    """Names with the same attribute, such as `conv1` of `conv1-Conv2d`, that only one name on each side has."""
    ours, theirs = ({name: name.partition("-")[0] for name in names} for names in (a, b))
    counts = Counter(ours.values()), Counter(theirs.values())
    return {x: y for x in a for y in b if ours[x] == theirs[y] and all(count[ours[x]] == 1 for count in counts)}


def _gaps(scopes: Mapping[str, _Scope], matched: Mapping[str, str]) -> dict[str, list[str]]:
    """The names without a match, by the match of the last matched name before them."""
    before, gaps = "", dict[str, list[str]]()
    for name in scopes:
        if name in matched:
            before = matched[name]
        else:
            gaps.setdefault(before, []).append(name)
    return gaps


def _same_position(
    a: Mapping[str, _Scope], b: Mapping[str, _Scope], ours: list[str], theirs: list[str]
) -> Iterator[tuple[str, str]]:
    for types in dict.fromkeys(tuple(a[name].types) for name in ours):
        x = [name for name in ours if tuple(a[name].types) == types]
        y = [name for name in theirs if tuple(b[name].types) == types]
        if types and len(x) == len(y):
            yield from zip(x, y, strict=True)
            ours, theirs = [name for name in ours if name not in x], [name for name in theirs if name not in y]
    classes = {name.partition("-")[2] for name in (*ours, *theirs)}
    if len(ours) == len(theirs) == len(classes) == 1 and "" not in classes:
        yield ours[0], theirs[0]
