"""Reverse-mode differentiation: one walk for both modes.

Under `Tracer` the gradient rules append nodes to the graph, under `Eager` they compute.
"""

from collections.abc import Callable, Sequence

import numpy as np

from runner.core.primitive import Interpreter, Node, current
from runner.core.source import user_line
from runner.core.value import OPERATORS, Parameter, Tensor, Value
from runner.errors import NotDifferentiable


def gradients(
    loss: Value,
    parameters: Sequence[Parameter],
    sens: float | Value = 1.0,
    last: bool = False,
    ready: Callable[[int, Value], None] | None = None,
) -> list[Value]:
    """The derivative of `loss` (summed over its elements, times `sens`) with respect to each parameter, in its type.

    `sens` is a number, or a scalar that is only known when the step runs.
    Only what leads from a parameter to the loss is differentiated. A parameter that the loss does not depend on gets
    zeros. `last` promises that these are the last gradients of the step: PyNative mode then lets go of every
    activation as soon as its gradient rule has run. `ready` is called with the number of a parameter and its gradient
    when that is complete, while others are still to come. Raises NotDifferentiable, with the place, when an operator on
    the way has no gradient, and ConfigError when gradients are asked for after the last ones.
    """
    interpreter = current()
    outer = interpreter.origin
    adjoint: dict[Value, Value] = {interpreter.lift(loss): interpreter.lift(_spread(interpreter, loss, sens))}
    handles = [interpreter.lift(p) for p in parameters]
    record = _depending_on(set(handles), interpreter.record(last))
    complete = _complete(handles, record) if ready else {}
    try:
        while record:  # popped, so that what nobody else holds dies on the way
            node, wanted = record.pop()
            if not adjoint.keys().isdisjoint(node.outputs):
                interpreter.origin = node
                _pull_back(interpreter, node, wanted, adjoint)
            for k in complete.get(len(record), ()):
                if ready and handles[k] in adjoint:
                    ready(k, adjoint[handles[k]])
    finally:
        interpreter.origin = outer
    found = [_adjoint_or_zeros(interpreter, adjoint, handle) for handle in handles]
    # Where Float16 is forced, so are the sums of what comes back from several places.
    return [interpreter.with_dtype(value, p.dtype) for value, p in zip(found, parameters, strict=True)]


def _depending_on(wanted: set[Value], nodes: Sequence[Node]) -> list[tuple[Node, list[bool]]]:
    """The nodes that something in `wanted` flows through, each with the answer which of its inputs carry it."""
    record = []
    for node in nodes:
        if not wanted.isdisjoint(node.inputs):
            record.append((node, [x in wanted for x in node.inputs]))
            wanted.update([y for y in node.outputs if y.dtype.is_float])
    return record


def _complete(handles: Sequence[Value], record: Sequence[tuple[Node, list[bool]]]) -> dict[int, list[int]]:
    """By place in the record: the numbers of the parameters that are read there first, and whose gradients are complete
    when the walk back has passed it."""
    numbers = {handle: k for k, handle in enumerate(handles)}
    first: dict[int, list[int]] = {}
    for place, (node, _) in enumerate(record):
        for x in node.inputs:
            if x in numbers:
                first.setdefault(place, []).append(numbers.pop(x))
    return first


def _pull_back(interpreter: Interpreter, node: Node, wanted: Sequence[bool], adjoint: dict[Value, Value]) -> None:
    douts = [_adjoint_or_zeros(interpreter, adjoint, y) for y in node.outputs]
    for y in node.outputs:
        adjoint.pop(y, None)  # all who use it come later in the record, so its sum was complete
    try:
        rules = node.op.grad(node.inputs, node.outputs, douts)
    except NotDifferentiable as error:
        interpreter.origin = None
        raise error.add(scope=node.name, line=user_line(node.source)) from None
    for x, rule, needed in zip(node.inputs, rules, wanted, strict=True):
        if rule is not None and needed:
            part = rule() if callable(rule) else rule
            adjoint[x] = OPERATORS["Add"](adjoint[x], part) if x in adjoint else part


def _adjoint_or_zeros(interpreter: Interpreter, adjoint: dict[Value, Value], value: Value) -> Value:
    found = adjoint.get(value)
    return interpreter.lift(_filled(value, 0.0)) if found is None else found


def _spread(interpreter: Interpreter, loss: Value, sens: float | Value) -> Value:
    """What the derivative begins with: `sens` for every element of the loss, in its type."""
    if not isinstance(sens, Value):
        return _filled(loss, sens)
    seed = interpreter.with_dtype(interpreter.lift(sens), loss.dtype)
    return OPERATORS["Mul"](_filled(loss, 1.0), seed) if loss.shape else seed


def _filled(like: Value, value: float) -> Tensor:
    number = np.asarray(value, like.dtype.numpy)
    return Tensor.of(np.broadcast_to(number, like.shape), like.type)
