"""Tracing for graph mode: a network is executed with symbols, and the operators it applies form its graph.

`if x > 0:` has Python call `bool(x > 0)`, which a trace answers with one outcome (`Tracer.decide`). The function is
executed again for the other outcome, and so on until every path is known; `runner/core/branches.py` joins them.
"""

from collections.abc import Callable, Sequence

from runner.core.branches import Path, join
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, as_symbol, verify
from runner.core.structure import flatten, static_parts
from runner.core.symbolic import Fork, Tracer, Undecided, as_returned, too_many_branches
from runner.core.values import Symbol, Value
from runner.core.while_statement import WhileFound, convert
from runner.errors import ConfigError, RunnerError
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
    paths = _Traces(function, types, name, root, observer).explore()
    graph = verify(join(paths) if len(paths) > 1 else paths[0].graph)
    observer.traced(graph)
    return graph


def trace_path(
    function: Callable[..., object], types: Sequence[TensorType], name: str, root: str, decisions: Sequence[bool]
) -> tuple[Graph, list[Fork]]:
    """The graph of the path with these outcomes, and its branches; it ends at the first branch after them."""
    path = _Traces(function, types, name, root, NO_GRAPHS).run(decisions, beyond=None)
    return verify(path.graph), path.forks


def trace_inner(function: Callable[..., object], types: Sequence[TensorType], name: str, outer: Tracer) -> Graph:
    """The graph of a part of a function that `outer` is executing; what it reads of the outer graph is not declared."""
    paths = _Traces(function, types, name, outer.scope[0], NO_GRAPHS, outer).explore()
    return join(paths) if len(paths) > 1 else paths[0].graph


class _Traces:
    """The traces of a function for inputs of these types."""

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        name: str,
        root: str,
        observer: GraphObserver,
        outer: Tracer | None = None,
    ) -> None:
        self.outer = outer
        self.function, self.types, self.name, self.root, self.observer = function, types, name, root, observer
        self.paths: list[Path] = []

    def explore(self, decisions: tuple[bool, ...] = ()) -> list[Path]:
        """All paths that begin with these outcomes; of two, that where the branch is taken comes first."""
        path = self.run(decisions, beyond=True)
        self.paths.append(path)
        if len(self.paths) > MOST_PATHS:
            raise too_many_branches(path.forks, path.forks[-1].place)
        outcomes = tuple([fork.taken for fork in path.forks])
        for k in reversed(range(len(decisions), len(outcomes))):
            self.explore((*outcomes[:k], False))
        return self.paths

    def run(self, decisions: Sequence[bool], beyond: bool | None) -> Path:
        """One trace. A function with a loop on values gets its new code first."""
        while True:
            try:
                return self._run(decisions, beyond)
            except WhileFound as found:
                if self.outer is not None:
                    raise
                convert(found.frame)

    def _run(self, decisions: Sequence[bool], beyond: bool | None) -> Path:
        inputs = tuple(Symbol(type, f"input{k}") for k, type in enumerate(self.types))
        outputs: tuple[Symbol, ...] = ()
        with Tracer(self.root, decisions, beyond, self.outer, inputs) as tracer:
            if self.outer is not None:
                tracer.scope, tracer.count = list(self.outer.scope), self.outer.count
                tracer.precision = self.outer.precision
            try:
                outputs = _output_symbols(tracer, as_returned(self.function(*inputs)), self.name)
            except Undecided:
                pass
            except Exception as error:
                self.observer.failed(tracer.graph(self.name, inputs, ()))
                if not tracer.forks or isinstance(error, RunnerError):
                    raise
                what, repair = "a path raises an exception while graph mode traces it", "leave it out, or mode=pynative"
                reason, line = f"{type(error).__name__}: {error}", tracer.forks[-1].place
                raise ConfigError(what, reason=reason, line=line, repair=repair) from error
        return Path(tracer.graph(self.name, inputs, outputs), tracer.forks)


def _output_symbols(tracer: Tracer, returned: object, name: str) -> tuple[Symbol, ...]:
    flat = flatten(returned)
    if isinstance(returned, tuple | list | Value | bool):
        others = [x for x in static_parts(flat.layout) if not isinstance(x, bool | int | float | None)]
    else:
        others = [returned]
    if others:
        raise ConfigError("a network must return tensors", network=name, returned=type(others[0]).__name__)
    return tuple(as_symbol(tracer.lift(value)) for value in flat.values)
