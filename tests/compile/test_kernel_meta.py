"""`session.op_debug_level`: the files of each level, what stands in them, and graphs that stay as they were traced."""

import json
import linecache
from pathlib import Path

import numpy as np
import onnx
import pytest
from run_requests import request_of

import runner
from runner import dtype, nn, ops
from runner.compile.kernel_meta import KernelMeta
from runner.compile.program import Program
from runner.config.schema import RunConfig
from runner.core.graph import Graph, GraphObserver, GraphObservers
from runner.device import Device
from runner.errors import TrainingError
from runner.experiment.observers import graph_observer
from runner.types import TensorType

SMALL = ("+experiment=lenet_seed", "dataset=synthetic", "dataset.num_samples=64", "max_steps=2", "callbacks=quiet")
FILES = {
    1: {"loc", "model", "json"},
    2: {"loc", "model", "json"},
    3: {"model", "json"},
    4: {"model", "json", "compute"},
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kernel_meta(level: int, *lines: str) -> tuple[dict, Path]:
    """Summary and folder of a short run."""
    summary = runner.run([*SMALL, "eval.every=never", "device.threads=1", f"session.op_debug_level={level}", *lines])
    return summary, Path(summary["run_dir"]) / "kernel_meta"


def kinds(folder: Path) -> set[str]:
    endings = {"_loc.json": "loc", "_compute.json": "compute", ".json": "json", ".onnx": "model"}
    return {next(kind for end, kind in endings.items() if file.name.endswith(end)) for file in folder.iterdir()}


def nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes but those that have bodies."""
    made = []
    for node in graph.node:
        bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        made += [one for body in bodies for one in nodes(body)] if bodies else [node]
    return made


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_nothing_is_left_by_default():
    assert not kernel_meta(0)[1].exists()
    assert not any(isinstance(x, KernelMeta) for x in graph_observer(request_of(RunConfig(), Path("x"))).observers)


@pytest.mark.parametrize("level", [1, 2, 3, 4])
@pytest.mark.parametrize("sunk", [True, False])
def test_the_files_of_a_level(level, sunk):
    _, folder = kernel_meta(level, "mode=graph", f"dataset_sink_mode={sunk}", "eval.every=end")
    assert kinds(folder) == FILES[level]
    stems = {file.name.split(".")[0] for file in folder.glob("*.onnx")}
    assert stems == {"train_step", "eval_step"}
    for stem in stems:
        model = onnx.load(folder / f"{stem}.onnx")
        onnx.checker.check_model(model, full_check=True)
        about = read(folder / f"{stem}.json")
        assert (about["program"], about["model"]) == (stem, f"{stem}.onnx")
        kernels = {name for operator in about["operators"] for name in operator["kernels"]}
        assert kernels <= {node.name for node in nodes(model.graph)}


def test_a_kernel_leads_to_its_line():
    _, folder = kernel_meta(1, "mode=graph")
    about, model = read(folder / "train_step_loc.json"), onnx.load(folder / "train_step.onnx")
    assert [(k["kernel"], k["type"]) for k in about["kernels"]] == [(n.name, n.op_type) for n in nodes(model.graph)]
    lines = {name: (place["file"], place["line"]) for name, place in about["operators"].items() if place}
    convolutions = [name for name in lines if "conv1-Conv2d" in name]
    assert len(convolutions) >= 2  # the forward one and its gradient
    for name in convolutions:
        assert "self.conv1(" in linecache.getline(*lines[name])
        assert linecache.getline(*lines[name]).strip() == about["operators"][name]["source"]
    steps = [k for k in about["kernels"] if any("ApplyMomentum" in name for name in k["operators"])]
    assert steps
    known = {name for k in about["kernels"] for name in k["operators"] if not name.startswith("Dataset/")}
    assert known <= about["operators"].keys()


def test_an_operator_is_described():
    _, folder = kernel_meta(3, "mode=graph", "dataset.batch_size=8")
    operators = read(folder / "train_step.json")["operators"]
    first = next(one for one in operators if one["op_type"] == "Conv2D")
    assert first["inputs"] == [{"dtype": "Float32", "shape": s} for s in ([8, 1, 32, 32], [6, 1, 5, 5])]
    assert first["outputs"] == [{"dtype": "Float32", "shape": [8, 6, 28, 28]}]
    assert first["attributes"] | {"kernel_size": [5, 5], "pad_mode": "valid", "group": 1} == first["attributes"]
    assert all(first["full_name"] in name for name in first["kernels"])


def test_groups_are_kernels_of_several_operators():
    _, folder = kernel_meta(4, "mode=graph")
    model = onnx.load(folder / "train_step.onnx")
    by_name = {node.name: node for node in nodes(model.graph)}
    groups = [read(file) for file in folder.glob("*_compute.json")]
    assert all(group["type"] == by_name[group["kernel"]].op_type for group in groups)
    products = [group for group in groups if group["type"] == "Gemm"]
    kinds = {frozenset(one["op_type"] for one in group["operators"]) for group in products}
    assert frozenset({"MatMul", "ApplyMomentum"}) in kinds  # the momentum moves into the product of the gradient


def test_level_2_leaves_the_graph_as_it_was_traced():
    """PyNative mode applies what stands in `construct`, nothing more or less."""
    summary, folder = kernel_meta(2, "mode=graph", "dataset_sink_mode=false")
    usual, optimised = kernel_meta(1, "mode=graph", "dataset_sink_mode=false")
    _, eager = kernel_meta(2, "mode=pynative", "dataset_sink_mode=false")
    names = [
        [one["full_name"] for one in read(where / "train_step.json")["operators"]]
        for where in (folder, optimised, eager)
    ]
    assert names[0] == names[2]
    assert set(names[1]) < set(names[0])
    model = onnx.load(folder / "train_step.onnx")
    assert {node.domain for node in nodes(model.graph)} == {""}
    assert all(len(kernel["operators"]) <= 1 for kernel in shared(folder))
    level = [read(Path(run["run_dir"]) / "manifest.json")["optimization_level"] for run in (summary, usual)]
    assert level == ["ORT_DISABLE_ALL", "ORT_DISABLE_ALL"]
    np.testing.assert_allclose(summary["loss"], usual["loss"], rtol=1e-5)


def shared(folder: Path) -> list[dict]:
    """Kernels but those that two operators asked for alike."""
    return [k for k in read(folder / "train_step_loc.json")["kernels"] if k["type"] in ("Gemm", "Conv", "FusedConv")]


def test_level_2_turns_onnxruntime_off_too():
    """Its optimiser would make one node of the two."""
    seen = []
    for level in (1, 2):
        observer = KernelMeta(Path(str(level)), level)
        network = nn.SequentialCell(nn.Conv2d(1, 2, 3), nn.ReLU())
        program = Program(
            network.construct, [TensorType(dtype.float32, (1, 1, 4, 4))], Device("CPU"), "net", observer=observer
        )
        seen.append((program.graph.has_lowerings, program.session.optimization_level))
    assert seen == [(True, "ORT_DISABLE_ALL"), (False, "ORT_DISABLE_ALL")]


@pytest.mark.parametrize("level", [1, 4])
def test_pynative_mode_has_lines_and_no_kernels(level):
    _, folder = kernel_meta(level, "mode=pynative")
    assert kinds(folder) == FILES[level] - {"model", "compute"}
    about = read(folder / "train_step.json")
    assert about["model"] is None
    assert {len(one["kernels"]) for one in about["operators"]} == {0}
    if level == 1:
        (first, *_) = read(folder / "train_step_loc.json")["operators"].values()
        assert "self.conv1(" in linecache.getline(first["file"], first["line"])


class Picks(nn.Cell):
    """Fails where its input says so."""

    def construct(self, x, index):
        return ops.Gather()(x, index, 0) * 2.0


def test_a_failing_operator_leads_to_its_line(place):
    cell = Picks()
    types = [TensorType(dtype.float32, (4, 3)), TensorType(dtype.int32, (2,))]
    program = Program(cell.construct, types, Device("CPU"), "net", observer=KernelMeta(place / "meta", 2))
    with pytest.raises(TrainingError) as caught:
        program([np.ones((4, 3), np.float32), np.array([1, 99], np.int32)])
    operator, line = caught.value.rows["operator"], caught.value.rows["line"]
    mapped = read(place / "meta" / "net_loc.json")["operators"][operator]
    assert line == f"{mapped['file']}:{mapped['line']}  {mapped['source']}"
    assert mapped["source"] == "return ops.Gather()(x, index, 0) * 2.0"


def test_programs_of_one_name_have_files_of_their_own(place):
    observer = KernelMeta(place / "meta", 3)
    for rows in (1, 2, 3):
        Program(nn.ReLU().construct, [TensorType(dtype.float32, (rows, 2))], Device("CPU"), "net", observer=observer)
    assert sorted(file.name for file in (place / "meta").glob("*.onnx")) == ["net.onnx", "net_1.onnx", "net_2.onnx"]
    shapes = [read(place / "meta" / f"{name}.json")["operators"][0]["outputs"][0]["shape"] for name in ("net", "net_2")]
    assert shapes == [[1, 2], [3, 2]]


class Told(GraphObserver):
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def traced(self, graph: Graph) -> None:
        self.events.append("traced")

    def stage(self, name: str, graph: Graph) -> None:
        self.events.append(name)

    def lowered(self, graph: Graph, describe) -> None:
        self.events.append("lowered")

    def compiled(self, graph: Graph, model: object) -> None:
        self.events.append("compiled")

    def executed(self, graph: Graph) -> None:
        self.events.append("executed")


def test_several_observers_hear_the_same(place):
    one, other = Told(), Told()
    both = GraphObservers(one, other, KernelMeta(place / "meta", 2))
    assert (both.disables_optimization, both.records_steps) == (True, True)
    Program(nn.ReLU().construct, [TensorType(dtype.float32, (2, 2))], Device("CPU"), "net", observer=both)
    assert one.events == other.events == ["traced", "lowered", "compiled", "executed"]


@pytest.mark.parametrize("event", [name for name, method in vars(GraphObserver).items() if callable(method)])
def test_every_event_reaches_every_observer(event):
    seen: list[tuple[object, ...]] = []
    observer = GraphObserver()
    setattr(observer, event, lambda *arguments: seen.append(arguments))
    getattr(GraphObservers(observer, observer), event)(1, 2)
    assert seen == [(1, 2), (1, 2)]
