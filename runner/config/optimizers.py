"""Keys of the optimizers and of their learning-rate schedules; the `name` of a group decides which keys it has."""

from runner.frozen import Frozen
from runner.rules import key


class Constant(Frozen):
    """The optimizer's `learning_rate` in every step, after `warmup_steps` steps that rise to it from 0."""

    name: str = key("constant", choices=("constant",))
    warmup_steps: int = key(0, low=0)


class Step(Frozen):
    """The rate, multiplied by `decay_rate` after every `decay_steps` steps. All steps count from the warm-up's end."""

    name: str = key("step", choices=("step",))
    warmup_steps: int = key(0, low=0)
    decay_steps: int = key(1000, low=1)
    decay_rate: float = key(0.1, above=0)


class Exponential(Frozen):
    """The rate times `decay_rate` ^ (step / decay_steps), the exponent rounded down with `is_stair`."""

    name: str = key("exponential", choices=("exponential",))
    warmup_steps: int = key(0, low=0)
    decay_steps: int = key(1000, low=1)
    decay_rate: float = key(0.9, above=0)
    is_stair: bool = False


class Cosine(Frozen):
    """Half a cosine from the rate to `min_lr`; `decay_steps` null: until the last step of the run."""

    name: str = key("cosine", choices=("cosine",))
    warmup_steps: int = key(0, low=0)
    decay_steps: int | None = key(None, low=1)
    min_lr: float = key(0.0, low=0)


class Polynomial(Frozen):
    """From the rate to `end_learning_rate` as (1 - step / decay_steps) ^ power; `decay_steps` as for the cosine."""

    name: str = key("polynomial", choices=("polynomial",))
    warmup_steps: int = key(0, low=0)
    decay_steps: int | None = key(None, low=1)
    end_learning_rate: float = key(0.0, low=0)
    power: float = key(1.0, above=0)
    update_decay_steps: bool = False


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

    name: str = key("momentum", choices=("momentum",))
    learning_rate: float = key(0.01, low=0)
    momentum: float = key(0.9, low=0)
    weight_decay: float = key(0.0, low=0)
    loss_scale: float = key(1.0, above=0)
    use_nesterov: bool = False
    schedule: Schedule = Constant()


class Sgd(Frozen):
    """Defaults of the reference's SGD."""

    name: str = key("sgd", choices=("sgd",))
    learning_rate: float = key(0.1, low=0)
    momentum: float = key(0.0, low=0)
    dampening: float = key(0.0, low=0)
    weight_decay: float = key(0.0, low=0)
    nesterov: bool = False
    loss_scale: float = key(1.0, above=0)
    schedule: Schedule = Constant()


class Adam(Frozen):
    """Defaults of the reference's Adam."""

    name: str = key("adam", choices=("adam",))
    learning_rate: float = key(0.001, low=0)
    beta1: float = key(0.9, above=0, below=1)
    beta2: float = key(0.999, above=0, below=1)
    eps: float = key(1e-8, above=0)
    weight_decay: float = key(0.0, low=0)
    loss_scale: float = key(1.0, above=0)
    schedule: Schedule = Constant()


Optimizer = Momentum | Sgd | Adam
OPTIMIZERS: dict[str, type[Optimizer]] = {"momentum": Momentum, "sgd": Sgd, "adam": Adam}
