"""A program as a listing: what a `.ir` file says, as plain values.

Everything that is written about a program goes through here: a traced graph, the tape of a PyNative step and a lowered
ONNX model are described as a `Listing`; the text is printed of it and read back into it, the picture is drawn of it.

References to values are text, as they are printed: `%para3_conv1.weight` a parameter, `%12` what operation 12 makes,
`%37[1]` the second of its results, `@step.1` a subgraph, anything else a constant.
"""

from typing import NamedTuple

from runner.dtype import DType
from runner.types import Shape, TensorType


class Held(NamedTuple):
    """How a value lies on the device: `<Float32xCHWN[const vector][6, 28, 28, 32]>`."""

    dtype: DType
    format: str
    shape: Shape


class SourceLine(NamedTuple):
    """A line of Python that led to an operation."""

    file: str
    number: int
    text: str


class Parameter(NamedTuple):
    """An input of the program: data, or a weight."""

    reference: str
    type: TensorType
    held: Held
    is_weight: bool


class Operation(NamedTuple):
    """One application of an operator.

    `results` has one reference for each result. `held` (operands, results) is None as long as no layout is chosen,
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
    held: tuple[tuple[Held, ...], tuple[Held, ...]] | None
    full_name: str
    source: tuple[SourceLine, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """References to what it makes."""
        return results_of(self.number, len(self.result_types))


class Subgraph(NamedTuple):
    """Operations in order, what they return, and the parameters (left) that get new values at the end (right)."""

    name: str
    parameters: tuple[str, ...]
    operations: tuple[Operation, ...]
    updates: tuple[tuple[str, str], ...]
    returned: tuple[str, ...]
    returned_types: tuple[TensorType | None, ...]


class Listing(NamedTuple):
    """A whole program. The first subgraph is the entry: its parameters are those of the listing."""

    attributes: tuple[tuple[str, str], ...]
    parameters: tuple[Parameter, ...]
    subgraphs: tuple[Subgraph, ...]


def results_of(number: int, count: int) -> tuple[str, ...]:
    """References to the results of an operation.

    >>> results_of(3, 1), results_of(4, 2), results_of(5, 0)
    (('%3',), ('%4[0]', '%4[1]'), ())
    """
    return (f"%{number}",) if count == 1 else tuple([f"%{number}[{k}]" for k in range(count)])


def parameter_of(number: int, name: str) -> str:
    """The reference to a parameter; they are counted from 1."""
    return f"%para{number}_{name}"
