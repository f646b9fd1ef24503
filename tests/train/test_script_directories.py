"""The directories that scripts fill belong to their process: dumps, profiles and graphs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import environment, mpirun, needs_mpi

import runner
from runner import Tensor, context, nn
from runner.errors import BusyError
from runner.host.process import own_identity
from runner.observe.dump import VARIABLE
from runner.rundir import OWNER

TRAIN = """
import sys
import numpy as np
from runner import Model, Tensor, context, nn, communication
from runner.dataset import NumpySlicesDataset

if "ranks" in sys.argv:
    communication.init()
    context.set_auto_parallel_context(parallel_mode="data_parallel")
settings = eval(sys.argv[1])
batch = int(sys.argv[2])
context.set_context(mode=context.GRAPH_MODE, **settings)
for _ in range(2):  # two trainings of one process are one run
    data = NumpySlicesDataset((np.ones((32, 6), np.float32), np.zeros(32, np.int32)))
    network = nn.SequentialCell(nn.Dense(6, 5), nn.ReLU(), nn.Dense(5, 3))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(network, loss, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    model.train(1, data.batch(batch), dataset_sink_mode=False)
"""
GRAPHS = {"save_graphs": True, "save_graphs_path": "given"}
PROFILE = {"enable_profiling": True, "profiling_options": '{"result_path": "given", "training_trace": "on"}'}
WAYS = {
    "dump": ({}, "common_dump_settings.path"),
    "graphs": (GRAPHS, "save_graphs_path"),
    "profile": (PROFILE, "profiling_options.result_path"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def dump_config(place: Path) -> Path:
    common = {"dump_mode": 0, "path": f"{place}/given", "net_name": "Net", "iteration": "0", "input_output": 0}
    common |= {"kernels": [], "support_device": [0, 1, 2, 3, 4, 5, 6, 7]}
    file = place / "data_dump.json"
    file.write_text(json.dumps({"common_dump_settings": common}))
    return file


def script(place: Path, way: str, batch: int) -> subprocess.CompletedProcess[str]:
    variables = {VARIABLE: str(dump_config(place))} if way == "dump" else {}
    command = [sys.executable, "train.py", repr(WAYS[way][0]), str(batch)]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_graphs_of_a_script_that_runs_again_replace_the_earlier_ones(place):
    """The working directory is the default: a script with `save_graphs` runs any number of times."""
    assert script(place, "graphs", 4).returncode == 0
    before = names(place / "given")
    (place / "given/00_parse_0099.ir").write_text("an earlier graph that is not written again")
    (place / "given/mine.txt").write_text("mine")
    again = script(place, "graphs", 8)
    assert again.returncode == 0, again.stderr
    assert names(place / "given") == sorted([*before, "mine.txt"])


@pytest.mark.parametrize("way", WAYS)
def test_a_script_that_runs_again_replaces_what_it_wrote(way, place):
    """Never mixed, and with a line: another batch size gives other tensors of the same names."""
    assert script(place, way, 4).returncode == 0
    (place / "given/mine.txt").write_text("mine")
    again = script(place, way, 8)
    assert again.returncode == 0, again.stderr
    assert re.search(
        rf"the files of script {place}/train.py \(started .*, ended\) in {place}/given are replaced", again.stderr
    )
    left = names(place / "given")
    assert script(place, way, 8).returncode == 0
    assert names(place / "given") == left or way == "dump"  # its names have times
    assert "mine.txt" in left
    assert not [name for name in left if "_shape_4_" in name]


@pytest.mark.parametrize("way", WAYS)
def test_a_script_beside_one_that_works_is_refused(way, place):
    first = script(place, way, 4)
    assert first.returncode == 0, first.stderr
    owner = place / "given" / OWNER
    owner.write_text(json.dumps(json.loads(owner.read_text()) | own_identity()))
    before = names(place / "given")
    second = script(place, way, 8)
    assert second.returncode != 0
    assert "BusyError: the directory belongs to another run\n" in second.stderr
    assert f"  key    {WAYS[way][1]}\n" in second.stderr
    assert f"script {place}/train.py (started " in second.stderr
    assert names(place / "given") == before


def test_two_trainings_of_one_process_leave_one_dump(place):
    """The files of the second one replace those of the first, although their names have timestamps."""
    assert script(place, "dump", 4).returncode == 0
    step = place / "given/0/Net_graph_0/0/0"
    operators = [".".join(name.split(".")[:3]) for name in os.listdir(step)]
    assert operators
    assert len(set(operators)) == len(operators)


def test_a_later_block_replaces_the_dump_of_an_earlier_one(place, caplog):
    """In one process: two shapes of one tensor, and iterations of both, would be one dump."""
    net = nn.Dense(4, 2)
    for calls, batch in ((3, 3), (2, 5)):
        with runner.dump("given"):
            for _ in range(calls):
                net(Tensor(np.ones((batch, 4), np.float32)))
    assert sorted(os.listdir(place / "given/network/0")) == [
        *(".graph_numbers.json", "execution_order", "graphs", "iteration_0", "iteration_1"),
    ]
    assert not [name for name in names(place / "given") if "_shape_3_4_" in name]
    assert [record.message for record in caplog.records] == [
        f"the earlier dump of this process in {place}/given is replaced"
    ]


def test_a_block_into_the_directory_of_another_process(place):
    code = (
        "import numpy, runner\n"
        "with runner.dump('given'):\n"
        "    runner.nn.Dense(4, 2)(runner.Tensor(numpy.ones((3, 4), numpy.float32)))\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
    owner = place / "given" / OWNER
    owner.write_text(json.dumps(json.loads(owner.read_text()) | own_identity()))
    before = names(place / "given")
    with pytest.raises(BusyError), runner.dump("given"):
        raise AssertionError("the block must not begin")
    assert names(place / "given") == before


def test_the_device_number_of_a_script_has_no_effect_on_the_cpu(place):
    context.set_context(device_id=3)
    with runner.dump("given"):
        nn.Dense(4, 2)(Tensor(np.ones((3, 4), np.float32)))
    assert os.listdir(place / "given/network") == ["0"]


@needs_mpi
@pytest.mark.parametrize("way", WAYS)
def test_ranks_of_one_script_share_a_directory(way, place, monkeypatch):
    if way == "dump":
        monkeypatch.setenv(VARIABLE, str(dump_config(place)))
    words = place / "train.py", repr(WAYS[way][0]), 8, "ranks"
    code, _, err = mpirun(2, *words)
    assert code == 0, err
    left = names(place / "given")
    if way == "dump":
        assert {name.split("/")[0] for name in left} == {"0", "1", ".metadata", OWNER}
    else:
        assert len(left) > 3
    code, _, err = mpirun(2, *words)
    assert code != 0
    assert "BusyError: the directory belongs to another run" in err
    assert names(place / "given") == left
