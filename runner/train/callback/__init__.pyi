from runner.train.callback.base import (
    Callback as Callback,
    CallbackList as CallbackList,
    CallbackParameters as CallbackParameters,
    RunContext as RunContext,
    StepValues as StepValues,
    _InternalCallbackParam as _InternalCallbackParam,
    step_in_epoch as step_in_epoch,
)
from runner.train.callback.checkpoint import CheckpointConfig as CheckpointConfig, ModelCheckpoint as ModelCheckpoint
from runner.train.callback.monitor import (
    EpochMonitor as EpochMonitor,
    LossMonitor as LossMonitor,
    TimeMonitor as TimeMonitor,
    check_losses as check_losses,
)
from runner.train.callback.stopping import (
    EarlyStopping as EarlyStopping,
    LambdaCallback as LambdaCallback,
    LearningRateScheduler as LearningRateScheduler,
)
from runner.train.callback.summary_collector import SummaryCollector as SummaryCollector
