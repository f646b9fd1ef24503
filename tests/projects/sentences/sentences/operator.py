"""An own operator: the mask of causal attention."""

import numpy as np

from runner.core.operators import Primitive, primitive
from runner.errors import ShapeError


@primitive
class CausalMask(Primitive):
    """Scores (..., L, L) with `fill` above the diagonal, so that a position does not see later ones."""

    fill: float = -1e9

    def infer(self, scores):
        if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2]:
            raise ShapeError("needs square matrices of scores", scores=scores)
        return scores

    def kernel(self, scores):
        return np.where(self._visible(scores.shape[-1]), scores, np.asarray(self.fill, scores.dtype))

    def grad(self, inputs, outputs, douts):
        return (lambda: CausalMask(0.0)(douts[0]),)

    def lower(self, b, scores):
        visible = b.const(self._visible(b.type(scores).shape[-1]))
        return b.node("Where", (visible, scores, b.const(self.fill, like=scores)))

    @staticmethod
    def _visible(length):
        return np.tri(length, dtype=bool)
