"""The keys of what a config names: optimizers, schedules, losses, metrics, networks, callbacks and datasets.

Each entry of the registry has one frozen record of its keys, made from its signature. The entries that runner has
itself are the functions and classes below, with the defaults of MindSpore; a line below `Args:` is a key's help.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from runner import nn, register
from runner.core.values import Parameter
from runner.dataset import catalog  # noqa: F401  registers datasets
from runner.dataset.prefetch import MAX_WORKERS
from runner.errors import ConfigError, InternalError, RunnerError, user_lines
from runner.host import files
from runner.nn.metrics.base import AnyMetric, Metric, direction_of, is_scalar
from runner.nn.metrics.classification import Average, EvalType, Threshold
from runner.nn.optim.optimizer import LearningRate
from runner.register import Entry, Kind, place_of
from runner.train.callback import standard  # noqa: F401  registers them
from runner.validation.rules import LARGEST_FLOAT32, MAX_COUNT, Frozen, Invalid, Rule, key, validate

T = TypeVar("T")
PLACES = {"schedule": "optimizer.schedule"}  # where the keys of a kind are, if not below its name


class Settings(Frozen):
    """Base class: the keys of one entry. Subclasses are made by `record_of`."""

    entry: ClassVar[Entry]

    name: str = key("")  # the entry

    def __getattr__(self, name: str) -> Any:
        """Only for keys that the entry does not have. Raises AttributeError."""
        raise AttributeError(f"{type(self).__name__} has no key {name}", name=name, obj=self)

    def keywords(self) -> dict[str, Any]:
        """The arguments of the registered class or function that are keys."""
        return {name: own.convert(getattr(self, name)) for name, own in self.entry.keys.items()}

    def create(self, kind: type[T], **facts: Any) -> T:
        """What the registered class or function makes of the keys, and of the facts that it has parameters for.

        Raises ConfigError when a fact is missing that it needs, and when the result is not of this kind.
        """
        try:
            made = self.entry.call({name: getattr(self, name) for name in self.entry.keys}, facts)
        except RunnerError as error:
            if (argument := error.rows.get("argument")) in self.entry.keys:
                error.add(key=f"{PLACES.get(self.entry.kind.name, self.entry.kind.name)}.{argument}")
            if not error.rows.keys() & {"where", "line", "at"} and (lines := user_lines(error)):
                error.add(at="\n".join(lines))
            raise
        if not isinstance(made, kind):
            what = self.entry.kind.with_article
            rows = {
                "value": type(made).__name__,
                "where": self.entry.place,
                "allowed": f"{kind.__module__}.{kind.__name__}",
            }
            raise ConfigError(f"{self.name} is registered as {what} and makes something else", **rows)
        return made


S = TypeVar("S", bound=Settings)


class Records(Mapping[str, type[S]]):
    """The records of all entries of a kind, by name; each is made when it is first used."""

    def __init__(self, kind: Kind, base: type[S], default: str = "") -> None:
        self.kind, self.base, self.default = kind, base, default
        self._made: dict[Entry, type[S]] = {}

    def __getitem__(self, name: str) -> type[S]:
        entry = self.kind[name]
        if entry not in self._made:
            self._made[entry] = record_of(entry, self.base)
        return self._made[entry]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kind)

    def __len__(self) -> int:
        return len(self.kind)

    def __contains__(self, name: object) -> bool:
        return name in self.kind


def record_of(entry: Entry, base: type[S]) -> type[S]:
    """The record of an entry: the keys of `base`, which all entries of its kind have, and its own."""
    values: dict[str, Any] = {"name": key(entry.name, choices=(entry.name,))}
    kinds: dict[str, Any] = {"name": str}
    for name, own in entry.keys.items():
        kinds[name] = own.kind
        values[name] = field(default=own.default, metadata={"rule": own.rule, "help": own.help})
    doc = entry.summary or f"The {entry.kind.name} {entry.name}."
    about = {"__doc__": doc, "__module__": base.__module__, "__annotations__": kinds, "entry": entry}
    return cast(type[S], type(f"{base.__name__}_{entry.name}", (base,), about | values))


def missing_keys(record: type[Settings], values: Mapping[str, Any]) -> Iterator[str]:
    """The keys without a default that have no value."""
    if hasattr(record, "entry"):
        yield from (name for name, own in record.entry.keys.items() if own.required and values.get(name) is None)


# The learning-rate schedules of configs, below `optimizer.schedule`.
#
# A schedule is a function whose first parameter is `step`, which returns the rate of that step; or a class or function
# that returns an `nn.LearningRateSchedule`. Both may have the parameters `learning_rate`, the optimizer's key, and
# `total_steps`, the number of steps of the run without those of the warm-up.

Steps = Annotated[int, Rule(low=1, high=MAX_COUNT)]
Positive = Annotated[float, Rule(above=0, high=LARGEST_FLOAT32)]
NotNegative = Annotated[float, Rule(low=0, high=LARGEST_FLOAT32)]
STEP = ("step", "global_step")


class FunctionLR(nn.LearningRateSchedule):
    """The rate of a step by a function of the step, with further arguments."""

    def __init__(self, function: Callable[..., float], step: str, arguments: Mapping[str, Any]) -> None:
        self.function, self.step, self.arguments = function, step, arguments

    def construct(self, global_step: int) -> float:
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


# The optimizers of configs, with the defaults of MindSpore, and their consistency with schedules.

Decay = Annotated[float, Rule(above=0, below=1)]
Parameters = Sequence[Parameter]


class OptimizerSettings(Settings):
    """The optimizer. `schedule` computes the learning rate of each step from the key `learning_rate`."""

    schedule: ScheduleSettings = field(default_factory=lambda: SCHEDULES["constant"]())

    def with_rate(self, parameters: Parameters, learning_rate: LearningRate) -> nn.Optimizer:
        """The optimizer of these parameters with a rate that the schedule has computed from the key.

        Raises ConfigError when it is no optimizer.
        """
        rates: dict[str, Any] = {"learning_rate": learning_rate} if "learning_rate" in self.entry.keys else {}
        name = next(name for name in self.entry.kind.facts if name in self.entry.parameters)
        return replace(self, **rates).create(nn.Optimizer, **{name: parameters})


OPTIMIZERS = Records(register.optimizer, OptimizerSettings, "momentum")


@register.optimizer("momentum")
def momentum(
    params: Parameters,
    learning_rate: NotNegative = 0.01,
    momentum: NotNegative = 0.9,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    use_nesterov: bool = False,
) -> nn.Optimizer:
    """Momentum SGD, with the defaults of MindSpore's LeNet example.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
        use_nesterov: Nesterov momentum
    """
    return nn.Momentum(params, learning_rate, momentum, weight_decay, loss_scale, use_nesterov)


@register.optimizer("sgd")
def sgd(
    params: Parameters,
    learning_rate: NotNegative = 0.1,
    momentum: NotNegative = 0.0,
    dampening: NotNegative = 0.0,
    weight_decay: NotNegative = 0.0,
    nesterov: bool = False,
    loss_scale: Positive = 1.0,
) -> nn.Optimizer:
    """SGD, with the defaults of MindSpore.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        dampening: dampening of the gradient
        weight_decay: L2 penalty coefficient
        nesterov: Nesterov momentum
        loss_scale: gradients are divided by it
    """
    return nn.SGD(params, learning_rate, momentum, dampening, weight_decay, nesterov, loss_scale)


@register.optimizer("adam")
def adam(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-8,
    use_nesterov: bool = False,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
) -> nn.Optimizer:
    """Adam, with the defaults of MindSpore.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        use_nesterov: Nesterov momentum
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
    """
    return nn.Adam(params, learning_rate, beta1, beta2, eps, False, use_nesterov, weight_decay, loss_scale)


def consistency_errors(optimizer: OptimizerSettings) -> Iterator[ConfigError]:
    """Errors of an optimizer whose valid keys contradict each other or those of its schedule."""
    if optimizer.entry.source is sgd and optimizer.nesterov and not 0 == optimizer.dampening < optimizer.momentum:
        what = "nesterov needs momentum above 0 and no dampening"
        yield ConfigError(what, key="optimizer.nesterov", value="true")
    schedule = optimizer.schedule
    is_constant = schedule.name == "constant" and not schedule.warmup_steps
    if "learning_rate" not in optimizer.entry.keys:
        if not is_constant:
            hint = f"{optimizer.entry.place} needs a parameter learning_rate: float = ..."
            rows = {"value": schedule.name, "allowed": "constant", "hint": hint}
            yield ConfigError("this optimizer has no learning rate", key="optimizer.schedule.name", **rows)
        return
    yield from _rate_errors(optimizer.learning_rate, schedule)


def _rate_errors(rate: float, schedule: ScheduleSettings) -> Iterator[ConfigError]:
    if rate == 0 and schedule.name != "constant":
        hint = f"optimizer.schedule.name is {schedule.name}"
        yield ConfigError(
            "a schedule needs a learning rate above 0", key="optimizer.learning_rate", value=rate, hint=hint
        )
    elif schedule.name == "cosine" and schedule.min_lr >= rate:
        rows = {"value": schedule.min_lr, "allowed": f"below optimizer.learning_rate, which is {rate}"}
        yield ConfigError("the learning rate would not decay", key="optimizer.schedule.min_lr", **rows)


# Optimizers of configs beyond momentum, SGD and Adam, with the defaults of MindSpore.


@register.optimizer("adam_weight_decay")
def adam_weight_decay(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-6,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adam with decoupled weight decay, without correction of the bias.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        weight_decay: share of the weights that a step subtracts, times the learning rate
    """
    return nn.AdamWeightDecay(params, learning_rate, beta1, beta2, eps, weight_decay)


@register.optimizer("lamb")
def lamb(
    params: Parameters,
    learning_rate: NotNegative = 1e-3,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    eps: Positive = 1e-6,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Lamb: Adam with a rate for each layer, for large batches.

    Args:
        learning_rate: initial learning rate
        beta1: decay rate of the first moment
        beta2: decay rate of the second moment
        eps: added to the denominator
        weight_decay: share of the weights that is added to a step
    """
    return nn.Lamb(params, learning_rate, beta1, beta2, eps, weight_decay)


@register.optimizer("lars")
def lars(
    params: Parameters,
    learning_rate: NotNegative = 0.01,
    momentum: NotNegative = 0.9,
    weight_decay: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    use_nesterov: bool = False,
    epsilon: Positive = 1e-5,
    coefficient: Positive = 0.001,
    use_clip: bool = False,
) -> nn.Optimizer:
    """LARS over momentum: a rate for each layer in proportion to its weights, for large batches.

    Args:
        learning_rate: initial learning rate
        momentum: momentum coefficient
        weight_decay: L2 penalty coefficient
        loss_scale: gradients are divided by it
        use_nesterov: Nesterov momentum
        epsilon: added to the norm of the gradient
        coefficient: trust coefficient of the layer's rate
        use_clip: limit the layer's rate to the learning rate
    """
    inner = nn.Momentum(params, learning_rate, momentum, weight_decay, loss_scale, use_nesterov)
    return nn.LARS(inner, epsilon, coefficient, use_clip)


@register.optimizer("rmsprop")
def rmsprop(
    params: Parameters,
    learning_rate: NotNegative = 0.1,
    decay: NotNegative = 0.9,
    momentum: NotNegative = 0.0,
    epsilon: Positive = 1e-10,
    centered: bool = False,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """RMSProp: steps divided by the root of the mean square of the gradients.

    Args:
        learning_rate: initial learning rate
        decay: decay rate of the mean square
        momentum: momentum coefficient
        epsilon: added below the root
        centered: subtract the square of the mean gradient
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient
    """
    return nn.RMSProp(params, learning_rate, decay, momentum, epsilon, False, centered, loss_scale, weight_decay)


@register.optimizer("adagrad")
def adagrad(
    params: Parameters,
    accum: Positive = 0.1,
    learning_rate: NotNegative = 0.001,
    update_slots: bool = True,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adagrad: steps divided by the root of the sum of the squares of all gradients.

    Args:
        accum: first value of the sum
        learning_rate: initial learning rate
        update_slots: add to the sum
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient
    """
    return nn.Adagrad(params, accum, learning_rate, update_slots, loss_scale, weight_decay)


@register.optimizer("proximal_adagrad")
def proximal_adagrad(
    params: Parameters,
    accum: Positive = 0.1,
    learning_rate: NotNegative = 0.001,
    l1: NotNegative = 0.0,
    l2: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """Adagrad with penalties that are applied to the result of a step.

    Args:
        accum: first value of the sum
        learning_rate: initial learning rate
        l1: penalty of the absolute values
        l2: penalty of the squares
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient, added to the gradient
    """
    return nn.ProximalAdagrad(params, accum, learning_rate, l1, l2, False, loss_scale, weight_decay)


@register.optimizer("ftrl")
def ftrl(
    params: Parameters,
    initial_accum: NotNegative = 0.1,
    learning_rate: Positive = 0.001,
    lr_power: Annotated[float, Rule(low=-LARGEST_FLOAT32, high=0)] = -0.5,
    l1: NotNegative = 0.0,
    l2: NotNegative = 0.0,
    loss_scale: Positive = 1.0,
    weight_decay: NotNegative = 0.0,
) -> nn.Optimizer:
    """FTRL: follow the regularized leader, for sparse weights.

    Args:
        initial_accum: first value of the sum of squares
        learning_rate: constant learning rate
        lr_power: power of the sum of squares
        l1: penalty of the absolute values
        l2: penalty of the squares
        loss_scale: gradients are divided by it
        weight_decay: L2 penalty coefficient, added to the gradient
    """
    return nn.FTRL(params, initial_accum, learning_rate, lr_power, l1, l2, False, loss_scale, weight_decay)


# The metrics of configs: the keys of a metric are below `metrics.NAME`.
#
# A metric of configs is one number wherever it can be, so that it can be expected and searched for, while the classes
# of `runner.nn` have the defaults and the arrays of MindSpore r1.2.

Make = TypeVar("Make", bound=Callable[..., Metric])


class MetricSettings(Settings):
    """A metric of the evaluation."""

    def metric(self, **facts: Any) -> AnyMetric:
        """The metric. Raises ConfigError when the registered object makes none."""
        return self.create(AnyMetric, **facts)  # type: ignore[type-abstract]


def _made_by(make: Make, direction: str, is_scalar: bool = True) -> Make:
    """A function that makes metrics, with what searches and expectations read of their classes."""
    make.direction, make.is_scalar = direction, is_scalar  # type: ignore[attr-defined]
    return make


def precision(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Right predictions of a class / all predictions of it."""
    return nn.Precision(eval_type, average, threshold)


def recall(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Right predictions of a class / its samples."""
    return nn.Recall(eval_type, average, threshold)


def f1(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Harmonic mean of precision and recall."""
    return nn.F1(eval_type, average, threshold)


def confusion_matrix(eval_type: EvalType | None = None, threshold: Threshold = 0.5) -> Metric:
    """Numbers of samples by true class (rows) and predicted class (columns)."""
    return nn.ConfusionMatrix(threshold=threshold, eval_type=eval_type)


def mae() -> Metric:
    """Mean absolute error over all elements."""
    return nn.MAE(per_element=True)


def mse() -> Metric:
    """Mean squared error over all elements."""
    return nn.MSE(per_element=True)


BUILT_IN: dict[str, Callable[..., Metric]] = {
    "loss": nn.Loss,
    "accuracy": nn.Accuracy,
    "top_5": nn.TopKCategoricalAccuracy,
    "precision": _made_by(precision, "maximize"),
    "recall": _made_by(recall, "maximize"),
    "f1": _made_by(f1, "maximize"),
    "confusion_matrix": _made_by(confusion_matrix, "minimize", is_scalar=False),
    "mae": _made_by(mae, "minimize"),
    "mse": _made_by(mse, "minimize"),
    "r2": nn.R2,
}
for _name, _make in BUILT_IN.items():
    register.metric(_name)(_make)

METRICS = Records(register.metric, MetricSettings)


def direction(name: str) -> str:
    """What a search does with a metric unless it is configured otherwise: minimize or maximize."""
    return direction_of(register.metric[name].source)


def numbers() -> tuple[str, ...]:
    """The names of the metrics that are single numbers."""
    return tuple(name for name, entry in register.metric.items() if is_scalar(entry.source))


def single_number(metric: object) -> str:
    """The name of a metric that is a single number, and so can be expected or searched for.

    Raises Invalid, with the names of these, for a metric that is an array, and for what is no metric.
    """
    allowed = numbers()
    if isinstance(metric, str) and metric in register.metric and metric not in allowed:
        raise Invalid("this metric is an array, not a single number", ", ".join(allowed))
    name: str = validate(str, Rule(choices=allowed), metric)
    return name


# The loss functions of configs.

Reduction = Annotated[Literal["mean", "sum"], Rule(hint="training needs one number per batch")]


class LossSettings(Settings):
    """The loss function. Training needs a single number, so it returns a scalar."""


LOSSES = Records(register.loss, LossSettings, "softmax_cross_entropy")


@register.loss("softmax_cross_entropy")
def softmax_cross_entropy(
    sparse: bool = True,
    reduction: Reduction = "mean",
    label_smoothing: Annotated[float, Rule(low=0, below=1)] = 0.0,
    class_weights: Annotated[tuple[float, ...] | None, Rule(low=0)] = None,
) -> nn.Cell:
    """Softmax cross-entropy: one of several classes.

    Args:
        sparse: labels are class indices
        reduction: over a batch
        label_smoothing: share of each label that all classes get in equal parts
        class_weights: weight of the samples of each class; null: all 1
    """
    loss: nn.Cell = nn.SoftmaxCrossEntropyWithLogits(
        sparse, reduction, label_smoothing=label_smoothing, class_weights=class_weights
    )
    return loss


@register.loss("binary_cross_entropy")
def binary_cross_entropy(
    reduction: Reduction = "mean", pos_weight: Annotated[tuple[float, ...] | None, Rule(low=0)] = None
) -> nn.Cell:
    """Binary cross-entropy of logits: targets 0 or 1, one or several per sample.

    Args:
        reduction: over the values of a batch
        pos_weight: weight of targets 1, one for all labels or one for each; null: 1
    """
    return nn.BCEWithLogitsLoss(reduction, pos_weight=pos_weight)


@register.loss("mse")
def loss_mse(reduction: Reduction = "mean") -> nn.Cell:
    """Squared error.

    Args:
        reduction: over the values of a batch
    """
    return nn.MSELoss(reduction)


@register.loss("l1")
def l1(reduction: Reduction = "mean") -> nn.Cell:
    """Absolute error.

    Args:
        reduction: over the values of a batch
    """
    return nn.L1Loss(reduction)


@register.loss("smooth_l1")
def smooth_l1(
    beta: Annotated[float, Rule(above=0, high=LARGEST_FLOAT32)] = 1.0, reduction: Reduction = "mean"
) -> nn.Cell:
    """Squared error up to a difference of beta, absolute error from there on.

    Args:
        beta: difference from which on the loss is linear
        reduction: over the values of a batch
    """
    return nn.SmoothL1Loss(beta, reduction)


# Networks: those of `models/` are registered by the files that its table lists, which load when they are chosen.


class NetworkSettings(Settings):
    """The network. A key that the dataset determines, such as `num_classes`, is null for the dataset's value.

    `freeze` are patterns of names of parameters, as `[features/*, "*.bias"]`: `*` is any text, dots and slashes are
    equal. BatchNorm layers whose gamma and beta are frozen keep their moving statistics, and use them. `head` replace
    gives the last linear layer as many outputs as there are classes, and new values from the seed, also when
    `checkpoint.load` has some for it; patterns of `freeze` do not concern it.
    """

    freeze: tuple[str, ...] = key((), pattern=r"\S(.*\S)?")  # patterns of names of parameters that are not trained
    head: str = key("keep", choices=("keep", "replace"))  # the last linear layer: as it is, or a new one


def _register(file: str) -> None:
    importlib.import_module(f"{_package().__name__}.{file}")


def _package() -> ModuleType:
    """The package `models` under a name that leaves `models` to the user's program."""
    folder = files.folder("models")
    for name in ("runner_models", "models"):
        existing = sys.modules.get(name)
        if getattr(existing, "__file__", None) == str(folder / "__init__.py"):
            return cast(ModuleType, existing)
    return _load("runner_models", folder)


def _load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise InternalError("the table of networks cannot be loaded", folder=folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


for _network_name, _home in _package().NETWORKS.items():
    register.network.late(_network_name, partial(_register, _home))

register.network.late("onnx", partial(importlib.import_module, "runner.importer.network"))

NETWORKS = Records(register.network, NetworkSettings, "lenet5")


# The callbacks of configs: `callbacks.NAME` is true, false, a group of keys, or the value of the first key.

ENABLED = ("epoch_monitor", "progress")


class CallbackSettings(Settings):
    """A callback of the training, or how its keys are written."""

    @property
    def written(self) -> Any:
        """The value of `callbacks.NAME`: true without keys, the value of a single one, or a group of keys."""
        keys = {name: getattr(self, name) for name in self.entry.keys}
        return True if not keys else next(iter(keys.values())) if len(keys) == 1 else keys


CALLBACKS = Records(register.callback, CallbackSettings)


def default_callbacks() -> Mapping[str, CallbackSettings | None]:
    """The callbacks of a run that names no others."""
    return {name: CALLBACKS[name]() for name in ENABLED}


def keys_of_value(name: str, value: object) -> Mapping[str, Any] | None:
    """The keys that a value of `callbacks.NAME` stands for; None: the callback is off.

    Raises Invalid for the value of a key of a callback that has none.
    """
    if value is None or value is False:
        return None
    if isinstance(value, Mapping):
        return value
    keys = tuple(register.callback[name].keys)
    if value is not True and not keys:
        raise Invalid("this callback has no keys", "true or false")
    return {} if value is True else {keys[0]: value}


# Keys of every dataset; those of its own come from its signature.


class DatasetSettings(Settings):
    """The dataset and its batches. `inputs` and `target` null: the last column is the target, the others are inputs."""

    batch_size: int = key(32, low=1, high=MAX_COUNT)  # samples per step
    drop_remainder: bool = True  # omit the last batch if it is smaller
    shuffle: bool = True  # shuffle the training data anew in each epoch
    buffer_size: int = key(10000, low=2, high=MAX_COUNT)  # samples in the shuffle buffer
    num_parallel_workers: int = key(1, low=1, high=MAX_WORKERS)  # threads that prefetch batches
    inputs: tuple[str, ...] | None = None  # the columns that are the network's inputs, in order
    target: str | None = None  # the column that is the target

    @property
    def selects_columns(self) -> bool:
        """Whether `inputs` and `target` are names of columns: a dataset may have keys of these names."""
        return not {"inputs", "target"} & self.entry.keys.keys()


# What another dataset keeps of the one that it replaces in the config of a run.
KEPT_KEYS = ("batch_size", "drop_remainder", "shuffle", "buffer_size", "num_parallel_workers")

DATASETS = Records(register.dataset, DatasetSettings, "digits")
