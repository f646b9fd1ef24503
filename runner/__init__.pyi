from runner import (
    common as common,
    context as context,
    dataset as dataset,
    dtype as dtype,
    nn as nn,
    ops as ops,
    register as register,
)
from runner.common import Parameter as Parameter, ParameterTuple as ParameterTuple, Tensor as Tensor
from runner.errors import RunnerError as RunnerError
from runner.experiment.launch import run as run
from runner.experiment.script.record import record as record
from runner.experiment.script.training import RecordedRun as RecordedRun
from runner.host.seed import get_seed as get_seed, set_seed as set_seed
from runner.ops.print.file import parse_print as parse_print, print_entries as print_entries
from runner.register import key as key
from runner.train import Model as Model
from runner.train.checkpoint import (
    load_checkpoint as load_checkpoint,
    load_param_into_net as load_param_into_net,
    save_checkpoint as save_checkpoint,
)
from runner.train.device_setup import initialize_system as initialize_system, shutdown_system as shutdown_system
from runner.train.dump import dump as dump
from runner.train.loss_scale_manager import (
    DynamicLossScaleManager as DynamicLossScaleManager,
    FixedLossScaleManager as FixedLossScaleManager,
    LossScaleManager as LossScaleManager,
)

__version__: str
