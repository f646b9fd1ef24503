"""Effects: operators that give no value and tell something instead, such as `Print`.

PyNative mode computes an effect like any operator, and it tells at once. A graph keeps its effects apart from its
nodes: their operands are results of the graph, and who runs it lets the effects tell after every step, in the order in
which they were applied (`runner/compile/program.py`).
"""

from typing import ClassVar

import numpy as np

from runner.core.precision import Needs
from runner.core.primitive import Arrays, Primitive


class Effect(Primitive):
    """Base of operators without outputs. Subclasses are declared with `@primitive` and say what `tell` does."""

    needs: ClassVar = Needs.NOTHING
    computes: ClassVar = False

    def emit(self, *arrays: np.ndarray) -> None:
        """Told the operands of one step; they must stay unchanged."""
        raise NotImplementedError

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Tell at once; there are no outputs."""
        self.emit(*arrays)
        return ()
