"""Keys of the optimizers; the `name` of the group decides which keys it has.

An optimizer is a record here and its place in `OptimizerSettings`: choices, keys, defaults, help and what is built come
from them. A key without a default here has that of the constructor's argument.
"""

from collections.abc import Iterator
from typing import get_args

from runner import nn
from runner.config.groups.constructor import ConstructorSettings, argument
from runner.config.groups.schedule import ConstantLRSettings, CosineDecayLRSettings, ScheduleSettings
from runner.errors import ConfigError
from runner.validation.rules import key


class MomentumSettings(ConstructorSettings, constructor=nn.Momentum):
    """Defaults as the reference's LeNet example uses them."""

    name: str = key("momentum", choices=("momentum",))  # which one
    learning_rate: float = key(0.01, low=0)  # the step size, before its schedule
    momentum: float = key(0.9, low=0)  # how much of the last update stays
    weight_decay: float = argument(low=0)  # times the weight, added to the gradient
    loss_scale: float = argument(above=0)  # gradients are divided by it
    use_nesterov: bool = argument()  # look ahead
    schedule: ScheduleSettings = ConstantLRSettings()


class SGDSettings(ConstructorSettings, constructor=nn.SGD):
    """Defaults of the reference's SGD."""

    name: str = key("sgd", choices=("sgd",))  # which one
    learning_rate: float = argument(low=0)  # the step size, before its schedule
    momentum: float = argument(low=0)  # how much of the last update stays
    dampening: float = argument(low=0)  # how little of the gradient counts
    weight_decay: float = argument(low=0)  # times the weight, added to the gradient
    nesterov: bool = argument()  # look ahead
    loss_scale: float = argument(above=0)  # gradients are divided by it
    schedule: ScheduleSettings = ConstantLRSettings()


class AdamSettings(ConstructorSettings, constructor=nn.Adam):
    """Defaults of the reference's Adam."""

    name: str = key("adam", choices=("adam",))  # which one
    learning_rate: float = argument(low=0)  # the step size, before its schedule
    beta1: float = argument(above=0, below=1)  # decay of the mean
    beta2: float = argument(above=0, below=1)  # decay of the squares
    eps: float = argument(above=0)  # added to the root
    weight_decay: float = argument(low=0)  # times the weight, added to the gradient
    loss_scale: float = argument(above=0)  # gradients are divided by it
    schedule: ScheduleSettings = ConstantLRSettings()


OptimizerSettings = MomentumSettings | SGDSettings | AdamSettings
OPTIMIZERS: dict[str, type[OptimizerSettings]] = {kind.name: kind for kind in get_args(OptimizerSettings)}


def disagreements(optimizer: OptimizerSettings) -> Iterator[ConfigError]:
    """Keys of an optimizer and its schedule that contradict each other; each of them is allowed on its own."""
    if isinstance(optimizer, SGDSettings) and optimizer.nesterov and not 0 == optimizer.dampening < optimizer.momentum:
        what = "nesterov needs momentum above 0 and no dampening"
        yield ConfigError(what, key="optimizer.nesterov", value="true")
    rate, schedule = optimizer.learning_rate, optimizer.schedule
    if rate == 0 and not isinstance(schedule, ConstantLRSettings):
        hint = f"optimizer.schedule.name is {schedule.name}"
        yield ConfigError("nothing can decay from 0", key="optimizer.learning_rate", value=rate, hint=hint)
    elif isinstance(schedule, CosineDecayLRSettings) and schedule.min_lr >= rate:
        rows = {"value": schedule.min_lr, "allowed": f"below optimizer.learning_rate, which is {rate}"}
        yield ConfigError("the rate would not decay", key="optimizer.schedule.min_lr", **rows)
