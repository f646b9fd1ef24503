"""Rules of products, of matrices, of any number of operands (Einsum), of queries with keys and values (Attention); and
of reductions and orders along axes.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import reshaped, spread, swapped
from runner.importer.rules.indexing import one_number
from runner.types import Shape

# Products of matrices.


@onnx_operator("Gemm")
def gemm(call: NodeCall, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * a @ b + beta * c, where transA and transB transpose the matrices."""
    transposed = bool(call.attribute("transA", 0)), bool(call.attribute("transB", 0))
    product, beta = scaled(ops.MatMul(*transposed)(a, b), call.attribute("alpha", 1.0)), call.attribute("beta", 1.0)
    return product if c is None else with_bias(product, scaled(c, beta))


@onnx_operator("MatMul")
def matmul(call: NodeCall, a: Value, b: Value) -> Value:
    """Product of matrices, of stacks of matrices with broadcast leading axes, and of vectors."""
    return product(a, b)


@onnx_operator("com.microsoft.FusedMatMul")
def fused_matmul(call: NodeCall, a: Value, b: Value) -> Value:
    """alpha * a @ b, where transA and transB transpose the last two axes."""
    call.choice("transBatchA", 0, 0)
    call.choice("transBatchB", 0, 0)
    a = swapped(a) if call.attribute("transA", 0) else a
    b = swapped(b) if call.attribute("transB", 0) else b
    return scaled(product(a, b), call.attribute("alpha", 1.0))


def scaled(x: Value, factor: float) -> Value:
    """x, multiplied unless the factor is 1."""
    return x if factor == 1.0 else x * factor


def with_bias(product: Value, c: Value) -> Value:
    """A matrix plus what broadcasts to it; a row by the operator that has a fast gradient."""
    is_row = c.size == product.shape[1] and c.shape[-1:] == product.shape[1:]
    return ops.BiasAdd()(product, reshaped(c, product.shape[1:])) if is_row else product + c


def product(a: Value, b: Value) -> Value:
    """numpy's `a @ b`. A matrix on the right is one product with all rows on the left."""
    if a.ndim == 1:
        return _without(product(reshaped(a, (1, *a.shape)), b), -2 if b.ndim > 1 else -1)
    if b.ndim == 1:
        return _without(product(a, reshaped(b, (*b.shape, 1))), -1)
    result: Any
    if b.ndim == 2:
        rows = reshaped(a, (-1, a.shape[-1])) if a.ndim > 2 else a
        result = ops.MatMul()(rows, b)
        return reshaped(result, (*a.shape[:-1], b.shape[1]))
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stacks = (spread(x, (*leading, *x.shape[-2:])) for x in (a, b))
    result = ops.BatchMatMul()(*stacks)
    return result  # type: ignore[no-any-return]


def _without(x: Value, axis: int) -> Value:
    shape = list(x.shape)
    del shape[axis]
    return reshaped(x, tuple(shape))


# Einsum: an equation as Transpose, Reshape, products of matrices and ReduceSum.


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
    return ops.Transpose()(value, perm)


# Attention.

LOWEST = -1e30  # of scores that a mask leaves out: no share remains, and no NaN where all are left out


@onnx_operator("Attention", without_effect=("softmax_precision",))
def attention(
    call: NodeCall,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> Any:
    """Scaled dot-product attention with masks, shared key heads and cached keys; nonpad_kv_seqlen and windows are not
    supported.
    """
    if lengths is not None:
        raise call.error("an input is not supported", input="nonpad_kv_seqlen", repair="a mask")
    for side in ("left_window_size", "right_window_size"):
        call.choice(side, -1, -1)
    flat = q.ndim == 3
    if flat:
        heads = call.attribute("kv_num_heads")
        q, k, v = _in_heads(q, call.attribute("q_num_heads")), _in_heads(k, heads), _in_heads(v, heads)
    before = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = ops.Concat(2)((past_key, k)), ops.Concat(2)((past_value, v))
    present = k, v
    k, v = (_repeated(x, q.shape[1]) for x in (k, v))
    scores = _scores(call, q, k)
    biased, allowed = _masked(call, scores, mask, before)
    shares: Value = ops.Softmax(-1)(biased)
    if allowed is not None:
        shares = ops.Select()(allowed, shares, ops.ZerosLike()(shares))
    y: Value = ops.BatchMatMul()(shares, v)
    if flat:
        y = reshaped(ops.Transpose()(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], y.shape[1] * y.shape[3]))
    if call.outputs < 4:
        return (y, *present)
    mode = call.choice("qk_matmul_output_mode", 0, 0, 1, 2, 3)
    if mode == 2:
        biased, _ = _masked(call, scores, mask, before, -np.inf)
    return (y, *present, (_scores(call, q, k, capped=False), scores, biased, shares)[mode])


def _in_heads(x: Value, heads: int) -> Value:
    rows, length, features = x.shape
    return ops.Transpose()(reshaped(x, (rows, length, heads, features // heads)), (0, 2, 1, 3))


def _repeated(x: Value, heads: int) -> Value:
    """Heads of keys or values, each as often as heads of queries share it."""
    rows, own, length, features = x.shape
    if own == heads:
        return x
    wide = spread(reshaped(x, (rows, own, 1, length, features)), (rows, own, heads // own, length, features))
    return reshaped(wide, (rows, heads, length, features))


def _scores(call: NodeCall, q: Value, k: Value, capped: bool = True) -> Value:
    scale = call.attribute("scale", 1.0 / math.sqrt(q.shape[3]))
    scores: Value = ops.BatchMatMul()(q * scale, swapped(k))
    cap = call.attribute("softcap", 0.0)
    return ops.Tanh()(scores * (1.0 / cap)) * cap if cap and capped else scores


def _masked(
    call: NodeCall, scores: Value, mask: Value | None, before: int, lowest: float = LOWEST
) -> tuple[Value, Value | None]:
    """Scores after the masks, `lowest` where they are left out; for masks of truth values, also which remain."""
    rows, columns = scores.shape[2:]
    allowed: Value | None = None
    if mask is not None and mask.shape[-1] != columns:
        raise call.error("a mask has another length than the keys", mask=mask.shape, keys=columns)
    if mask is not None and mask.dtype is dt.bool_:
        allowed = spread(mask, scores.shape)
    elif mask is not None:
        scores = scores + ops.Maximum()(mask, Tensor(np.asarray(lowest, mask.dtype.numpy)))
    if call.attribute("is_causal", 0):
        past = spread(Tensor(np.tri(rows, columns, before, dtype=np.bool_)), scores.shape)
        allowed = past if allowed is None else ops.LogicalAnd()(allowed, past)
    if allowed is None:
        return scores, None
    left_out = Tensor(np.full(scores.shape, lowest, scores.dtype.numpy))
    return ops.Select()(allowed, scores, left_out), allowed


# Rules of operators along axes: reductions; and those that compare or sum along one: TopK, ArgMax, CumSum, Unique.

# Reductions.

Reduction = Callable[[Value, tuple[int, ...], bool], Any]
SUMS: dict[str, Reduction] = {
    "ReduceSum": lambda x, axes, keep: ops.ReduceSum(keep)(x, axes),
    "ReduceMean": lambda x, axes, keep: ops.ReduceMean(keep)(x, axes),
    "ReduceMax": lambda x, axes, keep: ops.ReduceMax(keep)(x, axes),
    "ReduceMin": lambda x, axes, keep: ops.ReduceMin(keep)(x, axes),
    "ReduceProd": lambda x, axes, keep: ops.ReduceProd(keep)(x, axes),
    "ReduceL1": lambda x, axes, keep: ops.ReduceSum(keep)(ops.Abs()(x), axes),
    "ReduceL2": lambda x, axes, keep: ops.Sqrt()(ops.ReduceSum(keep)(ops.Square()(x), axes)),
    "ReduceSumSquare": lambda x, axes, keep: ops.ReduceSum(keep)(ops.Square()(x), axes),
    "ReduceLogSum": lambda x, axes, keep: ops.Log()(ops.ReduceSum(keep)(x, axes)),
    "ReduceLogSumExp": lambda x, axes, keep: log_sum_exp(x, axes, keep),
}


# What is left of these without axes to reduce: their function of each element.
UNREDUCED: dict[str, Callable[[Value], Any]] = {
    "ReduceL1": lambda x: ops.Abs()(x),
    "ReduceL2": lambda x: ops.Abs()(x),
    "ReduceSumSquare": lambda x: ops.Square()(x),
    "ReduceLogSum": lambda x: ops.Log()(x),
}


def log_sum_exp(x: Value, axes: tuple[int, ...], keep: bool) -> Any:
    """log(sum(exp(x))), without overflow."""
    largest = ops.StopGradient()(ops.ReduceMax(True)(x, axes))
    total = ops.Log()(ops.ReduceSum(True)(ops.Exp()(x - largest), axes)) + largest
    return total if keep else ops.Squeeze(axes)(total)


def _declare(name: str, reduction: Reduction) -> None:
    def rule(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Any:
        chosen = call.numbers("axes", axes)
        if not chosen and call.attribute("noop_with_empty_axes", 0):
            return UNREDUCED[name](x) if name in UNREDUCED else x
        along = tuple(sorted(call.axes(chosen, x.ndim))) if chosen else tuple(range(x.ndim))
        return reduction(x, along, bool(call.attribute("keepdims", 1)))

    rule.__doc__ = f"{name.removeprefix('Reduce')} over axes, which are known at import; over all axes without them."
    onnx_operator(name, static=("axes",))(rule)


for _name, _reduction in SUMS.items():
    _declare(_name, _reduction)


# TopK, ArgMax, ArgMin, CumSum, NonZero, Unique.


@onnx_operator("TopK", static=("k",), without_effect=("sorted",))
def top_k(call: NodeCall, x: Value, k: np.ndarray | None = None) -> tuple[Value, Value]:
    """The largest (or with largest=0 the smallest) elements along `axis`, in order, and their positions."""
    axis = call.axis(-1, x.ndim)
    count = call.attribute("k") if k is None else one_number(call, k, "k")
    if not 1 <= count <= x.shape[axis]:
        raise call.error("k is out of range", k=count, allowed=f"1 to {x.shape[axis]}", x=x.type)
    values, numbers = ops.TopK(True, count, axis, bool(call.attribute("largest", 1)))(x)
    return values, ops.Cast()(numbers, dt.int64)


@onnx_operator("ArgMax")
def arg_max(call: NodeCall, data: Value) -> Value:
    """The position of the largest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmax)


@onnx_operator("ArgMin")
def arg_min(call: NodeCall, data: Value) -> Value:
    """The position of the smallest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmin)


def _extremum(call: NodeCall, data: Value, kind: type[ops.Argmax | ops.Argmin]) -> Value:
    axis = call.axis(0, data.ndim)
    is_last = bool(call.attribute("select_last_index", 0))
    position: Value = kind(axis, dt.int64)(ops.ReverseV2(axis)(data) if is_last else data)
    if is_last:
        position = data.shape[axis] - 1 - position
    return ops.ExpandDims()(position, axis) if call.attribute("keepdims", 1) else position


@onnx_operator("CumSum", static=("axis",))
def cum_sum(call: NodeCall, x: Value, axis: np.ndarray) -> Value:
    """The sums of the elements up to each one along an axis that is known at import."""
    (at,) = call.axes([one_number(call, axis, "axis")], x.ndim)
    return ops.CumSum(bool(call.attribute("exclusive", 0)), bool(call.attribute("reverse", 0)))(x, at)


@onnx_operator("NonZero", static=("x",))
def non_zero(call: NodeCall, x: np.ndarray) -> np.ndarray:
    """The positions of the elements that are not 0, a column for each; x must be known at import."""
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@onnx_operator("Unique", static=("x",))
def unique(call: NodeCall, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different elements, or slices along `axis`, with first positions, places and counts; x must be known."""
    axis = call.attribute("axis", None)
    found, first, places, counts = np.unique(x, True, True, True, axis=axis)
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        found, first, counts = np.take(found, order, 0 if axis is None else axis), first[order], counts[order]
        places = np.argsort(order)[places]
    return found, first.astype(np.int64), places.reshape(-1).astype(np.int64), counts.astype(np.int64)
