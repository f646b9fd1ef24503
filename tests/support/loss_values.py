"""The value of a loss and its gradient in one of the modes, compared with a Float64 function."""

import numpy as np
from both_modes import relative, step_of

from runner.core.gradients import gradients
from runner.core.values import Parameter, Tensor

RNG = np.random.default_rng(11)
REDUCE = {"none": lambda a: a, "mean": np.mean, "sum": np.sum}


def normal(*shape):
    """Normally distributed numbers, in Float32."""
    return RNG.normal(size=shape).astype(np.float32)


def value_and_slope(loss, logits, labels, mode):
    """The loss, and the gradient of the sum of its elements with respect to the logits.

    `labels` is an array, or a tuple of all operands after the logits.
    """
    parameter = Parameter(Tensor(logits), "logits")

    def function(*others):
        value = loss.construct(parameter, *others)
        return value, *gradients(value, [parameter])

    return step_of(function, mode)(*(labels if isinstance(labels, tuple) else (labels,)))


def differences(function, x, step=1e-6):
    """The gradient of the sum of a Float64 function, by central differences."""
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[index] = step
        slope[index] = (np.sum(function(x + shift)) - np.sum(function(x - shift))) / (2 * step)
    return slope


def check(loss, expected, logits, labels, mode, tolerance=2e-6):
    """Compare with a Float64 function of logits; its gradient is found by differences."""
    value, slope = value_and_slope(loss, logits, labels, mode)
    wide = logits.astype(np.float64)
    assert value.dtype == np.float32
    assert value.shape == np.shape(expected(wide))
    assert relative(value, np.asarray(expected(wide))) < tolerance
    assert relative(slope, differences(expected, wide)) < max(tolerance, 1e-5)
