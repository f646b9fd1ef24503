"""Rules for LSTM, GRU and RNN, unrolled over the steps of the sequence.

The products with the inputs of all steps are one MatMul. Shapes: x (T, N, I), W (D, G H, I), R (D, G H, H), B (D, 2 G
H), states (D, N, H), outputs (T, D, N, H), for T steps, N samples, D directions and G gates of H units; with `layout=1`
the samples are the first axis of x, states and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import spread

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


# The layers.

MOST_STEPS = 4096  # 12 operators for each in the forward pass of an LSTM
Step = Callable[..., tuple[Value, ...]]  # the gates' share of the input and the states before, to the states after


@onnx_operator("LSTM", without_effect=("hidden_size",))
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


@onnx_operator("GRU", without_effect=("hidden_size",))
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


@onnx_operator("RNN", without_effect=("hidden_size",))
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
    steps = x.shape[1 if batch_first else 0]
    if steps > MOST_STEPS:
        what, allowed = "a recurrent layer has more steps than can be unrolled", f"at most {MOST_STEPS}"
        raise call.error(what, steps=steps, allowed=allowed, repair="shorter sequences")
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
        """Whether a state is the same for all samples of the batch size that the file fixes: known, or expanded."""
        axis, other = 0 if self.batch_first else 1, self.call.other_batch
        if other is None or start.ndim != 3 or not self.call.fixed_batch(start.shape[axis], self.x, 1):
            return False
        position, known = self.call.rule.inputs.index(name), self.call.known(name)
        if known is None:
            return (self.call.node.inputs[position], axis) in other.repeated
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
