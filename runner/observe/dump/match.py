"""Matches the entries of two dumps.

Parameters and constants match by name. Operators match by name too if both dumps number them alike. Where they do not,
because a precision inserts casts or the networks are not the same, they match by cell, type and order within the cell
(`align`): numbers then only say what comes first. A cast that only one side has is left over, and so is everything
else without a partner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.observe.dump.align import align
from runner.observe.dump.file_names import INPUT, sanitised
from runner.observe.dump.match_scopes import match_scopes
from runner.observe.dump.operator_names import Cell, NameForm, OperatorName, best_forms
from runner.observe.dump.operator_traits import DumpSide, parameter_name
from runner.observe.dump.reader import DumpEntry
from runner.observe.graph.listing import Operation

EntryPair = tuple[DumpEntry, DumpEntry]
OperatorPair = tuple[OperatorName, OperatorName]
Names = dict[str, str]  # of A to those of B


@dataclass(frozen=True)
class Matching:
    """Pairs of entries in the order of A, and the entries that only one side has.

    `renamed` are scopes whose operators are paired although their names differ, `partners` the full names of paired
    operators, dumped or not.
    """

    pairs: Sequence[EntryPair]
    only_a: Sequence[DumpEntry]
    only_b: Sequence[DumpEntry]
    renamed: Sequence[tuple[str, str]]
    partners: Names

    def foreign_inputs(self, a: DumpSide, b: DumpSide, name: str, partner: str) -> frozenset[str]:
        """The labels of inputs of two paired operators that are not made by paired operators, casts aside."""
        x, y = a.operation(name), b.operation(partner)
        operands = zip(x.operands if x else (), y.operands if y else (), strict=False)
        makers = ((a.producer(a.source(one)), b.producer(b.source(other))) for one, other in operands)
        return frozenset(f"{INPUT}_{k}" for k, pair in enumerate(makers) if not self._are_partners(*pair))

    def _are_partners(self, a: Operation | None, b: Operation | None) -> bool:
        if a is None or b is None:
            return a is b
        partner = self.partners.get(a.full_name) or self.partners.get(sanitised(a.full_name), "")
        return sanitised(partner) == sanitised(b.full_name)


def match(a: DumpSide, b: DumpSide) -> Matching:
    """Pair the entries of two iterations."""
    forms = best_forms(a.operators, b.operators)
    operators = [_parsed(side, form, is_flat=False) for side, form in zip((a, b), forms, strict=True)]
    if _are_numbered_alike((a, b), *operators):
        aligned = _by_number(*operators)
    else:
        aligned = _aligned((a, b), forms)
    names = {one.full: other.full for one, other in aligned}
    partner = {entry.name: entry for entry in b.entries if not entry.is_value}
    values = {sanitised(entry.name): entry for entry in b.entries if entry.is_value}
    own = {sanitised(entry.name) for entry in a.entries if entry.is_value}
    renamed = {name: other for name, other in _renamed_values((a, b), names).items() if other not in own}
    pairs = []
    for entry in a.entries:
        if entry.is_value:
            name = sanitised(entry.name)
            other = values.get(name) or values.get(renamed.get(name, ""))
        else:
            other = partner.get(names.get(entry.name, ""))
        if other is not None:
            pairs.append((entry, other))
    ours, theirs = ({id(pair[side]) for pair in pairs} for side in (0, 1))
    only_a = [entry for entry in a.entries if id(entry) not in ours]
    only_b = [entry for entry in b.entries if id(entry) not in theirs]
    return Matching(pairs, only_a, only_b, _renamed_scopes(aligned), names)


def _parsed(side: DumpSide, form: NameForm, is_flat: bool) -> list[OperatorName]:
    return [form.parse(name, is_flat) for name in side.operators]


def _are_numbered_alike(sides: tuple[DumpSide, DumpSide], a: Sequence[OperatorName], b: Sequence[OperatorName]) -> bool:
    """Whether no number belongs to operators of another scope or type, or of other parameters: both are one program."""
    found: tuple[dict[int | None, set[object]], ...] = ({}, {})
    for kinds, names in zip(found, (a, b), strict=True):
        for x in names:
            kinds.setdefault(x.number, set()).add((x.scope, x.type))
    common = found[0].keys() & found[1].keys()
    return (
        bool(common)
        and all(found[0][number] & found[1][number] for number in common)
        and not any(_have_other_parameters(sides, x, y) for x, y in _by_number(a, b))
    )


def _have_other_parameters(sides: tuple[DumpSide, DumpSide], a: OperatorName, b: OperatorName) -> bool:
    """Whether each one has a parameter that the other one lacks; a pass may have folded one."""
    x, y = (
        set(side.parameters(operation)) if (operation := side.operation(name.full)) else set()
        for side, name in zip(sides, (a, b), strict=True)
    )
    return bool(x - y and y - x)


def _by_number(a: Sequence[OperatorName], b: Sequence[OperatorName]) -> list[OperatorPair]:
    theirs = {(x.scope, x.type, x.number): x for x in b}
    return [(x, theirs[key]) for x in a if (key := (x.scope, x.type, x.number)) in theirs]


def _aligned(sides: tuple[DumpSide, DumpSide], forms: tuple[NameForm, NameForm]) -> list[OperatorPair]:
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
    pairs: list[OperatorPair] = []
    for ours, theirs in groups.values():
        one, other = (
            [side.traits(x, form, entries) for x in group]
            for side, form, entries, group in zip(sides, forms, dumped, (ours, theirs), strict=True)
        )
        pairs += [(ours[i], theirs[j]) for i, j in align(one, other)]
    return pairs


def _renamed_scopes(pairs: Sequence[OperatorPair]) -> list[tuple[str, str]]:
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
