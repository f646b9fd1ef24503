"""Keys of the optimizers and of their learning-rate schedules; the `name` of a group decides which keys it has."""

from runner.validation.records import Frozen
from runner.validation.rules import key


class Constant(Frozen):
    """The optimizer's `learning_rate` in every step, after `warmup_steps` steps that rise to it from 0."""

    name: str = key("constant", choices=("constant",))  # which one
    warmup_steps: int = key(0, low=0)  # steps in which the rate rises from 0


class Step(Frozen):
    """The rate, multiplied by `decay_rate` after every `decay_steps` steps. All steps count from the warm-up's end."""

    name: str = key("step", choices=("step",))  # which one
    warmup_steps: int = key(0, low=0)  # steps in which the rate rises from 0
    decay_steps: int = key(1000, low=1)  # steps of the decay
    decay_rate: float = key(0.1, above=0)  # the factor


class Exponential(Frozen):
    """The rate times `decay_rate` ^ (step / decay_steps), the exponent rounded down with `is_stair`."""

    name: str = key("exponential", choices=("exponential",))  # which one
    warmup_steps: int = key(0, low=0)  # steps in which the rate rises from 0
    decay_steps: int = key(1000, low=1)  # steps of the decay
    decay_rate: float = key(0.9, above=0)  # the factor
    is_stair: bool = False  # round the exponent down


class Cosine(Frozen):
    """Half a cosine from the rate to `min_lr`; `decay_steps` null: until the last step of the run."""

    name: str = key("cosine", choices=("cosine",))  # which one
    warmup_steps: int = key(0, low=0)  # steps in which the rate rises from 0
    decay_steps: int | None = key(None, low=1)  # steps of the decay
    min_lr: float = key(0.0, low=0)  # where it ends


class Polynomial(Frozen):
    """From the rate to `end_learning_rate` as (1 - step / decay_steps) ^ power; `decay_steps` as for the cosine."""

    name: str = key("polynomial", choices=("polynomial",))  # which one
    warmup_steps: int = key(0, low=0)  # steps in which the rate rises from 0
    decay_steps: int | None = key(None, low=1)  # steps of the decay
    end_learning_rate: float = key(0.0, low=0)  # where it ends
    power: float = key(1.0, above=0)  # the exponent
    update_decay_steps: bool = False  # begin again with a longer decay


Schedule = Constant | Step | Exponential | Cosine | Polynomial
SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "step": Step,
    "exponential": Exponential,
    "cosine": Cosine,
    "polynomial": Polynomial,
}


class Momentum(Frozen):
    """Defaults as the reference's LeNet example uses them."""

    name: str = key("momentum", choices=("momentum",))  # which one
    learning_rate: float = key(0.01, low=0)  # the step size, before its schedule
    momentum: float = key(0.9, low=0)  # how much of the last update stays
    weight_decay: float = key(0.0, low=0)  # times the weight, added to the gradient
    loss_scale: float = key(1.0, above=0)  # gradients are divided by it
    use_nesterov: bool = False  # look ahead
    schedule: Schedule = Constant()


class Sgd(Frozen):
    """Defaults of the reference's SGD."""

    name: str = key("sgd", choices=("sgd",))  # which one
    learning_rate: float = key(0.1, low=0)  # the step size, before its schedule
    momentum: float = key(0.0, low=0)  # how much of the last update stays
    dampening: float = key(0.0, low=0)  # how little of the gradient counts
    weight_decay: float = key(0.0, low=0)  # times the weight, added to the gradient
    nesterov: bool = False  # look ahead
    loss_scale: float = key(1.0, above=0)  # gradients are divided by it
    schedule: Schedule = Constant()


class Adam(Frozen):
    """Defaults of the reference's Adam."""

    name: str = key("adam", choices=("adam",))  # which one
    learning_rate: float = key(0.001, low=0)  # the step size, before its schedule
    beta1: float = key(0.9, above=0, below=1)  # decay of the mean
    beta2: float = key(0.999, above=0, below=1)  # decay of the squares
    eps: float = key(1e-8, above=0)  # added to the root
    weight_decay: float = key(0.0, low=0)  # times the weight, added to the gradient
    loss_scale: float = key(1.0, above=0)  # gradients are divided by it
    schedule: Schedule = Constant()


Optimizer = Momentum | Sgd | Adam
OPTIMIZERS: dict[str, type[Optimizer]] = {"momentum": Momentum, "sgd": Sgd, "adam": Adam}
