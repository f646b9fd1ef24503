"""Synchronous dumps of trainings and of cells: files, graphs, choices, and what they say when something is wrong."""

import csv
import errno
import logging
import os
import stat
from contextlib import closing

import numpy as np
import pytest
from spy import MODES, ROOT, Spy, train

import runner
from models.lenet import LeNet5
from runner import context, nn, ops
from runner.errors import ConfigError, StorageError
from runner.host import files
from runner.observe import graph
from runner.observe.dump.dumper import Dumper
from runner.observe.dump.files import SyncName
from runner.observe.dump.settings import DumpSettings, Iterations

STEPS = Iterations.parse("0|3-4")


def dumped(path, name, **options):
    """Train with a dump; the files of each step by name."""
    settings = DumpSettings("sync", path, "net", **{"iterations": STEPS, **options})
    with closing(Dumper(settings, 2)) as dumper:
        if name == "sunk":
            dumper.supports_sinks = True
        train(*MODES[name], dumper, rows=40, epochs=1)
    folder = path / "net" / "2"
    return {
        int(place.name.partition("_")[2]): {file.name: read(file) for file in place.iterdir()}
        for place in folder.glob("iteration_*")
    }


def read(file):
    """As seed 002 reads a file, but with what its name says."""
    name = SyncName.parse(file.name, file.stat().st_size)
    return np.fromfile(file, name.type.dtype.numpy).reshape(name.type.shape)


@pytest.mark.parametrize("name", MODES)
def test_files_hold_what_was_shown(tmp_path, name):
    found = dumped(tmp_path, name)
    spy = Spy([0, 3, 4])
    train(*MODES[name], spy, rows=40, epochs=1)
    assert found.keys() == {0, 3, 4}
    root = ROOT if name == "sunk" else "Default/"
    for (step, full, side, slot), value in spy.values.items():
        if name == "sunk":
            full = full.replace("Default/", root)
        [file] = [f for f in found[step] if f.startswith(f"{full.replace('/', '--')}_{side}_{slot}_shape")]
        np.testing.assert_array_equal(found[step].pop(file), value)
    for (step, held), value in (spy.parameters | spy.constants).items():
        [file] = [f for f in found[step] if f.startswith(f"{held}_output_0_shape")]
        np.testing.assert_array_equal(found[step].pop(file), value)
    assert all(not rest for rest in found.values())


@pytest.mark.parametrize("name", ["graph", "pynative"])
def test_graphs_and_order(tmp_path, name):
    found = dumped(tmp_path, name)
    folder = tmp_path / "net" / "2"
    listing = graph.read(folder / "graphs" / "ms_output_trace_code_graph_0.ir")
    operations = [operation.full_name for sub in listing.subgraphs for operation in sub.operations]
    with open(folder / "execution_order" / "ms_execution_order_graph_0.csv") as file:
        [header], *rows = csv.reader(file)
    assert header == "NodeExecutionOrder-FullNameWithScope"
    assert [row for [row] in rows] == operations
    names = {name.partition("_input_")[0].partition("_output_")[0] for name in found[0]}
    assert {name.replace("--", "/") for name in names if "-op" in name} == set(operations)
    assert (folder / "graphs" / "ms_output_trace_code_graph_0.pb").stat().st_size > 1000


def test_metadata_is_what_asked_for_it(tmp_path):
    (tmp_path / ".metadata").mkdir()
    (tmp_path / ".metadata" / "data_dump.json").write_bytes(b"old")
    dumped(tmp_path, "pynative", source=b'{"a": 1}\n')
    file = tmp_path / ".metadata" / "data_dump.json"
    assert file.read_bytes() == b'{"a": 1}\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o400


@pytest.mark.parametrize("name", ["graph", "pynative"])
def test_sides_and_kernels(tmp_path, name):
    only_inputs = dumped(tmp_path / "in", name, outputs=False)[0]
    only_outputs = dumped(tmp_path / "out", name, inputs=False)[0]
    assert only_inputs
    assert all("_input_" in file for file in only_inputs)
    assert all("_output_" in file for file in only_outputs)
    assert not only_inputs.keys() & only_outputs.keys()
    chosen = dumped(tmp_path / "chosen", name, kernels=("MaxPool", "conv1.weight"))[3]
    assert {file.partition("-op")[0].rpartition("--")[2] for file in chosen if "-op" in file} == {"MaxPool"}
    assert [file for file in chosen if "-op" not in file] == [
        "conv1.weight_output_0_shape_6_1_5_5_Float32_DefaultFormat.bin"
    ]


@pytest.mark.parametrize("name", ["graph", "pynative"])
def test_device_format(tmp_path, name):
    plain = dumped(tmp_path / "plain", name)[3]
    lying = dumped(tmp_path / "lying", name, trans_flag=False)[3]
    turned = {file: array for file, array in lying.items() if file.endswith("_CHWN.bin")}
    assert len(turned) >= 8
    for file, array in lying.items():
        name = SyncName.parse(file, array.nbytes)
        if file in turned:
            array = np.moveaxis(array, -1, 0)
            dims = "_".join(map(str, array.shape))
            file = f"{file.partition('_shape_')[0]}_shape_{dims}_Float32_DefaultFormat.bin"
        np.testing.assert_array_equal(plain[file], array)


def test_kernels_that_match_nothing_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="runner"):
        dumped(tmp_path, "pynative", kernels=("Conv2d", "MatMul"))
    [line] = [record.getMessage() for record in caplog.records if "dump" in record.getMessage()]
    assert "'Conv2d'" in line
    assert "Conv2D" in line


def test_iterations_that_are_never_reached_are_named(tmp_path, caplog):
    settings = DumpSettings("sync", tmp_path, "net", Iterations.parse("0|3-7|9"))
    with closing(Dumper(settings)) as dumper:
        train(*MODES["pynative"], dumper, rows=40, epochs=1)  # five steps
    assert "dump: the iterations 5-7|9 were never reached: the last one is 4" in caplog.messages


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_a_kernel_of_a_later_graph_is_no_mistake(tmp_path, caplog, mode):
    context.set_context(mode=mode)
    x = runner.Tensor(np.ones((2, 3), np.float32))
    with runner.dump(tmp_path, kernels=["ReLU", "Tanh", "Sigmoid"]):
        nn.ReLU()(x)
        nn.Tanh()(x)
    [line] = [message for message in caplog.messages if message.startswith("dump: ")]
    assert "no operator matches 'Sigmoid'" in line


class Overflowing(nn.Cell):
    """LeNet-5 whose last activation leaves the range of float32."""

    def __init__(self):
        super().__init__()
        self.lenet = LeNet5()

    def construct(self, x):
        return ops.Exp()(self.lenet(x) * 1e4 + 100.0)


@pytest.mark.parametrize("name", ["graph", "pynative"])
@pytest.mark.parametrize(("mode", "kinds"), [(1, {"Exp"}), (2, {"BiasAddGrad"}), (3, {"Exp", "BiasAddGrad"})])
def test_overflow(tmp_path, name, mode, kinds):
    settings = DumpSettings("sync", tmp_path, "net", op_debug_mode=mode)
    with closing(Dumper(settings)) as dumper:
        train(*MODES[name], dumper, rows=8, epochs=1, network=Overflowing)
    files = {file.name: read(file) for file in (tmp_path / "net" / "0" / "iteration_0").iterdir()}
    record = files.pop("Node_OpDebug_output_0_shape_2048_UInt8_DefaultFormat.bin")
    assert record.nbytes == 2048
    found = {file.partition("-op")[0].rpartition("--")[2] for file in files}
    assert kinds <= found
    for full in {file.partition("_input_")[0].partition("_output_")[0] for file in files}:
        outputs = [array for file, array in files.items() if file.startswith(full + "_output_")]
        assert any(not np.isfinite(array).all() for array in outputs)
    accumulating = {"BiasAddGrad", "ReduceSum", "ReduceMean"}
    assert not (found & accumulating if mode == 1 else found - accumulating if mode == 2 else set()) or mode == 2


def test_nothing_overflows(tmp_path):
    assert dumped(tmp_path, "graph", op_debug_mode=3) == {}


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_from_python(tmp_path, mode):
    context.set_context(mode=mode)
    net, x = LeNet5(), np.random.default_rng(0).standard_normal((2, 1, 32, 32)).astype(np.float32)
    expected = net(runner.Tensor(x)).asnumpy()
    with runner.dump(tmp_path, kernels=["*fc3*"], net_name="mine", iteration="1|2") as dumper:
        for _ in range(4):
            np.testing.assert_array_equal(net(runner.Tensor(x)).asnumpy(), expected)
    assert dumper.iterations == 4
    places = sorted((tmp_path / "mine" / "0").glob("iteration_*"))
    assert [place.name for place in places] == ["iteration_1", "iteration_2"]
    [file] = places[0].glob("*BiasAdd*_output_0_*")
    np.testing.assert_array_equal(read(file), expected)
    before = len(list(tmp_path.rglob("*")))
    net(runner.Tensor(x))
    assert len(list(tmp_path.rglob("*"))) == before


def test_models_inside_of_a_dump(tmp_path):
    with runner.dump(tmp_path, kernels=["Conv2D"], iteration=1):
        train(context.GRAPH_MODE, False, None, rows=24, epochs=1)
    assert [place.name for place in (tmp_path / "network" / "0").glob("iteration_*")] == ["iteration_1"]
    with runner.dump(tmp_path), pytest.raises(ConfigError, match="synchronous dump"):
        train(context.GRAPH_MODE, True, None, rows=24, epochs=1)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"input_output": 3}, "out of range"),
        ({"kernels": "Conv2D"}, "not a list of names"),
        ({"iteration": "5-"}, "not a choice of steps"),
    ],
)
def test_wrong_arguments_from_python(tmp_path, options, what):
    with pytest.raises(ConfigError, match=what), runner.dump(tmp_path, **options):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["graph", "pynative"])
@pytest.mark.parametrize("nth", [1, 4, 60])
def test_a_full_disk(tmp_path, monkeypatch, name, nth):
    """The file is named, those before are whole, none is cut."""
    count = 0

    def full(operation, path):
        nonlocal count
        if operation == "write" and "iteration_" in str(path):
            count += 1
            if count >= nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "before_operation", full)
    with pytest.raises(StorageError) as caught:
        dumped(tmp_path, name)
    assert "No space left" in caught.value.rows["reason"]
    assert "iteration_0" in caught.value.rows["path"]
    written = list(tmp_path.rglob("*.bin"))
    assert len(written) == nth - 1
    assert all(read(file).nbytes == file.stat().st_size for file in written)
    assert not list(tmp_path.rglob("*.tmp"))
