"""Keys of the group `optimizer`, which depend on its `name`.

An optimizer is a record here, listed in `OptimizerSettings`: choices, keys, defaults, help and the optimizer are
derived from it. A key without a default here has that of the constructor's argument.
"""

from collections.abc import Iterator

from runner import nn
from runner.config.groups.constructor import ConstructorSettings, argument
from runner.config.groups.schedule import ConstantLRSettings, CosineDecayLRSettings, ScheduleSettings
from runner.errors import ConfigError
from runner.validation.rules import LARGEST_FLOAT32, key


class MomentumSettings(ConstructorSettings, constructor=nn.Momentum):
    """Momentum SGD, with the defaults of the reference's LeNet example."""

    name: str = key("momentum", choices=("momentum",))  # the optimizer
    learning_rate: float = key(0.01, low=0, high=LARGEST_FLOAT32)  # initial learning rate
    momentum: float = key(0.9, low=0, high=LARGEST_FLOAT32)  # momentum coefficient
    weight_decay: float = argument(low=0, high=LARGEST_FLOAT32)  # L2 penalty coefficient
    loss_scale: float = argument(above=0, high=LARGEST_FLOAT32)  # gradients are divided by it
    use_nesterov: bool = argument()  # Nesterov momentum
    schedule: ScheduleSettings = ConstantLRSettings()


class SGDSettings(ConstructorSettings, constructor=nn.SGD):
    """SGD, with the defaults of the reference."""

    name: str = key("sgd", choices=("sgd",))  # the optimizer
    learning_rate: float = argument(low=0, high=LARGEST_FLOAT32)  # initial learning rate
    momentum: float = argument(low=0, high=LARGEST_FLOAT32)  # momentum coefficient
    dampening: float = argument(low=0, high=LARGEST_FLOAT32)  # dampening of the gradient
    weight_decay: float = argument(low=0, high=LARGEST_FLOAT32)  # L2 penalty coefficient
    nesterov: bool = argument()  # Nesterov momentum
    loss_scale: float = argument(above=0, high=LARGEST_FLOAT32)  # gradients are divided by it
    schedule: ScheduleSettings = ConstantLRSettings()


class AdamSettings(ConstructorSettings, constructor=nn.Adam):
    """Adam, with the defaults of the reference."""

    name: str = key("adam", choices=("adam",))  # the optimizer
    learning_rate: float = argument(low=0, high=LARGEST_FLOAT32)  # initial learning rate
    beta1: float = argument(above=0, below=1)  # decay rate of the first moment
    beta2: float = argument(above=0, below=1)  # decay rate of the second moment
    eps: float = argument(above=0, high=LARGEST_FLOAT32)  # added to the denominator
    weight_decay: float = argument(low=0, high=LARGEST_FLOAT32)  # L2 penalty coefficient
    loss_scale: float = argument(above=0, high=LARGEST_FLOAT32)  # gradients are divided by it
    schedule: ScheduleSettings = ConstantLRSettings()


OptimizerSettings = MomentumSettings | SGDSettings | AdamSettings


def consistency_errors(optimizer: OptimizerSettings) -> Iterator[ConfigError]:
    """Errors of an optimizer whose valid keys contradict each other or those of its schedule."""
    if isinstance(optimizer, SGDSettings) and optimizer.nesterov and not 0 == optimizer.dampening < optimizer.momentum:
        what = "nesterov needs momentum above 0 and no dampening"
        yield ConfigError(what, key="optimizer.nesterov", value="true")
    rate, schedule = optimizer.learning_rate, optimizer.schedule
    if rate == 0 and not isinstance(schedule, ConstantLRSettings):
        hint = f"optimizer.schedule.name is {schedule.name}"
        yield ConfigError(
            "a schedule needs a learning rate above 0", key="optimizer.learning_rate", value=rate, hint=hint
        )
    elif isinstance(schedule, CosineDecayLRSettings) and schedule.min_lr >= rate:
        rows = {"value": schedule.min_lr, "allowed": f"below optimizer.learning_rate, which is {rate}"}
        yield ConfigError("the learning rate would not decay", key="optimizer.schedule.min_lr", **rows)
