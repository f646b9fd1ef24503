"""Mixed precision: the levels of a `Model`, the cell of its training step, and such a cell for the user's own loop."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import context, dtype as dt, nn
from runner.core.precision import Policy, policy
from runner.core.values import Value, map_values
from runner.device import Device
from runner.errors import ConfigError, known_names, nearest
from runner.host.console import note_once
from runner.nn.optim.optimizer import Optimizer
from runner.nn.wrap import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, LossScaleUpdateCell
from runner.train.loop import MakeSteps
from runner.validation.arguments import above, at_least, whole
from runner.validation.rules import KeywordNames

# Loss scale: its managers.


class LossScaleManager(KeywordNames):
    """Base: the initial loss scale, and the cell that updates it."""

    def get_loss_scale(self) -> float:
        """The scale of the first step."""
        raise NotImplementedError

    def get_update_cell(self) -> LossScaleUpdateCell | None:
        """The cell that computes the next scale; None when overflows are not detected."""
        raise NotImplementedError

    def update_loss_scale(self, overflow: bool) -> None:
        """Update the scale after a step of a training loop of the user, in which the gradients did or did not overflow.

        `Model` does so in the step itself, by the cell of `get_update_cell`.
        """
        raise NotImplementedError

    @property
    def where(self) -> dict[str, str]:
        """The row that names the manager in an error."""
        return {"loss_scale_manager": type(self).__name__}

    def check(self, optimizer: Optimizer) -> None:
        """Raise ConfigError when the optimizer divides by another scale than that of the gradients it receives."""
        expected = self.get_loss_scale() if self.get_update_cell() is None else 1.0
        if optimizer.loss_scale != expected:
            given = f"{type(optimizer).__name__}(loss_scale={optimizer.loss_scale})"
            rows = {**self.where, "given": given, "allowed": expected}
            raise ConfigError("the optimizer divides by another loss scale", **rows)


class FixedLossScaleManager(LossScaleManager):
    """A constant scale. `drop_overflow_update`: steps that overflow are skipped.

    Without it the optimizer must have the same `loss_scale`, and divides. Raises ConfigError for a scale below 1.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        at_least(self.where, 1.0, loss_scale=loss_scale)
        self._scale, self._drops = float(loss_scale), bool(drop_overflow_update)

    def get_loss_scale(self) -> float:
        return self._scale

    def get_drop_overflow_update(self) -> bool:
        """Whether steps that overflow are skipped."""
        return self._drops

    def update_loss_scale(self, overflow: bool) -> None:
        """Does nothing: the scale is constant."""

    def get_update_cell(self) -> LossScaleUpdateCell | None:
        return FixedLossScaleUpdateCell(self._scale) if self._drops else None


class DynamicLossScaleManager(LossScaleManager):
    """A scale as large as the gradients allow: divided by `scale_factor` at an overflow (at least 1), multiplied by it
    after `scale_window` steps without one. Steps that overflow are skipped.

    Raises ConfigError for a scale below 1, a factor that is not above 1, and a window that is not a positive int.
    """

    def __init__(self, init_loss_scale: float = 2.0**24, scale_factor: float = 2.0, scale_window: int = 2000) -> None:
        at_least(self.where, 1.0, init_loss_scale=init_loss_scale)
        above(self.where, 1.0, scale_factor=scale_factor)
        whole(self.where, 1, scale_window=scale_window)
        self._scale, self._factor, self._window = float(init_loss_scale), float(scale_factor), scale_window
        self._good_steps = 0  # consecutive ones since the last change of the scale

    def get_loss_scale(self) -> float:
        return self._scale

    def get_drop_overflow_update(self) -> bool:
        """True: steps that overflow are skipped."""
        return True

    def update_loss_scale(self, overflow: bool) -> None:
        """Divide the scale at an overflow, to at least 1; multiply it after `scale_window` steps without one."""
        self._good_steps = 0 if overflow else self._good_steps + 1
        if overflow:
            self._scale = max(self._scale / self._factor, 1.0)
        elif self._good_steps == self._window:
            self._scale, self._good_steps = self._scale * self._factor, 0

    def get_update_cell(self) -> LossScaleUpdateCell:
        return DynamicLossScaleUpdateCell(self._scale, self._factor, self._window)


# The levels, and the cell of a training step.

# `precision_mode` and loss scale of each level; O0 leaves both as they are.
LEVELS: dict[str, tuple[str | None, type[DynamicLossScaleManager] | None]] = {
    "O0": (None, None),
    "O2": ("allow_mix_precision", DynamicLossScaleManager),
    "O3": ("force_fp16", None),
}
ARGUMENTS = (  # of Model
    *("network", "loss_fn", "optimizer", "metrics", "eval_network", "eval_indexes", "amp_level", "loss_scale_manager"),
    *("keep_batchnorm_fp32", "acc_level"),
)
BATCH_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d)
AUTOMATIC = {"GPU": "O2", "Ascend": "O3"}


def resolve_level(amp_level: str, device: Device, **arguments: Any) -> str:
    """One of the `LEVELS`; `auto` is O2 on a GPU and O3 on Ascend.

    `arguments` are those of MindSpore's `Model` that have no effect here, which is reported. Raises ConfigError for
    other levels and arguments.
    """
    if amp_level == "auto" and device.target not in AUTOMATIC:
        raise ConfigError(
            "amp_level auto needs a GPU or Ascend", device=device, repair="amp_level='O2', which the CPU can do too"
        )
    level = AUTOMATIC[device.target] if amp_level == "auto" else amp_level
    if level not in LEVELS:
        rows = known_names(amp_level, (*LEVELS, "auto"))
        raise ConfigError("unknown amp_level", given=repr(amp_level), **rows)
    _note_without_effect(level, **arguments)
    return level


def _note_without_effect(level: str, keep_batchnorm_fp32: bool = True, acc_level: str = "O0", **others: Any) -> None:
    if others:
        name = next(iter(others))
        raise ConfigError("unknown argument of Model", argument=name, **known_names(name, ARGUMENTS))
    if not keep_batchnorm_fp32 and level == "O2":
        note_once("keep_batchnorm_fp32=False has no effect: statistics of BatchNorm stay Float32")
    if acc_level != "O0":
        note_once(f"acc_level={acc_level!r} has no effect: runner does not skip steps or layers")


def policy_of(level: str, precision_mode: str | None) -> Policy | None:
    """The precision policy of a model: by its level, or else its own `precision_mode`, or else the context's."""
    mode = LEVELS[level][0] or precision_mode or context.get_context("precision_mode")
    return policy(mode)


def training_cell(
    network: nn.Cell,
    loss_fn: nn.Cell | None,
    optimizer: nn.Optimizer | None,
    level: str,
    manager: LossScaleManager | None,
) -> nn.Cell:
    """The cell of a training step. Raises ConfigError for a loss scale without an optimizer."""
    cell = network if loss_fn is None else nn.WithLossCell(network, loss_fn)
    if optimizer is None:
        if manager is not None:
            raise ConfigError("a loss scale needs an optimizer", loss_scale_manager=type(manager).__name__)
        return cell
    default = LEVELS[level][1]
    manager = default() if manager is None and default is not None else manager
    if manager is None:
        return nn.TrainOneStepCell(cell, optimizer, optimizer.loss_scale)
    manager.check(optimizer)
    update = manager.get_update_cell()
    if update is None:
        return nn.TrainOneStepCell(cell, optimizer, manager.get_loss_scale())
    return nn.TrainOneStepWithLossScaleCell(cell, optimizer, update)


def with_overflow_check(make: "MakeSteps", cell: nn.Cell) -> "MakeSteps":
    """`make` with a check that raises when gradients overflow in too many consecutive steps."""
    if not isinstance(cell, nn.TrainOneStepWithLossScaleCell):
        return make

    def checked_steps(count: int, leave: Callable[[], bool]) -> np.ndarray:
        losses = make(count, leave)
        cell.check()
        return losses

    return checked_steps


def build_train_network(
    network: nn.Cell, optimizer: nn.Optimizer, loss_fn: nn.Cell | None = None, level: str = "O0", **kwargs: Any
) -> nn.Cell:
    """The cell of a training step: a call with data and label makes a step, and returns the loss.

    With O2 and O3 the network computes in Float16 (`to_float`), with O2 all but its batch normalisations, and the loss
    in Float32; O2 scales the loss dynamically, and returns what `nn.TrainOneStepWithLossScaleCell` returns. The
    arguments `cast_model_type` (Float16 or Float32), `keep_batchnorm_fp32` and `loss_scale_manager` replace those of
    the level. Raises ConfigError for other levels and arguments, and where the loss scale needs another optimizer.
    """
    level = resolve_level(level, context.device())
    settings: dict[str, Any] = {
        "cast_model_type": dt.float32 if level == "O0" else dt.float16,
        "keep_batchnorm_fp32": level == "O2",
        "loss_scale_manager": DynamicLossScaleManager() if level == "O2" else None,
    }
    for name in kwargs.keys() - settings.keys():
        rows = {"allowed": ", ".join(settings), "nearest": nearest(name, settings)}
        raise ConfigError(f"build_train_network has no argument {name!r}", **rows)
    settings |= kwargs
    if settings["cast_model_type"] not in (dt.float16, dt.float32):
        raise ConfigError("a network is cast to Float16 or Float32", cast_model_type=settings["cast_model_type"])
    if settings["cast_model_type"] is dt.float16:
        network.to_float(dt.float16)
        for _, cell in network.cells_and_names():
            if settings["keep_batchnorm_fp32"] and isinstance(cell, BATCH_NORMALIZATIONS):
                cell.to_float(dt.float32)
        network = network if loss_fn is None else _WithSingleLoss(network, loss_fn)
        loss_fn = None
    return training_cell(network, loss_fn, optimizer, "O0", settings["loss_scale_manager"]).set_train()


class _WithSingleLoss(nn.WithLossCell):
    """As `nn.WithLossCell`; floats of output and label are cast to Float32."""

    def construct(self, *columns: Value) -> Value:
        *data, label = columns
        result: Value = self._loss_fn(*map_values(_single, (self._backbone(*data), label)))
        return result


def _single(value: Value) -> Value:
    return value.astype(dt.float32, copy=False) if value.dtype.is_float else value
