"""Interpreters: what happens when an operator is applied, in PyNative mode (`Eager`) and while a graph is traced.

`Interpreter.bind` is the path of every operator in both modes: operands become values, parameters the values that the
step has assigned, types are cast by the policy and inferred, the subclass produces the outputs. An interpreter has a
`Tape`, the record of applied operators, and `Assignments`, the new values of parameters. `Eager` computes each operator
in numpy; `Tracer` (`runner/core/trace.py`) appends it to a graph.

What a step assigns, and what its operators read, is the same in both modes and in sinks:

1. An operator reads the latest value: that of the last assignment that the step has made before, in the order in which
   Python executes `construct`, or else the value from before the step.
2. A gradient is that of the values that the differentiated function has read.
3. Parameters have their new values after the step. If it raises, they keep their old ones.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np

from runner import dtype as dt
from runner.core import eager_parts
from runner.core.current import INTERPRETER
from runner.core.dependence import NOTES
from runner.core.operators import KERNEL, Arrays, Node, Primitive, infer
from runner.core.parts import Parts
from runner.core.precision import PRECISION, Policy, RoundedTypes, compute_rounded
from runner.core.source import Source, SourceLine, current_source, user_line
from runner.core.values import (
    Operand,
    Parameter,
    Symbol,
    Tensor,
    Value,
    as_values,
    conversions,
    require_writable,
    syntax,
)
from runner.errors import NO_MEMORY, ConfigError, RunnerError, ShapeError, TrainingError
from runner.host.machine import keep_freed_memory
from runner.types import TensorType

# Functions for `map`: the fastest loop over a few operands.
_type, _array = attrgetter("type"), attrgetter("array")
UNKNOWN = "graph mode has no number for a value that is only known when the graph runs"


class Mark(NamedTuple):
    """A point of a step: the numbers of recorded nodes, of applied operators and of assignments up to it."""

    position: int = 0
    applied: int = 0
    assignments: int = 0


START = Mark()


class Assignments:
    """The values that a step assigns to parameters. `latest` has the last one of each, `count` is their number."""

    def __init__(self) -> None:
        self.latest: dict[Parameter, Value] = {}
        self.count = 0
        self._all: dict[Parameter, list[tuple[int, Value]]] = {}  # with their numbers

    def add(self, parameter: Parameter, value: Value) -> None:
        """The next assignment."""
        self.latest[parameter] = value
        self._all.setdefault(parameter, []).append((self.count, value))
        self.count += 1

    def before(self, parameter: Parameter, mark: Mark) -> Value | None:
        """The last value that was assigned before a point of the step."""
        values = [value for number, value in self._all.get(parameter, ()) if number < mark.assignments]
        return values[-1] if values else None

    def since(self, parameter: Parameter, mark: Mark) -> list[Value]:
        """The values that were assigned after a point of the step, in order."""
        return [value for number, value in self._all.get(parameter, ()) if number >= mark.assignments]

    def replace(self, target: Value, former: Value) -> None:
        """A value that was assigned has another version from now on."""
        self.latest = {p: former if value is target else value for p, value in self.latest.items()}
        for p, values in self._all.items():
            self._all[p] = [(number, former if value is target else value) for number, value in values]

    def clear(self) -> None:
        """The step has ended; the numbers go on."""
        self.latest.clear()
        self._all.clear()


class Call(NamedTuple):
    """A finished call of a cell: its operands and results, and the points of the step before and after it."""

    inputs: tuple[Any, ...]
    outputs: Any
    begin: Mark
    end: Mark


class Tape:
    """The applied operators of a step, in order, for gradients and graphs; `is_on` says whether they are recorded.

    `calls` has the last call of each cell while its nodes are kept: a differentiation of that call does not execute it
    again. `depth` is the number of functions being executed that will be differentiated.

    `x[key] = v` gives a value that has been used other elements. The user's object stands for the new value from then
    on; in the nodes, whose gradient rules read operands, a new version takes its former place. `originals` has the
    first version of each value that was replaced.
    """

    def __init__(self, is_on: bool = True) -> None:
        self.is_on, self.depth = is_on, 0
        self.nodes: list[Node] = []
        self.calls: dict[object, Call] = {}
        self.originals: dict[Value, Value] = {}
        self._released = -1  # number of applied operators when a part of the record was handed over

    def since(self, mark: Mark, applied: int, last: bool) -> list[Node]:
        """The nodes since a point of the step, in order. `last` hands them over, after `applied` operators.

        Raises ConfigError when some of them were handed over before.
        """
        if mark.applied < self._released:
            reason = "gradients(..., last=True) or an outermost GradOperation has released the nodes that it passed"
            hint = "leave out last=True when gradients are computed more than once in a step"
            raise ConfigError("the record of this step was released", reason=reason, hint=hint)
        if last:
            self._released = applied
            self.calls.clear()
        return self.nodes[mark.position :]

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Context of operators that no later gradient of the step depends on, unless a function is differentiated."""
        before, self.is_on = self.is_on, self.is_on and self.depth > 0
        try:
            yield
        finally:
            self.is_on = before

    def original(self, version: Value) -> Value:
        """The version of the value that `version` had at first."""
        return self.originals.get(version, version)

    def replace(self, target: Value, former: Value, value: Value) -> None:
        """`former` takes the place of `target` in the nodes, and `target` that of `value`, the output of the last."""
        self.originals.setdefault(target, former)
        self.calls.clear()  # whose operands and results would have other values now
        for node in self.nodes:
            if any(x is target for x in node.inputs):
                node.inputs = tuple([former if x is target else x for x in node.inputs])
            node.outputs = tuple([former if y is target else target if y is value else y for y in node.outputs])


class Interpreter:
    """Base of interpreters: applies operators. Subclasses define `lift`, `entry`, `apply` and `rebind`.

    `scope` is the stack of names of the cells being executed, `origin` the node whose gradient is being computed,
    `line` the place if it is not one of Python; `count` is the number of applied operators, `precision` the policy that
    casts operands, None for none.
    """

    def __init__(self, root: str = "Default") -> None:
        self.scope: list[str] = [root]
        self.origin: Node | None = None
        self.line: SourceLine | None = None
        self.count = 0
        self.precision = PRECISION.get()
        self.assignments, self.reads_latest = Assignments(), True
        self.tape = Tape()
        self._inside: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> Self:
        inside = INTERPRETER.using(self)
        inside.__enter__()
        self._inside.append(inside)
        return self

    def __exit__(self, *error: Any) -> None:
        self._inside.pop().__exit__(None, None, None)

    # Operators

    def bind(self, op: Primitive, operands: tuple[Operand, ...]) -> tuple[Value, ...]:
        """Apply an operator: infer types, let the subclass produce the outputs, and record."""
        given = as_values(operands)
        inputs = self.versions(given)
        if self.precision is not None:
            inputs = self.cast(self.precision, op, inputs, given)
        if op.one_dtype and inputs[0].type.dtype is not inputs[1].type.dtype:
            inputs = self.convert(inputs)
        try:
            types = infer(op, tuple(map(_type, inputs)))
        except RunnerError as error:
            raise self.add_location(error, op, inputs) from None
        outputs = self.apply(op, inputs, types)
        self.count += 1
        return outputs

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Produce the outputs."""
        raise NotImplementedError

    def lift(self, operand: Operand) -> Value:
        """The version of an operand in this interpreter."""
        raise NotImplementedError

    def versions(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """What operators read for these values."""
        return tuple([self.lift(x) for x in values])

    # Element types

    def cast(
        self, policy: Policy, op: Primitive, inputs: tuple[Value, ...], given: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        """The operands, cast as a policy selects for this operator; `given` are those that it was called with."""
        parameters = tuple([isinstance(x, Parameter) for x in given]) if policy.of_cell else ()
        wanted = policy.casts(op, tuple([x.type for x in inputs]), parameters)
        if wanted is None:
            return inputs
        return tuple([self.with_dtype(x, dtype or x.dtype) for x, dtype in zip(inputs, wanted, strict=True)])

    def convert(self, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Two operands in the element type for both; unchanged when there is none."""
        dtype = conversions(inputs[0].type, inputs[1].type)
        return inputs if dtype is None else tuple([self.with_dtype(x, dtype) for x in inputs])

    def with_dtype(self, value: Value, dtype: dt.DType) -> Value:
        """The value, cast unless it has this element type."""
        return value if value.dtype is dtype else self.bind(_cast_to(dtype), (value,))[0]

    @contextmanager
    def use_precision(self, policy: Policy | None) -> Iterator[None]:
        """Context: operands are cast by another policy."""
        before, self.precision = self.precision, policy
        try:
            yield
        finally:
            self.precision = before

    # Assignments

    def entry(self, parameter: Parameter) -> Value:
        """The version of a parameter's value before the step."""
        raise NotImplementedError

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Assign a parameter a new value: later operators of the step read it, and the parameter has it afterwards.

        Raises ShapeError for another shape, and for an element type that is not converted to that of the parameter.
        """
        (value,) = self.versions((value,))
        is_cast = self.precision is not None and value.dtype.is_float and parameter.dtype.is_float
        if not is_cast:
            require_writable(parameter.name, parameter.type, value.type)
        value = self.with_dtype(value, parameter.dtype)
        if value.type != parameter.type:
            rows = {"parameter": parameter.name, "has": parameter.type, "given": value.type}
            raise ShapeError("a parameter keeps its type", **rows)
        self.assignments.add(parameter, value)

    @contextmanager
    def values_before(self) -> Iterator[None]:
        """Context of operators that read parameters as they were before the step."""
        self.reads_latest = False
        try:
            yield
        finally:
            self.reads_latest = True

    def at(self, parameter: Parameter, mark: Mark) -> Value:
        """The value that operators read at an earlier point of the step."""
        before = self.assignments.before(parameter, mark)
        return self.entry(parameter) if before is None else before

    def restore_unless(self, condition: Value, mark: Mark) -> None:
        """Assign what was assigned since a point of the step its value at that point, unless a Bool scalar is true."""
        latest = self.assignments.latest
        changed = [p for p in latest if self.assignments.since(p, mark)]
        with self.values_before():
            kept = [(p, syntax.select(condition, latest[p], self.at(p, mark))) for p in changed]
        for parameter, value in kept:
            self.assign(parameter, value)

    # The record

    def mark(self) -> Mark:
        """The present point of the step."""
        return Mark(len(self.tape.nodes), self.count, self.assignments.count)

    @contextmanager
    def differentiation(self) -> Iterator[Mark]:
        """Context of a function that is differentiated afterwards; the mark of its beginning."""
        self.tape.depth += 1
        try:
            yield self.mark()
        finally:
            self.tape.depth -= 1

    def record(self, since: Mark, last: bool = False) -> list[Node]:
        """The nodes since a point of the step, as `Tape.since`."""
        return self.tape.since(since, self.count, last)

    def rebind(self, target: Value, value: Value) -> None:
        """Give `target` the value of `value`, the output of the last node, which has the same type."""
        raise NotImplementedError

    def replace_version(self, target: Value, former: Value, value: Value) -> None:
        """In the record, `former` takes the place of `target`, and `target` that of `value`."""
        self.assignments.replace(target, former)
        self.tape.replace(target, former, value)

    # Places and values for errors, and for Python's syntax

    def current_scope(self) -> str:
        """Scope of the operator being applied."""
        if self.origin is None:
            return "/".join(self.scope)
        return f"Gradients/{self.origin.scope}/grad{self.origin.op.name}"

    def source(self) -> Source:
        """Source lines of the operator being applied."""
        if self.origin is not None:
            return self.origin.source
        return current_source() if self.line is None else (self.line,)

    def add_location(self, error: RunnerError, op: Primitive, inputs: Sequence[Value]) -> RunnerError:
        """Add operator, operands, scope and source line to an error."""
        if "scope" not in error.rows:
            if not error.what.startswith(op.name):
                error.what = f"{op.name}: {error.what}"
            attributes = ", ".join(f"{name}={value}" for name, value in op.attributes().items())
            error.add(operands=", ".join(str(x.type) for x in inputs) or None, attributes=attributes or None)
            error.add(scope=f"{self.current_scope()}/{op.name}-op{self.count}", line=user_line(self.source()))
        return error

    def decide(self, predicate: Symbol) -> bool:
        """The outcome of a branch on a value of a graph. Raises ConfigError outside of a trace."""
        what = "graph mode cannot branch on a value that is only known when the graph runs"
        hint = "use ops.Select, or run this network with mode=pynative"
        raise ConfigError(what, value=repr(predicate), hint=hint)

    def known(self, value: Value) -> np.ndarray | None:
        """The elements of a value of a graph, where they do not depend on data; None for others."""
        return None

    def elements(self, symbol: Symbol) -> np.ndarray:
        """As `known`. Raises ConfigError for others."""
        known = self.known(symbol)
        if known is None:
            line, hint = user_line(self.source()), "use operators, or run this network with mode=pynative"
            raise ConfigError(UNKNOWN, value=repr(symbol), line=line, hint=hint)
        return known


@cache
def _cast_to(dtype: dt.DType) -> Any:
    return syntax.operator("Cast")(dtype)


def current() -> Interpreter:
    """The current interpreter."""
    interpreter: Interpreter = INTERPRETER.get()
    return interpreter


def is_nested() -> bool:
    """Whether a network is being executed or traced."""
    return INTERPRETER.is_inside


class Execution:
    """How what is called outside of networks is executed, by the mode of the context.

    Programs and modes stand above operators and cells, which call them: a call of a higher module that is declared
    here, and filled in one place, `runner/nn/steps.py`.
    """

    cell: Callable[[Any, tuple[Any, ...], int], Any]  # a cell with these operands, in a mode
    compile: Callable[[Any, tuple[Any, ...]], None]  # only compile it, for graph mode
    gradient: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None  # of a function; None: immediately


execution = Execution()


# PyNative mode


class Eager(Interpreter):
    """Computes operators as they are applied, in numpy.

    With `tape=True` the applied nodes are recorded, for gradients. With `parts` the batch has parts: tensors that are
    divisible, or divided, have a `Tensor.divided`.
    """

    def __init__(self, root: str = "Default", tape: bool = True) -> None:
        super().__init__(root)
        self.parts: Parts | None = None
        self.tape.is_on = tape
        if tape:
            keep_freed_memory()

    def lift(self, operand: Operand) -> Value:
        """Tensors are their own versions, and so are parameters until the step assigns them."""
        return self.versions((operand,))[0]  # type: ignore[arg-type]

    def versions(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values themselves, or what the step has assigned. Gradient rules read what their operator has read."""
        latest = self.assignments.latest
        if not latest or self.origin is not None or not self.reads_latest:
            return values
        return tuple([latest.get(x, x) for x in values])  # type: ignore[call-overload]

    def entry(self, parameter: Parameter) -> Value:
        """The parameter itself, which changes at the end of the step."""
        return parameter

    def record(self, since: Mark, last: bool = False) -> list[Node]:
        """The tape since a point of the step. With `last` it is handed over, so that activations can be freed."""
        nodes = super().record(since, last)
        if last:
            del self.tape.nodes[since.position :]
        return nodes

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        try:
            outputs = self._computed(op, inputs, types)
        except RunnerError as error:
            raise self.add_location(error, op, inputs) from None
        except MemoryError as error:
            raise self.add_location(ConfigError(NO_MEMORY, reason=error), op, inputs) from None
        except (ArithmeticError, IndexError, ValueError) as error:
            raise self.add_location(TrainingError(f"{op.name}: {error}"), op, inputs) from error
        if self.tape.is_on:
            self.tape.nodes.append(Node(op, inputs, outputs, self.current_scope(), self.count, ()))
        return outputs

    def _computed(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Tensor, ...]:
        if self.parts is not None:
            return eager_parts.apply(op, inputs, types, self.parts)  # type: ignore[arg-type]
        if type(types) is RoundedTypes:
            arrays: Arrays = compute_rounded(op.kernel, map(_array, inputs), types)
        else:
            arrays = op.kernel(*map(_array, inputs))
        if op.is_users:
            _check_outputs(arrays, types)
        if KERNEL in op.depends_on_libc:
            NOTES.add(op)
        return _wrap(arrays, types)

    def rebind(self, target: Value, value: Value) -> None:
        """Replace the elements of a tensor; no array is changed."""
        assert isinstance(target, Tensor)
        assert isinstance(value, Tensor)
        self.replace_version(target, Tensor.of(target.array, target.type), value)
        target.replace_array(value.array)

    def commit(self) -> None:
        """End of the step: assign the parameters their new values."""
        latest = self.assignments.latest
        for parameter, data in [(p, Tensor.of(value.array, value.type)) for p, value in latest.items()]:  # type: ignore[attr-defined]
            parameter.set_data(data)
        self.assignments.clear()


def evaluate(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a node for these inputs, computed by its numpy kernel. Raises what the kernel raises."""
    return list(eager_parts.compute(node.op, arrays, infer(node.op, tuple([x.type for x in node.inputs]))))


def _check_outputs(arrays: Arrays, types: tuple[TensorType, ...]) -> None:
    """Raise ShapeError when outputs of a kernel have other types than the type rule says."""
    outputs = arrays if isinstance(arrays, tuple) else (arrays,)
    given = [TensorType.of(np.asarray(array)) for array in outputs]
    if given != list(types):
        kernel, infer = (", ".join(map(str, each)) for each in (given, types))
        raise ShapeError("the kernel does not return what the type rule says", kernel=kernel, infer=infer)


def _wrap(arrays: Arrays, types: tuple[TensorType, ...]) -> tuple[Tensor, ...]:
    # numpy returns scalars, not arrays, for results without axes.
    if isinstance(arrays, tuple):
        return tuple([Tensor.of(np.asarray(array), type) for array, type in zip(arrays, types, strict=True)])
    return (Tensor.of(arrays if type(arrays) is np.ndarray else np.asarray(arrays), types[0]),)


class Immediate(Eager):
    """Computes operators that are called outside of networks; each assignment takes effect at once."""

    def __init__(self) -> None:
        super().__init__(tape=False)

    def assign(self, parameter: Parameter, value: Value) -> None:
        super().assign(parameter, value)
        self.commit()


INTERPRETER.of_process = Immediate()
