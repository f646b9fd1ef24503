"""The graph files of a run: all stages with `save_graphs`, compiled models with `op_debug_level`, and failed graphs."""

from pathlib import Path

from runner import compile as compiler
from runner.core.graph import Graph
from runner.core.observers import GraphObserver, GraphObservers
from runner.observe.graph.folder import GraphFolder, write_failed


class FailedGraph(GraphObserver):
    """Writes only a graph that failed: `analyze_fail.ir`, as far as it was traced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def failed(self, graph: Graph) -> None:
        write_failed(self.folder, graph)


def graph_observer(save: bool, path: str, folder: Path, debug_level: int = 0) -> GraphObserver:
    """The observer of a run's graphs. A relative `path` is below `folder`, as is `kernel_meta/`.

    Raises ConfigError when the path is a file, StorageError when it cannot be written.
    """
    observer: GraphObserver = GraphFolder(folder / path, folder) if save else FailedGraph(folder)
    if not debug_level:
        return observer
    return GraphObservers(observer, compiler.KernelMeta(folder / "kernel_meta", debug_level))
