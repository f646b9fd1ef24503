"""How a `Model` scales its loss (spec section 6.4)."""

from runner.errors import ConfigError
from runner.nn.optim.optimizer import Optimizer
from runner.nn.wrap import DynamicLossScaleUpdateCell, FixedLossScaleUpdateCell, LossScaleUpdateCell
from runner.validation.arguments import above, at_least, whole
from runner.validation.rules import KeywordNames


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
