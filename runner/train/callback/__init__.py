"""What listens to training: hooks, and the callbacks of the reference (spec sections 6.2 and 6.3)."""

from runner.train.callback.base import Callback, CallbackList, CallbackParameters, RunContext, step_in_epoch
from runner.train.callback.checkpoint import CheckpointConfig, ModelCheckpoint
from runner.train.callback.monitor import LossMonitor, TimeMonitor, check_losses
from runner.train.callback.stopping import EarlyStopping, LambdaCallback, LearningRateScheduler

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
