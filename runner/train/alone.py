"""`op_trace`: an operator in a network of its own, in both modes."""

from collections.abc import Sequence

import numpy as np

from runner.compile.program import Program
from runner.device import Device
from runner.engine.tracer import trace
from runner.nn.cell import Cell
from runner.profiling.alone import Alone, Timing, measured, wanted
from runner.types import TensorType


def find(text: str, cell: Cell, types: Sequence[TensorType]) -> Alone:
    """The operator that a text asks for: its full name in the graph of `cell` for inputs of these types, or a type with
    shapes. Raises ConfigError.
    """
    return wanted(text, lambda: trace(cell.construct, types, "train_step"))


def both_modes(alone: Alone, device: Device) -> dict[str, Timing]:
    """The times of the operator by itself, by mode: its kernel, and a session that holds nothing else.

    Raises what compiling and the device raise.
    """
    arrays = alone.operands()
    program = Program(lambda *operands: alone.op(*operands), alone.inputs, device, "op_trace")
    values = [program.session.put(array) for array in arrays]
    with np.errstate(all="ignore"):
        return {
            "graph": measured(lambda: program.session.step(values)),
            "pynative": measured(lambda: alone.op.kernel(*arrays)),
        }
