"""The group `parallel`: keys, defaults, and every way in which they can be wrong."""

import pytest
from tables import table

from runner.config.compose import CommandLine, compose
from runner.config.groups.services import DataParallel, StandAlone
from runner.errors import ConfigError


def parallel(*lines):
    return compose(CommandLine(lines)).config.parallel


def test_the_defaults():
    assert parallel() == StandAlone()
    assert parallel("parallel=data_parallel") == DataParallel(
        device_num=None,
        global_rank=None,
        gradients_mean=False,
        parameter_broadcast=False,
        all_reduce_fusion_config=None,
    )


def test_every_key():
    keys = "device_num=4", "global_rank=3", "gradients_mean=true", "parameter_broadcast=yes"
    made = parallel("parallel=data_parallel", *[f"parallel.{k}" for k in keys[:3]], "parallel.parameter_broadcast=true")
    assert made == DataParallel("data_parallel", 4, 3, True, True)
    more = parallel("parallel=data_parallel", "parallel.sync_batch_norm=true", "parallel.timeout_seconds=2.5")
    assert (more.sync_batch_norm, more.timeout_seconds) == (True, 2.5)
    assert parallel("parallel=data_parallel", "parallel.all_reduce_fusion_config=[2,6]").all_reduce_fusion_config == (
        2,
        6,
    )


@pytest.mark.parametrize(
    "line",
    [
        *("session.enable_exception_dump=true", "session.loss_scale=dynamic", "session.graph_run_mode=0"),
        *("session.precision_mode=allow_mix_precision", "checkpoint.load=."),
    ],
)
def test_what_one_process_can(line):
    assert parallel("parallel=data_parallel", line) == DataParallel()


@table(
    ("lines", "said"),
    [
        (("parallel=auto_parallel",), "not supported; stand_alone and data_parallel are"),
        (("parallel=semi_auto_parallel",), "not supported; stand_alone and data_parallel are"),
        (("parallel=hybrid_parallel",), "not supported; stand_alone and data_parallel are"),
        (("parallel=data_paralel",), "nearest  data_parallel"),
        (("parallel.gradients_mean=true",), "add parallel=data_parallel first"),
        (("parallel=data_parallel", "parallel.device_num=0"), "1 to 4096"),
        (("parallel=data_parallel", "parallel.timeout_seconds=0"), "above 0"),
        (("parallel=data_parallel", "parallel.heartbeat_minutes=0"), "above 0"),
        (("parallel=data_parallel", "parallel.timeout_seconds=soon"), "not a number"),
        (("parallel=data_parallel", "parallel.sync_batch_norm=1"), "not true or false"),
        (("parallel.sync_batch_norm=true",), "add parallel=data_parallel first"),
        (("parallel=data_parallel", "parallel.device_num=4097"), "1 to 4096"),
        (("parallel=data_parallel", "parallel.global_rank=4096"), "0 to 4095"),
        (("parallel=data_parallel", "parallel.gradients_mean=2"), "not true or false"),
        (("parallel=data_parallel", "parallel.all_reduce_fusion_config=[]"), "indices must not be empty"),
        (("parallel=data_parallel", "parallel.all_reduce_fusion_config=3"), "indices must be a list"),
        (("parallel=data_parallel", "parallel.all_reduce_fusion_config=[4,4]"), "indices must differ"),
        (("parallel=data_parallel", "parallel.all_reduce_fusion_config=[4,2]"), "indices must ascend"),
        (("parallel=data_parallel", "device.id=1"), "each rank uses the device with its own number"),
        (
            ("parallel=data_parallel", "session.auto_tune_mode=GA"),
            "not supported with several ranks\n  key   session.auto_tune_mode",
        ),
        (
            ("parallel=data_parallel", "profiling=trace", "profiling.op_trace='ReLU(3x4)'"),
            "several ranks cannot measure a single operator\n  key     profiling.op_trace\n  value   ReLU(3x4)",
        ),
        (
            ("parallel=data_parallel", "profiling=trace", "profiling.op_trace='ReLU(3x4)'"),
            "repair  the same command with parallel=stand_alone",
        ),
    ],
)
def test_every_wrong_key(lines, said):
    with pytest.raises(ConfigError) as error:
        parallel(*lines)
    assert said in str(error.value)
