"""Reverse-mode differentiation: one walk for both modes.

Under `Tracer` the gradient rules append nodes to the graph, under `Eager` they compute.
"""

from collections.abc import Sequence

import numpy as np

from runner.core.primitive import Interpreter, Node, current
from runner.core.source import user_line
from runner.core.value import OPERATORS, Parameter, Tensor, Value
from runner.errors import NotDifferentiable


def gradients(loss: Value, parameters: Sequence[Parameter], sens: float = 1.0) -> list[Value]:
    """The derivative of `loss` (summed over its elements, times `sens`) with respect to each parameter.

    Only what leads from a parameter to the loss is differentiated. A parameter that the loss does not depend on gets
    zeros. Raises NotDifferentiable, with the place, when an operator on the way has no gradient.
    """
    interpreter = current()
    wanted = {interpreter.lift(p) for p in parameters}
    record = _depending_on(wanted, interpreter.nodes)
    adjoint: dict[Value, Value] = {interpreter.lift(loss): interpreter.lift(_filled(loss, sens))}
    for node in reversed(record):
        if any(y in adjoint for y in node.outputs):
            with interpreter.differentiating(node):
                _pull_back(interpreter, node, adjoint, wanted)
    return [_adjoint_or_zeros(interpreter, adjoint, interpreter.lift(p)) for p in parameters]


def _depending_on(wanted: set[Value], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that something in `wanted` flows through; what they make is added to `wanted`."""
    record = []
    for node in nodes:
        if not wanted.isdisjoint(node.inputs):
            record.append(node)
            wanted.update(y for y in node.outputs if y.dtype.is_float)
    return record


def _pull_back(interpreter: Interpreter, node: Node, adjoint: dict[Value, Value], wanted: set[Value]) -> None:
    douts = [_adjoint_or_zeros(interpreter, adjoint, y) for y in node.outputs]
    try:
        rules = node.op.grad(node.inputs, node.outputs, douts)
    except NotDifferentiable as error:
        interpreter.origin = None
        raise error.add(scope=node.name, line=user_line(node.source)) from None
    for x, rule in zip(node.inputs, rules, strict=True):
        if rule is not None and x in wanted:
            part = rule() if callable(rule) else rule
            adjoint[x] = OPERATORS["Add"](adjoint[x], part) if x in adjoint else part


def _adjoint_or_zeros(interpreter: Interpreter, adjoint: dict[Value, Value], value: Value) -> Value:
    found = adjoint.get(value)
    return interpreter.lift(_filled(value, 0.0)) if found is None else found


def _filled(like: Value, value: float) -> Tensor:
    number = np.asarray(value, like.dtype.numpy)
    return Tensor.of(np.broadcast_to(number, like.shape), like.type)
