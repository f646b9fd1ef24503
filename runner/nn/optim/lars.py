"""LARS: gradients of each layer in proportion to its weights, for large batches (You et al., 2017)."""

from collections.abc import Callable, Sequence
from typing import Any

from runner import ops
from runner.core.values import Parameter, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.optim.adam import Adam, AdamWeightDecay
from runner.nn.optim.lamb import Lamb
from runner.nn.optim.optimizer import Optimizer
from runner.nn.schedule import LearningRateSchedule
from runner.validation.arguments import above, at_least, flag

__all__ = ["LARS"]


def _is_large(parameter: Parameter) -> bool:
    return "LayerNorm" not in parameter.name and "bias" not in parameter.name


class LARS(Optimizer):
    """Passes another optimizer the gradients r (g + decay w), r = coefficient |w| / (|g| + decay |w| + epsilon).

    The norms are Euclidean, over one parameter; `decay` is the other's weight decay, which the other then leaves out,
    as it leaves out the division by the loss scale. With `use_clip`, r is at most the learning rate, and divided by it.
    Parameters that `lars_filter` refuses keep their gradients, without weight decay. Learning rates, schedules and
    state are those of the other optimizer. Raises ConfigError for one with adaptive moments, whose steps do not depend
    on the length of gradients.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        epsilon: float = 1e-05,
        coefficient: float = 0.001,
        use_clip: bool = False,
        lars_filter: Callable[[Parameter], bool] = _is_large,
    ) -> None:
        Cell.__init__(self, auto_prefix=False)
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, Adam | AdamWeightDecay | Lamb | LARS):
            rows = {"given": type(optimizer).__name__, "allowed": "an optimizer without adaptive moments"}
            raise ConfigError("LARS cannot wrap it", **self.where, **rows)
        above(self.where, 0.0, epsilon=epsilon)
        at_least(self.where, 0.0, coefficient=coefficient)
        flag(self.where, use_clip=use_clip)
        self.epsilon, self.coefficient, self.use_clip = float(epsilon), float(coefficient), use_clip
        self.opt = optimizer
        self.set_parameters(optimizer.parameters)
        for name in TAKEN_OVER:
            self.__dict__[name] = getattr(optimizer, name)  # parameters stay those of the wrapped cell
        self.schedules = {}  # what sets the rates of a step finds the wrapped cell
        self.lars_flag = tuple([bool(lars_filter(parameter)) for parameter in self.parameters])
        self.sqrt, self.square, self.sum, self.minimum = ops.Sqrt(), ops.Square(), ops.ReduceSum(), ops.Minimum()
        optimizer.exec_weight_decay = optimizer.need_scale = False

    @property
    def schedule(self) -> LearningRateSchedule | None:
        """That of the wrapped optimizer."""
        return self.opt.schedule

    def get_lr_parameter(self, param: Parameter | Sequence[Parameter]) -> Any:
        """That of the wrapped optimizer."""
        return self.opt.get_lr_parameter(param)

    def construct(self, gradients: Sequence[Value]) -> Any:
        rows = zip(self.parameters, self.each_lr(), self.scale_grad(gradients), strict=True)
        return self.opt([self._adapted(k, *row) if self.lars_flag[k] else row[-1] for k, row in enumerate(rows)])

    def _adapted(self, k: int, parameter: Parameter, rate: Value, gradient: Value) -> Value:
        decays = self.exec_weight_decay and self.decay_flags[k]
        decay = self.get_weight_decay(k) / self.loss_scale if decays else 0.0
        size = self._norm(parameter)
        others = self._norm(gradient) + self.epsilon
        ratio = size * self.coefficient / (others + size * decay if decay else others)
        if self.use_clip:
            ratio = self.minimum(ratio / rate, 1.0)
        return (gradient + parameter * decay if decay else gradient) * ratio

    def _norm(self, value: Value) -> Value:
        norm: Value = self.sqrt(self.sum(self.square(value)))
        return norm


TAKEN_OVER = (
    *("learning_rate", "global_step", "dynamic_lr", "is_group", "is_group_lr", "is_group_params_ordered"),
    *("weight_decay", "decay_flags", "exec_weight_decay", "grad_centralization_flags"),
    *("loss_scale", "need_scale", "reciprocal_scale", "use_parallel", "optim_filter", "_unique", "_target"),
)
