"""Matches the entries of two dumps.

Parameters and constants match by name. Operators match by name too if both dumps number them alike. Where they do not,
because a precision inserts casts or the networks are not the same, they match by cell, type and order within the cell
(`align`): numbers then only say what comes first. A cast that only one side has is left over, and so is everything
else without a partner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.dtype import DType
from runner.observe.dump.align import align
from runner.observe.dump.file_names import sanitised
from runner.observe.dump.match_scopes import match_scopes
from runner.observe.dump.operator_names import Cell, NameForm, OperatorName, best_forms
from runner.observe.dump.operator_traits import DumpSide, Traits, parameter_name
from runner.observe.dump.reader import DumpEntry

EntryPair = tuple[DumpEntry, DumpEntry]
Names = dict[str, str]  # of A to those of B


@dataclass(frozen=True)
class Matching:
    """Pairs of entries in the order of A, and the entries that only one side has.

    `renamed` are scopes whose operators are paired although their names differ; `coarser` is the coarser element type
    if operators compute in different ones.
    """

    pairs: Sequence[EntryPair]
    only_a: Sequence[DumpEntry]
    only_b: Sequence[DumpEntry]
    renamed: Sequence[tuple[str, str]] = ()
    coarser: DType | None = None


@dataclass(frozen=True)
class _Alignment:
    """Pairs of operators by full name, and `renamed` and `coarser` of the matching."""

    names: Names
    renamed: Sequence[tuple[str, str]] = ()
    coarser: DType | None = None


def match(a: DumpSide, b: DumpSide) -> Matching:
    """Pair the entries of two iterations."""
    forms = best_forms(a.operators, b.operators)
    operators = [_parsed(side, form, is_flat=False) for side, form in zip((a, b), forms, strict=True)]
    if _are_numbered_alike(*operators):
        found = _Alignment(_by_number(*operators))
    else:
        found = _aligned((a, b), forms)
    partner = {entry.name: entry for entry in b.entries if not entry.is_value}
    values = {sanitised(entry.name): entry for entry in b.entries if entry.is_value}
    own = {sanitised(entry.name) for entry in a.entries if entry.is_value}
    renamed = {name: other for name, other in _renamed_values((a, b), found.names).items() if other not in own}
    pairs = []
    for entry in a.entries:
        if entry.is_value:
            name = sanitised(entry.name)
            other = values.get(name) or values.get(renamed.get(name, ""))
        else:
            other = partner.get(found.names.get(entry.name, ""))
        if other is not None:
            pairs.append((entry, other))
    ours, theirs = ({id(pair[side]) for pair in pairs} for side in (0, 1))
    only_a = [entry for entry in a.entries if id(entry) not in ours]
    only_b = [entry for entry in b.entries if id(entry) not in theirs]
    return Matching(pairs, only_a, only_b, found.renamed, found.coarser)


def _parsed(side: DumpSide, form: NameForm, is_flat: bool) -> list[OperatorName]:
    return [form.parse(name, is_flat) for name in side.operators]


def _are_numbered_alike(a: Sequence[OperatorName], b: Sequence[OperatorName]) -> bool:
    """Whether no number belongs to operators with another scope or type, so that both are of one program."""
    kinds: tuple[dict[int | None, set[object]], ...] = ({}, {})
    for found, side in zip(kinds, (a, b), strict=True):
        for x in side:
            found.setdefault(x.number, set()).add((x.scope, x.type))
    common = kinds[0].keys() & kinds[1].keys()
    return bool(common) and all(kinds[0][number] & kinds[1][number] for number in common)


def _by_number(a: Sequence[OperatorName], b: Sequence[OperatorName]) -> Names:
    theirs = {(x.scope, x.type, x.number): x.full for x in b}
    return {x.full: theirs[key] for x in a if (key := (x.scope, x.type, x.number)) in theirs}


def _aligned(sides: tuple[DumpSide, DumpSide], forms: tuple[NameForm, NameForm]) -> _Alignment:
    """Align the operators of each cell, and of the gradients of each operator type in it, in the order of numbers."""
    is_flat = any("/" not in name for side in sides for name in side.operators)
    a, b = (
        sorted(_parsed(side, form, is_flat), key=lambda x: -1 if x.number is None else x.number)
        for side, form in zip(sides, forms, strict=True)
    )
    cells = match_scopes(a, b)
    groups: dict[object, tuple[list[OperatorName], list[OperatorName]]] = {}
    for x in a:
        if x.cell in cells:
            groups.setdefault((x.depth, cells[x.cell], x.part), ([], []))[0].append(x)
    for y in b:
        if (key := (y.depth, y.cell, y.part)) in groups:
            groups[key][1].append(y)
    dumped = [{entry.name: entry for entry in side.entries if not entry.is_value} for side in sides]
    pairs: list[tuple[OperatorName, OperatorName]] = []
    types: set[DType] = set()
    for ours, theirs in groups.values():
        one, other = (
            [side.traits(x, form, entries) for x in group]
            for side, form, entries, group in zip(sides, forms, dumped, (ours, theirs), strict=True)
        )
        for i, j in align(one, other):
            pairs.append((ours[i], theirs[j]))
            types |= _different_types(one[i], other[j])
    coarser = min(types, key=lambda kind: kind.size, default=None)
    return _Alignment({x.full: y.full for x, y in pairs}, _renamed_scopes(pairs), coarser)


def _different_types(a: Traits, b: Traits) -> set[DType]:
    """The floating types in which one operator computes on one side only."""
    pairs = zip(a.dtypes, b.dtypes, strict=False)
    return {kind for x, y in pairs if x is not y and x.is_float and y.is_float for kind in (x, y)}


def _renamed_scopes(pairs: Sequence[tuple[OperatorName, OperatorName]]) -> list[tuple[str, str]]:
    """The scopes up to the first part that differs; the parts below may be renamed as well."""
    found: dict[tuple[Cell, Cell], None] = {}
    for x, y in pairs:
        for k, (one, other) in enumerate(zip(x.cell, y.cell, strict=False)):
            if one != other:
                found[x.cell[: k + 1], y.cell[: k + 1]] = None
                break
    return [("/".join(one), "/".join(other)) for one, other in found]


def _renamed_values(sides: tuple[DumpSide, DumpSide], operators: Mapping[str, str]) -> Names:
    """Parameters of A to those of B that are the same operand of paired operators, if only one is."""
    found: dict[str, set[str]] = {}
    for name, partner in operators.items():
        x, y = sides[0].operation(name), sides[1].operation(partner)
        for one, other in zip(x.operands if x else (), y.operands if y else (), strict=False):
            ours, theirs = parameter_name(sides[0].source(one)), parameter_name(sides[1].source(other))
            if ours and theirs:
                found.setdefault(sanitised(ours), set()).add(sanitised(theirs))
    return {name: next(iter(partners)) for name, partners in found.items() if len(partners) == 1}
