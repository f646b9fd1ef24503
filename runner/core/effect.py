"""Effects: operators without outputs that emit their operands, such as `Print`.

PyNative mode computes an effect like any operator, so it emits immediately. A graph keeps effects separate from its
nodes: their operands are results of the graph, and the program emits them after every step, in the order in which they
were applied (`runner/compile/program.py`).
"""

from typing import ClassVar

import numpy as np

from runner.core.precision import Needs
from runner.core.primitive import Arrays, Primitive


class Effect(Primitive):
    """Base of operators without outputs. Subclasses are declared with `@primitive` and define `emit`."""

    needs: ClassVar = Needs.NOTHING
    computes: ClassVar = False

    def emit(self, *arrays: np.ndarray) -> None:
        """Output the operands of one step; they must not be changed."""
        raise NotImplementedError

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Emit immediately; there are no outputs."""
        self.emit(*arrays)
        return ()
