"""Mixed precision: its levels, and the cell of a training step of a `Model` or a user's loop (spec section 6.4)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import context, dtype as dt, nn
from runner.core.precision import Policy, policy
from runner.device import Device
from runner.errors import ConfigError, known_names
from runner.host.log import note_once
from runner.train.loop import MakeSteps
from runner.train.loss_scale_manager import DynamicLossScaleManager, LossScaleManager
from runner.validation.arguments import flag

__all__ = ["build_train_network"]

# `precision_mode` and loss scale of each level; O0 leaves both as they are.
LEVELS: dict[str, tuple[str | None, type[DynamicLossScaleManager] | None]] = {
    "O0": (None, None),
    "O2": ("allow_mix_precision", DynamicLossScaleManager),
    "O3": ("force_fp16", None),
}
_BY_LEVEL = "by level"  # None is a choice of its own: no loss scale
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
        rows = known_names(name, ("loss_scale_manager", "keep_batchnorm_fp32", "acc_level"))
        raise ConfigError("unknown argument of Model", argument=name, **rows)
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
    network: nn.Cell,
    optimizer: nn.Optimizer,
    loss_fn: nn.Cell | None = None,
    level: str = "O0",
    *,
    cast_model_type: dt.DType | None = None,
    keep_batchnorm_fp32: bool | None = None,
    loss_scale_manager: LossScaleManager | str | None = _BY_LEVEL,
) -> nn.Cell:
    """The cell of a training step, as `Model` builds it; its calls return what those of `nn.TrainOneStepCell` return.

    `level` O2 computes the network in Float16, its batch normalizations in Float32, with a dynamic loss scale; O3
    everything in Float16 without one; O0 changes nothing. The other arguments replace these choices; without a
    `loss_fn` the network returns the loss. The loss is Float32. With a loss scale that is tested for overflows the cell
    is an `nn.TrainOneStepWithLossScaleCell`. Raises ConfigError.
    """
    level = resolve_level(level, context.device())
    _check(network, optimizer, loss_fn, cast_model_type)
    half = level != "O0" if cast_model_type is None else cast_model_type is dt.float16
    keeps = level == "O2" if keep_batchnorm_fp32 is None else keep_batchnorm_fp32
    flag({}, keep_batchnorm_fp32=keeps)
    if half:
        network.to_float(dt.float16)
        for _, cell in network.cells_and_names():
            if keeps and isinstance(cell, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                cell.to_float(dt.float32)
        if loss_fn is not None:
            loss_fn.to_float(dt.float32)
    return training_cell(network, loss_fn, optimizer, "O0", _manager(level, loss_scale_manager)).set_train()


def _check(network: object, optimizer: object, loss_fn: object, cast_model_type: object) -> None:
    if not isinstance(network, nn.Cell) or not isinstance(optimizer, nn.Optimizer):
        rows = {"network": type(network).__name__, "optimizer": type(optimizer).__name__}
        raise ConfigError("build_train_network takes a cell and an optimizer", **rows)
    if loss_fn is not None and not isinstance(loss_fn, nn.Cell):
        raise ConfigError("loss_fn is a cell", given=repr(loss_fn))
    if cast_model_type not in (None, dt.float16, dt.float32):
        raise ConfigError("a network computes in Float16 or Float32", cast_model_type=cast_model_type)


def _manager(level: str, given: LossScaleManager | str | None) -> LossScaleManager | None:
    default = LEVELS[level][1]
    if given == _BY_LEVEL:
        return None if default is None else default()
    if given is not None and not isinstance(given, LossScaleManager):
        raise ConfigError("not a loss scale manager", given=repr(given), nearest="FixedLossScaleManager")
    return given
