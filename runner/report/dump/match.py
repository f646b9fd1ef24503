"""`match` pairs the entries of two dumps, for `walk.py` to compare.

Parameters and constants match by name. Operators match by name too if both dumps number them alike. Where they do not,
because a precision inserts casts or the networks are not the same, they match by cell, type and order within the cell
(`align`): numbers then only say what comes first. A cast that only one side has is left over, and so is everything
else without a partner. In this order: names of operators in parts, traits that recognise an operator in another graph,
the alignment of two sequences, the cells of two networks, and the matching that needs them all.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product, takewhile
from typing import NamedTuple

import numpy as np

from runner.dtype import DType
from runner.observe.dump.files import INPUT, OUTPUT, sanitised
from runner.observe.graph.listing import Operation
from runner.report.dump.reader import DumpEntry
from runner.types import Shape, TensorType

# Full names of operators in parts: `{scope}/{Type}-op{N}`.

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

    What does not identify the operator is ignored: `/` and other characters that `sanitised` replaces, the scope that
    data sinking adds above the step (`Default/network-TrainOneStepCell/`, or `Default/network/` in names without
    classes), and class names if only one of the runs has them.

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


# What is known about an operator besides its name, by which it is recognised in another graph.


@dataclass(frozen=True)
class Traits:
    """Only operators of the same `kind` can be paired: the type, and of a cast also from what, to what and for which
    line of the source, so that a cast that a precision inserts is not taken for one that the network has.

    `parameters` are the names of those among the operands, `shapes` those of the results, `dtypes` those of operands
    and results, `operands` what produces them, where casts are looked through. Empty if it is not known.
    """

    kind: Hashable
    parameters: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[DType, ...] = ()
    operands: tuple[Hashable, ...] = ()


def _no_operation(name: str) -> Operation | None:
    return None


@dataclass(frozen=True)
class DumpSide:
    """One iteration of a dump: its entries, the names of all executed operators, and the graph if the dump has it.

    `operation` finds an operator by name, `producer` by a reference to one of its results.
    """

    entries: list[DumpEntry]
    executed: list[str] = field(default_factory=list)
    operation: Callable[[str], Operation | None] = _no_operation
    producer: Callable[[str], Operation | None] = _no_operation

    @property
    def operators(self) -> list[str]:
        """The names of all operators, dumped or not; of the dumped ones only, if the executed ones are others."""
        dumped = [entry.name for entry in self.entries if not entry.is_value]
        return list(self.executed) if set(dumped) <= set(self.executed) else dumped

    def traits(self, name: OperatorName, form: NameForm, dumped: Mapping[str, DumpEntry]) -> Traits:
        """The traits of an operator, from the graph or, if there is none, from its files."""
        operation = self.operation(name.full)
        if operation is None:
            return _traits_of_files(name, dumped.get(name.full))
        types = [type for type in (*operation.operand_types, *operation.result_types) if type is not None]
        return Traits(
            _kind(operation, name.type),
            self.parameters(operation),
            tuple(type.shape for type in operation.result_types if type is not None),
            tuple(type.dtype for type in types),
            tuple(self._origin(operand, form) for operand in operation.operands),
        )

    def parameters(self, operation: Operation) -> tuple[str, ...]:
        """The names of the parameters among the operands, cast or not."""
        return tuple(name for operand in operation.operands if (name := parameter_name(self.source(operand))))

    def source(self, operand: str) -> str:
        """The operand that casts were applied to."""
        while (producer := self.producer(operand)) is not None and producer.op == CAST:
            operand = producer.operands[0]
        return operand

    def _origin(self, operand: str, form: NameForm) -> Hashable:
        operand = self.source(operand)
        producer = self.producer(operand)
        if producer is None:
            return parameter_name(operand) or operand
        name = form.parse(producer.full_name)
        return name.scope, name.type, operand.partition("[")[2]


def parameter_name(operand: str) -> str:
    """The name of a parameter or input among the operands of the graph; empty if it is something else.

    >>> parameter_name("%para3_conv1.weight"), parameter_name("%12")
    ('conv1.weight', '')
    """
    return operand.partition("_")[2] if operand.startswith("%para") else ""


def _kind(operation: Operation, type: str) -> Hashable:
    if operation.op != CAST or not operation.operand_types or not operation.result_types:
        return type
    before, after = operation.operand_types[0], operation.result_types[0]
    line = operation.source[0].text if operation.source else ""
    return type, before and before.dtype.is_float, after and after.dtype, line


def _traits_of_files(name: OperatorName, entry: DumpEntry | None) -> Traits:
    if entry is None:
        return Traits(name.type)
    tensors = entry.tensors().values()
    types: list[tuple[str, TensorType]] = [(tensor.io, tensor.type) for tensor in tensors]
    shapes = tuple(type.shape for io, type in types if io == OUTPUT)
    return Traits(name.type, (), shapes, tuple(type.dtype for _, type in types))


# The alignment of two sequences of operators: the pairs in order, without crossing, whose likeness has the largest sum.

# The weights of what two operators of the same kind have in common. An operand weighs more than an operator: one pair
# with the same operands is better than two pairs without.
PAIR, SHAPES, DTYPES, OPERAND = 2, 3, 1, 8
MAX_OPERANDS = 4
_LEFT, _UP, _PAIR = 0, 1, 2


class _Codes(NamedTuple):
    """Traits as numbers, one row for each operator."""

    kinds: np.ndarray
    parameters: np.ndarray  # 0: none
    shapes: np.ndarray
    dtypes: np.ndarray
    operands: np.ndarray  # [operator, MAX_OPERANDS]; negative: none


def align(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    """The pairs as indices. Operators that alone have their parameters are pairs wherever they are.

    The table of dynamic programming is computed a row at a time: 5,000 operators against 5,000 take a second and 25 MB.

    >>> x, y = Traits("Conv2D"), Traits("ReLU")
    >>> align([x, y, x], [x, x])
    [(0, 0), (2, 1)]
    """
    known = _by_parameters(a, b)
    x, y = ([k for k in range(len(side)) if k not in used] for side, used in ((a, known), (b, set(known.values()))))
    found = [(x[i], y[j]) for i, j in _trimmed([a[k] for k in x], [b[k] for k in y])]
    return sorted([*known.items(), *found])


def _by_parameters(a: Sequence[Traits], b: Sequence[Traits]) -> dict[int, int]:
    ours: dict[Hashable, list[int]] = {}
    theirs: dict[Hashable, list[int]] = {}
    for found, side in ((ours, a), (theirs, b)):
        for k, one in enumerate(side):
            if one.parameters:
                found.setdefault((one.kind, one.parameters), []).append(k)
    return {ours[key][0]: theirs[key][0] for key in ours if len(ours[key]) == len(theirs.get(key, ())) == 1}


def _trimmed(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    """Pair equal operators at both ends, and align the others."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle = _align(a[start : len(a) - end], b[start : len(b) - end])
    head = [(k, k) for k in range(start)]
    tail = [(len(a) - k, len(b) - k) for k in range(end, 0, -1)]
    return [*head, *((start + i, start + j) for i, j in middle), *tail]


def _align(a: Sequence[Traits], b: Sequence[Traits]) -> list[tuple[int, int]]:
    numbers: dict[Hashable, int] = {(): 0}
    x, y = _codes(a, numbers, -1), _codes(b, numbers, -2)
    moves = np.empty((len(a), len(b)), np.int8)
    best = np.zeros(len(b) + 1, np.int64)  # of the operators of A so far with the first k of B
    for i in range(len(a)):
        likeness = _likeness(x, i, y)
        paired = np.where(likeness > 0, best[:-1] + likeness, 0)
        above = np.maximum(best[1:], paired)
        row = np.concatenate(([0], np.maximum.accumulate(above)))
        moves[i] = np.where(row[1:] == row[:-1], _LEFT, np.where(row[1:] == best[1:], _UP, _PAIR))
        best = row
    return _pairs(moves)


def _pairs(moves: np.ndarray) -> list[tuple[int, int]]:
    found = []
    i, j = (size - 1 for size in moves.shape)
    while i >= 0 and j >= 0:
        move = moves[i, j]
        if move == _PAIR:
            found.append((i, j))
        i -= move != _LEFT
        j -= move != _UP
    return found[::-1]


def _likeness(x: _Codes, i: int, y: _Codes) -> np.ndarray:
    """How much operator `i` of X has in common with each one of Y; 0 if they cannot be paired.

    Operators with other parameters of other shapes are not the same: a layer was removed and another one added.
    """
    same_shapes = x.shapes[i] == y.shapes
    found = PAIR + SHAPES * same_shapes + DTYPES * (x.dtypes[i] == y.dtypes)
    found = found + OPERAND * (x.operands[i] == y.operands).sum(1)
    has_parameters = (x.parameters[i] != 0) & (y.parameters != 0)
    is_other = has_parameters & (x.parameters[i] != y.parameters) & ~same_shapes
    result: np.ndarray = np.where((x.kinds[i] == y.kinds) & ~is_other, found, 0)
    return result


def _codes(traits: Sequence[Traits], numbers: dict[Hashable, int], none: int) -> _Codes:
    def encoded(values: Sequence[Hashable]) -> np.ndarray:
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)

    operands = np.full((len(traits), MAX_OPERANDS), none, np.int64)
    for k, one in enumerate(traits):
        found = encoded(one.operands[:MAX_OPERANDS])
        operands[k, : len(found)] = found
    parameters = encoded([one.parameters for one in traits])
    kinds, shapes, dtypes = (
        encoded([(name, getattr(x, name)) for x in traits]) for name in ("kind", "shapes", "dtypes")
    )
    return _Codes(kinds, parameters, shapes, dtypes, operands)


# The cells of two networks, as trees of scopes, from the root down.


@dataclass
class _Scope:
    """A scope with the types of the operators in and below it, in order, without casts and gradients."""

    children: "dict[str, _Scope]" = field(default_factory=dict)
    types: list[str] = field(default_factory=list)


def match_scopes(a: Iterable[OperatorName], b: Iterable[OperatorName]) -> dict[Cell, Cell]:
    """Cells of A to cells of B, for operators in the order of their execution.

    Cells match by name. Of the remaining ones, those match that have the same attribute name and another class.
    Finally, renamed cells match by position: those that follow the same matched cell, have the same operators in the
    same order, and are equally many on both sides, so that there is only one way to pair them; or the only ones left
    there, of one class.
    """
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


# The matching.

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
