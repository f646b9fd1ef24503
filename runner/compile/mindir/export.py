"""Export of a function as a `.mindir` file."""

from collections.abc import Callable, Sequence

from runner.compile.mindir.free_batch import free_batch, other_types
from runner.compile.mindir.model import model
from runner.compile.mindir.operators import require_forms
from runner.compile.passes import optimize
from runner.compile.passes.cse import cse
from runner.compile.passes.dce import dce
from runner.compile.passes.fold import fold
from runner.core.graph import Graph, Pass
from runner.core.tracer import trace
from runner.errors import ConfigError
from runner.host.console import LOG
from runner.types import TensorType

MOST_BYTES = (1 << 31) - (1 << 24)  # protobuf reads 2 GiB; nodes and names need some of it
PASSES: tuple[Pass, ...] = (fold, cse, dce)


def export_mindir(
    function: Callable[..., object], types: Sequence[TensorType], name: str, *, input_names: Sequence[str] | None = None
) -> bytes:
    """The serialised MindIR of a function for inputs of these types, with the parameters' values and without effects.

    The batch, the first axis of the first input and of those with as many rows, may have any size if the function
    allows that. Raises ConfigError with all operators that MindIR does not have, and for more than 2 GiB of parameters.
    """

    def traced(given: Sequence[TensorType]) -> Graph:
        return optimize(trace(function, given, name).without_effects(), PASSES)

    graph = traced(types)
    require_forms(graph)
    _require_size(graph)
    others = other_types(types, graph)
    try:
        free = free_batch(graph, traced(others)) if others else None
    except Exception as error:  # user code that cannot compute with another size
        LOG.debug("MindIR of %s has a fixed batch: %s", name, error)
        free = None
    names = input_names or [x.name for x in graph.inputs]
    return model(*free, names) if free else model(graph, {}, names)


def _require_size(graph: Graph) -> None:
    """Raise ConfigError when a message of protobuf, which a file is, cannot hold the parameters."""
    arrays = [p.array for p in graph.parameters] + list(graph.constants.values())
    if (size := sum(array.nbytes for array in arrays)) > MOST_BYTES:
        rows = {"size": f"{size:,} bytes", "allowed": f"at most {MOST_BYTES:,} bytes"}
        raise ConfigError("the parameters do not fit into a MindIR file", **rows, repair="ONNX")
