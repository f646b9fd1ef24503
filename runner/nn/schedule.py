"""Learning rate schedules: functions of the number of the step, counted from 0.

Names and rules are those of `mindspore.nn.learning_rate_schedule` r1.2; `ConstantLR`, `StepLR`, `PerStepLR`,
`PiecewiseConstantLR` and `WarmUpThen` are additions. A rate is computed in float64 for each step by itself, and rounded
to float32 once, so it does not depend on the number of steps requested at once.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.validation.arguments import Where, above, at_least, flag, scalar, whole
from runner.validation.rules import KeywordNames

LARGEST = float(np.finfo(np.float32).max)


class LearningRateSchedule(KeywordNames):
    """Base: subclasses define `construct(global_step)`, the rate of a step.

    >>> ExponentialDecayLR(0.1, 0.9, 4)(2)
    0.09486832980505139
    >>> ExponentialDecayLR(0.1, 0.9, 4, is_stair=True).rates(3, 2).tolist()
    [0.10000000149011612, 0.09000000357627869]
    """

    def construct(self, global_step: int) -> float:
        """The rate of step `global_step`."""
        raise NotImplementedError(f"{type(self).__name__} must define construct")

    def __call__(self, global_step: Any) -> Any:
        """The rate of a step, in float64; for a tensor, a Float32 tensor.

        Raises ConfigError when it is negative or too large for float32.
        """
        if isinstance(global_step, Tensor):
            return Tensor(self(int(global_step.asnumpy().item())), dt.float32)
        step = global_step if type(global_step) is int else int(np.asarray(global_step).item())
        try:
            made = self.construct(step)
        except OverflowError:
            made = math.inf
        try:
            rate = float(np.asarray(made).item() if hasattr(made, "__array__") else made)
        except (TypeError, ValueError):
            rows = {"schedule": repr(self), "step": step, "given": repr(made)}
            raise ConfigError("a learning rate must be a number", **rows) from None
        except OverflowError:
            rate = math.inf
        if not 0.0 <= rate <= LARGEST:
            rows = {"schedule": repr(self), "step": step, "given": rate}
            raise ConfigError("a learning rate must be a finite number of at least 0", **rows)
        return rate

    def rates(self, start: int, count: int) -> np.ndarray:
        """The rates of steps `start` to `start + count - 1`, float32 [count]."""
        return np.array([self(step) for step in range(start, start + count)], np.float32)

    @property
    def where(self) -> Where:
        """The row that names the schedule in an error."""
        return {"schedule": type(self).__name__}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class _Decay(LearningRateSchedule):
    """The common arguments of exponential and inverse decay."""

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int, is_stair: bool = False) -> None:
        above(self.where, 0.0, learning_rate=learning_rate, decay_rate=decay_rate)
        whole(self.where, 1, decay_steps=decay_steps)
        flag(self.where, is_stair=is_stair)
        self.learning_rate, self.decay_rate = learning_rate, decay_rate
        self.decay_steps, self.is_stair = decay_steps, is_stair

    def periods(self, global_step: int) -> float:
        """global_step / decay_steps, rounded down if `is_stair`."""
        return global_step // self.decay_steps if self.is_stair else global_step / self.decay_steps


class ExponentialDecayLR(_Decay):
    """learning_rate * decay_rate ^ p, p = step / decay_steps, rounded down when `is_stair`."""

    def construct(self, global_step: int) -> float:
        return float(self.learning_rate * self.decay_rate ** self.periods(global_step))


class NaturalExpDecayLR(_Decay):
    """learning_rate * e ^ (-decay_rate * p), p = step, or with `is_stair` the last multiple of decay_steps.

    As in the code of r1.2, p is not divided by decay_steps; its documentation divides it.
    """

    def construct(self, global_step: int) -> float:
        p = global_step // self.decay_steps * self.decay_steps if self.is_stair else global_step
        return float(self.learning_rate * math.e ** (-self.decay_rate * p))


class InverseDecayLR(_Decay):
    """learning_rate / (1 + decay_rate * p), p = step / decay_steps, rounded down when `is_stair`."""

    def construct(self, global_step: int) -> float:
        return self.learning_rate / (1.0 + self.decay_rate * self.periods(global_step))


class CosineDecayLR(LearningRateSchedule):
    """Half a cosine from max_lr at step 0 to min_lr at step decay_steps, then min_lr."""

    def __init__(self, min_lr: float, max_lr: float, decay_steps: int) -> None:
        at_least(self.where, 0.0, min_lr=min_lr)
        above(self.where, 0.0, max_lr=max_lr)
        whole(self.where, 1, decay_steps=decay_steps)
        if min_lr >= max_lr:
            raise ConfigError("max_lr must be above min_lr", **self.where, min_lr=min_lr, max_lr=max_lr)
        self.min_lr, self.max_lr, self.decay_steps = min_lr, max_lr, decay_steps

    def construct(self, global_step: int) -> float:
        angle = math.pi * min(global_step, self.decay_steps) / self.decay_steps
        return self.min_lr + 0.5 * (self.max_lr - self.min_lr) * (1.0 + math.cos(angle))


class PolynomialDecayLR(LearningRateSchedule):
    """(learning_rate - end_learning_rate) * (1 - p) ^ power + end_learning_rate, p = step / decay_steps up to 1.

    With `update_decay_steps` decay_steps is replaced by its next multiple whenever it is passed, where the rate jumps
    up again.
    """

    def __init__(
        self,
        learning_rate: float,
        end_learning_rate: float,
        decay_steps: int,
        power: float,
        update_decay_steps: bool = False,
    ) -> None:
        above(self.where, 0.0, learning_rate=learning_rate, power=power)
        at_least(self.where, 0.0, end_learning_rate=end_learning_rate)
        whole(self.where, 1, decay_steps=decay_steps)
        flag(self.where, update_decay_steps=update_decay_steps)
        self.learning_rate, self.end_learning_rate = learning_rate, end_learning_rate
        self.decay_steps, self.power, self.update_decay_steps = decay_steps, power, update_decay_steps

    def construct(self, global_step: int) -> float:
        steps = self.decay_steps
        if self.update_decay_steps:
            steps *= max(-(-global_step // steps), 1)
        left = 1.0 - min(global_step, steps) / steps
        return float((self.learning_rate - self.end_learning_rate) * left**self.power + self.end_learning_rate)


class WarmUpLR(LearningRateSchedule):
    """learning_rate * step / warmup_steps, up to learning_rate: the first step has the rate 0, as in r1.2."""

    def __init__(self, learning_rate: float, warmup_steps: int) -> None:
        at_least(self.where, 0.0, learning_rate=learning_rate)
        whole(self.where, 1, warmup_steps=warmup_steps)
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps

    def construct(self, global_step: int) -> float:
        return self.learning_rate * min(global_step, self.warmup_steps) / self.warmup_steps


class ConstantLR(LearningRateSchedule):
    """The same rate in every step, for `WarmUpThen` without decay."""

    def __init__(self, learning_rate: float) -> None:
        at_least(self.where, 0.0, learning_rate=learning_rate)
        self.learning_rate = learning_rate

    def construct(self, global_step: int) -> float:
        return self.learning_rate


class StepLR(ExponentialDecayLR):
    """learning_rate, multiplied by decay_rate after every decay_steps steps."""

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int) -> None:
        super().__init__(learning_rate, decay_rate, decay_steps, is_stair=True)


class PerStepLR(LearningRateSchedule):
    """A list of rates, one per step; its last rate stays in effect (r1.2 reads beyond its tensor)."""

    def __init__(self, learning_rates: Iterable[float]) -> None:
        values = np.asarray(learning_rates).tolist() if hasattr(learning_rates, "__array__") else list(learning_rates)
        if not values:
            raise ConfigError("a list of learning rates needs at least one", **self.where)
        values = [scalar(value) for value in values]
        for step, value in enumerate(values):
            at_least(self.where, 0.0, **{f"learning_rates[{step}]": value})
        self.learning_rates = list(map(float, values))

    def construct(self, global_step: int) -> float:
        return self.learning_rates[min(global_step, len(self.learning_rates) - 1)]

    def __repr__(self) -> str:
        return f"PerStepLR({len(self.learning_rates)} rates)"


class PiecewiseConstantLR(LearningRateSchedule):
    """learning_rates[k] before step milestone[k]; the last rate stays in effect.

    >>> [PiecewiseConstantLR([2, 5], [0.1, 0.05])(step) for step in (0, 1, 2, 4, 5, 99)]
    [0.1, 0.1, 0.05, 0.05, 0.05, 0.05]
    """

    def __init__(self, milestone: list[int] | tuple[int, ...], learning_rates: list[float] | tuple[float, ...]) -> None:
        for name, value in (("milestone", milestone), ("learning_rates", learning_rates)):
            if not isinstance(value, list | tuple) or not value:
                raise ConfigError(f"{name} must be a list that is not empty", **self.where, given=repr(value))
        if len(milestone) != len(learning_rates):
            rows = {"milestones": len(milestone), "learning_rates": len(learning_rates)}
            raise ConfigError("every learning rate needs a milestone", **self.where, **rows)
        for k, (step, rate) in enumerate(zip(milestone, learning_rates, strict=True)):
            whole(self.where, max(1, milestone[k - 1]) if k else 1, **{f"milestone[{k}]": step})
            at_least(self.where, 0.0, **{f"learning_rates[{k}]": rate})
        self.milestone, self.learning_rates = list(milestone), list(learning_rates)

    def construct(self, global_step: int) -> float:
        pieces = zip(self.milestone, self.learning_rates, strict=True)
        return next((rate for end, rate in pieces if global_step < end), self.learning_rates[-1])


class WarmUpThen(LearningRateSchedule):
    """`warmup_steps` steps from 0 up to the first rate of another schedule, which then starts at its own step 0."""

    def __init__(self, warmup_steps: int, schedule: LearningRateSchedule) -> None:
        if not isinstance(schedule, LearningRateSchedule):
            raise ConfigError("schedule must be a LearningRateSchedule", **self.where, given=repr(schedule))
        whole(self.where, 1, warmup_steps=warmup_steps)
        self.warmup_steps, self.schedule = warmup_steps, schedule

    def construct(self, global_step: int) -> float:
        if global_step < self.warmup_steps:
            return float(self.schedule(0)) * global_step / self.warmup_steps
        return float(self.schedule(global_step - self.warmup_steps))


def schedule_of(learning_rate: object, where: Where) -> tuple[float, LearningRateSchedule | None]:
    """The rate of step 0, and the schedule if later rates may differ, of an optimizer's `learning_rate`.

    `learning_rate` is a number, a tensor of one number, a schedule, or one rate per step. Raises ConfigError.
    """
    schedule: LearningRateSchedule | None = None
    if isinstance(learning_rate, LearningRateSchedule):
        schedule = learning_rate
    elif np.ndim(learning_rate) == 1 if hasattr(learning_rate, "__array__") else _is_list(learning_rate):
        schedule = PerStepLR(learning_rate)  # type: ignore[arg-type]
    if schedule is not None:
        return schedule(0), schedule
    rate = scalar(learning_rate)
    at_least(where, 0.0, learning_rate=rate)
    return float(rate), None


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)
