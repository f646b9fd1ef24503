"""`set_auto_parallel_context`: every setting of MindSpore, and every wrong one."""

import pytest
from tables import table

from runner import context, nn
from runner.errors import ConfigError

DEFAULTS = {
    "device_num": 1,
    "global_rank": 0,
    "gradients_mean": False,
    "gradient_fp32_sync": True,
    "loss_repeated_mean": True,
    "pipeline_stages": 1,
    "parallel_mode": "stand_alone",
    "auto_parallel_search_mode": "dynamic_programming",
    "parameter_broadcast": False,
    "strategy_ckpt_load_file": "",
    "strategy_ckpt_save_file": "",
    "group_ckpt_save_file": "",
    "full_batch": False,
    "enable_parallel_optimizer": False,
    "grad_accumulation_step": 1,
    "all_reduce_fusion_config": None,
    "communi_parallel_mode": "all_group_parallel",
    "sync_batch_norm": True,  # not in MindSpore
}


@pytest.fixture(autouse=True)
def _fresh():
    context.reset_auto_parallel_context()
    yield
    context.reset_auto_parallel_context()


def settings():
    return {name: context.get_auto_parallel_context(name) for name in DEFAULTS}


def test_the_defaults_are_those_of_the_reference():
    assert settings() == DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("device_num", 4096, 4096),
        ("global_rank", 4095, 4095),
        ("gradients_mean", True, True),
        ("parallel_mode", context.ParallelMode.DATA_PARALLEL, "data_parallel"),
        ("parameter_broadcast", True, True),
        ("all_reduce_fusion_config", [1, 5, 9], (1, 5, 9)),
        ("gradient_fp32_sync", True, True),
        ("sync_batch_norm", False, False),
    ],
)
def test_every_setting(name, value, kept):
    context.set_auto_parallel_context(**{name: value})
    assert settings() == {**DEFAULTS, name: kept}
    context.reset_auto_parallel_context()
    assert settings() == DEFAULTS


@table(
    ("name", "value", "said"),
    [
        ("device_num", 0, "out of range"),
        ("device_num", 4097, "1 to 4096"),
        ("device_num", "2", "not a whole number"),
        ("global_rank", -1, "0 to 4095"),
        ("global_rank", 4096, "0 to 4095"),
        ("gradients_mean", 1, "not true or false"),
        ("parallel_mode", "data_paralel", "nearest  data_parallel"),
        ("parallel_mode", "hybrid_parallel", "supported  stand_alone, data_parallel"),
        ("parallel_mode", "semi_auto_parallel", "this parallel_mode is not supported"),
        ("parallel_mode", "auto_parallel", "this parallel_mode is not supported"),
        ("auto_parallel_search_mode", "recursive_programming", "is not supported"),
        ("auto_parallel_search_mode", "best", "not one of the choices"),
        ("communi_parallel_mode", "no_group_parallel", "is not supported"),
        ("full_batch", True, "is not supported"),
        ("enable_parallel_optimizer", True, "is not supported"),
        ("pipeline_stages", 2, "is not supported"),
        ("grad_accumulation_step", 4, "is not supported"),
        ("gradient_fp32_sync", False, "is not supported"),
        ("strategy_ckpt_save_file", "a.ckpt", "is not supported"),
        ("strategy_ckpt_load_file", "x", 'given      x\n  supported  ""'),
        ("all_reduce_fusion_config", [], "indices must not be empty"),
        ("all_reduce_fusion_config", 3, "indices must be a list"),
        ("all_reduce_fusion_config", [1.5], "indices must be whole numbers"),
        ("all_reduce_fusion_config", [True], "indices must be whole numbers"),
        ("all_reduce_fusion_config", [0, 3], "of at least 1"),
        ("all_reduce_fusion_config", [3, 3], "indices must differ"),
        ("all_reduce_fusion_config", [5, 3], "indices must ascend"),
        ("gradient_mean", True, "nearest  gradients_mean"),
    ],
)
def test_every_wrong_setting(name, value, said):
    with pytest.raises(ConfigError) as error:
        context.set_auto_parallel_context(parameter_broadcast=True, **{name: value})
    assert said in str(error.value)
    assert settings() == DEFAULTS  # nothing was changed


def test_unknown_names_are_not_read_either():
    with pytest.raises(ConfigError, match="unknown setting"):
        context.get_auto_parallel_context("mode")


def refused(changes):
    before = settings()
    with pytest.raises(ConfigError, match="must precede what it determines") as error:
        context.set_auto_parallel_context(**changes)
    assert settings() == before
    return str(error.value)


def step_cell():
    network = nn.Dense(2, 3)
    return nn.TrainOneStepCell(network, nn.SGD(network.trainable_params()))


def test_it_may_follow_the_network_but_not_the_training_step():
    context.set_auto_parallel_context(gradients_mean=True)
    network = nn.SequentialCell(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    step = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params()))
    assert step.reducer_flag
    assert step.parallel_mode == "data_parallel"
    assert "TrainOneStepCell" in refused({"gradients_mean": False})
    assert "parallel_mode" in refused({"parallel_mode": "stand_alone", "gradients_mean": True})
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)  # no change


def test_a_training_of_one_process_only_keeps_the_mode():
    step = step_cell()
    context.set_auto_parallel_context(device_num=1, gradients_mean=True, parallel_mode="stand_alone")
    assert "reset_auto_parallel_context" in refused({"parallel_mode": "data_parallel"})
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(parallel_mode="data_parallel")
    assert not step.reducer_flag
    assert step_cell().reducer_flag


@pytest.mark.parametrize("name", ["device_num", "global_rank"])
def test_it_agrees_with_mpirun(name):
    context.set_auto_parallel_context(parallel_mode="data_parallel", **{name: 3})
    net = nn.Dense(2, 3)
    with pytest.raises(ConfigError, match=f"{name} is not that of mpirun"):
        nn.TrainOneStepCell(net, nn.SGD(net.trainable_params()))
