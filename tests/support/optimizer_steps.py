"""Five steps of an optimizer with fixed weights and gradients, in one of the modes."""

import numpy as np
from both_modes import step_of

from runner import nn
from runner.core.values import Parameter
from runner.nn.optim.optimizer import scheduled_optimizers, scheduled_step

STEPS = 5
NAMES = "conv.weight", "bn.gamma", "bn.beta"
RNG = np.random.default_rng(11)
START = {name: RNG.normal(size=(2, 3)).astype(np.float32) for name in NAMES}
GRADIENTS = [{name: RNG.normal(size=(2, 3)).astype(np.float32) for name in NAMES} for _ in range(STEPS)]


def parameters() -> list[Parameter]:
    """The weights, new ones in each call."""
    return [Parameter(START[name], name) for name in NAMES]


def trained(optimizer: nn.Optimizer, mode: str) -> dict[str, np.ndarray]:
    """Parameters and state after five steps with the gradients above."""

    def step(*gradients):
        optimizer(gradients)
        return gradients[0]

    run = step_of(step, mode)
    for gradients in GRADIENTS:
        with scheduled_step(scheduled_optimizers(optimizer)):
            run(*[gradients[parameter.name] for parameter in optimizer.parameters])
    named = {p.name: p for p in (*optimizer.parameters, *optimizer.get_parameters())}
    return {name: parameter.asnumpy() for name, parameter in named.items()}


def each_step(name: str) -> list[np.ndarray]:
    """The gradients of a parameter in float64."""
    return [gradients[name].astype(np.float64) for gradients in GRADIENTS]
