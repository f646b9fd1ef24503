"""What a run leaves of its graphs: all stages when `save_graphs` is on, and in any case the one that failed."""

from pathlib import Path

from runner.core.graph import Graph
from runner.core.observer import GraphObserver
from runner.startup import lazy_import

graphs = lazy_import("runner.ir.folder")  # few runs need it


class FailedGraph(GraphObserver):
    """Writes only what failed: `analyze_fail.ir`, as far as it was traced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def failed(self, graph: Graph) -> None:
        graphs.write_failed(self.folder, graph)


def graph_observer(save: bool, path: str, folder: Path) -> GraphObserver:
    """Who hears of the graphs of a run in `folder`; a relative `path` is inside of it.

    Raises ConfigError when the path is a file, StorageError when it cannot be written.
    """
    made: GraphObserver = graphs.GraphFolder(folder / path, folder) if save else FailedGraph(folder)
    return made
