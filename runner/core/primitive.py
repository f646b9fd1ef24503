"""Operators, the record of their application, and the interpreters that they pass through.

An operator is a frozen dataclass: its fields are the attributes, its methods the four rules (type, numpy kernel,
gradient, lowering). Calling one hands it to the current interpreter: `Eager` computes, `Tracer` builds a graph.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form, Names
from runner.core.precision import Casting, Needs, Rounded
from runner.core.source import Source, here, user_line
from runner.core.value import Operand, Parameter, Value, as_values
from runner.errors import ConfigError, NotDifferentiable, RunnerError, ShapeError
from runner.types import TensorType

_type = attrgetter("type")  # as a function for `map`: the quickest way through a few operands

Types = TensorType | tuple[TensorType, ...]
Arrays = np.ndarray | tuple[np.ndarray, ...]
Gradient = Value | Callable[[], Value] | None  # a function is called only when that gradient is needed

REGISTRY: dict[str, type["Primitive"]] = {}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Primitive:
    """Base of all operators. Subclasses are declared with `@primitive`."""

    # Fields that a call may also give after the operands, as the reference does.
    statics: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[int | None] = None  # number of operands, None for any
    needs: ClassVar[Needs] = Needs.WIDEST
    masters: ClassVar[tuple[int, ...]] = ()  # operands that are Float32 beside Float16: statistics
    computes: ClassVar[bool] = True  # and does not only move elements, which is the same in any type

    @property
    def name(self) -> str:
        """The operator's type, as it appears in full names."""
        return type(self).__name__

    # `Any` lets each operator name its own operands.
    def infer(self, *types: Any, **_: Any) -> Types:
        """Types of the outputs. Raises ShapeError when the operands do not fit."""
        raise NotImplementedError

    def kernel(self, *arrays: Any, **_: Any) -> Arrays:
        """The outputs in numpy; operands are never changed."""
        raise NotImplementedError

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """For each input its gradient, or a function that gives it, or None; written in operators."""
        raise NotDifferentiable(f"{self.name} has no gradient")

    def lower(self, b: Builder, *names: Any, **_: Any) -> Names:
        """Add the ONNX nodes that compute the outputs, and return their names."""
        raise NotImplementedError

    def forms(self, *types: Any) -> Sequence[Form]:
        """The ways to lower it on the CPU for operands of these types, the best one first."""
        return (Form("plain", self.lower),)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Number of the operand that equals the output whatever the data are, if there is one."""
        return None

    def merged(
        self, before: "Primitive", weight: np.ndarray, known: Sequence[np.ndarray | None]
    ) -> tuple[np.ndarray, "Primitive", np.ndarray] | None:
        """How the operator `before`, of (x, weight), can do the work of this one, whose other operands are `known`:
        with another weight, and followed by an operator with a second operand. None when it cannot.
        """
        return None

    def attributes(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self.fields}

    def __hash__(self) -> int:
        # Kept by hand: `cached_property` takes a lock, and gradient rules make operators anew in every step.
        kept = self.__dict__
        if "_hash" not in kept:
            kept["_hash"] = hash((type(self), *[kept[name] for name in self.fields]))
        made: int = kept["_hash"]
        return made

    def __eq__(self, other: object) -> bool:
        if self is other or type(self) is not type(other):
            return self is other
        return all(getattr(self, name) == getattr(other, name) for name in self.fields)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.attributes().items())})"

    def __call__(self, *operands: Any) -> Any:
        op: Primitive = self
        if self.arity is None and len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])  # the reference's way to give any number of tensors
        if self.arity is not None and len(operands) != self.arity:
            op, operands = self._with_statics(operands)
        outputs = _stack[-1].bind(op, operands)
        return outputs[0] if len(outputs) == 1 else outputs

    def _with_statics(self, operands: tuple[Any, ...]) -> tuple[Self, tuple[Any, ...]]:
        assert self.arity is not None
        given = operands[self.arity :]
        if len(operands) < self.arity or len(given) > len(self.statics):
            takes = ", ".join([f"{self.arity} tensors", *self.statics])
            raise ShapeError(f"{self.name}: wrong number of operands", given=len(operands), takes=takes)
        changes = dict(zip(self.statics, map(_frozen, given), strict=False))
        return dataclasses.replace(self, **changes), operands[: self.arity]


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that attributes can be compared and hashed."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


Op = TypeVar("Op", bound=Primitive)


@dataclass_transform(frozen_default=True)
def family(cls: type[Op]) -> type[Op]:
    """Declare a base of operators that share fields."""
    # Comparing, hashing and printing stand in `Primitive`: generating them for each class would slow every start.
    return dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)


@dataclass_transform(frozen_default=True)
def primitive(cls: type[Op]) -> type[Op]:
    """Declare an operator: make its class a frozen dataclass and register it under its name."""
    # Most operators have no fields of their own; generating code for each of them would take 10 ms of every start.
    has_fields = any("ClassVar" not in str(kind) for kind in inspect.get_annotations(cls).values())
    made = family(cls) if has_fields else cls
    code = made.infer.__code__
    made.fields = tuple([field.name for field in dataclasses.fields(made) if field.compare])
    made.arity = None if code.co_flags & inspect.CO_VARARGS else code.co_argcount - 1
    REGISTRY[made.__name__] = made
    return made


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """One application of an operator: the line of the tape and of the graph."""

    op: Primitive
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    scope: str
    number: int
    source: Source
    form: Form | None = None  # how it is lowered, once the layout pass has chosen

    @property
    def name(self) -> str:
        """Full name: `{scope}/{Op}-op{N}` (spec section 2.6)."""
        return f"{self.scope}/{self.op.name}-op{self.number}"


@lru_cache(maxsize=8192)
def infer(op: Primitive, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The type rule of an operator, remembered: PyNative mode asks the same question every step."""
    made = op.infer(*types)
    results = made if isinstance(made, tuple) else (made,)
    return Rounded(results) if op.computes and dt.float16 in [t.dtype for t in types] else results


class Interpreter(Casting):
    """What every operator passes through. Keeps the record: nodes in order, and the updates of parameters.

    `scope` is the stack of cell names that is being executed; `origin` is the node whose gradient is being formed.
    """

    def __init__(self, root: str = "Default") -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.updates: dict[Parameter, Value] = {}
        self.scope: list[str] = [root]
        self.origin: Node | None = None
        self.count = 0
        self.spent = False  # whether the record was given away

    def bind(self, op: Primitive, operands: tuple[Operand, ...]) -> tuple[Value, ...]:
        """Apply an operator: check types, let the subclass make the outputs, and record."""
        inputs = self.handles(as_values(operands))
        if self.precision is not None:
            inputs = self.cast(self.precision, op, inputs)
        try:
            types = infer(op, tuple(map(_type, inputs)))
        except RunnerError as error:
            raise self.located(error, op, inputs) from None
        outputs = self.apply(op, inputs, types)
        self.count += 1
        return outputs

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Make the outputs."""
        raise NotImplementedError

    def lift(self, operand: Operand) -> Value:
        """The handle that this interpreter works on for an operand."""
        raise NotImplementedError

    def handles(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The handles for several values."""
        return tuple([self.lift(x) for x in values])

    def record(self, last: bool = False) -> list[Node]:
        """The nodes so far, in order. With `last` nobody may ask again: the interpreter need not hold them any longer.

        Raises ConfigError when somebody asks again.
        """
        if self.spent:
            raise ConfigError(
                "the record of this step is used up",
                reason="gradients(..., last=True) was called before, and it lets go of what it has passed",
                hint="leave out last=True when gradients are formed more than once in a step",
            )
        self.spent = last
        return list(self.nodes)

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Give a parameter a new value; it holds from the end of the step, in both modes."""
        if self.precision is not None and value.dtype.is_float and parameter.dtype.is_float:
            value = self.with_dtype(value, parameter.dtype)
        if value.type != parameter.type:
            raise ShapeError(
                "a parameter keeps its type", parameter=parameter.name, has=parameter.type, given=value.type
            )
        self.updates[parameter] = value

    def where(self) -> str:
        """Scope of the operator that is being applied."""
        if self.origin is None:
            return "/".join(self.scope)
        return f"Gradients/{self.origin.scope}/grad{self.origin.op.name}"

    def source(self) -> Source:
        """Source lines of the operator that is being applied."""
        return here() if self.origin is None else self.origin.source

    def located(self, error: RunnerError, op: Primitive, inputs: Sequence[Value]) -> RunnerError:
        """Tell an error which operator, operands, scope and line it belongs to."""
        if "scope" not in error.rows:
            if not error.what.startswith(op.name):
                error.what = f"{op.name}: {error.what}"
            error.add(operands=", ".join(str(x.type) for x in inputs) or None, attributes=_attributes_text(op))
            error.add(scope=f"{self.where()}/{op.name}-op{self.count}", line=user_line(self.source()))
        return error

    def __enter__(self) -> Self:
        _stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack.pop()


def _attributes_text(op: Primitive) -> str | None:
    return ", ".join(f"{name}={value}" for name, value in op.attributes().items()) or None


_stack: list[Interpreter] = []  # the first one serves calls outside of any network: runner/core/eager.py installs it


def current() -> Interpreter:
    """The interpreter in force; the first in the stack is the one that serves calls outside of any network."""
    return _stack[-1]


def is_nested() -> bool:
    """Whether a network is being executed or traced right now."""
    return len(_stack) > 1


def install(interpreter: Interpreter) -> None:
    """Put in the interpreter that serves operators called outside of any network."""
    _stack[:] = [interpreter]
