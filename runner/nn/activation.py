"""Nonlinearities as layers, with the signatures and defaults of r1.2."""

from runner import ops
from runner.core.primitive import Primitive
from runner.core.value import Value
from runner.errors import ConfigError, nearest
from runner.nn.cell import Cell


class Activation(Cell):
    """Base: one operator that makes a tensor of another one of the same type."""

    def __init__(self, operator: Primitive) -> None:
        super().__init__()
        self.operator = operator

    def construct(self, x: Value) -> Value:
        output: Value = self.operator(x)
        return output


class ReLU(Activation):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__(ops.ReLU())


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    def __init__(self) -> None:
        super().__init__(ops.Sigmoid())


class Tanh(Activation):
    """Hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__(ops.Tanh())


class Softmax(Activation):
    """exp(x) / sum(exp(x)) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__(ops.Softmax(axis))


ACTIVATIONS: dict[str, type[Cell]] = {"relu": ReLU, "sigmoid": Sigmoid, "tanh": Tanh, "softmax": Softmax}


def get_activation(name: str) -> Cell:
    """An activation layer by name. Raises ConfigError for an unknown one."""
    if name.lower() not in ACTIVATIONS:
        close = nearest(name.lower(), ACTIVATIONS)
        raise ConfigError("unknown activation", given=name, allowed=", ".join(ACTIVATIONS), nearest=close)
    return ACTIVATIONS[name.lower()]()
