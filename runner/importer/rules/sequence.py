"""Rules for LSTM, GRU and RNN, unrolled over the steps of the sequence.

The products with the inputs of all steps are one MatMul. Shapes: x (T, N, I), W (D, G H, I), R (D, G H, H), B (D, 2 G
H), states (D, N, H), outputs (T, D, N, H), for T steps, N samples, D directions and G gates of H units; with `layout=1`
the samples are the first axis of x, states and outputs.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import reshaped, spread, swapped
from runner.types import Shape

# Rule for Einsum: an equation as Transpose, Reshape, products of matrices and ReduceSum.


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


# The rule of Attention.

LOWEST = -1e30  # of scores that a mask leaves out: no share remains, and no NaN where all are left out


@onnx_operator("Attention")
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


def _masked(call: NodeCall, scores: Value, mask: Value | None, before: int) -> tuple[Value, Value | None]:
    """Scores after the masks, and, for masks of truth values, which of them remain."""
    rows, columns = scores.shape[2:]
    allowed: Value | None = None
    if mask is not None and mask.shape[-1] != columns:
        raise call.error("a mask has another length than the keys", mask=mask.shape, keys=columns)
    if mask is not None and mask.dtype is dt.bool_:
        allowed = spread(mask, scores.shape)
    elif mask is not None:
        scores = scores + ops.Maximum()(mask, Tensor(np.asarray(LOWEST, mask.dtype.numpy)))
    if call.attribute("is_causal", 0):
        past = spread(Tensor(np.tri(rows, columns, before, dtype=np.bool_)), scores.shape)
        allowed = past if allowed is None else ops.LogicalAnd()(allowed, past)
    if allowed is None:
        return scores, None
    left_out = Tensor(np.full(scores.shape, LOWEST, scores.dtype.numpy))
    return ops.Select()(allowed, scores, left_out), allowed


# The functions of the gates of recurrent layers: the attributes `activations`, their constants, and `clip`.


class _Kind(NamedTuple):
    """A function of x, alpha and beta, and the constants that it has by default; None for one that it does not use."""

    compute: Callable[[Value, float, float], Value]
    alpha: float | None = None
    beta: float | None = None


_KINDS = {
    "relu": _Kind(lambda x, a, b: ops.ReLU()(x)),
    "tanh": _Kind(lambda x, a, b: ops.Tanh()(x)),
    "sigmoid": _Kind(lambda x, a, b: ops.Sigmoid()(x)),
    "affine": _Kind(lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": _Kind(lambda x, a, b: ops.Select()(x > 0.0, x, x * a), 0.01),
    "thresholdedrelu": _Kind(lambda x, a, b: ops.Select()(x > a, x, ops.ZerosLike()(x)), 1.0),
    "scaledtanh": _Kind(lambda x, a, b: ops.Tanh()(x * b) * a, 1.0, 1.0),
    "hardsigmoid": _Kind(lambda x, a, b: ops.clip_by_value(x * a + b, 0.0, 1.0), 0.2, 0.5),
    "elu": _Kind(lambda x, a, b: ops.Elu(a)(x), 1.0),
    "softsign": _Kind(lambda x, a, b: ops.Softsign()(x)),
    "softplus": _Kind(lambda x, a, b: ops.Softplus()(x)),
}


@dataclass(frozen=True)
class GateFunction:
    """One function with its constants; its operand is first limited to -clip to clip, unless clip is 0."""

    kind: _Kind
    alpha: float
    beta: float
    clip: float

    def __call__(self, x: Value) -> Value:
        return self.unclipped(ops.clip_by_value(x, -self.clip, self.clip) if self.clip else x)

    def unclipped(self, x: Value) -> Value:
        """The function of x itself."""
        return self.kind.compute(x, self.alpha, self.beta)


def gate_functions(call: NodeCall, directions: int, default: Sequence[str]) -> list[list[GateFunction]]:
    """For each direction its functions. Raises a located error for an unknown name, or another number of them."""
    names = list(call.attribute("activations", ()) or tuple(default) * directions)
    if len(names) != len(default) * directions:
        expected = len(default) * directions
        raise call.error("another number of activations", activations=", ".join(names), expected=expected)
    alphas, betas = (list(call.attribute(f"activation_{name}", ())) for name in ("alpha", "beta"))
    clip, found = float(call.attribute("clip", 0.0)), []
    for name in names:
        kind = _KINDS.get(name.lower())
        if kind is None:
            raise call.error("unknown activation", activation=name, allowed=", ".join(_KINDS))
        # The constants are for the functions that use them, in order.
        alpha = 0.0 if kind.alpha is None else alphas.pop(0) if alphas else kind.alpha
        beta = 0.0 if kind.beta is None else betas.pop(0) if betas else kind.beta
        found.append(GateFunction(kind, float(alpha), float(beta), clip))
    return [found[k : k + len(default)] for k in range(0, len(found), len(default))]


# Rules for LSTM, GRU and RNN, unrolled over the steps of the sequence.

Step = Callable[..., tuple[Value, ...]]  # the gates' share of the input and the states before, to the states after


@onnx_operator("LSTM")
def lstm(
    call: NodeCall,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
    initial_c: Value | None = None,
    p: Value | None = None,
) -> tuple[Value, ...]:
    """One LSTM layer in one or both directions, with peepholes, `clip`, `input_forget` and sequence lengths."""
    layer = _layer(call, x, w, r, gates=4, functions=("Sigmoid", "Tanh", "Tanh"))
    given = layer.products(w, None if b is None else layer.both_biases(b))
    coupled = bool(call.attribute("input_forget", 0))

    def step_of(direction: int) -> Step:
        gate, inner, outer = layer.functions[direction]
        matrix, product = r[direction], ops.MatMul(transpose_b=True)
        peepholes = None if p is None else ops.Split(0, 3)(p[direction])

        def step(given: Value, h: Value, c: Value) -> tuple[Value, ...]:
            enter, leave, forget, candidate = ops.Split(1, 4)(given + product(h, matrix))
            if peepholes:
                enter, forget = enter + peepholes[0] * c, forget + peepholes[2] * c
            entered = gate(enter)
            kept = 1.0 - entered if coupled else gate(forget)
            c = kept * c + entered * inner(candidate)
            left = gate(leave + peepholes[1] * c if peepholes else leave)
            return left * outer.unclipped(c), c

        return step

    return layer.run(given, {"initial_h": initial_h, "initial_c": initial_c}, step_of, sequence_lens)


@onnx_operator("GRU")
def gru(
    call: NodeCall,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
) -> tuple[Value, ...]:
    """One GRU layer in one or both directions, with `linear_before_reset`, `clip` and sequence lengths."""
    layer = _layer(call, x, w, r, gates=3, functions=("Sigmoid", "Tanh"))
    late = bool(call.attribute("linear_before_reset", 0))  # whether the reset gate applies after the product with R
    biases = None if b is None else ops.Split(1, 2)(b)
    given = layer.products(w, None if b is None else biases[0] if late and biases else layer.both_biases(b))

    def step_of(direction: int) -> Step:
        gate, inner = layer.functions[direction]
        matrix, product, size = r[direction], ops.MatMul(transpose_b=True), layer.hidden

        def after(given: Value, h: Value) -> tuple[Value, ...]:
            of_h = product(h, matrix)
            of_h = of_h + biases[1][direction] if biases else of_h
            mixed, hidden = ops.Split(1, 3)(given), ops.Split(1, 3)(of_h)
            update, reset = gate(mixed[0] + hidden[0]), gate(mixed[1] + hidden[1])
            candidate = inner(mixed[2] + reset * hidden[2])
            return (candidate + update * (h - candidate),)

        gates, last = matrix[: 2 * size], matrix[2 * size :]

        def before(given: Value, h: Value) -> tuple[Value, ...]:
            update, reset = ops.Split(1, 2)(gate(given[:, : 2 * size] + product(h, gates)))
            candidate = inner(given[:, 2 * size :] + product(reset * h, last))
            return (candidate + update * (h - candidate),)

        return after if late else before

    return layer.run(given, {"initial_h": initial_h}, step_of, sequence_lens)


@onnx_operator("RNN")
def rnn(
    call: NodeCall,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    sequence_lens: Value | None = None,
    initial_h: Value | None = None,
) -> tuple[Value, ...]:
    """One layer of f(x W + h R + b) in one or both directions, with `clip` and sequence lengths."""
    layer = _layer(call, x, w, r, gates=1, functions=("Tanh",))
    given = layer.products(w, None if b is None else layer.both_biases(b))

    def step_of(direction: int) -> Step:
        (function,), matrix = layer.functions[direction], r[direction]
        return lambda given, h: (function(given + ops.MatMul(transpose_b=True)(h, matrix)),)

    return layer.run(given, {"initial_h": initial_h}, step_of, sequence_lens)


def _layer(call: NodeCall, x: Value, w: Value, r: Value, gates: int, functions: Sequence[str]) -> _Layer:
    """What the node says about the layer. Raises a located error for operands that do not fit."""
    direction = call.attribute("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        allowed = "forward, reverse, bidirectional"
        raise call.error("unknown direction of a recurrent layer", direction=direction, allowed=allowed)
    directions, batch_first = 1 + (direction == "bidirectional"), bool(call.attribute("layout", 0))
    hidden = r.shape[-1]
    rows = {"x": x.type, "W": w.type, "R": r.type, "direction": direction}
    fits = x.ndim == 3 and w.shape == (directions, gates * hidden, x.shape[2])
    if not fits or r.shape != (directions, gates * hidden, hidden):
        raise call.error("the operands of a recurrent layer do not match", **rows)
    found = gate_functions(call, directions, functions)
    turned = ops.Transpose()(x, (1, 0, 2)) if batch_first else x
    return _Layer(call, turned, directions, gates, hidden, direction == "reverse", batch_first, found)


@dataclass(frozen=True)
class _Layer:
    """A recurrent layer: its input (T, N, I), its sizes, and for each direction the functions of its gates."""

    call: NodeCall
    x: Value
    directions: int
    gates: int
    hidden: int
    reverse: bool
    batch_first: bool
    functions: Sequence[Sequence[GateFunction]]

    def both_biases(self, b: Value) -> Value:
        """The sum of the biases of input and state (D, G H)."""
        return ops.ReduceSum(axis=1)(ops.Reshape()(b, (self.directions, 2, self.gates * self.hidden)))

    def products(self, w: Value, bias: Value | None) -> list[list[Value]]:
        """For each direction and step the product of input and weights, with the bias: (N, G H)."""
        steps, batch, columns = self.x.shape
        rows = self.directions * self.gates * self.hidden
        flat, matrix = ops.Reshape()(self.x, (steps * batch, columns)), ops.Reshape()(w, (rows, columns))
        given = ops.MatMul(transpose_b=True)(flat, matrix)
        given = given if bias is None else given + ops.Reshape()(bias, (rows,))
        sides = ops.Split(2, self.directions)(ops.Reshape()(given, (steps, batch, rows)))
        return [list(ops.Unstack(0)(side)) for side in sides]

    def run(
        self,
        given: Sequence[Sequence[Value]],
        starts: Mapping[str, Value | None],
        step_of: Callable[[int], Step],
        sequence_lens: Value | None,
    ) -> tuple[Value, ...]:
        """All steps in all directions: the outputs, and each of the last states."""
        within, order = self._within(sequence_lens), range(self.x.shape[0])
        outputs, lasts = list[Value](), list[tuple[Value, ...]]()
        for direction in range(self.directions):
            states = tuple(self._start(name, start, direction) for name, start in starts.items())
            backwards = self.reverse or direction == 1
            step = step_of(direction)
            made, last = _scan(given[direction], states, step, order[::-1] if backwards else order, within)
            outputs.append(ops.Stack(0)(made))
            lasts.append(last)
        whole = ops.Stack(1)(outputs)
        if self.batch_first:
            whole = ops.Transpose()(whole, (2, 0, 1, 3))
        axis = 1 if self.batch_first else 0
        return whole, *(ops.Stack(axis)(list(ends)) for ends in zip(*lasts, strict=True))

    def _start(self, name: str, start: Value | None, direction: int) -> Value:
        """The state (N, H) before the first step, zeros by default. One of another batch size that the file fixes must
        be known, and the same for all samples."""
        batch = self.x.shape[1]
        if start is None:
            return Tensor(np.zeros((batch, self.hidden), self.x.dtype.numpy))
        state: Value = start[:, direction] if self.batch_first else start[direction]
        if state.shape == (batch, self.hidden):
            return state
        if state.shape != (1, self.hidden) and not self._is_repeated(name, start):
            raise self.call.error("an initial state does not match", state=start.type, batch=batch, hidden=self.hidden)
        return spread(state[:1], (batch, self.hidden))

    def _is_repeated(self, name: str, start: Value) -> bool:
        """Whether a known state is the same for all samples of the batch size that the file fixes."""
        axis, known = 0 if self.batch_first else 1, self.call.known(name)
        if known is None or start.ndim != 3 or not self.call.fixed_batch(start.shape[axis], self.x, 1):
            return False
        return bool((known == known.take([0], axis)).all())

    def _within(self, sequence_lens: Value | None) -> list[Value] | None:
        """For each step whether it is within the sequence (N, 1), or None if all sequences have all steps."""
        steps, batch = self.x.shape[:2]
        if sequence_lens is None:
            return None
        known = self.call.known("sequence_lens")
        if known is not None and (known == steps).all():
            return None
        lengths = ops.Reshape()(sequence_lens, (batch, 1))
        return [ops.Greater()(lengths, step) for step in range(steps)]


def _scan(
    given: Sequence[Value], states: tuple[Value, ...], step: Step, order: Sequence[int], within: list[Value] | None
) -> tuple[list[Any], tuple[Value, ...]]:
    """The first state after each step, in the order of the sequence, and all states after the last step.

    After the end of a sequence its states stay, and its outputs are 0.
    """
    outputs: list[Any] = [None] * len(given)
    select = ops.Select()
    for k in order:
        after = step(given[k], *states)
        outputs[k] = after[0]
        if within is not None:
            outputs[k] = select(within[k], after[0], Tensor(0.0, after[0].dtype))
            after = tuple(select(within[k], new, old) for new, old in zip(after, states, strict=True))
        states = after
    return outputs, states


# Rules of branches whose condition is known when the network is imported.


@onnx_operator("If", static=("condition",))
def if_(call: NodeCall, condition: np.ndarray) -> tuple[Any, ...]:
    """One of two graphs; the condition is known at import."""
    return call.inner(call.attribute("then_branch" if condition else "else_branch"))
