"""Reverse-mode differentiation: one implementation for both modes.

Under `Tracer` the gradient rules append nodes to the graph, under `Eager` they compute.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any

import numpy as np

from runner.core.assignments import START, Mark
from runner.core.primitive import Gradient, Interpreter, Node, current
from runner.core.source import user_line
from runner.core.value import OPERATORS, Parameter, Tensor, Value
from runner.errors import NotDifferentiable, RunnerError, ShapeError


def gradients(
    loss: Value,
    parameters: Sequence[Value],
    sens: float | Value = 1.0,
    last: bool = False,
    on_gradient: Callable[[int, Value], None] | None = None,
    since: Mark = START,
) -> list[Value]:
    """The derivative of `loss` (summed over its elements, times `sens`) with respect to each parameter, in its type.

    `sens` is a number, or a scalar value that is only known when the step runs. The derivative is that of the
    operators since a point of the step, with respect to the values that parameters had there.
    Only nodes on a path from a parameter to the loss are differentiated. A parameter that the loss does not depend on
    gets zeros. `last` promises that these are the last gradients of the operators passed: PyNative mode then releases
    every activation as soon as its gradient rule has run. `on_gradient` is called with the index of a parameter and its
    gradient as soon as that gradient is complete, before the others. Raises NotDifferentiable, with scope and source
    line, when an operator on a path has no gradient, and ConfigError when gradients are requested after the last ones.
    """
    interpreter = current()
    seeds = {interpreter.lift(loss): interpreter.lift(_initial_adjoint(interpreter, loss, sens))}
    results = pull_back(seeds, versions(parameters, since), since, last, on_gradient)
    # With forced Float16, the sums of gradients from several uses are Float16 too.
    return [interpreter.with_dtype(value, p.dtype) for value, p in zip(results, parameters, strict=True)]


def versions(parameters: Sequence[Value], since: Mark) -> list[Sequence[Value]]:
    """For each parameter, or other value, the handles that operators since a point of the step may have read."""
    interpreter = current()
    handles: list[Sequence[Value]] = []
    for x in parameters:
        if isinstance(x, Parameter):
            read = [interpreter.at(x, since), *interpreter.assigned_since(x, since)]
        else:
            read = [interpreter.lift(x)]
        handles.append([interpreter.original(handle) for handle in read])
    return handles


def pull_back(
    adjoint: dict[Value, Value],
    targets: Sequence[Sequence[Value]],
    since: Mark,
    last: bool = False,
    on_gradient: Callable[[int, Value], None] | None = None,
    until: int | None = None,
) -> list[Value]:
    """Gradients of each target, a sum over its handles, from the adjoints of results.

    The record is walked backwards from position `until` to `since`. Of the handles, those that other operators of the
    record have computed pass their gradient on instead; `last` and `on_gradient` as for `gradients`.
    """
    interpreter = current()
    last = last and interpreter.depth == 0  # an enclosing function that is differentiated needs the record again
    nodes = interpreter.record(since, last)
    nodes = nodes if until is None else nodes[: until - since.position]
    record = _depending_on({handle for handles in targets for handle in handles}, nodes)
    del nodes
    complete = _completed_by_position([handles[0] for handles in targets], record) if on_gradient else {}
    with interpreter.unrecorded() if last else nullcontext():
        outer = interpreter.origin
        try:
            while record:  # popped, so that values without other references are freed during the walk
                node, wanted = record.pop()
                if not adjoint.keys().isdisjoint(node.outputs):
                    interpreter.origin = node
                    _pull_back(interpreter, node, wanted, adjoint)
                for k in complete.get(len(record), ()):
                    if on_gradient and targets[k][0] in adjoint:
                        on_gradient(k, adjoint[targets[k][0]])
        finally:
            interpreter.origin = outer
        return [_sum(interpreter, adjoint, handles) for handles in targets]


def _sum(interpreter: Interpreter, adjoint: dict[Value, Value], handles: Sequence[Value]) -> Value:
    found = [adjoint[handle] for handle in dict.fromkeys(handles) if handle in adjoint]
    return reduce(OPERATORS["Add"], found) if found else interpreter.lift(_filled(handles[0], 0.0))


def _depending_on(wanted: set[Value], nodes: Sequence[Node]) -> list[tuple[Node, list[bool]]]:
    """The nodes that depend on `wanted`, each with a flag per input: whether it depends on `wanted`."""
    record = []
    for node in nodes:
        if not node.op.is_flat and not wanted.isdisjoint(node.inputs):
            record.append((node, [x in wanted for x in node.inputs]))
            wanted.update([y for y in node.outputs if y.dtype.is_float])
    return record


def _completed_by_position(handles: Sequence[Value], record: Sequence[tuple[Node, list[bool]]]) -> dict[int, list[int]]:
    """By position in the record: the indices of the parameters that are first read there. The backward walk has
    completed their gradients once it has passed that position."""
    indices = {handle: k for k, handle in enumerate(handles)}
    read_on_first_rank: dict[int, list[int]] = {}
    for position, (node, _) in enumerate(record):
        for x in node.inputs:
            if x in indices:
                read_on_first_rank.setdefault(position, []).append(indices.pop(x))
    return read_on_first_rank


def _pull_back(interpreter: Interpreter, node: Node, wanted: Sequence[bool], adjoint: dict[Value, Value]) -> None:
    douts = [_adjoint_or_zeros(interpreter, adjoint, y) for y in node.outputs]
    ignored = [k for k in node.op.without_gradient if node.outputs[k] in adjoint]
    for y in node.outputs:
        adjoint.pop(y, None)  # all its uses come later in the record, so its sum was complete
    try:
        if ignored:
            raise NotDifferentiable(f"output {ignored[0]} of {node.op.name} has no gradient")
        rules = node.op.grad(node.inputs, node.outputs, douts)
        if node.op.is_users:
            rules = _checked_rules(node, rules)
    except NotDifferentiable as error:
        interpreter.origin = None
        raise _located(error, node) from None
    for x, rule, needed in zip(node.inputs, rules, wanted, strict=True):
        if rule is not None and needed:
            gradient = rule() if callable(rule) else rule
            adjoint[x] = OPERATORS["Add"](adjoint[x], gradient) if x in adjoint else gradient


def _checked_rules(node: Node, rules: object) -> Sequence[Gradient]:
    """The gradients of an operator of a user, which raise ShapeError when they do not fit their operands."""
    count = len(rules) if isinstance(rules, list | tuple) else 1
    if not isinstance(rules, list | tuple) or count != len(node.inputs):
        rows = {"given": count, "operands": len(node.inputs), "repair": "return a tuple, with None for no gradient"}
        raise _located(ShapeError(f"{node.op.name}: grad returns one gradient for each operand", **rows), node)
    return [None if rule is None else partial(_checked_gradient, node, k, rule) for k, rule in enumerate(rules)]


def _checked_gradient(node: Node, k: int, rule: Any) -> Value:
    gradient = rule() if callable(rule) else rule
    if not isinstance(gradient, Value) or gradient.shape != node.inputs[k].shape:
        given = gradient.type if isinstance(gradient, Value) else type(gradient).__name__
        rows = {"gradient": given, "operand": node.inputs[k].type, "number": k}
        raise _located(
            ShapeError(f"{node.op.name}: a gradient must be a tensor with the shape of its operand", **rows), node
        )
    return gradient


def _located(error: RunnerError, node: Node) -> RunnerError:
    return error.add(scope=node.name, line=user_line(node.source))


def _adjoint_or_zeros(interpreter: Interpreter, adjoint: dict[Value, Value], value: Value) -> Value:
    found = adjoint.get(value)
    return interpreter.lift(_filled(value, 0.0)) if found is None else found


def _initial_adjoint(interpreter: Interpreter, loss: Value, sens: float | Value) -> Value:
    """The adjoint of the loss: `sens` for each of its elements, in its type."""
    if not isinstance(sens, Value):
        return _filled(loss, sens)
    seed = interpreter.with_dtype(interpreter.lift(sens), loss.dtype)
    return OPERATORS["Mul"](_filled(loss, 1.0), seed) if loss.shape else seed


def _filled(like: Value, value: float) -> Tensor:
    number = np.asarray(value, like.dtype.numpy)
    return Tensor.of(np.broadcast_to(number, like.shape), like.type)
