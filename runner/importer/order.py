"""The order of the nodes of an ONNX graph, which damaged or hand-written files do not keep."""

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from runner.errors import DataError, some
from runner.importer.graph import OnnxNode


def in_order(nodes: Sequence[OnnxNode], known: Iterable[str]) -> tuple[OnnxNode, ...]:
    """The nodes so that each reads what is `known` or what earlier ones write; their order in the file where it can be.

    Raises DataError for two nodes that write one name, and for nodes that read their own results.
    """
    writers: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in writers:
                rows = {"value": name, "first": nodes[writers[name]], "second": node}
                raise DataError("two nodes write one value", **rows)
            writers[name] = k
    for name in known:
        if name in writers:
            raise DataError("a node writes an input or an initializer", value=name, node=nodes[writers[name]])
    return tuple(nodes[k] for k in _order(nodes, writers))


def _order(nodes: Sequence[OnnxNode], writers: dict[str, int]) -> Iterable[int]:
    waits = {k: {writers[name] for name in node.reads if name in writers} for k, node in enumerate(nodes)}
    if all(before < k for k, others in waits.items() for before in others):
        return waits
    try:
        return list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        rows = {"nodes": some([str(nodes[k]) for k in reversed(error.args[1])], 6)}
        raise DataError("the graph has a cycle", **rows) from None
