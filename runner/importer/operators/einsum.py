"""Rule for Einsum: an equation as Transpose, Reshape, products of matrices and ReduceSum."""

import math
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner import ops
from runner.core.values import Value
from runner.importer.broadcasting import reshaped
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator
from runner.types import Shape


@onnx_operator("Einsum")
def einsum(call: NodeCall, *inputs: Value) -> Value:
    """A sum of products of any number of operands, such as `bhqd,bhkd->bhqk`; with ellipses and diagonals."""
    equation = call.attribute("equation", "")
    terms, output = _parsed(call, equation, inputs)
    terms = [_without_broadcast(term, terms) for term in map(_without_repeats, terms)]
    while len(terms) > 1:
        first, second, *rest = terms
        needed = set(output).union(*(term.labels for term in rest))
        terms = [_product(first, second, needed), *rest]
    return _ordered(_summed(terms[0], set(output)), output)


@dataclass(frozen=True)
class _Term:
    """A value with one label for each of its axes."""

    value: Value
    labels: str

    def lengths(self, labels: Iterable[str]) -> Shape:
        """The lengths of the axes with these labels."""
        return tuple(self.value.shape[self.labels.index(label)] for label in labels)


def _parsed(call: NodeCall, equation: str, inputs: Sequence[Value]) -> tuple[list[_Term], str]:
    """The operands with their labels, and the labels of the output; each axis of an ellipsis gets a free letter."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    given = left.split(",")
    rows = {"equation": equation, "inputs": ", ".join(str(x.type) for x in inputs)}
    if len(given) != len(inputs):
        raise call.error("the equation has another number of operands", operands=len(given), **rows)
    free = [letter for letter in string.ascii_letters if letter not in equation]
    most = max(x.ndim - len(part.replace("...", "")) for x, part in zip(inputs, given, strict=True))
    dots = "".join(free[: max(most, 0)])
    terms = []
    for x, part in zip(inputs, given, strict=True):
        count = x.ndim - len(part.replace("...", ""))
        labels = part.replace("...", dots[len(dots) - count :]) if count >= 0 else ""
        if len(labels) != x.ndim or not set(labels) <= set(string.ascii_letters):
            raise call.error("the labels do not match the axes of an operand", labels=part, operand=x.type, **rows)
        terms.append(_Term(x, labels))
    for label in {label for term in terms for label in term.labels}:
        lengths = {x.value.shape[k] for x in terms for k, name in enumerate(x.labels) if name == label}
        if len(lengths - {1}) > 1:
            raise call.error("axes of one label have several lengths", label=label, lengths=sorted(lengths), **rows)
    output = right.replace("...", dots) if arrow else _implicit(given, dots)
    if len(set(output)) != len(output) or not set(output) <= {label for term in terms for label in term.labels}:
        raise call.error("the output has a label twice, or one of no operand", output=right, **rows)
    return terms, output


def _implicit(given: Sequence[str], dots: str) -> str:
    """The labels of an output that the equation leaves out: the ellipsis, then those that appear once."""
    counts = Counter("".join(given).replace(".", ""))
    return dots + "".join(sorted(label for label, count in counts.items() if count == 1))


def _without_repeats(term: _Term) -> _Term:
    """The diagonal of axes with the same label."""
    while repeated := [label for label, count in Counter(term.labels).items() if count > 1]:
        first = term.labels.index(repeated[0])
        second = term.labels.index(repeated[0], first + 1)
        rest = [k for k in range(term.value.ndim) if k not in (first, second)]
        value, length = _transposed(term.value, (*rest, first, second)), term.value.shape[first]
        flat = reshaped(value, (*value.shape[:-2], length * length))
        ends = *(slice(None),) * len(rest), slice(None, None, length + 1)
        term = _Term(flat[ends], "".join(term.labels[k] for k in rest) + repeated[0])
    return term


def _without_broadcast(term: _Term, terms: Sequence[_Term]) -> _Term:
    """The operand without axes of length 1 that are longer in another one: they only repeat it."""
    longest: dict[str, int] = {}
    for other in terms:
        for label, length in zip(other.labels, other.value.shape, strict=True):
            longest[label] = max(length, longest.get(label, 0))
    kept = "".join(label for label, n in zip(term.labels, term.value.shape, strict=True) if n == longest[label])
    return _shaped(term, kept)


def _shaped(term: _Term, labels: str) -> _Term:
    """The operand with the axes of other labels, whose length is 1, removed."""
    return term if labels == term.labels else _Term(reshaped(term.value, term.lengths(labels)), labels)


def _summed(term: _Term, needed: set[str]) -> _Term:
    """The sum over the axes whose labels nothing else needs."""
    axes = tuple(k for k, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    return _Term(ops.ReduceSum(axis=axes)(term.value), "".join(x for x in term.labels if x in needed))


def _product(x: _Term, y: _Term, needed: set[str]) -> _Term:
    """The product of two operands, summed over common labels that nothing else needs."""
    x, y = _summed(x, needed | set(y.labels)), _summed(y, needed | set(x.labels))
    batch = "".join(label for label in x.labels if label in y.labels and label in needed)
    inner = "".join(label for label in x.labels if label in y.labels and label not in needed)
    rows = "".join(label for label in x.labels if label not in y.labels)
    columns = "".join(label for label in y.labels if label not in x.labels)
    if not inner or not (rows or columns) or not x.value.dtype.is_float:
        labels = batch + rows + columns + inner
        return _summed(_Term(_aligned(x, labels) * _aligned(y, labels), labels), needed)
    left, turned = _stack(x, batch, rows, inner)
    right, straight = _stack(y, batch, columns, inner)
    product = ops.BatchMatMul if batch else ops.MatMul
    made = product(turned, not straight)(left, right)
    shape = *x.lengths(batch), *x.lengths(rows), *y.lengths(columns)
    return _Term(reshaped(made, shape), batch + rows + columns)


def _stack(term: _Term, batch: str, outer: str, inner: str) -> tuple[Value, bool]:
    """A stack of matrices (batch, outer, inner), or the transposed ones and True where no axis has to move for it."""
    turned = term.labels == batch + inner + outer and bool(outer)
    value = term.value if turned else _ordered(term, batch + outer + inner)
    sizes = [math.prod(term.lengths(part)) for part in ((inner, outer) if turned else (outer, inner))]
    return reshaped(value, (*([math.prod(term.lengths(batch))] if batch else []), *sizes)), turned


def _aligned(term: _Term, labels: str) -> Value:
    """The operand with its axes in this order, and axes of length 1 for the labels that it does not have."""
    value = _ordered(term, "".join(label for label in labels if label in term.labels))
    shape = tuple(term.lengths(label)[0] if label in term.labels else 1 for label in labels)
    return reshaped(value, shape)


def _ordered(term: _Term, labels: str) -> Value:
    return _transposed(term.value, tuple(term.labels.index(label) for label in labels))


def _transposed(value: Value, perm: tuple[int, ...]) -> Value:
    if perm == tuple(range(value.ndim)):
        return value
    result: Value = ops.Transpose()(value, perm)
    return result
