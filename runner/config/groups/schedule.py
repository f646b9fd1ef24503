"""The learning-rate schedules of configs, below `optimizer.schedule`.

A schedule is a function whose first parameter is `step`, which returns the rate of that step; or a class or function
that returns an `nn.LearningRateSchedule`. Both may have the parameters `learning_rate`, the optimizer's key, and
`total_steps`, the number of steps of the run without those of the warm-up.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from runner import nn, register
from runner.config.groups.record import Records, Settings
from runner.errors import ConfigError
from runner.register import place_of
from runner.validation.rules import LARGEST_FLOAT32, MAX_COUNT, Rule, key

Steps = Annotated[int, Rule(low=1, high=MAX_COUNT)]
Positive = Annotated[float, Rule(above=0, high=LARGEST_FLOAT32)]
NotNegative = Annotated[float, Rule(low=0, high=LARGEST_FLOAT32)]
STEP = ("step", "global_step")


class FunctionLR(nn.LearningRateSchedule):
    """The rate of a step by a function of the step, with further arguments."""

    def __init__(self, function: Callable[..., float], step: str, arguments: Mapping[str, Any]) -> None:
        self.function, self.step, self.arguments = function, step, arguments

    def construct(self, global_step: int) -> float:
        """The rate of step `global_step`."""
        return self.function(**{self.step: global_step}, **self.arguments)

    def __call__(self, global_step: Any) -> Any:
        """The rate of a step. Raises ConfigError, with the place of the function, for what is no rate."""
        try:
            return super().__call__(global_step)
        except ConfigError as error:
            raise error.add(where=place_of(self.function)) from None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.function.__qualname__}({self.step}, {values})"


class ScheduleSettings(Settings):
    """The schedule of the learning rate."""

    warmup_steps: int = key(0, low=0, high=MAX_COUNT)  # steps of the linear warm-up from 0

    def learning_rate(self, rate: float, total_steps: int) -> float | nn.LearningRateSchedule:
        """The schedule for a run of `total_steps` steps; `rate` itself if it is constant.

        Raises ConfigError when the registered object gives no schedule.
        """
        facts = {"learning_rate": rate, "total_steps": max(1, total_steps - self.warmup_steps)}
        made = self._schedule(facts)
        if not self.warmup_steps:
            return made
        return nn.WarmUpThen(self.warmup_steps, nn.ConstantLR(made) if isinstance(made, float) else made)

    def _schedule(self, facts: Mapping[str, Any]) -> float | nn.LearningRateSchedule:
        step = next((name for name in STEP if name in self.entry.parameters), None)
        if step is not None:
            given = {name: value for name, value in facts.items() if name in self.entry.parameters}
            return FunctionLR(self.entry.source, step, {**given, **self.keywords()})
        return self.create(float | nn.LearningRateSchedule, **facts)  # type: ignore[arg-type]


SCHEDULES = Records(register.schedule, ScheduleSettings, "constant")


@register.schedule("constant")
def constant(learning_rate: float) -> float:
    """The optimizer's `learning_rate` in every step, after a linear warm-up from 0."""
    return learning_rate


@register.schedule("step")
def step_lr(learning_rate: float, decay_steps: Steps = 1000, decay_rate: Positive = 0.1) -> nn.LearningRateSchedule:
    """The rate, multiplied by `decay_rate` after every `decay_steps` steps, counted from the end of the warm-up.

    Args:
        decay_steps: number of decay steps
        decay_rate: the factor
    """
    return nn.StepLR(learning_rate, decay_rate, decay_steps)


@register.schedule("exponential")
def exponential(
    learning_rate: float, decay_steps: Steps = 1000, decay_rate: Positive = 0.9, is_stair: bool = False
) -> nn.LearningRateSchedule:
    """The rate times `decay_rate` ^ (step / decay_steps), the exponent rounded down with `is_stair`.

    Args:
        decay_steps: number of decay steps
        decay_rate: the factor
        is_stair: round the exponent down
    """
    return nn.ExponentialDecayLR(learning_rate, decay_rate, decay_steps, is_stair)


@register.schedule("cosine")
def cosine(
    learning_rate: float, total_steps: int, decay_steps: Steps | None = None, min_lr: NotNegative = 0.0
) -> nn.LearningRateSchedule:
    """Half a cosine period from the rate to `min_lr`; `decay_steps` null: until the last step of the run.

    Args:
        decay_steps: number of decay steps
        min_lr: final learning rate
    """
    return nn.CosineDecayLR(min_lr, learning_rate, decay_steps or total_steps)


@register.schedule("polynomial")
def polynomial(
    learning_rate: float,
    total_steps: int,
    decay_steps: Steps | None = None,
    end_learning_rate: NotNegative = 0.0,
    power: Positive = 1.0,
    update_decay_steps: bool = False,
) -> nn.LearningRateSchedule:
    """From the rate to `end_learning_rate` as (1 - step / decay_steps) ^ power; `decay_steps` as for the cosine.

    Args:
        decay_steps: number of decay steps
        end_learning_rate: final learning rate
        power: the exponent
        update_decay_steps: restart with a longer decay
    """
    return nn.PolynomialDecayLR(learning_rate, end_learning_rate, decay_steps or total_steps, power, update_decay_steps)
