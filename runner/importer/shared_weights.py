"""Weights with several uses: torch writes them once, with Identity nodes, or again as a transposed matrix."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from runner.importer.graph import OnnxGraph, OnnxNode


def without_copies(graph: OnnxGraph) -> OnnxGraph:
    """The graph without Identity nodes of initializers, and without second copies of tied weights.

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
    return _without_transposes(replace(graph, nodes=tuple(kept), initializers=arrays, weights=weights))


def _without_transposes(graph: OnnxGraph) -> OnnxGraph:
    """The graph with one parameter where a file has a matrix and the same matrix transposed.

    So exporters write an embedding that is also the last layer. A Transpose node of the first one replaces the other.
    """
    matrices = [
        (name, array) for name, array in graph.initializers.items() if name in graph.weights and _is_matrix(array)
    ]
    gathered = {node.inputs[0] for node in graph.nodes if node.operator == "Gather"}
    sources = [(name, array) for name, array in matrices if name in gathered]
    nodes, arrays = list(graph.nodes), dict(graph.initializers)
    for name, array in matrices:
        for source, other in sources:
            if name not in gathered and array.shape == other.shape[::-1] and np.array_equal(array, other.T):
                number = min(node.number for node in graph.nodes if name in node.inputs)
                label = f"{source}.transposed"
                transpose = OnnxNode(label, "Transpose", "", graph.nodes[0].opset, (source,), (name,), {}, number)
                nodes.insert(0, transpose)
                del arrays[name]
                break
    return replace(graph, nodes=tuple(nodes), initializers=arrays)


def _is_matrix(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim == 2 and min(array.shape) > 1 and bool((array != array.flat[0]).any())


def _renamed(node: OnnxNode, names: Mapping[str, str]) -> OnnxNode:
    if not names.keys() & set(node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
