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
from runner.context.dumps import dump as dump
from runner.dtype import (
    Int as Int,
    Type as Type,
    bool_ as bool_,
    byte as byte,
    double as double,
    dtype_to_nptype as dtype_to_nptype,
    dtype_to_pytype as dtype_to_pytype,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    float_ as float_,
    get_py_obj_dtype as get_py_obj_dtype,
    half as half,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int_ as int_,
    intc as intc,
    intp as intp,
    issubclass_ as issubclass_,
    list_ as list_,
    number as number,
    pytype_to_dtype as pytype_to_dtype,
    short as short,
    single as single,
    string as string,
    tensor as tensor,
    tensor_type as tensor_type,
    tuple_ as tuple_,
    type_none as type_none,
    ubyte as ubyte,
    uint as uint,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    uintc as uintc,
    uintp as uintp,
    ushort as ushort,
)
from runner.errors import RunnerError as RunnerError
from runner.experiment.launch import run as run
from runner.experiment.script import RecordedRun as RecordedRun, record as record
from runner.host.seed import get_seed as get_seed, set_seed as set_seed
from runner.mindspore.log import get_level as get_level, get_log_config as get_log_config
from runner.mindspore.networks import (
    DatasetHelper as DatasetHelper,
    connect_network_with_dataset as connect_network_with_dataset,
    export as export,
)
from runner.nn.steps import ms_function as ms_function
from runner.ops.effects import parse_print as parse_print, print_entries as print_entries
from runner.register import key as key
from runner.report.notebook import (
    RunComparison as RunComparison,
    SavedRun as SavedRun,
    compare_runs as compare_runs,
    load_run as load_run,
)
from runner.train import Model as Model
from runner.train.amp import (
    DynamicLossScaleManager as DynamicLossScaleManager,
    FixedLossScaleManager as FixedLossScaleManager,
    LossScaleManager as LossScaleManager,
    build_train_network as build_train_network,
)
from runner.train.checkpoint import (
    load_checkpoint as load_checkpoint,
    load_param_into_net as load_param_into_net,
    save_checkpoint as save_checkpoint,
)
from runner.train.setup import initialize_system as initialize_system, shutdown_system as shutdown_system

__version__: str
