"""The optimizers of configs, with the defaults of the reference, and their consistency with schedules."""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Annotated, Any

from runner import nn, register
from runner.config.groups.record import Records, Settings
from runner.config.groups.schedule import SCHEDULES, ScheduleSettings
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.nn.optim.optimizer import LearningRate
from runner.validation.rules import LARGEST_FLOAT32, Rule

NotNegative = Annotated[float, Rule(low=0, high=LARGEST_FLOAT32)]
Positive = Annotated[float, Rule(above=0, high=LARGEST_FLOAT32)]
Decay = Annotated[float, Rule(above=0, below=1)]
Parameters = Sequence[Parameter]


class OptimizerSettings(Settings):
    """The optimizer. `schedule` computes the learning rate of each step from the key `learning_rate`."""

    schedule: ScheduleSettings = field(default_factory=lambda: SCHEDULES["constant"]())

    def with_rate(self, parameters: Parameters, learning_rate: LearningRate) -> nn.Optimizer:
        """The optimizer of these parameters with a rate that the schedule has computed from the key.

        Raises ConfigError when it is no optimizer.
        """
        rates: dict[str, Any] = {"learning_rate": learning_rate} if "learning_rate" in self.entry.keys else {}
        name = next(name for name in self.entry.kind.facts if name in self.entry.parameters)
        return replace(self, **rates).create(nn.Optimizer, **{name: parameters})


OPTIMIZERS = Records(register.optimizer, OptimizerSettings, "momentum")


@register.optimizer("momentum")
def momentum(
    params: Parameters,
    learning_rate: NotNegative = 0.01,
    momentum: NotNegative = 0.9,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    use_nesterov: bool = False,
) -> nn.Optimizer:
    """Momentum SGD, with the defaults of the reference's LeNet example.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
        use_nesterov: Nesterov momentum
    """
    return nn.Momentum(params, learning_rate, momentum, weight_decay, loss_scale, use_nesterov)


@register.optimizer("sgd")
def sgd(
    params: Parameters,
    learning_rate: NotNegative = 0.1,
    momentum: NotNegative = 0.0,
    dampening: NotNegative = 0.0,
    weight_decay: NotNegative = 0.0,
    nesterov: bool = False,
    loss_scale: Positive = 1.0,
) -> nn.Optimizer:
    """SGD, with the defaults of the reference.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        dampening: dampening of the gradient
        weight_decay: L2 penalty coefficient
        nesterov: Nesterov momentum
        loss_scale: gradients are divided by it
    """
    return nn.SGD(params, learning_rate, momentum, dampening, weight_decay, nesterov, loss_scale)


@register.optimizer("adam")
def adam(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-8,
    use_nesterov: bool = False,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
) -> nn.Optimizer:
    """Adam, with the defaults of the reference.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        use_nesterov: Nesterov momentum
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
    """
    return nn.Adam(params, learning_rate, beta1, beta2, eps, False, use_nesterov, weight_decay, loss_scale)


def consistency_errors(optimizer: OptimizerSettings) -> Iterator[ConfigError]:
    """Errors of an optimizer whose valid keys contradict each other or those of its schedule."""
    if optimizer.entry.source is sgd and optimizer.nesterov and not 0 == optimizer.dampening < optimizer.momentum:
        what = "nesterov needs momentum above 0 and no dampening"
        yield ConfigError(what, key="optimizer.nesterov", value="true")
    schedule = optimizer.schedule
    is_constant = schedule.name == "constant" and not schedule.warmup_steps
    if "learning_rate" not in optimizer.entry.keys:
        if not is_constant:
            hint = f"{optimizer.entry.place} needs a parameter learning_rate: float = ..."
            rows = {"value": schedule.name, "allowed": "constant", "hint": hint}
            yield ConfigError("this optimizer has no learning rate", key="optimizer.schedule.name", **rows)
        return
    yield from _rate_errors(optimizer.learning_rate, schedule)


def _rate_errors(rate: float, schedule: ScheduleSettings) -> Iterator[ConfigError]:
    if rate == 0 and schedule.name != "constant":
        hint = f"optimizer.schedule.name is {schedule.name}"
        yield ConfigError(
            "a schedule needs a learning rate above 0", key="optimizer.learning_rate", value=rate, hint=hint
        )
    elif schedule.name == "cosine" and schedule.min_lr >= rate:
        rows = {"value": schedule.min_lr, "allowed": f"below optimizer.learning_rate, which is {rate}"}
        yield ConfigError("the learning rate would not decay", key="optimizer.schedule.min_lr", **rows)
