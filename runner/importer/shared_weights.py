"""Initializers that torch writes once for several parameters, with Identity nodes for the other ones."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from runner.importer.graph import OnnxGraph, OnnxNode


def without_copies(graph: OnnxGraph) -> OnnxGraph:
    """The graph without Identity nodes of initializers.

    Where all elements are equal, as in the scales of fresh normalizations, parameters were equal by chance: each
    becomes an initializer of its own, with the name of the node's output. Others are one parameter with several uses.
    """
    arrays, weights, names = dict(graph.initializers), set(graph.weights), dict[str, str]()
    kept: list[OnnxNode] = []
    results = {value.name for value in graph.outputs}
    for node in graph.nodes:
        source = names.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        if node.operator != "Identity" or source not in arrays or node.outputs[0] in results:
            kept.append(_renamed(node, names))
        elif np.unique(arrays[source]).size == 1 and arrays[source].ndim:
            arrays[node.outputs[0]] = arrays[source].copy()
            weights.add(node.outputs[0])
        else:
            names[node.outputs[0]] = source
    return replace(graph, nodes=tuple(kept), initializers=arrays, weights=weights)


def _renamed(node: OnnxNode, names: Mapping[str, str]) -> OnnxNode:
    if not names.keys() & set(node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
