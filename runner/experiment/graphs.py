"""The graph files of a run: all stages with `save_graphs`, compiled models with `op_debug_level`, and failed graphs."""

from pathlib import Path

from runner import compile as compiler
from runner.config.schema import RunRequest
from runner.core.graph import Graph, GraphObserver, GraphObservers
from runner.experiment.output_directories import place
from runner.observe import graph as files


class FailedGraph(GraphObserver):
    """Writes only a graph that failed: `analyze_fail.ir`, as far as it was traced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def failed(self, graph: Graph) -> None:
        files.write_failed(self.folder, graph)


def graph_observer(request: RunRequest) -> GraphObserver:
    """The observer of the graphs of a run.

    Raises ConfigError when a path is a file, StorageError when it cannot be written.
    """
    config, folder = request.config, request.folder
    observer: GraphObserver = FailedGraph(folder)
    if config.save_graphs:
        path = place(request.directories, folder.absolute() / config.save_graphs_path)
        observer = files.GraphFolder(path, folder, replaces=request.resume)
    if not config.session.op_debug_level:
        return observer
    return GraphObservers(observer, compiler.KernelMeta(folder / "kernel_meta", config.session.op_debug_level))
