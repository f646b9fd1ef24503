from runner.train.callback.base import (
    Callback as Callback,
    CallbackList as CallbackList,
    CallbackParameters as CallbackParameters,
    RunContext as RunContext,
    StepValues as StepValues,
    _InternalCallbackParam as _InternalCallbackParam,
    step_in_epoch as step_in_epoch,
)
from runner.train.callback.standard import (
    CheckpointConfig as CheckpointConfig,
    EarlyStopping as EarlyStopping,
    EpochMonitor as EpochMonitor,
    LambdaCallback as LambdaCallback,
    LearningRateScheduler as LearningRateScheduler,
    LossMonitor as LossMonitor,
    ModelCheckpoint as ModelCheckpoint,
    TimeMonitor as TimeMonitor,
    check_losses as check_losses,
)
from runner.train.callback.summary_collector import SummaryCollector as SummaryCollector
