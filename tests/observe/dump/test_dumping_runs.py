"""Whole runs that dump: both modes alike, nothing changed by it, read as seed 002 says, and broken off anywhere."""

import copy
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import foreign_reader
import numpy as np
import pytest
from patience import wait_until
from soak import thinned

import runner
from runner import context, nn, ops
from runner.cli import run_command
from runner.config.groups.entries import NETWORKS
from runner.dataset import NumpySlicesDataset
from runner.errors import StorageError
from runner.experiment.resume import resume
from runner.host import files, seed
from runner.observe.dump.files import SyncName
from runner.train import Model

SMALL = (
    *("dataset=synthetic", "dataset.num_samples=160", "epochs=2", "optimizer.learning_rate=0.05"),
    *("callbacks=quiet", "device.threads=1"),
)
SYNC = "dump=sync", "dataset_sink_mode=false"
TIMES = ("init_seconds", "compile_seconds", "first_loss_seconds", "train_seconds", "steps_per_second", "peak_rss_mb")


def run(folder: Path, *overrides: str) -> dict:
    return runner.run([*SMALL, *overrides, f"hydra.run.dir={folder}"])


def results(folder: Path) -> dict[str, object]:
    """What a dump must not change."""
    kept = [folder / "metrics.jsonl", *(folder / "checkpoints").rglob("state.safetensors")]
    found: dict[str, object] = {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept
    }
    summary = json.loads((folder / "summary.json").read_text())
    found["summary"] = {k: v for k, v in summary.items() if k not in (*TIMES, "run_dir", "host_interactions")}
    return found


def operators(folder: Path) -> set[str]:
    return {path.name for path in (folder / "dump" / "lenet5" / "0" / "iteration_0").iterdir()}


def test_both_modes_give_the_same_files_and_compare_as_equal(tmp_path, capsys):
    for mode in ("graph", "pynative"):
        run(tmp_path / mode, f"mode={mode}", "dump.iteration='0|3|9'", *SYNC)
    assert operators(tmp_path / "graph") == operators(tmp_path / "pynative")
    capsys.readouterr()
    assert run_command("compare", [str(tmp_path / "graph"), str(tmp_path / "pynative"), "--rtol", "1e-4"]) == 0
    assert "135 operators" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("side", ["forward", "backward"])
def test_a_wrong_kernel_is_found(tmp_path, monkeypatch, capsys, mode, side):
    """One operator is 1% too large in one mode: it is the first one that is named, with its line."""
    other = "pynative" if mode == "graph" else "graph"
    run(tmp_path / "right", f"mode={other}", *SYNC)
    kind = ops.MaxPool if side == "forward" else ops.BiasAddGrad
    if mode == "pynative":
        usual = kind.kernel
        monkeypatch.setattr(kind, "kernel", lambda self, *arrays: usual(self, *arrays) * np.float32(1.01))
    else:
        scale_lowered(monkeypatch, kind)
    run(tmp_path / "wrong", f"mode={mode}", *SYNC)
    capsys.readouterr()
    assert run_command("compare", [str(tmp_path / "wrong"), str(tmp_path / "right")]) == 6
    said = " ".join(capsys.readouterr().out.split())
    if side == "forward":
        assert "Default/network-WithLossCell/_backbone-LeNet5/max_pool2d-MaxPool2d/MaxPool-op2" in said
        assert "lenet.py" in said
        assert "self.max_pool2d(self.relu(self.conv1(x)))" in said
    else:
        assert "BiasAddGrad-op18" in said
        assert "x = self.fc3(x)" in said


def scale_lowered(monkeypatch, kind) -> None:
    """Every form of an operator gives 1.01 times its results."""
    lowerings, lower = kind.lowerings, kind.lower

    def scaled(way):
        def lowering(b, *names, **more):
            made = way(b, *names, **more)
            factor = b.const(np.asarray(1.01, np.float32))
            return b.node("Mul", (made, factor)) if isinstance(made, str) else made

        return lowering

    monkeypatch.setattr(
        kind,
        "lowerings",
        lambda self, *types: tuple(replace(f, lower=scaled(f.lower)) for f in lowerings(self, *types)),
    )
    monkeypatch.setattr(kind, "lower", lambda self, b, *names: scaled(lambda b, *n: lower(self, b, *n))(b, *names))


@pytest.mark.parametrize(
    ("plain", "dumping"),
    [
        (("mode=graph", "sink_size=4"), ("mode=graph", "sink_size=4", "dump=async", "dump.iteration='0|2-3|7'")),
        (("mode=graph",), ("mode=graph", "dump=async", "dump.iteration=all", "dump.file_format=npy")),
        (("mode=graph", "dataset_sink_mode=false"), ("mode=graph", *SYNC, "dump.iteration='1|8'")),
        (("mode=pynative", "dataset_sink_mode=false"), ("mode=pynative", *SYNC, "dump.iteration=all")),
    ],
    ids=["sunk", "whole sinks", "graph", "pynative"],
)
def test_a_dump_changes_nothing(tmp_path, plain, dumping):
    run(tmp_path / "plain", *plain)
    run(tmp_path / "dumping", *dumping)
    assert results(tmp_path / "plain") == results(tmp_path / "dumping")


SEED_002 = {
    "common_dump_settings": {
        "dump_mode": 1,
        "path": "",
        "net_name": "ResNet50",
        "iteration": "0",
        "input_output": 0,
        "kernels": ["Default/network/_backbone/conv1/Conv2D-op0"],
        "support_device": [0, 1, 2, 3, 4, 5, 6, 7],
    },
    "e2e_dump_settings": {"enable": True, "trans_flag": True},
}


def script(folder: Path, monkeypatch, settings: dict) -> None:
    """A script of seed 002: a ResNet-50 is trained for one step under MINDSPORE_DUMP_CONFIG."""
    settings["common_dump_settings"]["path"] = str(folder)
    (folder.parent / f"{folder.name}.json").write_text(json.dumps(settings))
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(folder.parent / f"{folder.name}.json"))
    context.set_context(mode=context.GRAPH_MODE, reserve_class_name_in_scope=False)
    seed.set_seed(1)
    net = NETWORKS.kind["resnet50"].source(width=4)
    noise = np.random.default_rng(0)
    images = noise.standard_normal((4, 3, 32, 32)).astype(np.float32)
    data = NumpySlicesDataset((images, noise.integers(0, 10, 4).astype(np.int32))).batch(4)
    loss, optimizer = nn.SoftmaxCrossEntropyWithLogits(True, "mean"), nn.Momentum(net.trainable_params(), 0.01, 0.9)
    Model(net, loss, optimizer).train(1, data, dataset_sink_mode=False)
    context.value_observer().close()  # as at the end of a script


def test_resnets_conv1_weight_as_seed_002_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = copy.deepcopy(SEED_002)
    script(tmp_path / "sync", monkeypatch, settings)
    ir = (tmp_path / "sync/ResNet50/0/graphs/ms_output_trace_code_graph_0.ir").read_text()
    assert ": (Default/network/_backbone/conv1/Conv2D-op0)" in ir
    assert "x = self.relu(self.bn1(self.conv1(x)))/" in ir or "self.conv1(x)" in ir
    place = tmp_path / "sync/ResNet50/0/iteration_0"
    file = "Default--network--_backbone--conv1--Conv2D-op0_input_1_shape_4_3_3_3_Float32_DefaultFormat.bin"
    array = np.fromfile(place / file, np.float32)
    weight = np.reshape(array, (4, 3, 3, 3))
    assert len(list(place.iterdir())) == 3

    del settings["e2e_dump_settings"]
    settings["common_dump_settings"]["op_debug_mode"] = 0
    script(tmp_path / "async", monkeypatch, settings)
    [dumped] = (tmp_path / "async/0/ResNet50_graph_0/0/0").iterdir()
    assert dumped.name.startswith("Conv2D.Default_network__backbone_conv1_Conv2D-op0.0.0.")
    assert run_command("convert", ["-d", str(dumped), "-out", "output", "-f", "NCHW", "-c", "../"]) == 0
    np.testing.assert_array_equal(np.load(f"output/{dumped.name}.input.1.4x3x3x3.npy"), weight)
    image = np.load(f"output/{dumped.name}.input.0.4x3x32x32.npy")
    [plain] = place.glob("*_input_0_*")
    np.testing.assert_array_equal(image, np.fromfile(plain, np.float32).reshape(4, 3, 32, 32))
    assert np.load(f"output/{dumped.name}.output.0.4x4x32x32.npy").shape == (4, 4, 32, 32)


def test_every_asynchronous_file_is_read_by_another_reader(tmp_path):
    run(tmp_path / "run", "mode=graph", "dump=async", "dump.iteration='0|4'")
    place = tmp_path / "run/dump/0/lenet5_graph_0/0"
    dumped = sorted(place.glob("*/*"))
    assert len(dumped) == 2 * (45 + 19)
    for file in dumped:
        operator = foreign_reader.read(file)
        assert operator.outputs
        assert file.name.split(".")[1] == operator[0].replace("/", "_").replace(".", "_")


class Dead(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("nth", [*thinned([50, 1, 300], every=2)])
def test_killed_while_dumping_and_resumed(tmp_path, monkeypatch, mode, nth):
    """No file under a final name is cut, and the run ends as one that was never killed."""
    overrides = f"mode={mode}", *SYNC, "dump.iteration='2|6'", "checkpoint.every_steps=1"
    run(tmp_path / "whole", *overrides)
    count = 0

    def die(operation, path):
        nonlocal count
        count += operation in ("write", "rename") and "iteration_" in str(path)
        if count >= nth:
            raise Dead

    with monkeypatch.context() as patch:
        patch.setattr(files, "before_operation", die)
        with pytest.raises(Dead):
            run(tmp_path / "killed", *overrides)
    for file in (tmp_path / "killed").rglob("*.bin"):
        name = SyncName.parse(file.name, file.stat().st_size)
        assert name.type.nbytes == file.stat().st_size
    resume(str(tmp_path / "killed"))
    assert results(tmp_path / "whole") == results(tmp_path / "killed")
    assert dumps(tmp_path / "whole") == dumps(tmp_path / "killed")


def dumps(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.bin")
    }


@pytest.mark.parametrize("kind", [SYNC, ("dump=async", "sink_size=1", "epochs=10")], ids=["sync", "async"])
def test_a_full_disk_ends_the_run_and_keeps_the_rest(tmp_path, monkeypatch, kind):
    overrides = "mode=graph", "dump.iteration='0|6'", "checkpoint.every_steps=1", *kind

    def full(operation, path):
        if operation == "write" and ("iteration_6" in str(path) or "/0/6/" in str(path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "before_operation", full)
        with pytest.raises(StorageError) as caught:
            run(tmp_path / "full", *overrides)
    assert caught.value.exit_code == 5
    assert "No space left" in caught.value.rows["reason"]
    assert "/dump/" in caught.value.rows["path"]
    status = json.loads((tmp_path / "full" / "status.json").read_text())
    assert (status["status"], status["exit_code"]) == ("failed", 5)
    resume(str(tmp_path / "full"))
    run(tmp_path / "whole", *overrides)
    assert results(tmp_path / "full") == results(tmp_path / "whole")


def whole(folder):
    """Files under a final name."""
    return [file for file in folder.glob("*/*") if not file.name.startswith(".")]


def test_sigkill_while_an_asynchronous_dump_is_written(tmp_path):
    """A real process, a real signal: every file under a final name is whole."""
    words = [sys.executable, "-m", "runner", *SMALL, "mode=graph", "epochs=100000", "dump=async", "dump.iteration=all"]
    with subprocess.Popen([*words, f"hydra.run.dir={tmp_path / 'run'}"], stdout=subprocess.DEVNULL) as process:
        place = tmp_path / "run/dump/0/lenet5_graph_0/0"
        wait_until(lambda: len(whole(place)) >= 150, alive=lambda: process.poll() is None)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    for file in whole(place):
        assert foreign_reader.read(file).outputs


def test_overflow_is_named_with_its_line(tmp_path):
    """`session.enable_exception_dump` in a run whose rate is far too high."""
    with pytest.raises(runner.RunnerError) as caught:
        run(tmp_path / "run", "mode=graph", "optimizer.learning_rate=1e20", "session.enable_exception_dump=1")
    rows = caught.value.rows
    assert rows["operator"].startswith(("Default/", "Gradients/"))
    assert "models/lenet.py" in rows["line"] or "runner/nn" in rows["line"]
    step = int(rows["global step"]) - 1
    folder = tmp_path / "run/exception_dump/lenet5/0" / f"iteration_{step}"
    assert any(rows["operator"].replace("/", "--") in file.name for file in folder.iterdir())
    assert str(tmp_path / "run/exception_dump") == rows["dump"]


def test_kinds_of_dumps_read_alike(tmp_path):
    """Synchronous, asynchronous, as .npy, by GE, plain and as it lies: the same numbers for `runner compare`."""
    (tmp_path / "ge").mkdir()
    kinds = {
        "sync": SYNC,
        "lying": (*SYNC, "dump.trans_flag=false"),
        "async": ("dump=async", "dataset_sink_mode=false"),
        "sunk": ("dump=async",),
        "npy": ("dump=async", "dump.file_format=npy"),
        "ge": ("dump=ge", f"dump.dump_path={tmp_path / 'ge'}", "dump.dump_step='0'", "dump.dump_mode=all"),
    }
    for name, overrides in kinds.items():
        run(tmp_path / name, "mode=graph", "max_steps=1", *overrides)
    for name in kinds:
        found = tmp_path / "ge" if name == "ge" else tmp_path / name
        assert run_command("compare", [str(tmp_path / "sync"), str(found), "--rtol", "0", "--atol", "0"]) == 0, name
