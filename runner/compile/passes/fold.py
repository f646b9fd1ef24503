"""Constant folding: compute values that do not depend on data, and remove operators that change nothing."""

from collections.abc import Sequence

import numpy as np

from runner.core.eager import evaluate
from runner.core.graph import Graph
from runner.core.operators import Collective, Node
from runner.core.values import Symbol, Value
from runner.errors import TrainingError

LIMIT = 1 << 16  # elements; larger results are cheaper to recompute than to store in the model


def fold(graph: Graph) -> Graph:
    """Replace nodes with constant operands by their value, and identities by their operand."""
    constants: dict[Symbol, np.ndarray] = dict(graph.constants)
    renamed: dict[Value, Symbol] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = [renamed.get(x, x) for x in node.inputs]
        values = [constants.get(x) for x in inputs]  # type: ignore[call-overload]
        operand = _identity_operand(node, inputs, values)
        if operand is not None:
            renamed[node.outputs[0]] = operand
        elif _is_constant(node, values):
            constants.update(_compute(node, values))
        else:
            kept.append(node)
    return graph.replace_nodes(kept, renamed, constants)


def _is_constant(node: Node, values: Sequence[np.ndarray | None]) -> bool:
    """Whether to compute a node now. A collective has to run with the other ranks, in every step."""
    small = sum(y.size for y in node.outputs) <= LIMIT
    return small and not isinstance(node.op, Collective) and all(value is not None for value in values)


def _identity_operand(node: Node, inputs: Sequence[Value], values: Sequence[np.ndarray | None]) -> Symbol | None:
    number = node.op.identity([x.type for x in inputs], values)
    symbol = None if number is None else inputs[number]
    return symbol if isinstance(symbol, Symbol) else None


def _compute(node: Node, values: Sequence[np.ndarray | None]) -> dict[Symbol, np.ndarray]:
    try:
        return dict(zip(node.outputs, evaluate(node, values), strict=True))  # type: ignore[arg-type]
    except (ArithmeticError, IndexError, ValueError) as error:
        raise TrainingError(f"{node.op.name}: {error}", operator=node.name) from error
