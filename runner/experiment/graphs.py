"""What a run leaves of its graphs: all stages when `save_graphs` is on, what was compiled when `op_debug_level` is, and
in any case the one that failed.
"""

from pathlib import Path

from runner import compile as compiler
from runner.core.graph import Graph
from runner.core.observers import GraphObserver, GraphObservers
from runner.observe.graph.folder import GraphFolder, write_failed

# Few runs need them.


class FailedGraph(GraphObserver):
    """Writes only what failed: `analyze_fail.ir`, as far as it was traced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def failed(self, graph: Graph) -> None:
        write_failed(self.folder, graph)


def graph_observer(save: bool, path: str, folder: Path, debug_level: int = 0) -> GraphObserver:
    """Who hears of the graphs of a run in `folder`; a relative `path` is inside of it, `kernel_meta/` too.

    Raises ConfigError when the path is a file, StorageError when it cannot be written.
    """
    made: GraphObserver = GraphFolder(folder / path, folder) if save else FailedGraph(folder)
    return GraphObservers(made, compiler.KernelMeta(folder / "kernel_meta", debug_level)) if debug_level else made
