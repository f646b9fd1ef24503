"""How many steps of a sink one call to the device has."""

from runner import compile as compiler
from runner.core.graph import Graph

CALL_SECONDS = 1.0


class CallLength:
    """The number of steps with which a call to the device takes about `CALL_SECONDS`.

    A signal is handled between two calls. Each call takes its length from the time of the last one with the same batch
    size, the first from the size of the graph.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # of one step, by batch size, as measured in the last call

    def record(self, size: int, steps: int, seconds: float) -> None:
        """A call of so many steps with this batch size took so many seconds."""
        self._seconds[size] = seconds / steps

    def steps(self, size: int, graph: Graph) -> int:
        """Steps of the next call with this batch size; `graph` is that of one step."""
        if size in self._seconds:
            return max(1, int(CALL_SECONDS / self._seconds[size]))
        return max(1, int(CALL_SECONDS / 2 / compiler.estimated_seconds(graph)))

    def is_short(self, steps: int) -> bool:
        """Whether so many steps take no longer than one call."""
        return steps * max(self._seconds.values(), default=0.0) <= CALL_SECONDS
