"""Files with weights of Float16 or Float64: their networks compute the same in Float32.

Parameters are Float32 whatever a network is made of, and `session.precision_mode` decides in which type operators
compute. So a cast between the float types of such a file does nothing, and none of its numbers is rounded to Float16:
gradients of Float16 would lose what is below 6e-8. Float64 is rounded to Float32 once, when the file is read. At first:
weights that are only stored in another type than that in which they are used.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.host.console import LOG
from runner.importer.file import OnnxGraph, OnnxNode, OnnxValue

OTHER_FLOATS = dt.float16, dt.float64
SINGLE = 1  # the number of Float32 in ONNX files
CODES = {10: SINGLE, 11: SINGLE}  # of Float16 and Float64
TYPE_ATTRIBUTES = "to", "dtype"
LARGEST = np.finfo(np.float32).max


def as_used(graph: OnnxGraph) -> OnnxGraph:
    """The graph with weights of Float32 where it has other ones that every reader casts to Float32.

    Their places in the layers then say what they are, as those of other weights do.
    """
    results = {value.name for value in graph.outputs}
    casts = {node.outputs[0]: node.inputs[0] for node in graph.nodes if _widens(graph, node)}
    casts = {name: source for name, source in casts.items() if name not in results}
    read = {name for node in graph.nodes if not casts.keys() & set(node.outputs) for name in node.reads} | results
    casts = {name: source for name, source in casts.items() if source not in read}
    arrays = {name: _single(x) if name in casts.values() else x for name, x in graph.initializers.items()}
    nodes = tuple([node.renamed(casts) for node in graph.nodes if not casts.keys() & set(node.outputs)])
    return replace(graph, nodes=nodes, initializers=arrays)


def _widens(graph: OnnxGraph, node: OnnxNode) -> bool:
    """Whether a node casts an array of the file from another float type to Float32."""
    is_cast = node.operator == "Cast" and node.attributes.get("to") == SINGLE and node.inputs[0] in graph.initializers
    return is_cast and dt.of(graph.initializers[node.inputs[0]].dtype) in OTHER_FLOATS


def in_float32(graph: OnnxGraph, parameters: Collection[str], path: Path) -> OnnxGraph:
    """The graph in Float32 where some of these parameters are Float16 or Float64; otherwise the graph itself."""
    kinds = {str(dt.of(graph.initializers[name].dtype)) for name in parameters} & {*map(str, OTHER_FLOATS)}
    if not kinds:
        return graph
    hint = ", session.precision_mode=force_fp16 computes in Float16" if str(dt.float16) in kinds else ""
    LOG.warning("%s: its weights of %s are trained in Float32%s", path.name, " and ".join(sorted(kinds)), hint)
    return _widened(graph)


def _widened(graph: OnnxGraph) -> OnnxGraph:
    return replace(
        graph,
        nodes=tuple(map(_node, graph.nodes)),
        initializers={name: _single(array) for name, array in graph.initializers.items()},
        inputs=tuple(map(_value, graph.inputs)),
        outputs=tuple(map(_value, graph.outputs)),
    )


def _node(node: OnnxNode) -> OnnxNode:
    return replace(node, attributes={name: _attribute(name, value) for name, value in node.attributes.items()})


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, OnnxGraph):
        return _widened(value)
    if isinstance(value, np.ndarray):
        return _single(value)
    return CODES.get(value, value) if name in TYPE_ATTRIBUTES else value


def _value(value: OnnxValue) -> OnnxValue:
    return replace(value, dtype=dt.float32) if value.dtype in OTHER_FLOATS else value


def _single(array: np.ndarray) -> np.ndarray:
    """The array in Float32 if it has another float type; what is finite stays so, as the lowest number of a mask."""
    if array.dtype.kind != "f" or array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    beyond = np.isinf(single) & np.isfinite(array)
    single[beyond] = np.copysign(LARGEST, single[beyond])
    return single
