"""Layout: how every value lies in the memory of the CPU, and in which form every operator is lowered.

Convolutions and pools run about twice as fast when the batch is the innermost axis (BENCHMARKS.md); most other
operators can do either. So a walk in the order of the graph is enough: an operator takes the form that turns the fewest
elements around, and those that gain nothing follow the ones that do. Tiles pay only where they are made that way, so a
walk back tells first who would like them: pools, and elementwise operators in front of pools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat

from runner.compile.onnx.float16 import operand_types
from runner.core.graph import Graph, Pass
from runner.core.lowering import PLAIN, TILED, Form, Layout
from runner.core.primitive import Node
from runner.core.value import Value
from runner.device import UNTUNED, Tuning


def layout_with(tuning: Tuning) -> Pass:
    """The pass that gives every node its form: the one that was measured, where there is one, or the best by rule.

    Values that lie otherwise than a form wants them are turned around before it.
    """
    measured = dict(tuning.forms)

    def layout(graph: Graph) -> Graph:
        forms = [(node, _allowed(node, measured)) for node in graph.nodes]
        walk = _Walk(_wishes(forms))
        return replace(graph, nodes=tuple(walk.place(node, offered) for node, offered in forms))

    return layout


layout = layout_with(UNTUNED)


def site(node: Node) -> str:
    """The operator with its attributes and the types of its operands: what has one form in all places of a graph."""
    return f"{node.op!r} of {', '.join(map(str, operand_types(node)))}"


def offered(node: Node) -> tuple[Form, ...]:
    """The forms of a node, the best one first."""
    return tuple(node.op.forms(*operand_types(node)))


def _allowed(node: Node, measured: Mapping[str, str]) -> tuple[Form, ...]:
    forms = offered(node)
    wanted = measured.get(site(node)) if measured else None
    return tuple(form for form in forms if str(form) == wanted) or forms


def _wishes(forms: Sequence[tuple[Node, tuple[Form, ...]]]) -> set[Value]:
    """The values that should lie in tiles."""
    wished: set[Value] = set()
    for node, offered in reversed(forms):
        asked = not wished.isdisjoint(node.outputs)
        form = next((f for f in offered if TILED in f.results), offered[0]) if asked else offered[0]
        wished.update(x for x, lies in _pairs(node.inputs, form.operands) if lies is TILED)
    return wished


class _Walk:
    """Remembers how the values lie that were made so far, and how else they are there already."""

    def __init__(self, wished: set[Value]) -> None:
        self.wished = wished
        self.lies: dict[Value, set[Layout]] = {}

    def place(self, node: Node, forms: Sequence[Form]) -> Node:
        best = min(forms, key=lambda form: self.cost(node, form))
        for x, wanted in self.against(node, best):
            self.lies.setdefault(x, {PLAIN}).add(wanted)
        self.lies.update((y, {lies}) for y, lies in _pairs(node.outputs, best.results))
        return replace(node, form=best)

    def cost(self, node: Node, form: Form) -> int:
        """Elements that are copied because of a form, sooner or later."""
        later = [y for y, lies in _pairs(node.outputs, form.results) if y in self.wished and lies is not TILED]
        return form.penalty + sum(x.size for x, _ in self.against(node, form)) + sum(y.size for y in later)

    def against(self, node: Node, form: Form) -> list[tuple[Value, Layout]]:
        """The operands that must be turned around for this form."""
        pairs = _pairs(node.inputs, form.operands)
        return [(x, wanted) for x, wanted in pairs if x.ndim > 1 and wanted not in self.lies.get(x, {PLAIN})]


def _pairs(values: Sequence[Value], layouts: Sequence[Layout]) -> list[tuple[Value, Layout]]:
    return list(zip(values, chain(layouts, repeat(PLAIN)), strict=False))
