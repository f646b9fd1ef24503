"""Export of a function as a `.mindir` file."""

from collections.abc import Callable, Sequence

from runner.compile.mindir.model import model
from runner.compile.mindir.operators import require_forms
from runner.compile.passes import optimize
from runner.compile.passes.cse import cse
from runner.compile.passes.dce import dce
from runner.compile.passes.fold import fold
from runner.core.tracer import trace
from runner.types import TensorType


def export_mindir(function: Callable[..., object], types: Sequence[TensorType], name: str) -> bytes:
    """The serialised MindIR of a function for inputs of these types, with the parameters' values and without effects.

    Raises ConfigError with all operators that MindIR does not have.
    """
    graph = optimize(trace(function, types, name).without_effects(), (fold, cse, dce))
    require_forms(graph)
    return model(graph)
