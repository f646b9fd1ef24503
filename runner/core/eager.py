"""PyNative mode: every operator is computed at once, in numpy."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from runner.core.precision import RoundedTypes, compute_rounded
from runner.core.primitive import Arrays, Interpreter, Node, Primitive, infer, install
from runner.core.value import Operand, Tensor, Value
from runner.errors import RunnerError, TrainingError
from runner.host.machine import keep_freed_memory
from runner.types import TensorType

_data = attrgetter("data")  # as a function for `map`: the quickest way through a few operands


class Eager(Interpreter):
    """Computes operators as they are applied.

    With `tape=True` the applications are kept, so that gradients can be formed of them.
    """

    def __init__(self, root: str = "Default", tape: bool = True) -> None:
        super().__init__(root)
        self.tape = tape
        if tape:
            keep_freed_memory()

    def lift(self, operand: Operand) -> Value:
        """Tensors and parameters are their own handles."""
        return operand  # type: ignore[return-value]

    def handles(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values themselves."""
        return values

    def record(self, last: bool = False) -> list[Node]:
        """The tape. With `last` it is given away and nothing more is recorded, so that activations can die."""
        nodes = super().record(last)
        if last:
            self.nodes, self.tape = [], False
        return nodes

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel."""
        try:
            if type(types) is RoundedTypes:
                made: Arrays = compute_rounded(op.kernel, map(_data, inputs), types)
            else:
                made = op.kernel(*map(_data, inputs))
        except RunnerError as error:
            raise self.add_location(error, op, inputs) from None
        except (ArithmeticError, IndexError, ValueError) as error:
            raise self.add_location(TrainingError(f"{op.name}: {error}"), op, inputs) from error
        outputs = _wrapped(made, types)
        if self.tape:
            self.nodes.append(Node(op, inputs, outputs, self.current_scope(), self.count, ()))
        return outputs

    def commit(self) -> None:
        """End of the step: give the parameters their new values."""
        for parameter, value in self.updates.items():
            assert isinstance(value, Tensor)
            parameter.set_data(value)
        self.updates.clear()


def evaluate(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a node for these inputs, computed by its numpy kernel. Raises what the kernel raises."""
    types = infer(node.op, tuple([x.type for x in node.inputs]))
    if isinstance(types, RoundedTypes):
        return list(compute_rounded(node.op.kernel, arrays, types))
    outputs = node.op.kernel(*arrays)
    return [np.asarray(array) for array in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _wrapped(made: Arrays, types: tuple[TensorType, ...]) -> tuple[Tensor, ...]:
    # numpy gives scalars, not arrays, for results without axes.
    if isinstance(made, tuple):
        return tuple([Tensor.of(np.asarray(array), type) for array, type in zip(made, types, strict=True)])
    return (Tensor.of(made if type(made) is np.ndarray else np.asarray(made), types[0]),)


install(Eager(tape=False))
