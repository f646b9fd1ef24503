"""Profiles that scripts ask for: `context.set_context(enable_profiling=True, profiling_options=...)`."""

import csv
from pathlib import Path

import numpy as np
import pytest

from runner import Model, context, nn
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError

STEPS = 4


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    return tmp_path


def train(mode: int, sunk: bool = False) -> None:
    rng = np.random.default_rng(0)
    data = NumpySlicesDataset((rng.normal(size=(STEPS * 4, 6)).astype(np.float32), np.zeros(STEPS * 4, np.int32)))
    network = nn.SequentialCell(nn.Dense(6, 5), nn.ReLU(), nn.Dense(5, 3))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    context.set_context(mode=mode)
    model = Model(network, loss, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    model.train(1, data.batch(4), dataset_sink_mode=sunk)


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_the_parts_of_the_steps(mode, place, capsys):
    context.set_context(enable_profiling=True, profiling_options='{"result_path": "output", "training_trace": "on"}')
    train(mode)
    with (place / "output" / "step_trace_raw_0_detail_time.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step_num"] for row in rows] == [*(str(k) for k in range(1, STEPS + 1)), "-"]
    printed = capsys.readouterr().out
    assert f"profile: {STEPS} steps, " in printed
    assert "next: 7 steps or more: " in printed
    assert not (place / "profiling").exists()


def test_later_trainings_have_their_own_folders(place):
    context.set_context(enable_profiling=True, profiling_options='{"result_path": "output", "training_trace": "on"}')
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE, context.GRAPH_MODE):
        train(mode)
    for folder in ("output", "output/profile_2", "output/profile_3"):
        with (place / folder / "step_trace_raw_0_detail_time.csv").open() as file:
            assert len(list(csv.DictReader(file))) == STEPS + 1


def test_every_operator_also_in_a_sink(place):
    context.set_context(enable_profiling=True, profiling_options="training_trace:task_trace", device_id=2)
    train(context.GRAPH_MODE, sunk=True)
    with (place / "profiling" / "cpu_op_detail_info_0.csv").open() as file:  # the CPU has no devices
        kinds = {row["op_type"] for row in csv.DictReader(file)}
    assert {"MatMul", "ReLU", "ApplyMomentum"} <= kinds


def test_nothing_is_written_unless_it_is_enabled(place, caplog):
    context.set_context(profiling_options='{"result_path": "output", "training_trace": "on"}')
    train(context.GRAPH_MODE)
    assert list((place / "output").iterdir()) == []
    assert "profiling_options has no effect without enable_profiling=True: nothing is profiled" in caplog.text


def test_a_training_is_no_trace_of_one_operator():
    context.set_context(enable_profiling=True, profiling_options='{"op_trace": "ReLU(3x4)"}')
    with pytest.raises(ConfigError) as caught:
        train(context.GRAPH_MODE)
    assert caught.value.rows["key"] == "profiling_options.op_trace"
    assert "profiling.op_trace='ReLU(3x4)'" in caught.value.rows["hint"]


def test_an_operator_that_is_not_there(place):
    context.set_context(enable_profiling=True, profiling_options='{"result_path": "output", "fp_point": "Conv2D-op9"}')
    with pytest.raises(ConfigError) as caught:
        train(context.GRAPH_MODE)
    assert "Conv2D-op9" in str(caught.value)
