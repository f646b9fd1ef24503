"""Weights with several uses: torch writes them once, with Identity nodes, or again as a transposed matrix."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from runner.importer.graph import OnnxGraph, OnnxNode

# What the inputs of operators with weights are, by the names of PyTorch.
SCALED = "", "weight", "bias"
KINDS = {
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization", "Conv", "Gemm"), SCALED),
    "ConvTranspose": SCALED,
    "BatchNormalization": (*SCALED, "running_mean", "running_var"),
}


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
    return _without_transposes(
        _with_own_weights(replace(graph, nodes=tuple(kept), initializers=arrays, weights=weights))
    )


def _with_own_weights(graph: OnnxGraph) -> OnnxGraph:
    """The graph with a weight of its own for each layer, where a file has one for all that are equal by chance.

    So PyTorch writes fresh scales and biases, without Identity nodes: the scale of a normalization is its variance too.
    """
    uniform = {name for name in graph.weights if _is_uniform(graph.initializers[name])}
    places = [(node, k, name) for node in graph.nodes for k, name in enumerate(node.inputs) if name in uniform]
    kinds = {(node.number, k): kind for node, k, name in places if (kind := _kind(node, k, name))}
    labels = Counter(f"{node.layer}.{kinds[node.number, k]}" for node, k, _ in places if (node.number, k) in kinds)
    arrays, owners = dict(graph.initializers), defaultdict[str, list[tuple[int, int, str]]](list)
    for node, k, name in places:
        if (node.number, k) in kinds:
            label = f"{node.layer}.{kinds[node.number, k]}"
            is_layer = node.layer and labels[label] == 1
            owners[name].append((node.number, k, label if is_layer else f"{node.name}.{kinds[node.number, k]}"))
    own: dict[tuple[int, int], str] = {}
    for name, claims in owners.items():
        first = next((claim for claim in claims if claim[2] == name), claims[0])  # this one keeps the name of the file
        for number, k, label in claims:
            if (number, k) != first[:2]:
                own[number, k] = label
                arrays[label] = arrays[name].copy()
    nodes = tuple(_with_inputs(node, own) for node in graph.nodes)
    return replace(graph, nodes=nodes, initializers=arrays, weights={*graph.weights, *own.values()})


def _with_inputs(node: OnnxNode, own: Mapping[tuple[int, int], str]) -> OnnxNode:
    inputs = tuple(own.get((node.number, k), name) for k, name in enumerate(node.inputs))
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _kind(node: OnnxNode, position: int, name: str) -> str:
    """What a weight at a place of a layer is; empty at places that take no weights."""
    if node.op_type in ("Add", "Mul") and "." in name:
        return name.rpartition(".")[2]
    kinds = KINDS.get(node.op_type, ())
    return kinds[position] if position < len(kinds) else ""


def _is_uniform(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and array.ndim > 0 and array.size > 0 and bool((array == array.flat[0]).all())


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
