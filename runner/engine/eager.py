"""PyNative mode: every operator is computed at once, in numpy."""

import numpy as np

from runner.core.primitive import Interpreter, Node, Primitive, install
from runner.core.value import Operand, Tensor, Value
from runner.errors import RunnerError, TrainingError
from runner.types import TensorType


class Eager(Interpreter):
    """Computes operators as they are applied.

    With `tape=True` the applications are kept, so that gradients can be formed of them.
    """

    def __init__(self, root: str = "Default", tape: bool = True) -> None:
        super().__init__(root)
        self.tape = tape

    def lift(self, operand: Operand) -> Value:
        """Tensors and parameters are their own handles."""
        return operand  # type: ignore[return-value]

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Run the kernel."""
        try:
            made = op.kernel(*[x.data for x in inputs])  # type: ignore[attr-defined]
        except RunnerError as error:
            raise self.located(error, op, inputs) from None
        except (ArithmeticError, IndexError, ValueError) as error:
            raise self.located(TrainingError(f"{op.name}: {error}"), op, inputs) from error
        arrays = made if isinstance(made, tuple) else (made,)
        # numpy gives scalars, not arrays, for results without axes.
        outputs = tuple([Tensor.of(np.asarray(array), type) for array, type in zip(arrays, types, strict=True)])
        if self.tape:
            self.nodes.append(Node(op, inputs, outputs, self.where(), self.count, ()))
        return outputs

    def commit(self) -> None:
        """End of the step: give the parameters their new values."""
        for parameter, value in self.updates.items():
            assert isinstance(value, Tensor)
            parameter.set_data(value)
        self.updates.clear()


install(Eager(tape=False))
