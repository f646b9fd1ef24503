"""Whole runs: the folder that they leave, their numbers, and every option of the configs."""

import gc
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from sklearn.datasets import load_digits
from soak import thinned
from threadpoolctl import threadpool_info

import runner
from runner import Tensor
from runner.config.groups.entries import NETWORKS
from runner.config.options import all_options, option_names
from runner.dataset import open_dataset
from runner.errors import DataError, DeviceError, MismatchError, ShapeError, TrainingError
from runner.experiment import run as experiment
from runner.host import seed
from runner.host.machine import usable_cores
from runner.nn.steps import EagerStep, GraphStep
from runner.train import model

ROOT = Path(__file__).parents[2]
MODES = pytest.mark.parametrize("mode", ["graph", "pynative"])
# One thread: numpy's threads wait for each other by spinning, which on a busy machine takes far longer than the work.
QUIET = ("callbacks=quiet", "device.threads=1")
SMALL = ("dataset=synthetic", "dataset.num_samples=64", *QUIET)
SUMMARY = (
    *(
        "status",
        "experiment",
        "network",
        "dataset",
        "mode",
        "device",
        "providers",
        "epochs",
        "steps",
        "loss",
        "metrics",
    ),
    *("parameters", "trainable"),
    *("init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb"),
    "run_dir",
)
MANIFEST = (
    *("experiment", "seed", "config_sha256", "data_sha256", "mode", "device", "providers", "optimization_level"),
    *("threads", "cores", "packages", "cpu", "git"),
)
STATUS = (
    *(
        "status",
        "pid",
        "host",
        "process_start",
        "started",
        "experiment",
        "network",
        "dataset",
        "mode",
        "device",
        "finished",
        "exit_code",
    ),
    "error",
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder, *words: str) -> dict:
    return runner.run([f"hydra.run.dir={folder}", *words])


def read(folder, name: str):
    return json.loads((Path(folder) / name).read_text())


def rows(folder) -> list[dict]:
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def events(folder) -> list[tuple]:
    return [(row["event"], row["epoch"], row["global_step"]) for row in rows(folder)]


def tree(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


RECORDS = {".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml", "config.json", "status.json", ".lock"}
CHECKPOINT = {"MANIFEST.json", "state.safetensors"}
FILES = RECORDS | {
    "manifest.json",
    "inputs.json",
    "metrics.jsonl",
    "summary.json",
    "model/network.onnx",
    "model/predict.onnx",
}
WORST = {"eval/worst.json", *(f"eval/worst/{number:02d}.png" for number in range(16))}  # of a classification


@MODES
def test_the_run_directory(mode, place):
    summary = run(
        "r", *SMALL, f"mode={mode}", "epochs=2", "dataset_sink_mode=false", "+experiment=lenet_seed", "epochs=2"
    )
    last = {f"checkpoints/CKP-2_2/{name}" for name in CHECKPOINT}
    assert tree("r") == FILES | last | WORST | ({"model/train_step.onnx"} if mode == "graph" else set())
    assert summary == read("r", "summary.json")
    assert set(summary) >= set(SUMMARY)
    assert set(read("r", "manifest.json")) >= set(MANIFEST)
    assert set(read("r", "status.json")) == set(STATUS)
    facts = {"experiment": "lenet_seed", "network": "lenet5", "dataset": "synthetic", "mode": mode, "device": "CPU"}
    provider = "CPUExecutionProvider" if mode == "graph" else "numpy"
    facts |= {"status": "ok", "providers": [provider], "epochs": 2, "steps": 4, "run_dir": "r"}
    assert {name: summary[name] for name in facts} == facts
    seconds = [summary[f"{name}_seconds"] for name in ("init", "first_loss", "train")]
    assert all(0 < value < 60 for value in seconds)
    assert summary["init_seconds"] < summary["first_loss_seconds"]
    assert (summary["compile_seconds"] > 0) == (mode == "graph")
    stepping = summary["train_seconds"] - summary["compile_seconds"]
    assert summary["steps_per_second"] == pytest.approx(4 / stepping)
    assert read("r", "config.json")["epochs"] == 2
    assert 20 < summary["peak_rss_mb"] < 20_000
    made = rows("r")
    assert [list(row) for row in made] == [["event", "epoch", "step", "global_step", "loss"]] * 4 + [
        ["event", "epoch", "global_step", "accuracy", "loss"]
    ]
    assert [(row["epoch"], row["step"], row["global_step"]) for row in made[:4]] == [
        (1, 1, 1),
        (1, 2, 2),
        (2, 1, 3),
        (2, 2, 4),
    ]
    assert summary["loss"] == made[3]["loss"]
    assert summary["metrics"] == {name: made[4][name] for name in ("accuracy", "loss")}


@MODES
@pytest.mark.parametrize("sunk", ["true", "false"])
def test_two_equal_runs_write_equal_bytes(mode, sunk):
    words = (*SMALL, f"mode={mode}", "epochs=3", f"dataset_sink_mode={sunk}", "sink_size=3")
    contents = []
    for name in ("a", "b"):
        run(name, *words)
        contents.append([(Path(name) / file).read_bytes() for file in ("metrics.jsonl", "model/network.onnx")])
    assert contents[0] == contents[1]
    run("c", *words, "seed=2")
    assert (Path("c") / "metrics.jsonl").read_bytes() != contents[0][0]


def test_both_modes_give_the_same_numbers():
    losses = []
    for mode in ("graph", "pynative"):
        run(mode, *SMALL, f"mode={mode}", "dataset_sink_mode=false", "epochs=5")
        losses.append([row["loss"] for row in rows(mode)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_a_sunk_run_tells_the_losses_of_the_unsunk_one():
    """One row for each step, also of a sink."""
    run("sunk", *SMALL, "mode=graph", "epochs=3", "sink_size=3")
    run("unsunk", *SMALL, "mode=graph", "epochs=5", "dataset_sink_mode=false")
    assert events("sunk") == [*(("step", (step + 2) // 3, step) for step in range(1, 10)), ("eval", 3, 9)]
    unsunk = {row["global_step"]: row["loss"] for row in rows("unsunk") if row["event"] == "step"}
    assert [row["loss"] for row in rows("sunk")[:9]] == [unsunk[step] for step in range(1, 10)]
    assert [row["step"] for row in rows("sunk")[:9]] == [1, 2, 3] * 3


@MODES
def test_the_manifest(mode, place):
    """Everything that the numbers depend on, checked against other sources."""
    run("r", *SMALL, f"mode={mode}", "seed=5", "max_steps=1", "device.threads=1")
    found, config = read("r", "manifest.json"), read("r", "config.json")
    graph = mode == "graph"
    assert found["config_sha256"] == hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    assert {name: found[name] for name in ("experiment", "seed", "mode", "device", "threads", "git")} == {
        "experiment": None,
        "seed": 5,
        "mode": mode,
        "device": "CPU",
        "threads": 1,
        "git": None,
    }
    assert found["providers"] == (["CPUExecutionProvider"] if graph else ["numpy"])
    assert found["optimization_level"] == ("ORT_DISABLE_ALL" if graph else None)  # our passes did it
    assert {name: found["packages"][name] for name in ("python", "numpy", "onnxruntime")} == {
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "onnxruntime": ort.__version__,
    }
    assert found["cpu"]
    assert all(re.fullmatch("[0-9a-f]{64}", found["data_sha256"][split]) for split in ("train", "test"))
    run("other", *SMALL, f"mode={mode}", "seed=5", "max_steps=1", "dataset.num_samples=65")
    other = read("other", "manifest.json")
    assert other["config_sha256"] != found["config_sha256"]
    assert other["data_sha256"]["train"] != found["data_sha256"]["train"]


def test_the_manifest_knows_the_commit(place):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    (place / ".gitignore").write_text("r*\n.gitignore\n")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    run("r1", *SMALL, "max_steps=1")
    assert read("r1", "manifest.json")["git"] == {"commit": commit, "dirty": False}
    (place / "new").write_text("x")
    run("r2", *SMALL, "max_steps=1")
    assert read("r2", "manifest.json")["git"] == {"commit": commit, "dirty": True}


@MODES
@pytest.mark.parametrize(("option", "target", "wheel"), [("gpu", "GPU", "gpu"), ("ascend", "Ascend", "cann")])
def test_a_device_that_is_not_there(mode, option, target, wheel):
    if {"GPU": "CUDAExecutionProvider", "Ascend": "CANNExecutionProvider"}[target] in ort.get_available_providers():
        pytest.skip(f"this onnxruntime has {target}")
    with pytest.raises(DeviceError) as caught:
        run("r", *SMALL, f"mode={mode}", f"device={option}", "max_steps=1")
    error = caught.value
    assert error.exit_code == 3
    assert error.rows["device"] == f"{target} 0"
    assert error.rows["reason"].startswith("this onnxruntime has only ")
    assert f"onnxruntime-{wheel}" in error.rows["repair"]
    assert error.rows.get("also") == ("PyNative mode computes in numpy, on the CPU" if mode == "pynative" else None)
    assert tree("r") - {"metrics.jsonl", "inputs.json"} == RECORDS
    assert read("r", "status.json")["error"] == str(error)
    run("s", *SMALL, f"mode={mode}", f"device={option}", "max_steps=1", "device.allow_fallback=true")
    assert read("s", "summary.json")["providers"] == (["CPUExecutionProvider"] if mode == "graph" else ["numpy"])


def test_a_device_that_pynative_mode_would_leave_idle(monkeypatch):
    monkeypatch.setattr("runner.compile.device_problem", lambda target, number: None)
    with pytest.raises(DeviceError) as caught:
        run("r", *SMALL, "device=gpu", "max_steps=1")
    assert str(caught.value) == (
        "DeviceError: PyNative mode computes in numpy, on the CPU\n  device  GPU 0\n  repair  mode=graph, or device=cpu"
    )


def test_a_card_number_without_effect_is_remarked(caplog):
    run("r", *SMALL, "device.id=3", "max_steps=1", "dataset_sink_mode=false")
    assert [entry.message for entry in caplog.records] == ["device.id=3 has no effect on the CPU"]


def test_expectations_that_are_met():
    summary = run("r", *SMALL, "max_steps=1", "expect={loss:{max:3,min:2},accuracy:{min:0}}")
    assert summary["status"] == "ok"
    assert read("r", "status.json")["exit_code"] == 0


@MODES
def test_expectations_that_are_not_met(mode):
    words = (*SMALL, f"mode={mode}", "max_steps=1", "dataset.batch_size=64")
    accuracy, loss = ((s := run("r", *words))["metrics"]["accuracy"], s["loss"])
    with pytest.raises(MismatchError) as caught:
        run("s", *words, "expect={accuracy:{min:0.97,max:1},loss:{max:9}}")
    assert caught.value.exit_code == 6
    assert str(caught.value) == (
        "MismatchError: the run does not meet its expectations\n"
        f"  loss      ok: {loss}, expected max 9.0\n"
        f"  accuracy  FAILED: {accuracy}, expected min 0.97, max 1.0"
    )
    assert tree("s") == tree("r")  # everything is written
    assert (Path("s") / "model/network.onnx").read_bytes() == (Path("r") / "model/network.onnx").read_bytes()
    found = read("s", "status.json")
    assert (found["status"], found["exit_code"], found["error"]) == ("failed", 6, str(caught.value))
    assert read("s", "summary.json")["status"] == "failed"
    with pytest.raises(MismatchError, match=rf"loss  FAILED: {loss}, expected max 0.5"):
        run("t", *words, "expect.loss.max=0.5")


@MODES
@pytest.mark.parametrize(("every", "places"), [("end", [(3, 6)]), ("epoch", [(1, 2), (2, 4), (3, 6)]), ("never", [])])
def test_when_the_test_split_is_evaluated(mode, every, places):
    words = (*SMALL, f"mode={mode}", "dataset_sink_mode=false", "epochs=3")
    summary = run("r", *words, f"eval.every={every}")
    assert events("r") == [
        event
        for step in range(1, 7)
        for event in [
            ("step", (step + 1) // 2, step),
            *([("eval", step // 2, step)] if (step // 2, step) in places and step % 2 == 0 else []),
        ]
    ]
    assert list(summary["metrics"]) == ([] if every == "never" else ["accuracy", "loss"])
    assert "model/network.onnx" in tree("r")


def test_an_evaluation_between_two_epochs_changes_no_number():
    for every in ("epoch", "never"):
        run(every, *SMALL, "mode=graph", "epochs=3", f"eval.every={every}")
    steps = [[row for row in rows(every) if row["event"] == "step"] for every in ("epoch", "never")]
    assert steps[0] == steps[1]
    networks = [(Path(every) / "model/network.onnx").read_bytes() for every in ("epoch", "never")]
    assert networks[0] == networks[1]


def test_only_the_metrics_that_were_asked_for():
    assert list(run("r", *SMALL, "max_steps=1", "eval.metrics=[accuracy]")["metrics"]) == ["accuracy"]
    assert run("s", *SMALL, "max_steps=1", "eval.metrics=[]")["metrics"] == {}
    assert [row["event"] for row in rows("s")] == ["step"]


def test_an_evaluation_in_the_other_mode(monkeypatch):
    words = (*SMALL, "max_steps=2", "dataset.batch_size=16")
    made, built, build = {}, [], experiment.build
    monkeypatch.setattr(experiment, "build", lambda *a, **k: built.append(build(*a, **k)) or built[-1])
    for mode, evaluated in (("graph", "pynative"), ("pynative", "graph"), ("pynative", "pynative")):
        made[mode, evaluated] = run(f"{mode}-{evaluated}", *words, f"mode={mode}", f"eval.mode={evaluated}")["metrics"]
        assert type(built[-1].model.eval_step) is {"graph": GraphStep, "pynative": EagerStep}[evaluated]
    values = list(made.values())
    for other in values[1:]:
        assert other["accuracy"] == values[0]["accuracy"]
        assert other["loss"] == pytest.approx(values[0]["loss"], rel=1e-6)


def test_an_evaluation_that_is_not_finite(caplog):
    """The one step has a finite loss; the weights that it leaves have none."""
    with pytest.raises(TrainingError) as caught:
        run("r", *SMALL, "max_steps=1", "optimizer.learning_rate=1e30")
    text = str(caught.value)
    assert text.startswith("TrainingError: the loss of the evaluation is not finite\n  accuracy     0.")
    assert "\n  loss         nan\n  epoch        1\n  global step  1\n" in text
    assert read("r", "status.json")["exit_code"] == 1
    assert [row["event"] for row in rows("r")] == ["step"]


@MODES
def test_the_network_file_reproduces_the_accuracy(mode):
    """In a stock onnxruntime, with the digits as scikit-learn itself reads them."""
    words = ("+experiment=lenet_seed", "max_steps=100", "optimizer=adam", "optimizer.learning_rate=0.005", *QUIET)
    accuracy = run("r", *words, f"mode={mode}")["metrics"]["accuracy"]
    assert accuracy > 0.7
    content = (Path("r") / "model/network.onnx").read_bytes()
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    assert entry.shape == ["batch", 1, 32, 32]
    images, labels = next(open_dataset("digits", batch_size=360, drop_remainder=False, train=False).read(0))
    known = {tuple(image.ravel()): label for image, label in zip(*load_digits(return_X_y=True), strict=True)}
    assert len(known) == 1797
    scores = session.run(None, {entry.name: images})[0]
    assert (scores.argmax(1) == labels).mean() == pytest.approx(accuracy, abs=1e-12)
    one = session.run(None, {entry.name: images[7:8]})[0]
    np.testing.assert_allclose(one, scores[7:8], rtol=1e-5, atol=1e-6)


def test_the_step_file_learns_without_this_package(place):
    run("r", *SMALL, "mode=graph", "max_steps=1")
    path = Path("r") / "model/train_step.onnx"
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    command = [sys.executable, str(ROOT / "examples" / "train_step.py"), str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [re.fullmatch(r"step +(\d+)  loss (\d+\.\d+)", line) for line in done.stdout.splitlines()]
    assert [int(line[1]) for line in lines] == [100, 200, 300, 400, 500]
    assert float(lines[-1][2]) < 0.1


def test_the_step_file_begins_where_the_run_began():
    """Its defaults are the weights before the first step: one call gives the run's first loss and second weights."""
    run("r", *SMALL, "mode=graph", "max_steps=1", "eval.every=never")
    seed.set_seed(1)
    fresh = {p.name: p.asnumpy() for p in NETWORKS.kind["lenet5"].source().get_parameters()}
    proto = onnx.load("r/model/train_step.onnx")
    defaults = {i.name: onnx.numpy_helper.to_array(i) for i in proto.graph.initializer}
    for name, value in fresh.items():
        np.testing.assert_array_equal(defaults[name], value, err_msg=name)
    data = open_dataset("synthetic", num_samples=64, train=True)
    image, label = next(data.read(0))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    made = dict(zip(outputs, session.run(outputs, {"image": image, "label": label}), strict=True))
    assert float(made["loss"]) == pytest.approx(rows("r")[0]["loss"], rel=1e-6)
    network = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load("r/model/network.onnx").graph.initializer}
    for name in fresh:
        np.testing.assert_allclose(made[f"{name}.updated"], network[name], rtol=1e-5, atol=1e-7, err_msg=name)


def write_idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes())


def write_mnist(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for prefix, count in (("train", 64), ("t10k", 40)):
        write_idx(folder / f"{prefix}-images-idx3-ubyte", rng.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", rng.integers(0, 10, count))


def write_cifar10(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name, count in (("data_batch_1.bin", 64), ("test_batch.bin", 40)):
        records = rng.integers(0, 256, (count, 3073))
        records[:, 0] %= 10
        (folder / name).write_bytes(records.astype(np.uint8).tobytes())


WRITERS = {
    ("dataset", "mnist"): write_mnist,
    ("dataset", "cifar10"): write_cifar10,
    ("experiment", "lenet_cifar10"): write_cifar10,
    ("experiment", "lenet_mnist"): write_mnist,
    ("experiment", "resnet18"): write_cifar10,
    ("experiment", "resnet50"): write_cifar10,
}


def needs(group: str, option: str, place: Path) -> Iterator[str]:
    """What an option needs in order to run: small files where it reads files, networks that see what there is."""
    if (group, option) in WRITERS:
        WRITERS[group, option](place / "data")
        yield "dataset.data_dir=data"
    if option.startswith("resnet"):
        yield "network.width=2"
    if group == "experiment":
        yield "~expect"  # two steps are not enough for anything


GROUPS = ("dataset", "optimizer", "network", "experiment")
# They need files: tests/end_to_end/test_own_data.py, tests/importer/.
READERS = ("csv", "image_folder", "npz", "onnx")
DEEP = ("resnet101", "resnet152")  # the blocks of resnet50, more of them: graphs that only take long to compile


def options_and_modes() -> Iterator[tuple[str, str, str]]:
    """Every option, in both modes in a soak, otherwise in one: the modes take turns."""
    chosen = [(group, option) for group in GROUPS for option in all_options()[group] if option not in READERS]
    for number, (group, option) in enumerate(chosen):
        modes = ("pynative",) if option in DEEP else ("graph", "pynative") if number % 2 else ("pynative", "graph")
        yield from ((group, option, mode) for mode in thinned(modes, every=2))


@pytest.mark.parametrize(("group", "option", "mode"), [*options_and_modes()])
def test_every_option_makes_two_steps(mode, group, option, place):
    word = f"+experiment={option}" if group == "experiment" else f"{group}={option}"
    words = (
        *QUIET,
        f"mode={mode}",
        "max_steps=2",
        "dataset_sink_mode=false",
        "dataset.num_samples=40",
        "dataset.batch_size=16",
        word,
    )
    summary = run("r", *words, *needs(group, option, place))
    assert (summary["status"], summary["steps"]) == ("ok", 2)
    assert 0 < summary["loss"] < 10
    assert [row["global_step"] for row in rows("r")] == [1, 2, 2]
    if group in ("dataset", "network"):
        assert summary[group] == option
    if group == "optimizer":
        assert read("r", "config.json")["optimizer"]["name"] == option


def test_the_optimizers_take_different_steps():
    """So the option really reaches the optimizer; the first loss is before any of them."""
    # With the defaults of their keys these compute what others compute.
    own = {"proximal_adagrad": "optimizer.l1=0.1", "lars": "optimizer.weight_decay=0.1"}
    for option in option_names("optimizer"):
        run(option, *SMALL, "max_steps=2", f"optimizer={option}", own.get(option, "seed=1"))
    losses = {option: [row["loss"] for row in rows(option)[:2]] for option in option_names("optimizer")}
    assert len({first for first, _ in losses.values()}) == 1
    assert len({second for _, second in losses.values()}) == len(losses)


@pytest.mark.parametrize(
    "word", ["optimizer.momentum=0.5", "optimizer.weight_decay=0.5", "optimizer.use_nesterov=true"]
)
def test_options_of_the_optimizer_have_an_effect(word):
    for name, more in (("plain", ()), ("other", (word,))):
        run(name, *SMALL, "epochs=2", "optimizer.learning_rate=0.1", *more)
    assert [row["loss"] for row in rows("plain")] != [row["loss"] for row in rows("other")]


def test_the_loss_scale_has_no_effect_on_the_numbers():
    """Gradients are scaled by it and divided by it; a power of two leaves every digit."""
    for scale in ("1", "1024"):
        run(scale, *SMALL, "epochs=2", f"optimizer.loss_scale={scale}")
    assert rows("1") == rows("1024")


def threads_of_blas() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_in_pynative_mode(monkeypatch):
    before, seen, execute = threads_of_blas(), [], model.run_epochs

    def watched(*given):
        seen.append(threads_of_blas())
        return execute(*given)

    monkeypatch.setattr(model, "run_epochs", watched)
    run("r", *SMALL, "max_steps=1", "device.threads=1")
    assert read("r", "manifest.json")["threads"] == 1
    run("s", *SMALL, "max_steps=1", "device.threads=0")
    assert read("s", "manifest.json")["threads"] == usable_cores()
    assert seen == [{1}, {1}]
    assert threads_of_blas() == before


def test_threads_in_graph_mode(monkeypatch):
    """The caller computes parts too, of which this batch has four: so one thread less is started."""
    seen = []
    # The last thing that a run does: its session is still open then.
    monkeypatch.setattr(experiment, "check_expectations", lambda *_: seen.append(_part_threads()))
    words = (*SMALL, "mode=graph", "max_steps=3", "eval.every=never", "dataset.batch_size=64")
    for threads in (1, 2, 7):
        gc.collect()  # the pool of the run before
        run(f"r{threads}", *words, f"device.threads={threads}")
        assert read(f"r{threads}", "manifest.json")["threads"] == threads
    assert seen[:2] == [0, 1]
    assert 1 < seen[2] < 4


def _part_threads() -> int:
    return sum(thread.name.startswith("runner-part") for thread in threading.enumerate())


def test_the_console_lines_of_every_step(capsys):
    words = ("dataset=synthetic", "dataset_sink_mode=false", "callbacks=verbose")
    run("r", *words, "dataset.num_samples=64", "epochs=2")
    step = r"epoch: {} step: {}, loss is \d\.\d+\n"
    time = r"epoch time: \d+\.\d{3} ms, per step time: \d+\.\d{3} ms\n"
    parts = [(step.format(epoch, 1) + step.format(epoch, 2) + time) for epoch in (1, 2)]
    out = capsys.readouterr().out
    assert re.fullmatch("".join(parts), out)
    losses = [float(line.rpartition(" ")[2]) for line in out.splitlines() if "loss is" in line]
    assert losses == [row["loss"] for row in rows("r") if row["event"] == "step"]
    run("s", *words, "dataset.num_samples=128", "callbacks.loss_monitor=3")
    assert re.fullmatch(step.format(1, 3) + time, capsys.readouterr().out)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_the_console_lines(capsys, mode):
    run("r", "dataset=synthetic", "dataset.num_samples=64", f"mode={mode}", "epochs=2")
    lines = capsys.readouterr().out.splitlines()
    losses = [row["loss"] for row in rows("r") if row["event"] == "step"]
    assert len(lines) == 2
    for number, line in enumerate(lines, 1):
        found = re.fullmatch(rf"epoch {number} of 2: loss (\d\.\d+), \d+ steps/s", line)
        if mode == "pynative":  # a sink has one row
            assert float(found[1]) == pytest.approx(np.mean(losses[2 * number - 2 : 2 * number]), rel=1e-3)
    run("t", *SMALL)
    assert capsys.readouterr().out == ""


def test_scopes_without_class_names():
    names = {}
    for keep in ("true", "false"):
        words = ("max_steps=1", "dataset_sink_mode=false", f"reserve_class_name_in_scope={keep}")
        run(f"r-{keep}", *SMALL, "mode=graph", *words)
        names[keep] = "\n".join(node.name for node in onnx.load(f"r-{keep}/model/train_step.onnx").graph.node)
    assert "Default/network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op" in names["true"]
    assert "Default/network/_backbone/conv1/Conv2D-op" in names["false"]
    assert rows("r-true") == rows("r-false")


def test_a_run_that_fails_leaves_what_is_true(place):
    with pytest.raises(DataError):
        run("r", *SMALL, "dataset=mnist", "dataset.data_dir=nowhere")
    assert tree("r") == RECORDS
    found = read("r", "status.json")
    assert (found["status"], found["exit_code"]) == ("failed", 7)


@MODES
@pytest.mark.parametrize("sunk", ["true", "false"])
def test_a_loss_that_is_not_finite(mode, sunk):
    with pytest.raises(TrainingError) as caught:
        run("r", *SMALL, f"mode={mode}", "epochs=5", f"dataset_sink_mode={sunk}", "optimizer.learning_rate=1e30")
    assert caught.value.what == "the loss is not a finite number"
    assert caught.value.rows["epoch"] == "1"
    assert "model/network.onnx" not in tree("r")
    assert "summary.json" not in tree("r")
    assert all(np.isfinite(row["loss"]) for row in rows("r"))
    assert read("r", "status.json")["error"] == str(caught.value)


def test_the_network_predicts_after_a_run_in_python():
    """`runner.run` and the Python API live in one process."""
    run("r", *SMALL, "max_steps=1")
    network = NETWORKS.kind["lenet5"].source()
    assert network(Tensor(np.zeros((2, 1, 32, 32), np.float32))).shape == (2, 10)


@MODES
def test_dense_labels_and_summed_losses_train_alike(mode, place):
    """The sum over 32 samples with a 32nd of the learning rate is the mean; one-hot labels are class numbers."""
    words = (*SMALL, f"mode={mode}", "epochs=2", "dataset_sink_mode=false")
    mean = run("mean", *words, "optimizer.learning_rate=0.032")
    dense = run("dense", *words, "optimizer.learning_rate=0.032", "loss.sparse=false")
    summed = run("summed", *words, "optimizer.learning_rate=0.001", "loss.reduction=sum", "loss.sparse=false")
    assert dense["metrics"] == pytest.approx(mean["metrics"], rel=1e-5)
    assert summed["metrics"] == pytest.approx(mean["metrics"], rel=1e-5)
    assert summed["loss"] == pytest.approx(32 * mean["loss"], rel=1e-5)


def _labelled(name: str, labels: np.ndarray) -> tuple[str, ...]:
    inputs = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    np.savez(name, x_train=inputs[:40], y_train=labels[:40], x_test=inputs[40:], y_test=labels[40:])
    words = ("network=mlp", "dataset=npz", f"dataset.data_file={name}", "dataset.batch_size=8", "callbacks=quiet")
    return (*words, "epochs=12", "optimizer=adam")


@MODES
def test_labels_that_are_distributions_already(mode, place):
    """One-hot labels in a file give the bytes of class numbers; of soft ones the logits are fitted to logarithms."""
    numbers = np.random.default_rng(2).integers(0, 3, 60)
    labels = {"numbers": numbers, "hot": np.eye(3)[numbers], "soft": np.full((60, 3), [0.2, 0.3, 0.5])}
    losses = {}
    for name, given in labels.items():
        run(name, *_labelled(f"{name}.npz", given), f"mode={mode}", "loss.sparse=false", "optimizer.learning_rate=0.05")
        losses[name] = [row["loss"] for row in rows(name) if row["event"] == "step"]
    assert losses["hot"] == losses["numbers"]
    entropy = -np.dot([0.2, 0.3, 0.5], np.log([0.2, 0.3, 0.5]))
    assert entropy < losses["soft"][-1] < entropy + 0.05 < losses["soft"][0]


def test_labels_that_are_distributions_for_a_loss_of_numbers():
    with pytest.raises(ShapeError) as caught:
        run("r", *_labelled("hot.npz", np.eye(3, dtype=np.float32)[np.arange(60) % 3]))
    assert caught.value.rows["repair"] == "sparse=False, in a config loss.sparse=false"
