"""Real ranks, by mpirun: the same training as one process, the same bits again, and an end for all of them."""

import json
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE, wait_until
from ranks import losses, mpirun, needs_mpi, start
from soak import thinned

import runner
from runner.report.record import RunRecord
from runner.rundir import OWNER
from runner.train.checkpoint import state

pytestmark = needs_mpi

HERE = Path(__file__).parent
PATIENT = HERE / "patient_ranks.py"
LENET = ("+experiment=lenet_seed", "callbacks=quiet", "dataset_sink_mode=false", "optimizer.learning_rate=0.1")
TOGETHER = ("parallel=data_parallel", "parallel.gradients_mean=true")
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for all runs of these tests; each is made once."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def run(place):
    """`run(ranks, name, ...)`: a run of 44 steps, and what it was trained to."""

    @cache
    def made(ranks: int, name: str, *overrides: str) -> Path:
        words = [*LENET, *overrides, f"hydra.run.dir={place / name}"]
        if ranks == 1:
            runner.run([*words, "device.threads=1"])
        else:
            code, _, err = mpirun(ranks, "-m", "runner", *words, *TOGETHER)
            assert code == 0, err
        return place / name

    return made


def weights(folder: Path) -> dict[str, np.ndarray]:
    found, damaged = state.newest(folder / "checkpoints", "CKP")
    assert damaged == []
    return found.arrays


def distance(a: Path, b: Path) -> float:
    one, other = weights(a), weights(b)
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name].astype(np.float64) - other[name]).max()) for name in one)


CASES = [
    (2, "graph", ()),
    (4, "graph", ("parallel.all_reduce_fusion_config=[2,6]", "parallel.parameter_broadcast=true")),
    (2, "pynative", ("parallel.all_reduce_fusion_config=[2,6]",)),
    (4, "pynative", ("parallel.device_num=4",)),
]


@pytest.mark.parametrize(("ranks", "mode", "more"), CASES)
def test_ranks_train_as_one_process_does(run, ranks, mode, more):
    alone = run(1, f"{mode}-1", f"mode={mode}", "epochs=1")
    shared = run(ranks, f"{mode}-{ranks}", f"mode={mode}", "epochs=1", *more)
    assert distance(alone, shared) <= TOLERANCE
    one, other = losses(alone), losses(shared)
    assert len(one) == len(other) == 44
    np.testing.assert_allclose(other, one, rtol=0, atol=TOLERANCE)
    start = run(1, f"{mode}-start", f"mode={mode}", "max_steps=1")
    assert distance(start, alone) > 1000 * TOLERANCE  # it was a long way
    read = [json.loads((folder / "summary.json").read_text())["metrics"]["loss"] for folder in (alone, shared)]
    assert abs(read[0] - read[1]) <= TOLERANCE
    assert json.loads((shared / "manifest.json").read_text())["ranks"] == ranks


UNEVEN = ("dataset=synthetic", "dataset.num_samples=169", "dataset.batch_size=50", "dataset.drop_remainder=false")


@pytest.mark.parametrize(
    ("ranks", "mode", "more"),
    [(4, "graph", ()), (3, "pynative", ("session.loss_scale=dynamic",)), (4, "pynative", ("loss.reduction=sum",))],
)
def test_ranks_divide_uneven_batches(run, ranks, mode, more):
    """50 rows on 4 ranks, and 19 at the end of an epoch; of a loss that is a sum, the mean over ranks is a part."""
    single = () if "loss.reduction=sum" not in more else ("optimizer.learning_rate=0.002",)
    shared = [] if not single else [f"optimizer.learning_rate={0.002 * ranks}"]
    note = f"uneven-{mode}-{len(more)}-{ranks}"
    one = run(1, f"{note}-one", f"mode={mode}", "epochs=3", *UNEVEN, *more, *single)
    other = run(ranks, note, f"mode={mode}", "epochs=3", *UNEVEN, *more, *shared)
    factor = ranks if single else 1
    assert len(losses(one)) == 12
    np.testing.assert_allclose(np.multiply(losses(other), factor), losses(one), rtol=TOLERANCE)
    assert distance(one, other) <= TOLERANCE or single


@pytest.mark.parametrize(("ranks", "mode", "more"), [*thinned([CASES[3], CASES[0]], every=2)])
def test_two_runs_give_the_same_bits(run, ranks, mode, more):
    first = run(ranks, f"{mode}-{ranks}", f"mode={mode}", "epochs=1", *more)
    again = run(ranks, f"{mode}-{ranks}-again", f"mode={mode}", "epochs=1", *more)
    for name in ("metrics.jsonl", "checkpoints/CKP-1_44/state.safetensors", "model/network.onnx"):
        assert (first / name).read_bytes() == (again / name).read_bytes()


def test_the_folder_is_that_of_one_run(run):
    alone, shared = run(1, "graph-1", "mode=graph", "epochs=1"), run(2, "graph-2", "mode=graph", "epochs=1")
    files = [{str(path.relative_to(f)) for path in f.rglob("*")} for f in (alone, shared)]
    assert files[0] == files[1]


def test_sums_not_means_count_as_a_larger_rate(run, place):
    words = [*LENET, "mode=graph", "max_steps=5", f"hydra.run.dir={place / 'sum'}", TOGETHER[0]]
    assert mpirun(2, "-m", "runner", *words)[0] == 0
    twice = run(1, "twice", "mode=graph", "max_steps=5", "optimizer.learning_rate=0.2")
    moments, doubled = weights(place / "sum"), weights(twice)
    for name, array in doubled.items():
        if not name.startswith(("moments", "learning_rate")):
            np.testing.assert_allclose(moments[name], array, rtol=0, atol=TOLERANCE)


def test_every_rank_dumps_under_its_own_number(place):
    folder = place / "dump"
    words = [*LENET, *TOGETHER, "mode=graph", "dump=sync", "dump.iteration=1", "max_steps=2"]
    code, out, err = mpirun(2, "-m", "runner", *words, f"hydra.run.dir={folder}", "callbacks=verbose")
    assert code == 0, err
    assert out.count("loss is") == 2  # the first rank speaks for both
    ranks = [{f.name: f.read_bytes() for f in (folder / f"dump/lenet5/{k}/iteration_1").iterdir()} for k in (0, 1)]
    assert ranks[0].keys() == ranks[1].keys()
    reduced = [name for name in ranks[0] if "AllReduce" in name and "_output_" in name]
    assert len(reduced) == 9  # eight gradients, and the loss
    for name in reduced:
        own = [np.frombuffer(rank[name.replace("_output_", "_input_")], np.float32) for rank in ranks]
        assert ranks[0][name] == ranks[1][name]
        assert np.array_equal(np.frombuffer(ranks[0][name], np.float32), (own[0] + own[1]) / np.float32(2))
        assert not np.array_equal(*own)
    updated = [name for name in ranks[0] if "ApplyMomentum" in name]
    assert updated
    assert all(ranks[0][name] == ranks[1][name] for name in updated)


def test_the_list_of_devices_has_no_effect_on_the_cpu(place):
    """Seed 002: every rank dumps, although the list has only one of them."""
    words = [*LENET, *TOGETHER, "mode=graph", "max_steps=1", "dump=sync", "dump.support_device=[1]"]
    code, _, err = mpirun(2, "-m", "runner", *words, f"hydra.run.dir={place / 'listed'}")
    assert code == 0, err
    assert sorted(path.name for path in (place / "listed/dump/lenet5").iterdir()) == ["0", "1"]


def test_ranks_share_the_directories_of_their_run(place):
    """The ranks of a dump of GE share the folder of one time; another run is refused on all ranks."""
    (place / "ge").mkdir()
    (place / "profiled").mkdir()
    words = [*LENET, *TOGETHER, "mode=graph", "max_steps=3", "profiling=trace", "dump.dump_step='0'"]
    paths = f"profiling.result_path={place / 'profiled'}", f"dump.dump_path={place / 'ge'}", "dump=ge"
    code, _, err = mpirun(2, "-m", "runner", *words, *paths, f"hydra.run.dir={place / 'first'}")
    assert code == 0, err
    (folder,) = (place / "ge").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [".metadata", OWNER, "0", "1"]
    kinds = {path.name for path in (place / "profiled").glob("step_trace_raw_*")}
    assert kinds == {f"step_trace_raw_{rank}_detail_time.csv" for rank in (0, 1)}
    code, _, err = mpirun(2, PATIENT, *words, *paths, f"hydra.run.dir={place / 'second'}")
    assert code == 4
    assert err.count("BusyError: the directory belongs to another run") == 1
    assert not (place / "second").exists()
    assert [path.name for path in (place / "ge").iterdir()] == [folder.name]


def test_exchanges():
    code, out, err = mpirun(3, HERE / "rank_collectives.py")
    assert (code, out, err) == (0, "done: [0, 1, 2]\n", "")


def test_a_script_that_fails_on_one_rank_ends_on_all():
    code, _, err = mpirun(2, HERE / "rank_collectives.py", "raise")
    assert code != 0
    assert "RuntimeError: only here" in err


SMALL = ("dataset=synthetic", "dataset.num_samples=160", "mode=graph", "epochs=8", "checkpoint.every_steps=5")


@pytest.fixture(scope="module")
def uninterrupted(place):
    code, _, err = mpirun(2, "-m", "runner", *LENET, *SMALL, *TOGETHER, f"hydra.run.dir={place / 'whole'}")
    assert code == 0, err
    return place / "whole"


def resumed(folder: Path, whole: Path) -> None:
    """A run that goes on ends with the bytes of one that was never interrupted."""
    code, _, err = mpirun(2, "-m", "runner", "resume", folder)
    assert code == 0, err
    for name in ("metrics.jsonl", "checkpoints/CKP-8_5/state.safetensors", "model/network.onnx"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert json.loads((folder / "status.json").read_text())["status"] == "ok"


def test_a_rank_that_is_killed_takes_the_others_along(place, uninterrupted):
    folder = place / "killed"
    words = [*LENET, *SMALL, *TOGETHER, f"hydra.run.dir={folder}"]
    code, out, err = mpirun(2, HERE / "rank_failure.py", 1, 23, "SIGKILL", *words)
    assert code == 9
    assert "Killed" in out + err  # mpirun says so; the others have no time to
    assert sorted(p.name for p in (folder / "checkpoints").glob("CKP*"))[-1] == "CKP-4_5"
    wait_until(lambda: RunRecord(folder).status["status"] != "running")  # mpirun can return before it is written
    status = RunRecord(folder).status
    assert (status["status"], status["exit_code"]) == ("failed", 137)
    assert status["error"].startswith(
        "TrainingError: the run was killed\n  reason  mpirun ends all ranks when one of them"
    )
    assert RunRecord(folder).state == "failed"
    resumed(folder, uninterrupted)


@pytest.mark.parametrize("rank", [1, 0])
def test_a_rank_that_gives_no_sign_of_life_ends_all_of_them(place, uninterrupted, rank):
    """It is stopped, as by a host that is gone or a cut link: nothing closes its connections."""
    folder, brief = place / f"stopped-{rank}", "parallel.heartbeat_minutes=0.1"
    words = [*LENET, *SMALL, *TOGETHER, brief, f"hydra.run.dir={folder}"]
    code, _, err = mpirun(2, HERE / "rank_failure.py", rank, 23, "SIGSTOP", *words)
    assert code == 1
    assert err.count("TrainingError: a rank gives no sign of life") == 1
    assert re.search(rf"\n  missing +{rank} of 2 on \S+\n", err)
    assert "runner resume RUN_DIR" in err
    status = RunRecord(folder).status
    assert (status["status"], status["exit_code"]) == ("failed", 1)
    assert "parallel.heartbeat_minutes" in status["error"]
    resumed(folder, uninterrupted)


def test_ranks_that_compute_for_longer_than_the_allowed_silence(tmp_path):
    """The first one evaluates, or whatever keeps it busy: it lives."""
    (tmp_path / "own.py").write_text(BUSY)
    (tmp_path / "runner.toml").write_text('code = ["own.py"]')
    words = [*LENET, *SMALL, *TOGETHER, "callbacks.busy=true", "parallel.heartbeat_minutes=0.05", "epochs=1"]
    code, _, err = mpirun(2, "-m", "runner", *words, "hydra.run.dir=run", cwd=tmp_path)
    assert code == 0, err


BUSY = """
import time

from runner import register
from runner.train.callback import LambdaCallback


@register.callback("busy")
def busy() -> LambdaCallback:
    "Busy for twice the allowed silence."
    def compute(run_context):
        end = time.monotonic() + 6
        while time.monotonic() < end:
            sum(range(1000))

    return LambdaCallback(epoch_end=compute)
"""
EARLY = """
from runner import register
from runner.train.callback import Callback, EarlyStopping


@register.callback("early")
def early() -> Callback:
    "Stops after the third epoch."
    return EarlyStopping(min_delta=10.0, patience=1)
"""


@pytest.mark.parametrize("kind", ["none", "SIGKILL"])
def test_a_callback_of_the_first_rank_stops_all_of_them(tmp_path, kind):
    """The others would wait for its next step; also where it is killed in the third epoch, and goes on."""
    (tmp_path / "own.py").write_text(EARLY)
    (tmp_path / "runner.toml").write_text('code = ["own.py"]')
    words = [*LENET, *SMALL, *TOGETHER, "callbacks.early=true", "hydra.run.dir=run"]
    code, _, err = mpirun(2, HERE / "rank_failure.py", 0, 13, kind, *words, cwd=tmp_path)
    assert code == (0 if kind == "none" else 9), err
    if kind != "none":
        code, _, err = mpirun(2, "-m", "runner", "resume", "run", cwd=tmp_path)
        assert code == 0, err
    assert len(losses(tmp_path / "run")) == 15


def test_other_numbers_of_ranks_do_not_go_on(place, uninterrupted):
    folder = shutil.copytree(uninterrupted, place / "other")
    code, _, err = mpirun(3, "-m", "runner", "resume", folder, "epochs=12", "dataset.batch_size=33", "--force")
    assert code == 0, err
    code, _, err = mpirun(1, "-m", "runner", "resume", folder, "epochs=14")
    assert code == 2
    assert re.search(r"parallel.ranks +was 3, is None", err)


@pytest.mark.parametrize(
    ("rank", "kind", "code", "block"),
    [
        (0, "raise", 5, "StorageError: the disk is gone\n  path  /nowhere\n  rank  0 of 2; it ends the others\n"),
        (1, "defect", 1, "TrainingError: ZeroDivisionError: a defect\n"),
    ],
)
def test_a_rank_that_fails_ends_all_with_its_reason(place, rank, kind, code, block):
    folder = place / f"fails-{rank}-{kind}"
    found, _, err = mpirun(2, HERE / "rank_failure.py", rank, 3, kind, *LENET, *TOGETHER, f"hydra.run.dir={folder}")
    assert found == code
    assert err.count(block) == 1
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["exit_code"]) == ("failed", code)
    assert block.splitlines()[0] in status["error"]


def test_what_all_ranks_find_is_told_once(place):
    words = [*LENET, *TOGETHER, "mode=graph", "optimizer.learning_rate=1e30", f"hydra.run.dir={place / 'nan'}"]
    code, _, err = mpirun(2, PATIENT, *words)
    assert code == 1
    assert err.count("TrainingError") == err.count("the loss is not a finite number") == 1
    assert "MPI_Abort" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("parallel.device_num=3",),
            "does not agree with mpirun\n  key    parallel.device_num\n  value  3\n  found  2\n",
        ),
        (
            ("dataset.batch_size=1",),
            "a batch has fewer rows than there are ranks\n  batch size  1\n  ranks       2\n  allowed     2 and more\n",
        ),
    ],
)
def test_wrong_settings(place, words, said):
    code, _, err = mpirun(2, PATIENT, *LENET, *TOGETHER, *words, cwd=place)
    assert code == 2
    assert err.count(said) == err.count("ConfigError") == 1


@pytest.mark.parametrize(
    ("rank", "kind", "checkpoint"),
    [*thinned([(1, "SIGINT", "CKP-5_3"), (1, "late SIGINT", "CKP-5_4"), (0, "late SIGINT", "CKP-5_4")], every=2)],
)
def test_a_signal_stops_all_ranks_at_one_step(place, uninterrupted, rank, kind, checkpoint):
    """It reaches one rank only, in the middle of a run: all save and stop, and the run can go on."""
    folder = place / f"stopped-{rank}-{kind.replace(' ', '-')}"
    words = [*LENET, *SMALL, *TOGETHER, f"hydra.run.dir={folder}"]
    found, _, err = mpirun(2, HERE / "rank_failure.py", rank, 23, kind, *words)
    assert found == 130
    assert "runner resume continues" in err
    assert json.loads((folder / "status.json").read_text())["status"] == "interrupted"
    assert (folder / "checkpoints" / checkpoint).is_dir()
    resumed(folder, uninterrupted)


def test_a_signal_to_mpirun(place):
    folder = place / "signalled"
    words = [*LENET, *TOGETHER, "epochs=1000000", f"hydra.run.dir={folder}"]
    process, journal = start(2, PATIENT, *words), folder / "metrics.jsonl"
    wait_until(lambda: journal.exists() and journal.stat().st_size > 1000, alive=lambda: process.poll() is None)
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, out + err
    assert json.loads((folder / "status.json").read_text())["status"] == "interrupted"
