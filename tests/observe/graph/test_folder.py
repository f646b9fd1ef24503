"""`save_graphs`: which files there are, that they teach what a pass did, and that two runs write the same bytes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE
from step_graphs import batch, step_cell, step_graph

import runner
import runner.observe.graph
from runner import Model, Tensor, context, nn, ops
from runner.compile.passes import default_passes, optimize
from runner.compile.program import Program
from runner.core.dependence import NOTE_LOWERINGS
from runner.core.graph import NO_GRAPHS
from runner.device import Device
from runner.errors import ConfigError, ShapeError, StorageError
from runner.nn.steps import EagerStep, GraphStep
from runner.observe.graph import folder as folders
from runner.observe.graph.folder import GraphFolder, forward
from runner.types import TensorType

ROOT = Path(__file__).parents[3]
QUIET = ("callbacks=quiet", "device.threads=1", "eval.every=never")
SHORT = ("+experiment=lenet_seed", "dataset=synthetic", "dataset.num_samples=64", "max_steps=2", *QUIET)
STAGES = ["parse", "grad", "fold", "pool_first", "schedule_updates", "layout", "lower"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Graphviz takes its time; one test asks for it."""
    monkeypatch.setattr(folders.shutil, "which", lambda name: None)


def names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.rglob(f"*{suffix}"))


def run(*words: str, mode: str = "graph") -> Path:
    return Path(runner.run([*SHORT, f"mode={mode}", "save_graphs=true", "hydra.run.dir=run", *words])["run_dir"])


# Whole runs


@pytest.mark.parametrize("sunk", ["true", "false"])
def test_a_run_leaves_its_stages(sunk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graphs = run(f"dataset_sink_mode={sunk}") / "graphs"
    stages = [f"{k:02}_{stage}_{k:04}" for k, stage in enumerate(STAGES)]
    assert names(graphs, ".ir") == [*(f"{stage}.ir" for stage in stages), "trace_code_graph_0.ir"]
    assert names(graphs, ".dot") == [f"{stage}.dot" for stage in stages]
    assert names(graphs, ".pb") == ["ms_output_trace_code_graph_0.pb"]
    assert names(graphs, ".csv") == ["ms_execution_order_graph_0.csv"]
    order = (graphs / "execution_order" / "ms_execution_order_graph_0.csv").read_text().splitlines()
    executed = runner.observe.graph.read(graphs / "trace_code_graph_0.ir").subgraphs[0].operations
    root = "Default/network-TrainOneStepCell/" if sunk == "true" else "Default/"
    assert order == ["NodeExecutionOrder-FullNameWithScope", *(o.full_name for o in executed)]
    assert order[1] == f"{root}network-WithLossCell/_backbone-LeNet5/conv1-Conv2d/Conv2D-op0"
    assert executed[0].source[-1].text == "x = self.max_pool2d(self.relu(self.conv1(x)))"


def test_both_modes_write_the_same_step(tmp_path, monkeypatch):
    """What PyNative mode records of its first step is what graph mode traces; and nothing is saved unless asked for."""
    monkeypatch.chdir(tmp_path)
    tape = run("hydra.run.dir=a", mode="pynative") / "graphs"
    traced = run("hydra.run.dir=b", "dataset_sink_mode=false", "save_graphs_path=deep/place") / "deep" / "place"
    silent = Path(runner.run([*SHORT, "mode=graph", "hydra.run.dir=c"])["run_dir"])
    assert names(tape, ".ir") == ["00_tape_0000.ir", "trace_code_graph_0.ir"]
    assert (tape / "00_tape_0000.ir").read_text() == (traced / "01_grad_0001.ir").read_text()
    assert names(silent, ".ir") == []
    assert (tape.parent / "metrics.jsonl").read_bytes() == Path(
        runner.run([*SHORT, "mode=pynative", "hydra.run.dir=d"])["run_dir"], "metrics.jsonl"
    ).read_bytes()


def test_two_processes_write_equal_bytes(tmp_path):
    words = [*SHORT, "mode=graph", "save_graphs=true"]
    for name in ("a", "b"):
        command = [sys.executable, "-m", "runner", *words, f"hydra.run.dir={tmp_path / name}"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(ord(name))}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=PATIENCE)
    both = [
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in (tmp_path / "a" / "graphs", tmp_path / "b" / "graphs")
    ]
    assert len(both[0]) > 10
    assert both[0] == both[1]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize(
    ("path", "error", "code"),
    [("taken", ConfigError, 2), ("taken/below", ConfigError, 2), ("/proc/nowhere", StorageError, 5)],
)
def test_a_path_that_cannot_be_written_ends_the_run_before_training(path, error, code, mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    given = path if path.startswith("/") else tmp_path / path
    with pytest.raises(error) as caught:
        run(f"save_graphs_path={given}", mode=mode)
    assert caught.value.exit_code == code
    assert str(given) in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_what_failed_lies_in_the_run_directory(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShapeError):
        run("dataset.image_size=8", "dataset_sink_mode=false", mode=mode)
    left = runner.observe.graph.read(tmp_path / "run" / folders.FAILED).subgraphs[0]
    assert [o.op for o in left.operations] == ["Conv2D", "ReLU", "MaxPool"]
    assert names(tmp_path / "run" / "graphs", ".ir") == []


# Stages


def test_a_stage_says_what_its_pass_did(tmp_path):
    """The text of two stages differs in the lines that the pass touched."""
    graph = step_graph("lenet", GraphFolder(tmp_path))
    observer = GraphFolder(tmp_path)
    optimize(graph, default_passes(Device()), observer)
    grad, fold = ((tmp_path / name).read_text().splitlines() for name in ("01_grad_0001.ir", "00_fold_0000.ir"))
    gone = [line for line in grad if line not in fold]
    assert re.findall(r"%(\d+)\(", gone[0]) == ["17"]  # the product with 1
    assert sorted({line.split(" = ")[1].split("(")[0] for line in gone if " = " in line}) == [
        "BiasAddGrad",
        "MatMul",
        "Mul",
    ]


def test_the_forward_part_is_a_graph_of_its_own():
    graph = step_graph("resnet18")
    part = forward(graph)
    assert [n.number for n in part.nodes] == list(range(len(part.nodes)))
    assert {n.scope.split("/")[0] for n in part.nodes} == {"Default"}
    assert part.outputs == graph.outputs
    assert {p.name for p in part.updates} == {p.name for p in graph.updates if "moving" in p.name}
    assert not any("moments" in p.name for p in part.parameters)
    assert forward(part) is part


def test_programs_are_counted_and_files_too(tmp_path):
    class Net(nn.Cell):
        def construct(self, x):
            return x + x * 0

    observer = GraphFolder(tmp_path)
    for size in (2, 3):
        kind = TensorType.of(np.zeros(size, np.float32))
        Program(Net().construct, [kind], Device("CPU"), "net", observer=observer)
    stages = [name for name in names(tmp_path, ".ir") if name[0] == "0"]
    assert [(name[:2], name[-7:-3]) for name in stages] == sorted(
        (f"{k:02}", f"{n:04}") for n, k in enumerate([*range(3)] * 2)
    )
    assert runner.observe.graph.read(tmp_path / "trace_code_graph_1.ir").subgraphs[0].name == "net.1"


def test_pictures_are_drawn_where_graphviz_is(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho picture of $2\n")
    program.chmod(0o755)
    monkeypatch.setattr(folders.shutil, "which", lambda name: str(program))
    step_graph("lenet", GraphFolder(tmp_path))
    assert (tmp_path / "01_grad_0001.svg").read_text() == f"picture of {tmp_path / '01_grad_0001.dot'}\n"


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 60"])
def test_a_renderer_that_fails_is_no_fault_of_the_run(script, tmp_path, monkeypatch, caplog):
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(folders.shutil, "which", lambda name: str(program))
    monkeypatch.setattr(folders, "DOT_SECONDS", 0.2)
    step_graph("lenet", GraphFolder(tmp_path))
    assert names(tmp_path, ".svg") == []
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"{stem}.dot could not be rendered" for stem in ("00_parse_0000", "01_grad_0001")
    ]


# The Python API


def test_a_script_saves_the_graphs_of_its_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context.set_context(mode=context.GRAPH_MODE, save_graphs=True, save_graphs_path="made/here")
    nn.Dense(3, 2)(Tensor(np.ones((4, 3), np.float32)))
    assert "trace_code_graph_0.ir" in names(tmp_path / "made" / "here", ".ir")
    assert context.get_context("save_graphs_path") == str(tmp_path / "made" / "here")
    nn.Dense(3, 2)(Tensor(np.ones((4, 3), np.float32)))
    assert "trace_code_graph_1.ir" in names(tmp_path / "made" / "here", ".ir")


def test_nobody_records_by_default():
    """Only operators that depend on the C library are noted."""
    assert Model(nn.Dense(3, 2)).observer is NOTE_LOWERINGS
    assert context.graph_observer() is NOTE_LOWERINGS
    assert not NOTE_LOWERINGS.records_steps


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_watching_changes_no_number(mode, tmp_path):
    images, labels = batch("lenet")
    made = []
    for observer in (NO_GRAPHS, GraphFolder(tmp_path)):
        cell = step_cell("lenet")
        model = Model(cell, mode=mode, device=Device("CPU", threads=1), observer=observer)
        losses = [model.train_step((images, labels))[0] for _ in range(3)]
        made.append([*losses, *(p.array for p in cell.get_parameters())])
    for plain, watched in zip(*made, strict=True):
        np.testing.assert_array_equal(plain, watched)


def test_prints_and_gradients_of_them_are_recorded_as_traced(tmp_path, capsys):
    """Effects, and gradients that were formed of recorded values."""

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.mean = nn.Dense(3, 2), ops.ReduceMean()

        def construct(self, x):
            ops.Print()("x", x)
            return self.mean(self.fc(x))

    texts = []
    for place in (tmp_path / "graph", tmp_path / "pynative"):
        net, observer = Net(), GraphFolder(place)
        cell = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
        graph = GraphStep(cell, Device("CPU"), "step", observer=observer)
        step = graph if place.name == "graph" else EagerStep(cell, "step", observer)
        step([np.ones((4, 3), np.float32)])
        texts.append(next(place.glob("0?_[gt]*.ir")).read_text())
    assert "Print(%para1_input0) primitive_attrs" in texts[0]
    assert texts[0] == texts[1]
