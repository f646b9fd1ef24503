"""What one process can, ranks can: loss scales, given weights, evaluation only, and the operator that failed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from ranks import losses, mpirun, needs_mpi

import runner
from runner.train.checkpoint import state

pytestmark = needs_mpi

HERE = Path(__file__).parent
LENET = ("+experiment=lenet_seed", "callbacks=quiet", "dataset_sink_mode=false", "optimizer.learning_rate=0.1")
TOGETHER = ("parallel=data_parallel", "parallel.gradients_mean=true")
HALVES = ("session.precision_mode=force_fp16", "session.loss_scale=dynamic", "eval.every=never")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("options")


@pytest.fixture(scope="module")
def trained(place) -> Path:
    """A run of one process with other weights than those that runs begin with."""
    runner.run([*LENET, "mode=graph", "max_steps=20", "seed=5", "device.threads=1", f"hydra.run.dir={place / 'given'}"])
    return place / "given"


def saved(folder: Path) -> dict[str, np.ndarray]:
    found, damaged = state.newest(folder / "checkpoints", "CKP")
    assert damaged == []
    return found.arrays


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_an_overflow_on_one_rank_is_skipped_by_all():
    assert mpirun(2, HERE / "rank_loss_scale.py") == (0, "done: [0, 1]\n", "")


@pytest.mark.parametrize(
    ("mode", "precision", "tolerance"),
    [("graph", "allow_fp32_to_fp16", 1e-5), ("pynative", "allow_mix_precision", 3e-4)],
)
def test_a_scaled_training_is_that_of_one_process(place, mode, precision, tolerance):
    """Weights move by 0.2 in these steps."""
    words = [
        *LENET,
        f"mode={mode}",
        f"session.precision_mode={precision}",
        "session.loss_scale=dynamic",
        "max_steps=25",
    ]
    runner.run([*words, "device.threads=1", "eval.every=never", f"hydra.run.dir={place / mode}-1"])
    code, _, err = mpirun(2, "-m", "runner", *words, *TOGETHER, "eval.every=never", f"hydra.run.dir={place / mode}-2")
    assert code == 0, err
    folders = [place / f"{mode}-{ranks}" for ranks in (1, 2)]
    np.testing.assert_allclose(losses(folders[1]), losses(folders[0]), rtol=0, atol=tolerance)
    one, other = map(saved, folders)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(other[name], array, rtol=0, atol=tolerance, err_msg=name)
    assert other["good_steps"] == 25
    assert {key: summary(folders[1])[key] for key in ("loss_scale", "overflow_steps")} == {
        "loss_scale": 1024.0,
        "overflow_steps": 0,
    }


def test_a_resumed_run_has_scale_and_counts_on_all_ranks(place):
    words = [*LENET, *TOGETHER, *HALVES, "mode=graph"]
    whole, parts = place / "whole", place / "parts"
    for folder, steps in ((whole, 16), (parts, 10)):
        code, _, err = mpirun(2, HERE / "rank_loss_scale.py", *words, f"max_steps={steps}", f"hydra.run.dir={folder}")
        assert code == 0, err
    before = summary(parts)["loss_scale"]
    code, _, err = mpirun(2, "-m", "runner", "resume", parts, "max_steps=16")  # here a run begins with 1024
    assert code == 0, err
    for name in ("metrics.jsonl", "checkpoints/CKP-1_16/state.safetensors"):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()
    assert summary(parts)["overflow_steps"] == summary(whole)["overflow_steps"] > 2
    assert before != 1024.0


def test_all_ranks_begin_with_the_given_weights(place, trained):
    folder = place / "begun"
    words = [*LENET, *TOGETHER, "mode=pynative", "dump=sync", "max_steps=1", f"checkpoint.load={trained}"]
    code, _, err = mpirun(2, "-m", "runner", *words, "eval.every=never", f"hydra.run.dir={folder}")
    assert code == 0, err
    given = saved(trained)
    for rank in "01":
        [file] = (folder / "dump/lenet5" / rank / "iteration_0").glob("*conv2-Conv2d--Conv2D-op*_input_1_*")
        assert file.read_bytes() == given["conv2.weight"].tobytes()


def test_weights_that_cannot_be_read_are_told_of_once(place):
    folder = place / "unread"
    (place / "empty/checkpoints").mkdir(parents=True)
    words = [*LENET, *TOGETHER, "mode=graph", f"checkpoint.load={place / 'empty'}", f"hydra.run.dir={folder}"]
    code, _, err = mpirun(2, HERE / "patient_ranks.py", *words)
    assert code == 7
    assert (
        err.count("DataError: the run has no good checkpoint\n  key     checkpoint.load\n") == err.count("Error") == 1
    )
    assert "MPI_Abort" not in err
    assert json.loads((folder / "status.json").read_text())["exit_code"] == 7


def test_the_first_rank_evaluates(place, trained):
    """Three ranks cannot share a batch of 32, and need not."""
    folder = place / "evaluated"
    words = [*LENET, *TOGETHER, "mode=graph", "session.graph_run_mode=0", f"checkpoint.load={trained}"]
    code, out, err = mpirun(3, "-m", "runner", *words, f"hydra.run.dir={folder}")
    assert code == 0, err
    assert out.count("on the test split") == 1
    assert summary(folder)["metrics"] == pytest.approx(summary(trained)["metrics"], rel=1e-5)
    assert summary(folder)["steps"] == 0


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize(
    ("kind", "operator", "spoilt"),
    [("image", "conv1-Conv2d/Conv2D-op", np.inf), ("label", "/SparseSoftmaxCrossEntropyWithLogits-op", 99)],
)
def test_the_operator_that_failed_on_one_rank(place, mode, kind, operator, spoilt):
    """All ranks make the step again when the loss is not finite; one does when it cannot make the step."""
    folder = place / f"failed-{mode}-{kind}"
    words = [*LENET, *TOGETHER, f"mode={mode}", "session.enable_exception_dump=true", f"hydra.run.dir={folder}"]
    code, _, err = mpirun(2, HERE / "rank_failure.py", 1, 5, kind, *words)
    assert code == 1
    assert err.count("TrainingError") == 1
    assert re.search(rf"\n  operator +Default/\S*{operator}\d+\n", err)
    assert re.search(r"\n  line +/\S+\.py:\d+  ", err)
    assert re.search(r"\n  rank +1 of 2", err)
    assert re.search(rf"\n  dump +{folder}/exception_dump\n", err)
    if kind == "image":  # after "label" MPICH may say that a rank has ended the others; a busy machine can lose it
        assert "MPI_Abort" not in err
    assert operator in json.loads((folder / "status.json").read_text())["error"]
    files = (folder / "exception_dump/lenet5/1/iteration_5").glob(f"*{operator.rpartition('/')[2]}*_input_*")
    arrays = [np.fromfile(file, np.int32 if "Int32" in file.name else np.float32) for file in files]
    assert len(arrays) == 2
    assert sum(int((array == np.float32(spoilt)).sum()) for array in arrays) == (32 * 32 if kind == "image" else 1)
