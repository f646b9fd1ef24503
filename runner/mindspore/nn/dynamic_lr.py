"""Lists of learning rates, one per step, that change with the epoch: `mindspore.nn.dynamic_lr` r1.2.

Optimizers accept them as `learning_rate`. `total_step` is the length of the list; the epoch of step i is
i // step_per_epoch. All raise ConfigError for invalid arguments.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import ParamSpec

from runner.nn import schedule as lr
from runner.validation.arguments import whole

P = ParamSpec("P")
POSITIVE = ("total_step", "step_per_epoch", "decay_epoch", "warmup_epoch")


def _check_counts(rates: Callable[P, list[float]]) -> Callable[P, list[float]]:
    """Decorator: checks the numbers of steps and epochs before the schedule is computed."""

    @wraps(rates)
    def function(*args: P.args, **kwargs: P.kwargs) -> list[float]:
        given = signature(rates).bind(*args, **kwargs).arguments
        whole({"function": rates.__name__}, 1, **{name: given[name] for name in POSITIVE if name in given})
        return rates(*args, **kwargs)

    return function


def piecewise_constant_lr(milestone: Sequence[int], learning_rates: Sequence[float]) -> list[float]:
    """learning_rates[k] for the steps from milestone[k - 1] to before milestone[k]; milestone[-1] rates in all.

    >>> piecewise_constant_lr([2, 5], [0.1, 0.05])
    [0.1, 0.1, 0.05, 0.05, 0.05]
    """
    rates = lr.PiecewiseConstantLR(milestone, learning_rates)  # type: ignore[arg-type]
    return [rates(step) for step in range(milestone[-1])]


@_check_counts
def exponential_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate * decay_rate ^ (epoch / decay_epoch), the exponent rounded down if `is_stair`.

    >>> exponential_decay_lr(0.1, 0.9, 6, 2, 1)
    [0.1, 0.1, 0.09000000000000001, 0.09000000000000001, 0.08100000000000002, 0.08100000000000002]
    """
    return _rates(lr.ExponentialDecayLR(learning_rate, decay_rate, decay_epoch, is_stair), total_step, step_per_epoch)


@_check_counts
def natural_exp_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate * e ^ (-decay_rate * epoch); with `is_stair` the epoch is the last multiple of decay_epoch.

    As in the code of r1.2, the epoch is not divided by decay_epoch; its documentation divides it.

    >>> natural_exp_decay_lr(0.1, 0.9, 3, 1, 2, True)
    [0.1, 0.1, 0.016529888822158657]
    """
    return _rates(lr.NaturalExpDecayLR(learning_rate, decay_rate, decay_epoch, is_stair), total_step, step_per_epoch)


@_check_counts
def inverse_decay_lr(
    learning_rate: float,
    decay_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    is_stair: bool = False,
) -> list[float]:
    """learning_rate / (1 + decay_rate * epoch / decay_epoch), the quotient rounded down if `is_stair`.

    >>> inverse_decay_lr(0.1, 0.5, 4, 1, 1, True)
    [0.1, 0.06666666666666667, 0.05, 0.04]
    """
    return _rates(lr.InverseDecayLR(learning_rate, decay_rate, decay_epoch, is_stair), total_step, step_per_epoch)


@_check_counts
def cosine_decay_lr(
    min_lr: float, max_lr: float, total_step: int, step_per_epoch: int, decay_epoch: int
) -> list[float]:
    """Half a cosine from max_lr to min_lr over decay_epoch epochs, min_lr afterwards.

    >>> cosine_decay_lr(0.01, 0.1, 6, 2, 2)
    [0.1, 0.1, 0.05500000000000001, 0.05500000000000001, 0.01, 0.01]
    """
    return _rates(lr.CosineDecayLR(min_lr, max_lr, decay_epoch), total_step, step_per_epoch)


@_check_counts
def polynomial_decay_lr(
    learning_rate: float,
    end_learning_rate: float,
    total_step: int,
    step_per_epoch: int,
    decay_epoch: int,
    power: float,
    update_decay_epoch: bool = False,
) -> list[float]:
    """(learning_rate - end_learning_rate) * (1 - epoch / decay_epoch) ^ power + end_learning_rate.

    The epoch counts up to decay_epoch; with `update_decay_epoch` decay_epoch is then replaced by its next multiple.

    >>> polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5)
    [0.1, 0.1, 0.07363961030678928, 0.07363961030678928, 0.01, 0.01]
    """
    rates = lr.PolynomialDecayLR(learning_rate, end_learning_rate, decay_epoch, power, update_decay_epoch)
    return _rates(rates, total_step, step_per_epoch)


@_check_counts
def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """learning_rate * epoch / warmup_epoch, up to learning_rate.

    >>> warmup_lr(0.1, 6, 2, 2)
    [0.0, 0.0, 0.05, 0.05, 0.1, 0.1]
    """
    return _rates(lr.WarmUpLR(learning_rate, warmup_epoch), total_step, step_per_epoch)


def _rates(rates: lr.LearningRateSchedule, total_step: int, step_per_epoch: int) -> list[float]:
    return [rates(step // step_per_epoch) for step in range(total_step)]
