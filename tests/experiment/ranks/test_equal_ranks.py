"""The bits of one process, on two and four ranks: of trainings whose batch has four parts."""

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ranks import mpirun, needs_mpi
from soak import thinned

import runner
from runner.experiment.resume import resume
from runner.train.checkpoint import state

pytestmark = needs_mpi

HERE = Path(__file__).parent
QUIET = ("~expect", "callbacks=quiet", "eval.every=never", "dataset_sink_mode=false")
ALL = ("parallel=data_parallel", "parallel.gradients_mean=true")
LENET = ("+experiment=lenet", *QUIET, "dataset.batch_size=64", "max_steps=12", "checkpoint.every_steps=4")
MLP = (*LENET[:-2], "max_steps=5", "~network.weight_init", "network=mlp", "network.dropout=0.3")
TINY = ("+experiment=resnet50_tiny", *QUIET, "max_steps=3")
RUNS = {
    "lenet": (*LENET, "mode=graph"),
    "resnet50_tiny": (*TINY, "mode=graph"),
    "dropout": (*MLP, "mode=graph", *ALL),
    "lenet-pynative": (*LENET, "mode=pynative", *ALL),
    "resnet50_tiny-pynative": (*TINY, "mode=pynative", *ALL),
    "dropout-pynative": (*MLP, "mode=pynative", *ALL),
}


def trained(folder: Path) -> dict[str, bytes]:
    arrays = state.newest(folder / "checkpoints", "CKP")[0].arrays
    found = {name: np.asarray(array).tobytes() for name, array in arrays.items()}
    return {"metrics": (folder / "metrics.jsonl").read_bytes()} | found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("equal")

    @cache
    def made(name: str, ranks: int) -> dict[str, bytes]:
        words = (*RUNS[name], f"hydra.run.dir={place / f'{name}-{ranks}'}")
        if ranks == 1:
            runner.run(list(words))
        else:
            code, _, err = mpirun(ranks, "-m", "runner", *words, *ALL)
            assert code == 0, err
        return trained(place / f"{name}-{ranks}")

    return made


CASES = [
    *(("lenet", 4), ("lenet-pynative", 4), ("resnet50_tiny", 2), ("lenet", 2), ("dropout-pynative", 4), ("dropout", 2)),
    *(("resnet50_tiny-pynative", 2), ("resnet50_tiny", 4), ("dropout", 4), ("lenet-pynative", 2)),
    *(("resnet50_tiny-pynative", 4), ("dropout-pynative", 2)),
]


@pytest.mark.parametrize(("name", "ranks"), [*thinned(CASES, every=2)])
def test_ranks_end_with_the_bytes_of_one_process(run, name, ranks):
    assert run(name, ranks) == run(name, 1)


@pytest.mark.parametrize("name", ["lenet", "lenet-pynative"])
def test_killed_on_four_ranks_and_resumed_on_one_and_two(run, tmp_path, name):
    words = (*RUNS[name], *ALL, f"hydra.run.dir={tmp_path / 'two'}")
    code, out, err = mpirun(4, HERE / "rank_failure.py", 1, 9, "SIGKILL", *words)
    assert code != 0, out + err
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    code, _, err = mpirun(2, "-m", "runner", "resume", tmp_path / "two")
    assert code == 0, err
    resume(tmp_path / "one")
    assert trained(tmp_path / "two") == trained(tmp_path / "one") == run(name, 1)


def test_begun_in_one_process_and_resumed_on_four_ranks(run, tmp_path):
    runner.run([*RUNS["lenet"], *ALL, f"hydra.run.dir={tmp_path / 'run'}", "max_steps=5"])
    code, _, err = mpirun(4, "-m", "runner", "resume", tmp_path / "run", "max_steps=12")
    assert code == 0, err
    found, whole = trained(tmp_path / "run"), run("lenet", 1)
    assert {name: found[name] for name in found if name != "metrics"} == {
        name: whole[name] for name in whole if name != "metrics"
    }
