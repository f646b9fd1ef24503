"""A listing: the content of a `.ir` file as plain values.

A traced graph, the graph of a PyNative step and a lowered ONNX model are described as a `Listing`, from which text and
drawing are written; the reader returns it from text.

References to values are strings, as in the text: `%para3_conv1.weight` a parameter, `%12` the result of operation 12,
`%37[1]` its second result, `@step.1` a subgraph, anything else a constant.
"""

from typing import NamedTuple

from runner.dtype import DType
from runner.types import Shape, TensorType


class DeviceType(NamedTuple):
    """Type and layout of a value on the device: `<Float32xCHWN[const vector][6, 28, 28, 32]>`."""

    dtype: DType
    format: str
    shape: Shape


class ListedLine(NamedTuple):
    """A source line of an operation."""

    file: str
    number: int
    text: str


class ListedParameter(NamedTuple):
    """An input of the program: data or a weight."""

    reference: str
    type: TensorType
    device_type: DeviceType
    is_weight: bool


class Operation(NamedTuple):
    """One application of an operator.

    `results` has one reference for each result. `device_types` (operands, results) is None before layouts are chosen;
    a type is None where it is not known. `full_name` is `{scope}/{Op}-op{N}` (spec section 2.6).
    """

    number: int
    name: str
    op: str
    operands: tuple[str, ...]
    instance: str
    attributes: tuple[tuple[str, str], ...]
    operand_types: tuple[TensorType | None, ...]
    result_types: tuple[TensorType | None, ...]
    device_types: tuple[tuple[DeviceType, ...], tuple[DeviceType, ...]] | None
    full_name: str
    source: tuple[ListedLine, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """References to the results."""
        return result_references(self.number, len(self.result_types))


class Subgraph(NamedTuple):
    """Operations in order, returned values, and updates: pairs of a parameter and its new value at the end."""

    name: str
    parameters: tuple[str, ...]
    operations: tuple[Operation, ...]
    updates: tuple[tuple[str, str], ...]
    returned: tuple[str, ...]
    returned_types: tuple[TensorType | None, ...]


class Listing(NamedTuple):
    """A whole program. The first subgraph is the entry; its parameters are those of the listing."""

    attributes: tuple[tuple[str, str], ...]
    parameters: tuple[ListedParameter, ...]
    subgraphs: tuple[Subgraph, ...]


def result_references(number: int, count: int) -> tuple[str, ...]:
    """References to the results of an operation.

    >>> result_references(3, 1), result_references(4, 2), result_references(5, 0)
    (('%3',), ('%4[0]', '%4[1]'), ())
    """
    return (f"%{number}",) if count == 1 else tuple([f"%{number}[{k}]" for k in range(count)])


def parameter_reference(number: int, name: str) -> str:
    """The reference to a parameter; numbers start at 1."""
    return f"%para{number}_{name}"
