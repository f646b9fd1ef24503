"""The local functions of an ONNX model, which `onnx` inlines once it is known that none calls itself."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.inliner

from runner.errors import DataError

MOST_INLINED = 20_000
Key = tuple[str, str]


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without local functions. Raises DataError for functions that call each other in a circle."""
    if not model.functions:
        return model
    calls = {(f.domain, f.name): list(_called(f.node)) for f in model.functions}
    sizes: dict[Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = 1 + sum(sizes.get(inner, 1) for inner in calls.get(key, []))
    except CycleError as error:
        names = " -> ".join(".".join(key) for key in error.args[1])
        raise DataError("functions of an ONNX file call each other in a circle", functions=names) from None
    total = sum(sizes.get(key, 1) for key in _called(model.graph.node))
    if total > MOST_INLINED:
        rows = {"nodes": total, "allowed": f"at most {MOST_INLINED}"}
        raise DataError("the functions of an ONNX file have too many nodes", **rows)
    return onnx.inliner.inline_local_functions(model)


def _called(nodes: object) -> Iterator[Key]:
    for node in nodes:  # type: ignore[attr-defined]
        yield node.domain, node.op_type
        for attribute in node.attribute:
            yield from _called(attribute.g.node)
