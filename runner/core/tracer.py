"""Tracing for graph mode: a network is executed with symbols, and the operators it applies form its graph.

`if x > 0:` has Python call `bool(x > 0)`, which a trace answers with one outcome (`Tracer.decide`). The function is
executed again for the other outcome, and so on until every path is known; `runner/core/join_paths.py` joins them.
"""

from collections.abc import Callable, Sequence

from runner.core.graph import Graph, verify
from runner.core.join_paths import Path, join
from runner.core.observers import NO_GRAPHS, GraphObserver
from runner.core.symbolic import Fork, Tracer, Undecided, too_many_branches
from runner.core.value import Symbol
from runner.types import TensorType

MOST_PATHS = 64


def trace(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    root: str = "Default",
    observer: GraphObserver = NO_GRAPHS,
) -> Graph:
    """Execute `function` with a symbol for each type, and return its verified graph.

    Raises ConfigError when it returns anything but tensors, ShapeError when paths return other types, and ConfigError
    for too many paths. On failure the observer receives the part traced so far.
    """
    traced = _Traces(function, types, name, root, observer)
    paths = traced.explore()
    graph = paths[0].graph(name, traced.inputs) if len(paths) == 1 else join(paths, name, traced.inputs)
    graph = verify(graph)
    observer.traced(graph)
    return graph


def trace_path(
    function: Callable[..., object], types: Sequence[TensorType], name: str, root: str, decisions: Sequence[bool]
) -> tuple[Graph, list[Fork]]:
    """The graph of the path with these outcomes, and its branches; it ends at the first branch after them."""
    path = _Traces(function, types, name, root, NO_GRAPHS)
    traced = path.run(decisions, beyond=None)
    return verify(traced.graph(name, path.inputs)), traced.tracer.forks


class _Traces:
    """The traces of a function for inputs of these types."""

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        name: str,
        root: str,
        observer: GraphObserver,
    ) -> None:
        self.function, self.name, self.root, self.observer = function, name, root, observer
        self.inputs = tuple(Symbol(type, f"input{k}") for k, type in enumerate(types))
        self.paths: list[Path] = []

    def explore(self, decisions: tuple[bool, ...] = (), earlier: Path | None = None, position: int = 0) -> list[Path]:
        """All paths that begin with these outcomes, in order: those where a branch is taken come first."""
        path = self.run(decisions, True, earlier, position)
        self.paths.append(path)
        forks = path.tracer.forks
        if len(self.paths) > MOST_PATHS:
            raise too_many_branches(forks, forks[-1].place if forks else None)
        outcomes = tuple([fork.taken for fork in forks])
        for k in reversed(range(len(decisions), len(forks))):
            self.explore((*outcomes[:k], False), path, forks[k].position)
        return self.paths

    def run(
        self, decisions: Sequence[bool], beyond: bool | None, earlier: Path | None = None, position: int = 0
    ) -> Path:
        """One trace."""
        before = (earlier.tracer, earlier.tracer.nodes[:position]) if earlier else ()
        with Tracer(self.root, decisions, beyond, *before) as tracer:
            path = Path(tracer)
            try:
                path.returned = self.function(*self.inputs)
                path.outputs(self.name)
            except Undecided:
                return path
            except Exception:
                self.observer.failed(tracer.graph(self.name, self.inputs, ()))
                raise
        return path
