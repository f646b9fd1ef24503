"""Reverse-mode differentiation: one implementation for both modes.

Under `Tracer` the gradient rules append nodes to the graph, under `Eager` they compute.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from runner.core.interpreter import START, Interpreter, Mark, current
from runner.core.operators import Gradient, Node
from runner.core.source import user_line
from runner.core.values import FlatStructure, Parameter, Tensor, Value, flatten, syntax
from runner.errors import ConfigError, NotDifferentiable, RunnerError, ShapeError


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
    results = pull_back(seeds, versions_of(parameters, since), since, last, on_gradient)
    # With forced Float16, the sums of gradients from several uses are Float16 too.
    return [interpreter.with_dtype(value, p.dtype) for value, p in zip(results, parameters, strict=True)]


def versions_of(parameters: Sequence[Value], since: Mark) -> list[Sequence[Value]]:
    """For each parameter, or other value, the versions that operators since a point of the step may have read."""
    interpreter = current()
    versions: list[Sequence[Value]] = []
    for x in parameters:
        if isinstance(x, Parameter):
            read = [interpreter.at(x, since), *interpreter.assignments.since(x, since)]
        else:
            read = [interpreter.lift(x)]
        versions.append([interpreter.tape.original(version) for version in read])
    return versions


def pull_back(
    adjoint: dict[Value, Value],
    targets: Sequence[Sequence[Value]],
    since: Mark,
    last: bool = False,
    on_gradient: Callable[[int, Value], None] | None = None,
    until: int | None = None,
) -> list[Value]:
    """Gradients of each target, a sum over its versions, from the adjoints of results.

    The record is walked backwards from position `until` to `since`. Of the versions, those that other operators of the
    record have computed pass their gradient on instead; `last` and `on_gradient` as for `gradients`.
    """
    interpreter = current()
    last = last and interpreter.tape.depth == 0  # an enclosing function that is differentiated needs the record again
    nodes = interpreter.record(since, last)
    nodes = nodes if until is None else nodes[: until - since.position]
    record = _depending_on({version for versions in targets for version in versions}, nodes)
    del nodes
    complete = _completed_by_position([versions[0] for versions in targets], record) if on_gradient else {}
    with interpreter.tape.unrecorded() if last else nullcontext():
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
        return [_sum(interpreter, adjoint, versions) for versions in targets]


def _sum(interpreter: Interpreter, adjoint: dict[Value, Value], versions: Sequence[Value]) -> Value:
    found = [adjoint[version] for version in dict.fromkeys(versions) if version in adjoint]
    return reduce(syntax.add, found) if found else interpreter.lift(_filled(versions[0], 0.0))


def _depending_on(wanted: set[Value], nodes: Sequence[Node]) -> list[tuple[Node, list[bool]]]:
    """The nodes that depend on `wanted`, each with a flag per input: whether it depends on `wanted`."""
    record = []
    for node in nodes:
        if not node.op.is_flat and not wanted.isdisjoint(node.inputs):
            record.append((node, [x in wanted for x in node.inputs]))
            wanted.update([y for y in node.outputs if y.dtype.is_float])
    return record


def _completed_by_position(
    versions: Sequence[Value], record: Sequence[tuple[Node, list[bool]]]
) -> dict[int, list[int]]:
    """By position in the record: the indices of the parameters that are first read there. The backward walk has
    completed their gradients once it has passed that position."""
    indices = {version: k for k, version in enumerate(versions)}
    first_read: dict[int, list[int]] = {}
    for position, (node, _) in enumerate(record):
        for x in node.inputs:
            if x in indices:
                first_read.setdefault(position, []).append(indices.pop(x))
    return first_read


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
            adjoint[x] = syntax.add(adjoint[x], gradient) if x in adjoint else gradient


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
    return syntax.mul(_filled(loss, 1.0), seed) if loss.shape else seed


def _filled(like: Value, value: float) -> Tensor:
    number = np.asarray(value, like.dtype.numpy)
    return Tensor.of(np.broadcast_to(number, like.shape), like.type)


# The gradient of a function: the function is executed, and what it has recorded is differentiated.


class Gradients(NamedTuple):
    """Results of a function, gradients in the structure of its operands, and gradients of the parameters."""

    outputs: Any
    operands: Any
    parameters: tuple[Value, ...]


class _Executed(NamedTuple):
    """A finished call: the versions of its operands, its results, and the part of the record that it wrote."""

    versions: Sequence[Value]
    outputs: Any
    begin: Mark
    end: int


def differentiate(
    function: Callable[..., Any], operands: Sequence[Any], parameters: Sequence[Parameter] = (), sens: Any = None
) -> Gradients:
    """The gradients of the results of `function(*operands)`, each summed over its elements and times `sens`.

    `sens` has the structure and shapes of the results (default: ones). Operands and results are structures of values;
    the gradient of what is no float is 0, and numbers and other constants have none (None). A cell that this step has
    called with the same operands, without assignments in between, is not executed again: its random numbers are drawn
    and its statistics updated once. Raises ShapeError when `sens` does not fit, NotDifferentiable as `gradients`.
    """
    interpreter = current()
    flat = flatten(tuple(operands))
    with interpreter.differentiation():
        executed = _earlier_call(interpreter, function, flat) or _execute(interpreter, function, flat)
    outputs = flatten(executed.outputs)
    adjoint = _seeds(interpreter, outputs, sens)
    targets = [(version,) for version in executed.versions] + versions_of(parameters, executed.begin)
    found = pull_back(adjoint, targets, executed.begin, last=True, until=executed.end)
    own, count = [*flat.values, *parameters], len(flat.values)
    typed = [interpreter.with_dtype(value, x.dtype) for value, x in zip(found, own, strict=True)]
    return Gradients(executed.outputs, flat.rebuild(typed[:count]), tuple(typed[count:]))


def _earlier_call(interpreter: Interpreter, function: Callable[..., Any], flat: FlatStructure) -> _Executed | None:
    call = interpreter.tape.calls.get(function)
    if call is None or call.end.assignments != interpreter.assignments.count:
        return None
    before = flatten(call.inputs)
    values = flat.values
    same = before.layout == flat.layout and all(x is y for x, y in zip(before.values, values, strict=True))
    changes = any(isinstance(x, Parameter) or x in interpreter.tape.originals for x in values)
    if not same or changes or len(set(values)) < len(values):
        return None
    return _Executed([interpreter.lift(x) for x in values], call.outputs, call.begin, call.end.position)


def _execute(interpreter: Interpreter, function: Callable[..., Any], flat: FlatStructure) -> _Executed:
    begin = interpreter.mark()
    # Each operand gets a version of its own, although the same value may be another operand, or used by the function.
    versions = [syntax.identity(x) if x.dtype.is_float else interpreter.lift(x) for x in flat.values]
    outputs = function(*flat.rebuild(versions))
    # The function may assign elements of its operands.
    versions = [interpreter.tape.original(version) for version in versions]
    return _Executed(versions, outputs, begin, interpreter.mark().position)


def _seeds(interpreter: Interpreter, outputs: FlatStructure, sens: Any) -> dict[Value, Value]:
    if not outputs.values:
        raise ConfigError("a function without a tensor as its result has no gradient", repair="return a tensor")
    given = _fitting(outputs, sens)
    adjoint: dict[Value, Value] = {}
    for y, seed in zip(outputs.values, given, strict=True):
        if y.dtype.is_float:
            version, value = interpreter.lift(y), interpreter.with_dtype(interpreter.lift(seed), y.dtype)
            adjoint[version] = syntax.add(adjoint[version], value) if version in adjoint else value
    return adjoint


def _fitting(outputs: FlatStructure, sens: Any) -> Sequence[Value]:
    """One `sens` for each result, of its shape."""
    if sens is None or isinstance(sens, int | float):
        return [_function_gradient_filled(y, 1.0 if sens is None else sens) for y in outputs.values]
    seeds = flatten(sens).values
    if [seed.shape for seed in seeds] != [y.shape for y in outputs.values]:
        given, results = (", ".join(str(x.type) for x in values) for values in (seeds, outputs.values))
        repair = "one sens for each result, of its shape, such as ops.OnesLike()(result)"
        raise ShapeError("sens does not fit the results of the function", sens=given, results=results, repair=repair)
    return seeds


def _function_gradient_filled(like: Value, number: float) -> Tensor:
    return Tensor(np.full(like.shape, number, like.dtype.numpy))
