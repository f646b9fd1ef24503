"""How many steps of a sink one call to the device has."""

from runner.core.graph import Graph

CALL_SECONDS = 1.0
# Of one slow core, so that the first call ends early rather than late; later calls are measured.
SECONDS_PER_OPERATOR, SECONDS_PER_ELEMENT, SECONDS_PER_FLOP = 20e-6, 1.5e-9, 1 / 30e9


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
        return max(1, int(CALL_SECONDS / 2 / estimated_seconds(graph)))

    def is_short(self, steps: int) -> bool:
        """Whether so many steps take no longer than one call."""
        return steps * max(self._seconds.values(), default=0.0) <= CALL_SECONDS


def estimated_seconds(graph: Graph) -> float:
    """An upper estimate of the time of a step, in seconds."""
    seconds = SECONDS_PER_OPERATOR * len(graph.nodes)
    for node in graph.nodes:
        inputs, outputs = [x.type for x in node.inputs], [y.type for y in node.outputs]
        seconds += SECONDS_PER_ELEMENT * sum(y.size for y in outputs)
        seconds += SECONDS_PER_FLOP * node.op.flops(inputs, outputs)
    return seconds
