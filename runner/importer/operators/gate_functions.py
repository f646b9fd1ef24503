"""The functions of the gates of recurrent layers: the attributes `activations`, their constants, and `clip`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runner import ops
from runner.core.values import Value
from runner.importer.node_call import NodeCall


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
