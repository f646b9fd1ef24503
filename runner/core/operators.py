"""Operators, and the record of their applications.

An operator is a frozen dataclass: its fields are the attributes, its methods the four rules (type, numpy kernel,
gradient, lowering). A call passes it to the current interpreter (`runner/core/interpreter.py`), which computes it or
adds it to a graph. One that is composed of others has no rules of its own. The parts: what a rule takes and returns;
`Primitive` and its decorators; composed operators, effects and collectives; the record `Node`, and `infer`.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from runner import dtype as dt
from runner.core.current import INTERPRETER
from runner.core.lowering import Builder, Lowering, Names
from runner.core.parts import Axes, PartRule, Parts, Replacement, each_element
from runner.core.precision import OperandPrecision, RoundedTypes
from runner.core.source import Source
from runner.core.values import Value
from runner.errors import ConfigError, NotDifferentiable, ShapeError
from runner.host.machine import CERTAIN_BYTES, require_memory
from runner.types import TensorType
from runner.validation.rules import KeywordNames

Types = TensorType | tuple[TensorType, ...]
Arrays = np.ndarray | tuple[np.ndarray, ...]
Gradient = Value | Callable[[], Value] | None  # a function is called only if that gradient is needed

REGISTRY: dict[str, type["Primitive"]] = {}
KERNEL, LOWERING = "kernel", "lower"  # the rules that compute


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Primitive(KeywordNames):
    """Base of all operators: of those with rules of their own, declared with `@primitive`, and of composed ones."""

    statics: ClassVar[tuple[str, ...]] = ()  # fields that a call may also pass after the operands, as in MindSpore
    fields: ClassVar[tuple[str, ...]] = ()
    onnx: ClassVar[str] = ""  # ONNX's operator for lowerings to one node; `@primitive` sets the same name by default
    arity: ClassVar[int | None] = None  # number of operands, None for any
    operand_names: ClassVar[tuple[str, ...]] = ()  # in listings, where MindSpore's are not those of `infer`
    result_names: ClassVar[
        tuple[str, ...]
    ] = ()  # in listings; by default `output`, and `output0` and so on for several
    precision: ClassVar[OperandPrecision] = OperandPrecision.WIDEST
    masters: ClassVar[tuple[int, ...]] = ()  # operands that stay Float32 next to Float16 ones: statistics
    without_gradient: ClassVar[tuple[int, ...]] = ()  # outputs that a loss may not depend on
    computes: ClassVar[bool] = True  # False: it only moves elements, which needs no Float32 for Float16
    flops_each: ClassVar[int] = 1  # floating-point operations for each element of the first result, if it computes
    needs_elements: ClassVar[bool] = False  # whether operands without elements are errors: their mean is not defined
    wider: ClassVar[Mapping[dt.DType, dt.DType]] = {}  # types that onnxruntime lacks, and those to compute in
    convolves: ClassVar[bool] = False  # whether tensor cores want its images with the channels last
    one_dtype: ClassVar[bool] = False  # whether its two operands are converted to one element type
    is_flat: ClassVar[bool] = False  # whether its outputs pass no gradient to its inputs
    on_host: ClassVar[bool] = False  # whether graph mode runs its kernel between sessions, as it is small work
    communicates: ClassVar[bool] = False  # whether its kernel exchanges values with the other ranks
    is_users: ClassVar[bool] = False  # whether it is declared outside of runner, where no contract test has checked it
    depends_on_libc: ClassVar[tuple[str, ...]] = ()  # KERNEL, LOWERING: whose bits another C library may change

    # What passes of the compiler may assume, which know graphs and no operators. The defaults allow nothing.
    elementwise: ClassVar[bool] = False  # whether it computes every element, of operands that are broadcast, separately
    never_decreases: ClassVar[bool] = False  # whether it is a function of each element that never decreases
    takes_largest: ClassVar[bool] = False  # whether each element of the result is the largest of some of the operand
    gradient_of: ClassVar[str] = ""  # the operator whose gradient it computes, from (x, out, dout) or (dout, out)

    @property
    def graphs(self) -> tuple[Any, ...]:
        """The graphs in which it consists, of which it may compute only some: those of an `If`."""
        return ()

    def with_graphs(self, graphs: Sequence[Any]) -> "Primitive":
        """The operator with other graphs that compute the same."""
        return self

    @property
    def name(self) -> str:
        """The operator type, as in full names."""
        return type(self).__name__

    # `Any`: each operator names its own operands.
    def infer(self, *types: Any, **_: Any) -> Types:
        """Types of the outputs. Raises ShapeError when the operands do not fit."""
        raise ConfigError(f"{self.name} has no type rule", repair="define its method infer")

    def kernel(self, *arrays: Any, **_: Any) -> Arrays:
        """The outputs, computed in numpy; operands are never changed."""
        raise ConfigError(f"{self.name} has no kernel for PyNative mode", repair="define its method kernel")

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The gradient of each input, a function that returns it, or None; expressed in operators."""
        if self.is_flat:
            return [None] * len(inputs)
        raise NotDifferentiable(f"{self.name} has no gradient")

    def lower(self, b: Builder, *names: Any, **_: Any) -> Names:
        """Add the ONNX nodes that compute the outputs, and return their names."""
        raise ConfigError(f"{self.name} has no lowering for graph mode", repair="define its method lower")

    def lowerings(self, *types: Any) -> Sequence[Lowering]:
        """The alternative lowerings on the CPU for operands of these types, the best one first."""
        return (Lowering("plain", self.lower),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """Floating-point operations of one execution; override it where `flops_each` is not enough."""
        return self.flops_each * outputs[0].size if self.computes and outputs else 0

    def fold_into(
        self, before: "Primitive", weight: np.ndarray, known: Sequence[np.ndarray | None]
    ) -> tuple[np.ndarray, "Primitive", np.ndarray] | None:
        """Fold this operator, whose other operands are `known`, into the operator `before` of (x, weight): the new
        weight, the operator that then follows, and the second operand of that one. None when it cannot be folded.
        """
        return None

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        """Index of the operand that equals the output for any data, or None; `known` are the constant operands."""
        return None

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """What it computes of a part of a batch, where operands are divided along `axes`; None when it needs the whole
        batch, or when that is not known."""
        return each_element(self, types, axes) if self.elementwise else None

    def divided(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> Replacement | None:
        """The operators that compute it where operands are divided and it needs values of all parts in between."""
        return None

    def attributes(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self.fields}

    def listed(self, inputs: Sequence[TensorType]) -> dict[str, Any]:
        """The attributes as graph files list them, where MindSpore writes more than the fields, for these operands."""
        return self.attributes()

    def __hash__(self) -> int:
        # Cached by hand: `cached_property` takes a lock, and gradient rules create new operators in every step.
        cache = self.__dict__
        if "_hash" not in cache:
            cache["_hash"] = hash((type(self), *[cache[name] for name in self.fields]))
        value: int = cache["_hash"]
        return value

    def __eq__(self, other: object) -> bool:
        if self is other or type(self) is not type(other):
            return self is other
        return all(getattr(self, name) == getattr(other, name) for name in self.fields)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.attributes().items())})"

    def __call__(self, *operands: Any) -> Value:
        op: Primitive = self
        if self.arity is None and len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])  # MindSpore's way to pass any number of tensors
        if self.arity is not None and len(operands) != self.arity:
            op, operands = self._with_statics(operands)
        outputs: Any = INTERPRETER.get().bind(op, operands)
        result: Value = outputs[0] if len(outputs) == 1 else outputs  # several unpack as a value does
        return result

    def _with_statics(self, operands: tuple[Any, ...]) -> tuple[Self, tuple[Any, ...]]:
        assert self.arity is not None
        given = operands[self.arity :]
        if len(operands) < self.arity or len(given) > len(self.statics):
            takes = ", ".join([f"{self.arity} tensors", *self.statics])
            raise ShapeError(f"{self.name}: wrong number of operands", given=len(operands), takes=takes)
        changes = dict(zip(self.statics, map(_frozen, given), strict=False))
        op = dataclasses.replace(self, **changes)
        if self.__dict__.get("_added"):
            op.attrs.update(self.attrs)  # it is the same operator, with its instance name
        return op, operands[: self.arity]

    # Settings of scripts of r1.2: hints for devices and for other kinds of parallelism. They are kept with the
    # operator; copies of it and results do not depend on them.

    @property
    def attrs(self) -> dict[str, Any]:
        """What `add_prim_attr` has added, by name."""
        added: dict[str, Any] = self.__dict__.setdefault("_added", {})
        return added

    @property
    def instance_name(self) -> str:
        """What `set_prim_instance_name` has set; by default the operator type."""
        name: str = self.attrs.get("instance_name", type(self).__name__)
        return name

    def add_prim_attr(self, name: str, value: Any) -> Self:
        """Keep a value under a name, such as `primitive_target`, and return the operator. It has no effect.

        Raises ConfigError for a name that is an argument of the operator, since that would have one in MindSpore.
        """
        if name in getattr(self, "__dataclass_fields__", ()):
            repair = f"{type(self).__name__}({name}={value!r})"
            raise ConfigError("an argument of an operator is set when it is made", argument=name, repair=repair)
        self.attrs[name] = value
        return self

    def del_prim_attr(self, name: str) -> Self:
        """Remove what `add_prim_attr` has added."""
        self.attrs.pop(name, None)
        return self

    def set_prim_instance_name(self, instance_name: str) -> Self:
        """Name this operator in graph files, as an attribute of a cell does. Full names stay those of scopes."""
        return self.add_prim_attr("instance_name", instance_name)

    def set_stage(self, stage: int) -> Self:
        """Keep the stage of a pipeline of devices, which runner does not have."""
        return self.add_prim_attr("stage", stage)

    def shard(self, strategy: Sequence[Any]) -> Self:
        """Keep how operands would be sharded. runner trains data-parallel, so each rank has whole operands."""
        return self.add_prim_attr("strategy", strategy)

    def recompute(self, mode: bool = True) -> Self:
        """Keep whether gradients would compute this operator again, in place of keeping its results."""
        return self.add_prim_attr("recompute", mode)

    def init_prim_io_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Keep names of operands and results."""
        self.add_prim_attr("input_names", inputs).add_prim_attr("output_names", outputs)


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that attributes are comparable and hashable."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


Op = TypeVar("Op", bound=Primitive)


@dataclass_transform(frozen_default=True)
def family(cls: type[Op]) -> type[Op]:
    """Declare a base class of operators with common fields."""
    # `Primitive` defines comparison, hash and repr: generating them for each class would slow every start.
    return dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)


@dataclass_transform(frozen_default=True)
def primitive(cls: type[Op]) -> type[Op]:
    """Declare an operator: turn its class into a frozen dataclass and register it under its name."""
    declared = graph_operator(cls)
    REGISTRY[declared.__name__] = declared
    return declared


@dataclass_transform(frozen_default=True)
def graph_operator(cls: type[Op]) -> type[Op]:
    """Declare an operator that graphs have and no network applies; it is not registered."""
    # Most operators have no fields of their own; generating code for all of them would add 10 ms to every start.
    has_fields = any("ClassVar" not in str(kind) for kind in inspect.get_annotations(cls).values())
    declared = family(cls) if has_fields else cls
    code = declared.infer.__code__
    declared.fields = tuple([field.name for field in dataclasses.fields(declared) if field.compare])
    declared.arity = None if code.co_flags & inspect.CO_VARARGS else code.co_argcount - 1
    declared.onnx, declared.is_users = declared.onnx or declared.__name__, not cls.__module__.startswith("runner.")
    if declared.is_users:  # whatever it says: nobody has looked
        declared.depends_on_libc = KERNEL, LOWERING
    return declared


class ComposedOperator(Primitive):
    """Base of operators whose `compose` applies other ones; so types, modes and gradients are theirs.

    Subclasses are frozen dataclasses: the fields are the attributes, with MindSpore's names. What they apply stands in
    a scope with their name; graphs and tapes have no node for them.
    """

    def compose(self, *operands: Any) -> Any:
        """The results, in operators. Raises ShapeError when the operands do not fit."""
        raise NotImplementedError

    def __call__(self, *operands: Any) -> Value:
        scope: list[str] = INTERPRETER.get().scope
        scope.append(self.name)
        try:
            result: Value = self.compose(*operands)
            return result
        finally:
            scope.pop()


# Effects: operators without outputs that emit their operands, such as `Print`.
#
# PyNative mode computes an effect like any operator, so it emits immediately. A graph keeps effects separate from its
# nodes: their operands are results of the graph, and the program emits them after every step, in the order in which
# they were applied (`runner/compile/program.py`).


class Effect(Primitive):
    """Base of operators without outputs. Subclasses are declared with `@primitive` and define `emit`."""

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    def emit(self, *arrays: np.ndarray) -> None:
        """Output the operands of one step; they must not be changed."""
        raise NotImplementedError

    def kernel(self, *arrays: np.ndarray) -> Arrays:
        """Emit immediately; there are no outputs."""
        self.emit(*arrays)
        return ()


# Collectives: operators that communicate with all ranks of a data-parallel run, such as `AllReduce`.
#
# PyNative mode computes them like any operator. onnxruntime has none on the CPU, so a graph is cut at its collectives:
# the segments before and after are separate programs, and the host runs the kernels in between
# (`runner/compile/divided_session.py`).


class Collective(Primitive):
    """Base of operators whose kernel communicates with other ranks. Subclasses are declared with `@primitive`."""

    communicates: ClassVar = True


def is_filled_with(value: float, array: np.ndarray | None) -> bool:
    """Whether an operand is known, and all its elements are this number, including the sign of 0 for floats."""
    if array is None or not np.all(array == value):
        return False
    return array.dtype.kind != "f" or bool(np.all(np.signbit(array) == np.signbit(value)))


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """One application of an operator: the entry of the tape and of the graph."""

    op: Primitive
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    scope: str
    number: int
    source: Source
    lowering: Lowering | None = None  # how it is lowered, once the layout pass has chosen
    instance: str = ""  # the attribute of the cell that holds the operator; empty for gradients and unnamed operators

    @property
    def name(self) -> str:
        """Full name: `{scope}/{Op}-op{N}`."""
        return f"{self.scope}/{self.op.name}-op{self.number}"

    def listed_attributes(self) -> dict[str, Any]:
        """The attributes as graph files list them, with the names of operands and results as lists."""
        operands, results = self.op.operand_names, self.op.result_names
        if not operands:
            operands = self.op.infer.__code__.co_varnames[1 : 1 + (self.op.arity or 1)]
        if not results:
            several = len(self.outputs) > 1
            results = tuple([f"output{k}" if several else "output" for k in range(len(self.outputs))])
        names = {"input_names": list(operands), "output_names": list(results[: len(self.outputs)])}
        return self.op.listed([x.type for x in self.inputs]) | names


@lru_cache(maxsize=8192)
def infer(op: Primitive, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The output types of an operator, cached: PyNative mode infers the same types in every step."""
    if op.needs_elements and not all(x.size for x in types):
        given = ", ".join(map(str, types))
        raise ShapeError(f"{op.name} needs operands with elements", given=given, allowed="axes of length 1 and more")
    inferred = op.infer(*types)
    results = inferred if isinstance(inferred, tuple) else (inferred,)
    if (needed := sum(result.nbytes for result in results)) > CERTAIN_BYTES:
        require_memory(needed, outputs=", ".join(map(str, results)))
    return RoundedTypes(results) if op.computes and dt.float16 in [t.dtype for t in types] else results
