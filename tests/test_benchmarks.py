"""Every benchmark runs, with as little work as possible, and what it computes from its measurements is right."""

import gzip
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ranks import needs_mpi
from soak import thinned
from stand_in_card import install

from models.lenet import LeNet5
from runner import Tensor, dtype, export, nn, ops
from runner.core.trace import trace
from runner.core.values import Value
from runner.types import TensorType

ROOT = Path(__file__).parents[1]
PEERS = {"torch": "torch_eager.py", "jax": "jax_jit.py", "mindspore": "mindspore_graph.py"}
MNIST_KINDS = "images-idx3", "labels-idx1"
LENET_PARAMETERS = 6 * 25 + 16 * 6 * 25 + 401 * 120 + 121 * 84 + 85 * 10


def ran(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "benchmarks" / script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def rows(done: subprocess.CompletedProcess[str]) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def load(monkeypatch):
    """Import a module of benchmarks/ as its scripts do; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def test_step_measures_each_mode_and_compares_with_the_floor():
    words = ["--mode", "graph", "pynative", "--sink", "0", "2", "--threads", "1", "--steps", "2", "--repeats", "1"]
    *medians, graph, sunk, pynative = rows(ran("step.py", "lenet5", *words))
    assert [(row["peer"], row.get("mode"), row.get("sink")) for row in medians] == [
        ("runner", "graph", 0),
        ("runner", "graph", 2),
        ("runner", "pynative", 0),
        ("floor", None, None),
    ]
    assert {row["parameters"] for row in medians[:3]} == {LENET_PARAMETERS}
    assert all(row["compile_seconds"] > 0 for row in medians[:2])
    assert all(row["peak_rss_mb"] > 20 for row in medians)
    for ours, compared in zip(medians, (graph, sunk, pynative), strict=False):
        assert compared["peer"] == "floor"
        assert (compared["mode"], compared["sink"]) == (ours["mode"], ours["sink"])
        assert compared["ratio"] == pytest.approx(medians[3]["ms_per_step"] / ours["ms_per_step"], abs=6e-4)


@pytest.mark.parametrize("peer", PEERS)
def test_the_peers(peer):
    if find_spec(peer) is None:
        pytest.skip(f"{peer} is a peer, not a dependency of runner")
    (row,) = rows(ran(f"peers/{PEERS[peer]}", "lenet5", "--steps", "1", "--threads", "1"))
    assert (row["peer"], row["parameters"]) == (peer, LENET_PARAMETERS)
    assert row["ms_per_step"] > 0


def test_a_network_of_an_onnx_file(tmp_path):
    image = Tensor(np.zeros((4, 1, 32, 32), np.float32))
    export(LeNet5(), image, file_name=str(tmp_path / "lenet5"), file_format="ONNX")
    words = ["--onnx", str(tmp_path), "--steps", "1", "--threads", "1", "--batch", "4"]
    for script in ("one_step.py", "floor.py"):
        (row,) = rows(ran(script, "lenet5", *words))
        assert row["ms_per_step"] > 0
        assert row.get("parameters", LENET_PARAMETERS) == LENET_PARAMETERS


@pytest.mark.parametrize("sink", ["0", "2"])
def test_a_step_on_a_card(load, monkeypatch, capsys, sink):
    card = install(monkeypatch)
    words = ["lenet5", "--device", "gpu", "--tf32", "--steps", "2", "--sink", sink]
    monkeypatch.setattr(sys, "argv", ["one_step.py", *words])
    load("one_step").main()
    row = json.loads(capsys.readouterr().out)
    assert (row["device"], row["tf32"], row["sink"]) == ("gpu", True, int(sink))
    assert [given["use_tf32"] for given in card.options] == ["1"]
    assert card.calls == (3 if sink == "2" else 1 + 2 + 2)  # the first step, the warm-up, the timed steps


OTHERS = (
    ("busy.py", ("--repeats", "1", "--hogs", "0", "--", "max_steps=1", "eval.every=never"), 1),
    ("data.py", ("--steps", "1"), 6),
    ("growth.py", ("--curves", "batch", "--budget", "1e-6"), 7),
    ("interpreter.py", ("--repeats", "1"), 1),
    ("sweep.py", ("--repeats", "1", "--jobs", "2", "--", "max_steps=1"), 1),
    ("profile.py", ("--steps", "16", "--repeats", "1"), 8),
    ("startup.py", ("--repeats", "1"), 1),
)


@pytest.mark.parametrize(("script", "words", "count"), [*thinned(OTHERS, every=2)])
def test_the_other_scripts(script, words, count):
    assert len(rows(ran(script, *words))) == count


@needs_mpi
def test_sums_and_steps_of_ranks(tmp_path):
    found = rows(ran("ranks.py", "sums", "--ranks", "2", "--kib", "1", "2", "1024", "2048", "--repeats", "1"))
    assert [(row["ranks"], row["bytes"]) for row in found] == [(2, 1024), (2, 2048), (2, 1 << 20), (2, 2 << 20)]
    assert all(row["ratio"] == pytest.approx(row["ours_us"] / row["mpi_us"], rel=0.05) for row in found)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    costs, *extrapolated = rows(ran("rank_model.py", str(tmp_path / "rows.jsonl")))
    assert costs["error"] >= 0
    assert [row["ranks"] for row in extrapolated] == [8, 32, 100, 256, 1000]
    steps = rows(ran("ranks.py", "steps", "lenet5", "--ranks", "2", "--steps", "2", "--batch", "4"))
    assert [(row["ranks"], row["mode"], row["scaling"], row["batch"]) for row in steps] == [
        *((1, mode, "weak", 4) for mode in ("graph", "pynative")),
        *((2, mode, "weak", 4) for mode in ("graph", "pynative")),
        *((2, mode, "strong", 2) for mode in ("graph", "pynative")),
    ]
    for row in steps:
        assert row["exchange_ms"] + row["waiting_ms"] <= row["ms_per_step"] * 1.05
    assert all(row["exchange_ms"] > 0 for row in steps[2:])


def test_the_model_of_sums_finds_the_costs_of_made_up_times(load):
    model = load("rank_model")
    costs = model.Costs(20e-6, 4e-6, 5e-10, 3e-10, 3e-5)
    made = [{"ranks": n, "cores": 2, "bytes": size} for n in (2, 4, 8) for size in (1 << 10, 1 << 18, 1 << 22, 1 << 27)]
    for row in made:
        row["ours_least_us"] = model.predicted(costs, row) * 1e6
    assert model.fitted(made) == pytest.approx(costs)
    assert model.error(costs, made) < 1e-9
    assert model.amounts(2, 1 << 10) == (1, 1 << 10)
    assert model.amounts(4, 4 << 20) == (6, 6 << 20)
    assert model.amounts(1000, 100 << 20)[0] == 2 * (40 - 1) + 2 * (25 - 1)


def test_exchange_and_waiting(load, monkeypatch):
    monkeypatch.delitem(sys.modules, "ranks")  # the tests' own module of this name
    one, two = [(0.0, 5.0), (10.0, 12.0)], [(3.0, 4.5), (9.0, 12.0)]
    assert load("ranks").split([one, two]) == pytest.approx(((2 + 2 + 1.5 + 2) / 2, (3 + 1) / 2))


def test_the_profile_gives_every_node_to_one_row_of_each_table():
    done = ran("profile_step.py", "lenet5", "--steps", "2", "--threads", "1", "--batch", "4", "--top", "1000")
    assert done.returncode == 0, done.stderr
    first, *tables = done.stdout.split("\n\n")
    nodes, inside = re.search(r"its (\d+) nodes ([\d.]+) ms", first).groups()
    assert len(tables) == 3
    for table in tables:
        lines = [line.rsplit(maxsplit=3) for line in table.splitlines()[1:]]
        assert sum(int(line[-1]) for line in lines) == int(nodes)
        assert sum(float(line[-2]) for line in lines) == pytest.approx(float(inside), abs=1e-3 * len(lines))
        assert sum(float(line[-3].rstrip("%")) for line in lines) == pytest.approx(100, abs=0.1 * len(lines))
    kinds = {line.split()[0] for line in tables[1].splitlines()[1:]}
    assert {"MaxPool", "MaxPoolGrad", "ApplyMomentum"} <= kinds  # others may have been fused into what follows


@pytest.mark.parametrize(
    ("node", "kind", "expected"),
    [
        ("Default/net-Net/conv/Conv2D-op0/Conv_0", "Conv", ("Default/net-Net/conv/Conv2D-op0", "Conv2D")),
        ("Default/gradReLU/ReluGrad-op7", "Mul", ("Default/gradReLU/ReluGrad-op7", "ReluGrad")),
        (
            "Default/relu/ReLU-op3/Relu_0/FusedConv",
            "FusedConv",
            ("Default/relu/ReLU-op3", "ReLU + FusedConv"),
        ),
        ("Default/relu/ReLU-op3/Relu_0/addend", "Reshape", ("Default/relu/ReLU-op3", "ReLU")),
        ("loss/Identity", "Identity", ("loss/Identity", "-")),
    ],
)
def test_the_operator_of_a_node(load, node, kind, expected):
    module = load("profile_step")
    assert module.operator_of(module.Spent(kind, node, 1.0)) == expected


def test_batch_normalisation_is_measured_in_training_mode(load):
    graph = load("floor").step_graph("resnet18", 2)
    moved = [parameter.name for parameter in graph.updates if "moving" in parameter.name]
    assert len(moved) == 2 * 20  # mean and variance of 17 convolutions and 3 shortcuts


def test_the_floor_of_lenet(load):
    floor = load("floor")
    convolutions = 2 * 6 * 28 * 28 * 25 + 3 * 16 * 10 * 10 * 6 * 25  # the images need no gradient
    dense = 3 * (400 * 120 + 120 * 84 + 84 * 10)
    assert floor.flops(floor.step_graph("lenet5", 8)) == 2 * 8 * (convolutions + dense)


class Products(nn.Cell):
    def construct(self, x: Value, w: Value, a: Value, b: Value) -> tuple[Value, Value]:
        return ops.Conv2D(6, (3, 3), stride=2, pad_mode="pad", pad=1, group=2)(x, w), ops.BatchMatMul(True)(a, b)


def test_the_floor_counts_strides_groups_and_transposed_operands(load):
    shapes = [(5, 4, 8, 8), (6, 2, 3, 3), (2, 3, 7, 11), (2, 3, 7, 13)]
    graph = trace(Products().construct, [TensorType(dtype.float32, shape) for shape in shapes], "products")
    assert load("floor").flops(graph) == 2 * (5 * 6 * 4 * 4 * 2 * 9 + 2 * 3 * 11 * 13 * 7)


def made_row(peer: str, milliseconds: float, memory: float, parameters: int = 1) -> dict:
    common = {"net": "lenet5", "batch": 32, "threads": 2, "mode": "graph", "sink": 0}
    return {**common, "peer": peer, "ms_per_step": milliseconds, "peak_rss_mb": memory, "parameters": parameters}


class Recorded:
    """A contender that plays back rows."""

    def __init__(self, order: list[str], *rows: dict) -> None:
        self.order, self.rows = order, list(rows)

    def measure(self, arguments: list[str], threads: int) -> dict:
        self.order.append(self.rows[0]["peer"])
        return self.rows.pop(0)


def repeats(step: ModuleType, *contenders: Recorded) -> list[dict]:
    options = step.argparse.Namespace(repeats=len(contenders[0].rows))
    return list(step.summary(step.in_turn(contenders, [], options, 1)))


def test_repeats_are_compared_one_by_one(load):
    order: list[str] = []
    ours = Recorded(order, *(made_row("runner", ms, 100) for ms in (1.0, 4.0, 2.0)))
    peer = Recorded(order, *(made_row("torch", ms, 200) for ms in (3.0, 4.0, 5.0)))
    mine, other, compared = repeats(load("step"), ours, peer)
    assert order == ["runner", "torch", "torch", "runner", "runner", "torch"]
    assert (mine["ms_per_step"], mine["ms_of_each_repeat"]) == (2.0, [1.0, 4.0, 2.0])
    assert other["ms_per_step"] == statistics.median([3.0, 4.0, 5.0])
    assert (compared["of_each_repeat"], compared["ratio"], compared["rss_ratio"]) == ([3.0, 1.0, 2.5], 2.5, 0.5)


def test_another_network_is_not_compared(load):
    contenders = [Recorded([], made_row("runner", 1.0, 1.0, 10)), Recorded([], made_row("torch", 1.0, 1.0, 11))]
    with pytest.raises(SystemExit, match=r"not the same network: .*'runner': 10, 'torch': 11"):
        repeats(load("step"), *contenders)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--peer-python", "tensorflow=/python"], 2, "'tensorflow=/python' is not PEER=PATH with a peer of torch"),
        (["--peer-python", "torch"], 2, "'torch' is not PEER=PATH"),
        (["--sink", "-1"], 2, "'-1' is not a whole number from 0 on"),
        (["--threads", "0"], 2, "'0' is not a whole number from 1 on"),
        (["mobilenet_v2"], 2, "mobilenet_v2 needs --onnx, the folder that peers/torch_onnx.py has written"),
        (["--peer", "onnxruntime.training"], 2, "onnxruntime.training needs --onnx"),
        (["--device", "gpu", "--mode", "pynative"], 2, "pynative does not compute on the gpu here"),
        (
            ["--device", "gpu", "--peer", "jax"],
            2,
            "jax does not compute on the gpu here: graph mode and torch",
        ),
        (["--tf32"], 2, "--tf32 needs --device gpu"),
        (["--peer", "jax", "--peer-python", "jax=/no/python"], 1, "jax=/no/python: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(words, code, said):
    done = ran("step.py", "lenet5", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_peer_that_is_not_installed_is_named():
    if all(find_spec(peer) for peer in PEERS):
        pytest.skip("all peers are here")
    peer = next(peer for peer in PEERS if find_spec(peer) is None)
    done = ran("step.py", "lenet5", "--peer", peer)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"has no package {peer}: give --peer-python {peer}=PATH" in done.stderr


def test_dumps_are_measured(tmp_path):
    words = ["--net", "lenet5", "--steps", "2", "--repeats", "1", "--threads", "1", "--folder", str(tmp_path)]
    found = rows(ran("dump.py", *words))
    measured = {(row["what"], row.get("mode"), row.get("sunk")): row for row in found if "median" not in row}
    assert len(found) == 2 * len(measured) == 12
    for mode in ("graph", "pynative"):
        written = measured["write", mode, None]
        assert written["files"] == 158 + 19
        assert written["ratio"] == pytest.approx(
            written["dump_MiB_per_second"] / written["tofile_MiB_per_second"], 1e-2
        )
        assert 0 < measured["queue", mode, None]["ratio"] <= 1.1
    for sunk in (False, True):
        trained = measured["train", None, sunk]
        assert trained["ratio"] == pytest.approx(trained["plain_ms"] / trained["dumping_ms"], 1e-2)
    assert list(tmp_path.iterdir()) == []


def test_scripts_of_the_release_run_with_another_package_name(tmp_path):
    folder, data = tmp_path / "scripts", tmp_path / "data"
    for name, content in (
        *((f"mnist/{prefix}-{kind}-ubyte.gz", b"") for prefix in ("train", "t10k") for kind in MNIST_KINDS),
        *((f"cifar10/{name}.bin.gz", bytes(3073 * 40)) for name in ("data_batch_1", "test_batch")),
    ):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(gzip.compress(content))
    folder.mkdir()
    (folder / "words.py").write_text("from mindspore import Tensor\n")
    good = 'import os, words\nprint(words.Tensor([1.5]), os.path.getsize("banana.jpg") > 0)\nos.stat("MNIST_Data")\n'
    (folder / "one__good.py").write_text(good)
    (folder / "one__bad.py").write_text("import mindspore\nmindspore.nn.Cel()\n")
    done = ran("scripts.py", str(folder), str(data), "--output", str(tmp_path / "out"))
    bad, fine, total = (re.sub(r"  \d+ s  ", " ", line) for line in done.stdout.splitlines())
    assert bad.startswith("FAILED  one__bad AttributeError: module 'runner.nn'")
    assert (fine, total) == ("ok      one__good [1.5] True", "1 of 2 scripts ran to their end")
    assert (done.returncode, (tmp_path / "out" / "one__good.txt").read_text()) == (1, "[1.5] True\n")
