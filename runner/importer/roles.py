"""Which initializers of an ONNX graph are trained: parameters, moving statistics, or constants."""

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from runner.importer.graph import OnnxGraph, OnnxNode
from runner.importer.table import RULES

TRAINED, STATISTICS, CONSTANT = "parameter", "statistics", "constant"
# Where operators take weights: Constant nodes there are parameters too, as some exporters write them.
WEIGHTS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("MatMul", "PRelu"), (1,)),
    "BatchNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
}
STATES = dict.fromkeys(("LSTM", "GRU", "RNN"), (5, 6))  # where layers take what they start from: zeros are not learnt
LOWEST_WEIGHT = -1e4  # masks of attention add numbers below this
HIGHEST_OF_MASKS = -9.0  # in masks of two numbers, 0 and one below this
# Names that exporters make for results of their own arithmetic; parameters have names of layers.
COMPUTED = re.compile(r"_?(?:val|scalar_tensor_default|onnx::\w+|const\w*?)_?\d+", re.IGNORECASE)


def roles_of(graph: OnnxGraph) -> dict[str, str]:
    """The role of each initializer, by name.

    A parameter is a float with axes that an operator reads as a value. Numbers without axes, masks, and what an
    operator must know at import (shapes, scales) are constants, so are values of Constant nodes that are no weights,
    and one number in all places that an exporter computed, like the scale of attention.
    """
    uses = defaultdict[str, list[tuple[OnnxNode, int]]](list)
    for node in graph.all_nodes():
        for position, name in enumerate(node.inputs):
            uses[name].append((node, position))
    inner = {name for node in graph.nodes for part in node.graphs for name in part.captures}
    arrays = dict(_arrays(graph))
    return {
        name: _role(name, array, uses[name], name in graph.weights or name in inner) for name, array in arrays.items()
    }


def _arrays(graph: OnnxGraph) -> Iterator[tuple[str, np.ndarray]]:
    yield from graph.initializers.items()
    for node in graph.nodes:
        for part in node.graphs:
            yield from _arrays(part)


def _role(name: str, array: np.ndarray, uses: list[tuple[OnnxNode, int]], is_initializer: bool) -> str:
    if array.dtype.kind != "f" or not array.size or not array.ndim:
        return CONSTANT
    if any(node.op_type == "BatchNormalization" and position > 2 for node, position in uses):
        return STATISTICS
    is_at_weight = any(position in WEIGHTS.get(node.op_type, ()) for node, position in uses)
    if not is_at_weight and (not is_initializer or _is_computed(name, array)):
        return CONSTANT
    reads = [(RULES[node.operator], position) for node, position in uses if node.operator in RULES]
    if all(rule.is_static(position) for rule, position in reads):
        return CONSTANT
    starts = all(position in STATES.get(node.op_type, ()) for node, position in uses) and not array.any()
    return CONSTANT if starts or _is_mask(array) else TRAINED


def _is_computed(name: str, array: np.ndarray) -> bool:
    return COMPUTED.fullmatch(name) is not None and bool((array == array.flat[0]).all())


def _is_mask(array: np.ndarray) -> bool:
    """Whether it has numbers that no weight has: infinite ones, and those that make attention ignore a position."""
    if not np.isfinite(array).all() or bool((array < LOWEST_WEIGHT).any()):
        return True
    lowest = float(array.min())
    return lowest < HIGHEST_OF_MASKS and bool(np.isin(array, (0.0, lowest)).all())
