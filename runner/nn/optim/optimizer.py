"""`Optimizer`, the base of cells that update parameters from gradients, with the rules of r1.2.

What all optimizers share: parameter groups, weight decay, loss scale, learning rates. Their update rules are in
`rules.py`, with operators of `runner/ops/optimizer.py`; `runner/experiment/build.py` makes one of `optimizer=adam`.
Below the class: one step with scheduled rates, and how groups are read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from runner import context, dtype as dt, ops
from runner.core.interpreter import current
from runner.core.values import Parameter, ParameterTuple, Tensor, Value
from runner.errors import ConfigError, known_names
from runner.nn.cell import Cell
from runner.nn.schedule import LearningRateSchedule, PerStepLR, schedule_of
from runner.validation.arguments import Where, above, at_least, flag, one_of, scalar
from runner.validation.rules import Frozen

LearningRate: TypeAlias = float | Tensor | Iterable[float] | LearningRateSchedule
Parameters: TypeAlias = Iterable[Parameter] | Iterable[Mapping[str, Any]]
CENTRALIZED_CHANNELS = 16  # MindSpore centralizes gradients whose second axis is a multiple of this length


class Optimizer(Cell):
    """Base: parameters in groups, weight decay, loss scale, and learning rates as parameters that are not trained.

    `parameters` are a list of them, or of groups: dicts with `params` and their own `lr`, `weight_decay` or
    `grad_centralization`; a dict with `order_params` gives the order of all. The first two arguments may change places.

    A learning rate is a number, a schedule, or a rate per step, the last of which stays in effect. With a schedule,
    `global_step` is a parameter too: the number of the next step, from 0. The caller of a step sets the rates before it
    (`next_rates`, `set_rates`) and counts it afterwards (`advance`), so a resumed training continues its schedules.

    Weight decay adds `weight_decay * loss_scale * w` to the gradients: of a group, when its own is above 0; without
    groups, of parameters whose names contain neither `beta` nor `gamma`. Then gradients are centralized where the group
    says so, and divided by `loss_scale`.

    Subclasses find the attributes of r1.2: `parameters`, `learning_rate` (with rates of groups a tuple, one for each
    parameter), `weight_decay` (times `loss_scale`; a tuple with groups), `decay_flags`, `is_group`, `is_group_lr`,
    `dynamic_lr`. Raises ConfigError for arguments that make no sense.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        parameters: Parameters,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(auto_prefix=False)
        if _has_parameters(learning_rate):
            learning_rate, parameters = parameters, learning_rate  # type: ignore[assignment]
        groups, order = read_groups(parameters, self.where)
        weight_decay = scalar(weight_decay)
        at_least(self.where, 0.0, weight_decay=weight_decay)
        above(self.where, 0.0, loss_scale=loss_scale)
        self.is_group, self.is_group_params_ordered = groups[0].number >= 0, order is not None
        self.is_group_lr = any("lr" in group.settings for group in groups)
        self.loss_scale, self.need_scale = float(loss_scale), loss_scale != 1.0
        self.reciprocal_scale = Tensor(1.0 / loss_scale, dt.float32)
        home = {parameter: group for group in groups for parameter in group.parameters}
        self.set_parameters(home if order is None else order)
        owners = [home[parameter] for parameter in self.parameters]
        self._set_rates_of_groups(learning_rate, groups, owners)
        self._set_decay(float(weight_decay), owners)
        self.grad_centralization_flags = tuple([group.centralizes for group in owners])
        self.use_parallel, self.optim_filter = False, (True,) * self.param_length
        self.map_, self.hyper_map = ops.Map(), ops.HyperMap()
        self._unique, self._target = True, str(context.get_context("device_target"))

    def set_parameters(self, parameters: Iterable[Parameter]) -> None:
        """Set `parameters`, also called `params`, those of the network, which are not parameters of this cell."""
        self.__dict__["parameters"] = self.__dict__["params"] = ParameterTuple(parameters)
        self.param_length = len(self.parameters)
        self._places = {parameter: k for k, parameter in enumerate(self.parameters)}

    def _set_rates_of_groups(self, rate: LearningRate, groups: "Sequence[Group]", owners: "Sequence[Group]") -> None:
        """Create the learning rates, with the names of MindSpore, and set `schedules` and `global_step`."""
        self.schedules: dict[Parameter, LearningRateSchedule] = {}
        shared = self._rate("learning_rate", rate) if not all("lr" in group.settings for group in groups) else None
        own = {
            group.number: self._rate(f"learning_rate_group_{group.number}", group.settings["lr"])
            for group in groups
            if "lr" in group.settings
        }
        rates = tuple([own.get(group.number, shared) for group in owners])
        for each in dict.fromkeys(rate for rate in rates if rate is not None):
            self.insert_param_to_cell(each.name, each)
        # Not by an attribute of the cell: the tuple would replace the parameter that has its name.
        self.__dict__["learning_rate"] = rates if self.is_group_lr else shared
        self.dynamic_lr = bool(self.schedules)
        self.global_step: Any = None
        if self.dynamic_lr:
            self.global_step = Parameter(np.zeros(1, np.int32), "global_step", requires_grad=False)

    def _rate(self, name: str, given: LearningRate) -> Parameter:
        first, schedule = schedule_of(given, self.where)
        rate = Parameter(Tensor(first, dt.float32), name, requires_grad=False)
        if schedule is not None:
            self.schedules[rate] = schedule
        return rate

    def _set_decay(self, weight_decay: float, owners: "Sequence[Group]") -> None:
        decays = tuple([group.weight_decay(weight_decay) * self.loss_scale for group in owners])
        names = [parameter.name for parameter in self.parameters]
        self.weight_decay: Any = decays if self.is_group else decays[0]
        if self.is_group:
            self.decay_flags = tuple([decay > 0 for decay in decays])
            self.weight_decay_tensor_tuple = tuple([Tensor(decay, dt.float32) for decay in decays])
        else:
            self.decay_flags = tuple(["beta" not in name and "gamma" not in name for name in names])
            self.weight_decay_tensor = Tensor(decays[0], dt.float32)
        self.exec_weight_decay = any(decay > 0 for decay in decays)

    def __call__(self, *inputs: Any) -> Any:
        """Assign new values; True, or what `construct` returns, as a value for `ops.depend`.

        Parameters and state, the master copy, keep their types under every `precision_mode`.
        """
        step, condition = current(), self.__dict__.pop("_condition", None)
        with step.use_precision(None), step.tape.unrecorded():
            begin = step.mark()
            result = super().__call__(*inputs)
            if condition is not None:
                step.restore_unless(condition, begin)
        return True if result is None else result

    def only_if(self, condition: Value) -> None:
        """The next call of a step assigns nothing unless a Bool scalar, which may be known only then, is true."""
        self.__dict__["_condition"] = condition

    @property
    def where(self) -> dict[str, str]:
        """The row that names the optimizer in an error."""
        return {"optimizer": type(self).__name__}

    def construct(self, gradients: Sequence[Value]) -> Any:
        raise NotImplementedError

    # Gradients

    def prepare(self, parameter: Parameter, gradient: Value) -> Value:
        """The gradient with weight decay, centralized, and divided by the loss scale."""
        k = self._places[parameter]
        return self._scaled(self._centralized(k, self._decayed(k, gradient)))

    def decay_weight(self, gradients: Sequence[Value]) -> tuple[Value, ...]:
        """The gradients of all `parameters`, in order, with weight decay."""
        return tuple([self._decayed(k, gradient) for k, gradient in enumerate(gradients)])

    def gradients_centralization(self, gradients: Sequence[Value]) -> tuple[Value, ...]:
        """The gradients, without their mean over all axes but the first where the group has `grad_centralization`.

        As in MindSpore, gradients stay as they are unless their second axis is a multiple of 16.
        """
        return tuple([self._centralized(k, gradient) for k, gradient in enumerate(gradients)])

    def scale_grad(self, gradients: Sequence[Value]) -> tuple[Value, ...]:
        """The gradients divided by the loss scale."""
        return tuple([self._scaled(gradient) for gradient in gradients])

    def _decayed(self, k: int, gradient: Value) -> Value:
        if not (self.exec_weight_decay and self.decay_flags[k]):
            return gradient
        result: Value = gradient + self.parameters[k] * self.get_weight_decay(k)
        return result

    def get_weight_decay(self, k: int) -> float:
        """The penalty of parameter `k`, times the loss scale."""
        return float(self.weight_decay[k] if isinstance(self.weight_decay, tuple) else self.weight_decay)

    def _centralized(self, k: int, gradient: Value) -> Value:
        shape = gradient.shape
        if not self.grad_centralization_flags[k] or len(shape) < 2 or shape[1] % CENTRALIZED_CHANNELS:
            return gradient
        return gradient - ops.ReduceMean(keep_dims=True)(gradient, tuple(range(1, len(shape))))

    def _scaled(self, gradient: Value) -> Value:
        return gradient * (1.0 / self.loss_scale) if self.need_scale else gradient

    # Learning rates

    def get_lr(self) -> Any:
        """The learning rate of this step: a scalar; with rates of groups a tuple, one for each parameter."""
        return self.learning_rate

    def each_lr(self) -> tuple[Parameter, ...]:
        """The learning rate of each of `parameters`."""
        rate = self.learning_rate
        return rate if isinstance(rate, tuple) else (rate,) * len(self.parameters)

    def get_lr_parameter(self, param: Parameter | Sequence[Parameter]) -> Any:
        """The learning rate of a parameter, or those of a list of parameters.

        It is a Parameter, of all steps for a rate per step, or the schedule. Raises ConfigError for parameters that the
        optimizer does not have.
        """
        if not isinstance(param, Parameter):
            return [self.get_lr_parameter(each) for each in param]
        if param not in self._places:
            raise ConfigError("the optimizer has no such parameter", **self.where, parameter=param.name)
        rate = self.each_lr()[self._places[param]]
        schedule = self.schedules.get(rate)
        if isinstance(schedule, PerStepLR):
            return Parameter(np.array(schedule.learning_rates, np.float32), rate.name, requires_grad=False)
        return rate if schedule is None else schedule

    @property
    def rates(self) -> tuple[Parameter, ...]:
        """The learning rates, each once."""
        return tuple(dict.fromkeys(self.each_lr()))

    @property
    def schedule(self) -> LearningRateSchedule | None:
        """The first schedule of a learning rate; None when all are numbers."""
        return next(iter(self.schedules.values()), None)

    def next_rates(self, count: int) -> list[np.ndarray]:
        """The rates of the next `count` steps, float32 [count], for each of `schedules`."""
        start = int(self.global_step.array[0])
        return [schedule.rates(start, count) for schedule in self.schedules.values()]

    def set_rates(self, rates: Sequence[np.ndarray], step: int) -> None:
        """Set the scheduled learning rates to those of a step among `next_rates`, by its number."""
        for rate, of_steps in zip(self.schedules, rates, strict=True):
            rate.set_data(of_steps[step])

    def advance(self, rates: Sequence[np.ndarray]) -> None:
        """Count steps with these rates; the learning rates become the last of them."""
        self.set_rates(rates, -1)
        self.global_step.set_data(self.global_step.array + np.int32(len(rates[0])))

    # State

    def assign_all(self, targets: Sequence[Parameter], values: Sequence[Value]) -> None:
        """Assign several values."""
        for target, value in zip(targets, values, strict=True):
            self.assign(target, value)

    def state(self, prefix: str, fill: float = 0.0, scalar: bool = False) -> tuple[Parameter, ...]:
        """One state per parameter, named `{prefix}.{parameter}`."""
        states = []
        for parameter in self.parameters:
            start = np.full(() if scalar else parameter.shape, fill, parameter.dtype.numpy)
            states.append(Parameter(start, f"{prefix}.{parameter.name}", requires_grad=False))
            self.insert_param_to_cell(states[-1].name, states[-1])
        return tuple(states)

    # What only sparse gradients and the parallel optimizer of MindSpore need

    @property
    def unique(self) -> bool:
        """Whether indices of sparse gradients would be made unique; without effect, since gradients are dense."""
        return self._unique

    @unique.setter
    def unique(self, value: bool) -> None:
        flag(self.where, unique=value)
        self.__dict__["_unique"] = value

    @property
    def target(self) -> str:
        """Where MindSpore updates parameters: CPU, GPU or Ascend; without effect, the step decides."""
        return self._target

    @target.setter
    def target(self, value: str) -> None:
        one_of(self.where, ("CPU", "GPU", "Ascend"), target=value)
        self.__dict__["_target"] = value

    def broadcast_params(self, optim_result: object) -> None:
        """Raises ConfigError: there is no parallel optimizer, each rank updates all parameters."""
        repair = "leave it out: gradients of all ranks are reduced before the optimizer"
        raise ConfigError("there is no parallel optimizer", **self.where, repair=repair)


def _has_parameters(value: object) -> bool:
    """Whether a value is a list of parameters or groups."""
    return isinstance(value, list | tuple) and any(isinstance(entry, Parameter | dict) for entry in value)


# Scheduled learning rates: whoever executes a step sets them before it, and counts it afterwards.


def scheduled_optimizers(cell: Cell) -> list[Optimizer]:
    """The optimizers in a cell with a learning rate that has a schedule."""
    inner = dict.fromkeys(cell for _, cell in cell.cells_and_names())
    return [cell for cell in inner if isinstance(cell, Optimizer) and cell.schedules]


@contextmanager
def scheduled_step(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    """Context of one step with the scheduled learning rates; a step that raises does not count."""
    rates = [optimizer.next_rates(1) for optimizer in optimizers]
    for optimizer, each in zip(optimizers, rates, strict=True):
        optimizer.set_rates(each, 0)
    yield
    for optimizer, each in zip(optimizers, rates, strict=True):
        optimizer.advance(each)


# Parameter groups: dicts with parameters and their own learning rate, weight decay or centralization.

KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


class Group(Frozen):
    """The dict `number` of a list: its parameters, and those of the keys `lr`, `weight_decay` and
    `grad_centralization` that it has."""

    number: int
    parameters: tuple[Parameter, ...]
    settings: Mapping[str, Any]

    def weight_decay(self, default: float) -> float:
        """The penalty of the group."""
        return float(scalar(self.settings.get("weight_decay", default)))

    @property
    def centralizes(self) -> bool:
        """Whether gradients are centralized."""
        return bool(self.settings.get("grad_centralization", False))


def read_groups(given: object, where: Where) -> tuple[list[Group], tuple[Parameter, ...] | None]:
    """The groups of an optimizer's `parameters`, and the order that `order_params` gives to all of them.

    Parameters without groups are one group, whose `number` is -1. Raises ConfigError for what are neither parameters
    nor groups of them.
    """
    entries = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) else [given]
    if not entries:
        raise ConfigError("an optimizer needs parameters", **where)
    if not any(isinstance(entry, Mapping) for entry in entries):
        return [Group(-1, _checked(entries, where), {})], None
    groups, order = [], None
    for number, entry in enumerate(entries):
        place = {**where, "group": number}
        if not isinstance(entry, Mapping):
            raise ConfigError("parameters are all in groups, or none is", **place, given=type(entry).__name__)
        _check_keys(entry, place)
        if "order_params" in entry:
            order = _checked(_listed(entry["order_params"], "order_params", place), place)
        else:
            groups.append(_group(number, entry, place))
    _check_members(groups, order, where)
    return groups, order


def _group(number: int, entry: Mapping[str, Any], place: Where) -> Group:
    if "params" not in entry:
        raise ConfigError("a parameter group needs the key params", **place, given=", ".join(entry) or "{}")
    members = _listed(entry["params"], "params", place)
    if not members:
        raise ConfigError("a parameter group needs parameters", **place, repair="leave out a group without parameters")
    if "weight_decay" in entry:
        at_least(place, 0.0, weight_decay=scalar(entry["weight_decay"]))
    if "grad_centralization" in entry:
        flag(place, grad_centralization=entry["grad_centralization"])
    return Group(number, _checked(members, place), {key: entry[key] for key in entry if key != "params"})


def _check_keys(entry: Mapping[str, Any], place: Where) -> None:
    for key in entry:
        if key not in KEYS:
            raise ConfigError("a parameter group has no such key", **place, given=repr(key), **known_names(key, KEYS))
    if "order_params" in entry and len(entry) > 1:
        given = ", ".join(entry)
        raise ConfigError("order_params is the only key of its dict", **place, given=given, repair="a dict for itself")


def _check_members(groups: Sequence[Group], order: tuple[Parameter, ...] | None, where: Where) -> None:
    """Raise ConfigError for parameters in two groups, and for an order of other parameters."""
    members: set[Parameter] = set()
    for group in groups:
        for parameter in group.parameters:
            if parameter in members:
                raise ConfigError("a parameter is in two groups", **where, parameter=parameter.name)
            members.add(parameter)
    if not members:
        raise ConfigError("an optimizer needs parameters", **where)
    if order is not None and (len(order) != len(members) or set(order) != members):
        other = members.symmetric_difference(order)
        rows = {"order_params": len(order), "in_groups": len(members), "other": _names(other) or None}
        raise ConfigError("order_params has every parameter of the groups once", **where, **rows)


def _listed(value: object, key: str, place: Where) -> list[object]:
    if isinstance(value, Parameter) or not isinstance(value, Iterable):
        raise ConfigError(f"{key} must be a list of parameters", **place, given=type(value).__name__)
    return list(value)


def _checked(entries: Sequence[object], place: Where) -> tuple[Parameter, ...]:
    for entry in entries:
        if not isinstance(entry, Parameter):
            rows = {"given": type(entry).__name__, "repair": "network.trainable_params()"}
            raise ConfigError("an optimizer takes parameters, or dicts with the key params", **place, **rows)
    return tuple(entries)  # type: ignore[arg-type]


def _names(parameters: Iterable[Parameter]) -> str:
    return ", ".join(sorted(parameter.name for parameter in parameters))
