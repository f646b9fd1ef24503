"""Nonlinearities as layers, with the signatures and defaults of r1.2."""

from collections.abc import Callable

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Value
from runner.errors import ConfigError, known_names
from runner.nn.cell import Cell
from runner.validation.arguments import at_least, whole

__all__ = [
    "ELU",
    "GELU",
    "FastGelu",
    "HSigmoid",
    "HSwish",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "PReLU",
    "ReLU",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "get_activation",
]


class Activation(Cell):
    """Base: a layer of one operator with one operand and an output of the same type."""

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


class LogSoftmax(Activation):
    """Logarithm of Softmax along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__(ops.LogSoftmax(axis))


class ReLU6(Activation):
    """min(max(x, 0), 6)."""

    def __init__(self) -> None:
        super().__init__(ops.ReLU6())


class GELU(Activation):
    """x times the cumulative normal distribution at x, in the tanh approximation."""

    def __init__(self) -> None:
        super().__init__(ops.GeLU())


class FastGelu(Cell):
    """x times sigmoid(1.702 x), an approximation of GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()

    def construct(self, x: Value) -> Value:
        output: Value = x * self.sigmoid(x * 1.702)
        return output


class LogSigmoid(Cell):
    """Logarithm of 1 / (1 + exp(-x)), computed without overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.softplus = ops.Softplus()

    def construct(self, x: Value) -> Value:
        output: Value = -self.softplus(-x)
        return output


class ELU(Activation):
    """x where positive, else alpha (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        at_least({"layer": "ELU"}, 0.0, alpha=alpha)
        super().__init__(ops.Elu(float(alpha)))


class HSwish(Activation):
    """x ReLU6(x + 3) / 6."""

    def __init__(self) -> None:
        super().__init__(ops.HSwish())


class HSigmoid(Activation):
    """ReLU6(x + 3) / 6."""

    def __init__(self) -> None:
        super().__init__(ops.HSigmoid())


class LeakyReLU(Cell):
    """max(x, alpha x); for alpha above 1 min(x, alpha x), as in the reference."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        at_least({"layer": "LeakyReLU"}, 0.0, alpha=alpha)
        self.alpha = float(alpha)
        self.choose = ops.Maximum() if alpha <= 1 else ops.Minimum()

    def construct(self, x: Value) -> Value:
        output: Value = self.choose(x * self.alpha, x)
        return output


class PReLU(Cell):
    """x where positive, else w x, with a trainable w for each of `channel` channels (or one for all)."""

    def __init__(self, channel: int = 1, w: Initial = 0.25) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, channel=channel)
        self.w = Parameter(initializer(w, (channel,)), "a")  # the name in the reference's checkpoints
        self.prelu = ops.PReLU()

    def construct(self, x: Value) -> Value:
        output: Value = self.prelu(x, self.w)
        return output


_LAYERS = ReLU, Sigmoid, Tanh, Softmax, LogSoftmax, ReLU6, GELU, ELU, LeakyReLU, PReLU, HSwish, HSigmoid, LogSigmoid
ACTIVATIONS: dict[str, Callable[[], Cell]] = {layer.__name__.lower(): layer for layer in _LAYERS}
ACTIVATIONS["fast_gelu"] = FastGelu


def get_activation(name: str | None) -> Cell | None:
    """An activation layer by name, in any case; None for None. Raises ConfigError for an unknown one."""
    if name is None:
        return None
    if name.lower() not in ACTIVATIONS:
        raise ConfigError("unknown activation", given=name, **known_names(name.lower(), ACTIVATIONS))
    return ACTIVATIONS[name.lower()]()


def activation_of(owner: Cell, given: str | Cell | Primitive | None) -> Cell | Primitive | None:
    """The activation of a layer: by name, or a layer or operator as it is. Raises ConfigError for anything else."""
    if given is None or isinstance(given, Cell | Primitive):
        return given
    if not isinstance(given, str):
        allowed = "a name, a layer, an operator or None"
        raise ConfigError("not an activation", layer=type(owner).__name__, given=repr(given), allowed=allowed)
    return get_activation(given)
