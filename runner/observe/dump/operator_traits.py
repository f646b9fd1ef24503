"""What is known about an operator besides its name, by which it is recognised in another graph."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from runner.dtype import DType
from runner.observe.dump.file_names import OUTPUT
from runner.observe.dump.operator_names import CAST, NameForm, OperatorName
from runner.observe.dump.reader import DumpEntry
from runner.observe.graph.listing import Operation
from runner.types import Shape, TensorType


@dataclass(frozen=True)
class Traits:
    """Only operators of the same `kind` can be paired: the type, and of a cast also from what, to what and for which
    line of the source, so that a cast that a precision inserts is not taken for one that the network has.

    `parameters` are the names of those among the operands, `shapes` those of the results, `dtypes` those of operands
    and results, `operands` what produces them, where casts are looked through. Empty if it is not known.
    """

    kind: Hashable
    parameters: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[DType, ...] = ()
    operands: tuple[Hashable, ...] = ()


def _no_operation(name: str) -> Operation | None:
    return None


@dataclass(frozen=True)
class DumpSide:
    """One iteration of a dump: its entries, the names of all executed operators, and the graph if the dump has it.

    `operation` finds an operator by name, `producer` by a reference to one of its results.
    """

    entries: list[DumpEntry]
    executed: list[str] = field(default_factory=list)
    operation: Callable[[str], Operation | None] = _no_operation
    producer: Callable[[str], Operation | None] = _no_operation

    @property
    def operators(self) -> list[str]:
        """The names of all operators, dumped or not; of the dumped ones only, if the executed ones are others."""
        dumped = [entry.name for entry in self.entries if not entry.is_value]
        return list(self.executed) if set(dumped) <= set(self.executed) else dumped

    def traits(self, name: OperatorName, form: NameForm, dumped: Mapping[str, DumpEntry]) -> Traits:
        """The traits of an operator, from the graph or, if there is none, from its files."""
        operation = self.operation(name.full)
        if operation is None:
            return _traits_of_files(name, dumped.get(name.full))
        types = [type for type in (*operation.operand_types, *operation.result_types) if type is not None]
        return Traits(
            _kind(operation, name.type),
            self.parameters(operation),
            tuple(type.shape for type in operation.result_types if type is not None),
            tuple(type.dtype for type in types),
            tuple(self._origin(operand, form) for operand in operation.operands),
        )

    def parameters(self, operation: Operation) -> tuple[str, ...]:
        """The names of the parameters among the operands, cast or not."""
        return tuple(name for operand in operation.operands if (name := parameter_name(self.source(operand))))

    def source(self, operand: str) -> str:
        """The operand that casts were applied to."""
        while (producer := self.producer(operand)) is not None and producer.op == CAST:
            operand = producer.operands[0]
        return operand

    def _origin(self, operand: str, form: NameForm) -> Hashable:
        operand = self.source(operand)
        producer = self.producer(operand)
        if producer is None:
            return parameter_name(operand) or operand
        name = form.parse(producer.full_name)
        return name.scope, name.type, operand.partition("[")[2]


def parameter_name(operand: str) -> str:
    """The name of a parameter or input among the operands of the graph; empty if it is something else.

    >>> parameter_name("%para3_conv1.weight"), parameter_name("%12")
    ('conv1.weight', '')
    """
    return operand.partition("_")[2] if operand.startswith("%para") else ""


def _kind(operation: Operation, type: str) -> Hashable:
    if operation.op != CAST or not operation.operand_types or not operation.result_types:
        return type
    before, after = operation.operand_types[0], operation.result_types[0]
    line = operation.source[0].text if operation.source else ""
    return type, before and before.dtype.is_float, after and after.dtype, line


def _traits_of_files(name: OperatorName, entry: DumpEntry | None) -> Traits:
    if entry is None:
        return Traits(name.type)
    tensors = entry.tensors().values()
    types: list[tuple[str, TensorType]] = [(tensor.io, tensor.type) for tensor in tensors]
    shapes = tuple(type.shape for io, type in types if io == OUTPUT)
    return Traits(name.type, (), shapes, tuple(type.dtype for _, type in types))
