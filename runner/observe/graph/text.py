"""A listing as text: the grammar of the reference's `.ir` files (spec section 2.3).

    #IR entry      : @train_step.0                       header: entry, attributes
    #Total params  : 2                                   parameters: type, device type, whether it is a weight
    #Total subgraph : 1
    subgraph @train_step.0() {
      %0([CNode]0) = Conv2D(%para1_x, %para2_w) {instance name: conv1} primitive_attrs: {group: 1}
          : (types) -> (types)
          : (device types) -> (device types)             once layouts are chosen
          : (full name)
          # In file model.py(12)/x = self.conv1(x)/      the stack of lines, innermost first
      Assign(%para2_w, %7[0])                            an update at the end of the step
      return(%3)
          : (types)
    }

Three things differ from the reference: `%7[0]` is one of several results (the reference writes a TupleGetItem),
`Assign` has no number (it is not an operator: updates take effect at the end of a step), and constants have type and
elements.
`%k` is the number of the operation in the trace, in every stage.
"""

from collections.abc import Iterable, Iterator

from runner.observe.graph.listing import DeviceType, ListedParameter, Listing, Operation, Subgraph
from runner.types import TensorType

MARGIN = " " * 6


def text(listing: Listing) -> str:
    """The whole file. Equal programs have equal text, independent of process and time."""
    return "\n".join([*_header(listing), *_subgraphs(listing.subgraphs)]) + "\n"


def type_text(type: TensorType | None) -> str:
    """A type without layout.

    >>> from runner import dtype
    >>> type_text(TensorType(dtype.float32, (2, 3)))
    '<Tensor[Float32]x[const vector][2, 3]>'
    """
    return "<null>" if type is None else f"<Tensor[{type.dtype}]x[const vector]{list(type.shape)}>"


def device_type_text(type: DeviceType) -> str:
    """A type with its layout on the device."""
    return f"<{type.dtype}x{type.format}[const vector]{list(type.shape)}>"


def _header(listing: Listing) -> Iterator[str]:
    yield f"#IR entry      : @{listing.subgraphs[0].name}"
    yield "#attrs         :"
    yield from (f"{key} : {value}" for key, value in listing.attributes)
    yield ""
    yield f"#Total params  : {len(listing.parameters)}"
    yield ""
    yield from map(_parameter, listing.parameters)
    yield ""


def _parameter(parameter: ListedParameter) -> str:
    types = f"{type_text(parameter.type)}  :  {device_type_text(parameter.device_type)}"
    return f"{parameter.reference} : {types}  :  IsWeight:{'true' if parameter.is_weight else 'false'}"


def _subgraphs(subgraphs: Iterable[Subgraph]) -> Iterator[str]:
    subgraphs = tuple(subgraphs)
    yield f"#Total subgraph : {len(subgraphs)}"
    for subgraph in subgraphs:
        yield ""
        yield "subgraph attr:"
        yield f"subgraph @{subgraph.name}({', '.join(subgraph.parameters)}) {{"
        for operation in subgraph.operations:
            yield from operation_lines(operation)
        yield from (f"  Assign({parameter}, {value})" for parameter, value in subgraph.updates)
        yield f"  return({', '.join(subgraph.returned)})"
        yield f"{MARGIN}: ({_types(subgraph.returned_types)})"
        yield "}"


def operation_lines(operation: Operation) -> Iterator[str]:
    """The lines of one operation."""
    line = f"  %{operation.number}({operation.name}) = {operation.op}({', '.join(operation.operands)})"
    if operation.instance:
        line += f" {{instance name: {operation.instance}}}"
    if operation.attributes:
        line += f" primitive_attrs: {{{', '.join([f'{key}: {value}' for key, value in operation.attributes])}}}"
    yield line
    yield f"{MARGIN}: ({_types(operation.operand_types)}) -> ({_types(operation.result_types)})"
    if operation.device_types is not None:
        operands, results = (", ".join(map(device_type_text, values)) for values in operation.device_types)
        yield f"{MARGIN}: ({operands}) -> ({results})"
    yield f"{MARGIN}: ({operation.full_name})"
    for file, number, source in operation.source:
        yield f"{MARGIN}# In file {file}({number})/{source}/"


def _types(types: Iterable[TensorType | None]) -> str:
    return ", ".join(map(type_text, types))
