"""What listens to training: hooks, and the callbacks of the reference (spec sections 6.2 and 6.3)."""

from typing import TYPE_CHECKING

from runner.host.lazy import late_names

if TYPE_CHECKING:
    from runner.train.callback.base import Callback, CallbackList, CallbackParameters, RunContext, step_in_epoch
    from runner.train.callback.checkpoint import CheckpointConfig, ModelCheckpoint
    from runner.train.callback.monitor import LossMonitor, TimeMonitor, check_losses
    from runner.train.callback.stopping import EarlyStopping, LambdaCallback, LearningRateScheduler
else:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "base": "Callback CallbackList CallbackParameters RunContext step_in_epoch",
            "checkpoint": "CheckpointConfig ModelCheckpoint",
            "monitor": "LossMonitor TimeMonitor check_losses",
            "stopping": "EarlyStopping LambdaCallback LearningRateScheduler",
        },
    )

__all__ = [
    "Callback",
    "CallbackList",
    "CallbackParameters",
    "CheckpointConfig",
    "EarlyStopping",
    "LambdaCallback",
    "LearningRateScheduler",
    "LossMonitor",
    "ModelCheckpoint",
    "RunContext",
    "TimeMonitor",
    "check_losses",
    "step_in_epoch",
]
