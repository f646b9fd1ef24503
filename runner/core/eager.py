"""PyNative mode: every operator is computed immediately, in numpy."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from runner.core.assignments import Mark
from runner.core.operators import Arrays, Interpreter, Node, Primitive, infer, install
from runner.core.precision import RoundedTypes, compute_rounded
from runner.core.values import Operand, Parameter, Tensor, Value
from runner.errors import NO_MEMORY, ConfigError, RunnerError, ShapeError, TrainingError
from runner.host.machine import keep_freed_memory
from runner.types import TensorType

_array = attrgetter("array")  # a function for `map`: the fastest loop over a few operands


class Eager(Interpreter):
    """Computes operators as they are applied.

    With `tape=True` the applied nodes are recorded, for gradients.
    """

    def __init__(self, root: str = "Default", tape: bool = True) -> None:
        super().__init__(root)
        self.tape = tape
        if tape:
            keep_freed_memory()

    def lift(self, operand: Operand) -> Value:
        """Tensors are their own handles, and so are parameters until the step assigns them."""
        return self.handles((operand,))[0]  # type: ignore[arg-type]

    def handles(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values themselves, or what the step has assigned. Gradient rules read what their operator has read."""
        if not self.updates or self.origin is not None or not self.reads_latest:
            return values
        return tuple([self.updates.get(x, x) for x in values])  # type: ignore[call-overload]

    def entry(self, parameter: Parameter) -> Value:
        """The parameter itself, which changes at the end of the step."""
        return parameter

    def record(self, since: Mark, last: bool = False) -> list[Node]:
        """The tape since a point of the step. With `last` it is handed over, so that activations can be freed."""
        nodes = super().record(since, last)
        if last:
            del self.nodes[since.position :]
        return nodes

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        try:
            if type(types) is RoundedTypes:
                arrays: Arrays = compute_rounded(op.kernel, map(_array, inputs), types)
            else:
                arrays = op.kernel(*map(_array, inputs))
            if op.is_users:
                _check_outputs(arrays, types)
        except RunnerError as error:
            raise self.add_location(error, op, inputs) from None
        except MemoryError as error:
            raise self.add_location(ConfigError(NO_MEMORY, reason=error), op, inputs) from None
        except (ArithmeticError, IndexError, ValueError) as error:
            raise self.add_location(TrainingError(f"{op.name}: {error}"), op, inputs) from error
        outputs = _wrap(arrays, types)
        if self.tape:
            self.nodes.append(Node(op, inputs, outputs, self.current_scope(), self.count, ()))
        return outputs

    def rebind(self, target: Value, value: Value) -> None:
        """Replace the elements of a tensor; no array is changed."""
        assert isinstance(target, Tensor)
        assert isinstance(value, Tensor)
        self.replace_handles(target, Tensor.of(target.array, target.type), value)
        target.replace_array(value.array)

    def commit(self) -> None:
        """End of the step: assign the parameters their new values."""
        for parameter, data in [(p, Tensor.of(value.array, value.type)) for p, value in self.updates.items()]:  # type: ignore[attr-defined]
            parameter.set_data(data)
        self.updates.clear()
        self._assigned.clear()


def evaluate(node: Node, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a node for these inputs, computed by its numpy kernel. Raises what the kernel raises."""
    types = infer(node.op, tuple([x.type for x in node.inputs]))
    if isinstance(types, RoundedTypes):
        return list(compute_rounded(node.op.kernel, arrays, types))
    outputs = node.op.kernel(*arrays)
    return [np.asarray(array) for array in (outputs if isinstance(outputs, tuple) else (outputs,))]


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


install(Immediate())
