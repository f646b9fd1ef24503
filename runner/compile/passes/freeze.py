"""For inference only: parameters are constants with the values that they have now."""

from dataclasses import replace

import numpy as np

from runner.core.graph import Graph


def freeze(graph: Graph) -> Graph:
    """The graph without parameters; one that gives them new values stays as it is."""
    if graph.updates:
        return graph
    values = {symbol: np.asarray(parameter.data) for parameter, symbol in graph.parameters.items()}
    return replace(graph, parameters={}, constants={**graph.constants, **values})
