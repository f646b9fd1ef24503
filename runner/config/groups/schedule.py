"""Keys of the learning-rate schedules below `optimizer.schedule`, which depend on its `name`.

A schedule is a record here, listed in `SCHEDULES`: choices, keys, defaults, help and the schedule are derived from it.
"""

from typing import ClassVar

from runner import nn
from runner.config.groups.constructor import ConstructorSettings, argument
from runner.validation.rules import LARGEST_FLOAT32, MAX_COUNT, key


class ScheduleSettings(ConstructorSettings):
    """Base class of the settings of schedules."""

    rate_argument: ClassVar[str] = "learning_rate"  # the constructor's argument for the optimizer's `learning_rate`

    name: str = key("")  # the schedule
    warmup_steps: int = key(0, low=0, high=MAX_COUNT)  # steps of the linear warm-up from 0

    def learning_rate(self, rate: float, total_steps: int) -> float | nn.LearningRateSchedule:
        """The schedule for a run of `total_steps` steps; `rate` itself if it is constant."""
        if self.constructor is nn.ConstantLR and not self.warmup_steps:
            return rate
        computed: dict[str, float] = {self.rate_argument: rate}
        if getattr(self, "decay_steps", 1) is None:
            computed["decay_steps"] = max(1, total_steps - self.warmup_steps)
        schedule: nn.LearningRateSchedule = self.create(**computed)
        return nn.WarmUpThen(self.warmup_steps, schedule) if self.warmup_steps else schedule


class ConstantLRSettings(ScheduleSettings, constructor=nn.ConstantLR):
    """The optimizer's `learning_rate` in every step, after a linear warm-up from 0."""

    name: str = key("constant", choices=("constant",))  # the schedule


class StepLRSettings(ScheduleSettings, constructor=nn.StepLR):
    """The rate, multiplied by `decay_rate` after every `decay_steps` steps, counted from the end of the warm-up."""

    name: str = key("step", choices=("step",))  # the schedule
    decay_steps: int = key(1000, low=1, high=MAX_COUNT)  # number of decay steps
    decay_rate: float = key(0.1, above=0, high=LARGEST_FLOAT32)  # the factor


class ExponentialDecayLRSettings(ScheduleSettings, constructor=nn.ExponentialDecayLR):
    """The rate times `decay_rate` ^ (step / decay_steps), the exponent rounded down with `is_stair`."""

    name: str = key("exponential", choices=("exponential",))  # the schedule
    decay_steps: int = key(1000, low=1, high=MAX_COUNT)  # number of decay steps
    decay_rate: float = key(0.9, above=0, high=LARGEST_FLOAT32)  # the factor
    is_stair: bool = argument()  # round the exponent down


class CosineDecayLRSettings(ScheduleSettings, constructor=nn.CosineDecayLR):
    """Half a cosine period from the rate to `min_lr`; `decay_steps` null: until the last step of the run."""

    rate_argument = "max_lr"

    name: str = key("cosine", choices=("cosine",))  # the schedule
    decay_steps: int | None = key(None, low=1, high=MAX_COUNT)  # number of decay steps
    min_lr: float = key(0.0, low=0, high=LARGEST_FLOAT32)  # final learning rate


class PolynomialDecayLRSettings(ScheduleSettings, constructor=nn.PolynomialDecayLR):
    """From the rate to `end_learning_rate` as (1 - step / decay_steps) ^ power; `decay_steps` as for the cosine."""

    name: str = key("polynomial", choices=("polynomial",))  # the schedule
    decay_steps: int | None = key(None, low=1, high=MAX_COUNT)  # number of decay steps
    end_learning_rate: float = key(0.0, low=0, high=LARGEST_FLOAT32)  # final learning rate
    power: float = key(1.0, above=0, high=LARGEST_FLOAT32)  # the exponent
    update_decay_steps: bool = argument()  # restart with a longer decay


SCHEDULES: dict[str, type[ScheduleSettings]] = {
    kind.name: kind
    for kind in (
        ConstantLRSettings,
        StepLRSettings,
        ExponentialDecayLRSettings,
        CosineDecayLRSettings,
        PolynomialDecayLRSettings,
    )
}
