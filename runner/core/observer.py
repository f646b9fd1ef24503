"""Who hears of a graph while it is compiled. The compiler tells and does not care what becomes of it."""

from collections.abc import Callable

from runner.core.graph import Graph


class GraphObserver:
    """Hears of one program after the other: `traced`, a `stage` for each pass, `lowered`, then `executed` or `failed`.

    This one, the default, looks away.
    """

    records_steps = False  # whether the first step of PyNative mode is to be recorded for it

    def traced(self, graph: Graph) -> None:
        """The whole program as it was traced."""

    def stage(self, name: str, graph: Graph) -> None:
        """What a pass made of it; perhaps nothing new."""

    def lowered(self, graph: Graph, describe: Callable[[int], object]) -> None:
        """It is an ONNX model now; `describe` gives the listing of that under a number."""

    def executed(self, graph: Graph) -> None:
        """It is ready to run, and will."""

    def failed(self, graph: Graph) -> None:
        """It could not be traced (then this is the part that was), changed, lowered or run; an error is on its way."""


SILENT = GraphObserver()
