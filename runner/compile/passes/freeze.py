"""For inference only: parameters become constants with their current values."""

from dataclasses import replace

import numpy as np

from runner.core.graph import Graph


def freeze(graph: Graph) -> Graph:
    """The graph without parameters; a graph with updates is returned unchanged."""
    if graph.updates:
        return graph
    values = {symbol: np.asarray(parameter.array) for parameter, symbol in graph.parameters.items()}
    return replace(graph, parameters={}, constants={**graph.constants, **values})
