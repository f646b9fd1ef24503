"""Dumps of all layouts and versions, found from any folder and read back; what is missing or damaged is named."""

import json
import os
import shutil
from pathlib import Path

import dump_files
import numpy as np
import pytest
from dump_files import ORDER, RELU, asynchronous, npy, step, sync
from tables import table

from runner.errors import ConfigError, DataError, StorageError
from runner.observe.dump.files import AsyncName, sanitised
from runner.report.dump.match import DumpSide, match
from runner.report.dump.reader import DumpEntry
from runner.report.dump.walk import Dump

LAYOUTS = {"sync": sync, "async": asynchronous, "npy": npy}


def contents(dump: Dump, iteration: int = 0) -> dict[tuple[str, str], np.ndarray]:
    entries = dump.entries(iteration)
    return {(sanitised(e.name), label): x.array() for e in entries for label, x in e.tensors().items()}


def expected(made: dump_files.Step) -> dict[tuple[str, str], np.ndarray]:
    found = {(sanitised(name), "output_0"): array for name, array in made.held.items()}
    for name, *sides in made.operators:
        for io, arrays in zip(("input", "output"), sides, strict=True):
            found |= {(sanitised(name), f"{io}_{slot}"): array for slot, array in enumerate(arrays)}
    return found


def assert_equal(found: dict, made: dict) -> None:
    assert found.keys() == made.keys()
    for key, array in made.items():
        assert found[key].dtype == array.dtype
        assert np.array_equal(found[key], array), key


# What is read


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_read_back(layout, tmp_path):
    made = step()
    made.held["large"] = np.arange(1 << 19, dtype=np.float32).reshape(2, -1)
    made.held |= {"steps": np.array(7), "empty": np.zeros((0, 3), np.float32), "flags": np.array([True, False])}
    dump = Dump(LAYOUTS[layout](tmp_path, made))
    assert dump.iterations == (0,)
    assert_equal(contents(dump), expected(made))
    names = [entry.name for entry in dump.entries(0)]
    assert names[-4:] == list(ORDER)
    assert [sanitised(name) for name in names[:-4]] == sorted(map(sanitised, made.held))


@pytest.mark.parametrize("write", [sync, asynchronous])
def test_batch_last_is_turned_around(write, tmp_path):
    dump = Dump(write(tmp_path, step(), lies="CHWN"))
    assert_equal(contents(dump), expected(step()))
    saved = dump.entries(0)[2].tensors()["input_0"]
    assert (saved.shape, saved.type.shape) == ((3, 4, 6, 2), (2, 3, 4, 6))


def test_tiles_are_turned_around(tmp_path):
    plain = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    tiles = np.empty((2, 2, 3, 2, 3, 2), np.float32)
    for n, c, h, w in np.ndindex(plain.shape):
        tiles[h % 2, w % 2, c, h // 2, w // 2, n] = plain[n, c, h, w]
    folder = tmp_path / "iteration_0"
    folder.mkdir()
    tiles.tofile(folder / "Default--ReLU-op1_output_0_shape_2_2_3_2_3_2_Float32_22CHWN.bin")
    saved = Dump(tmp_path).entries(0)[0].tensors()["output_0"]
    assert saved.type.shape == plain.shape
    assert np.array_equal(saved.array(), plain)


def test_files_without_order_come_by_number_and_keep_sanitised_names(tmp_path):
    npy(tmp_path, step())
    shutil.rmtree(tmp_path / "0" / "execution_order")
    assert [entry.name for entry in Dump(tmp_path).entries(0)[2:]] == [sanitised(name) for name in ORDER]


def test_the_newest_of_two_runs_in_one_place(tmp_path):
    asynchronous(tmp_path, step(seed=1), clock=1000)
    asynchronous(tmp_path, step(seed=2), clock=9000)
    asynchronous(tmp_path, step(seed=3), clock=5000)
    assert_equal(contents(Dump(tmp_path)), expected(step(seed=2)))


def test_files_that_are_no_tensors_are_passed_over(tmp_path):
    folder = asynchronous(tmp_path, step()) / "0" / "Net_graph_0" / "0" / "0"
    (folder / "statistic.csv").write_text("Op Type,Op Name\n")
    (folder / ".Conv2D.x.1.0.5.0123456789ab.tmp").write_bytes(b"\x01")
    (folder / str(AsyncName("Opdebug", "Node_OpDebug", 3, 0, 5))).write_bytes(b"\x00" * 2048)
    assert_equal(contents(Dump(tmp_path)), expected(step()))


def test_names_that_were_too_long(tmp_path):
    folder = asynchronous(tmp_path, step()) / "0" / "Net_graph_0" / "0" / "0"
    rows = []
    for number, file in enumerate(sorted(folder.iterdir())):
        rows.append(f"{number:020},{file.name}\n")
        file.rename(folder / f"{number:020}")
        if number == 2:
            break
    (folder / "mapping.csv").write_text("".join(rows))
    assert_equal(contents(Dump(tmp_path)), expected(step()))


def test_what_the_graph_says(tmp_path):
    dump = Dump(sync(tmp_path, step()))
    operation = dump.operation(RELU)
    assert (operation.op, operation.source[0].text) == ("ReLU", "x = self.part1(x)")
    assert dump.operation(sanitised(RELU)) is operation
    assert dump.producer("%1") is operation
    assert dump.operation("Default/nothing") is None


def test_a_graph_in_other_words_is_no_error(tmp_path):
    sync(tmp_path, step())
    (tmp_path / "Net/0/graphs/ms_output_trace_code_graph_0.ir").write_text("# of another version\n")
    assert Dump(tmp_path).operation(RELU) is None


# Where it is found


def test_any_folder_on_the_way_will_do(tmp_path):
    path = sync(tmp_path / "run" / "dump", step(), 3) / "Net" / "0" / "iteration_3"
    for folder in (path, *list(path.parents)[:4]):
        dump = Dump(folder)
        assert (dump.iterations, dump.device) == ((3,), path.parent.resolve())
        assert dump.is_one_folder == (folder == path)
        assert len(dump.entries(3)) == 6


@pytest.mark.parametrize("device", ["0", "20261121213000/0", "device_5", "rank_0"], ids=["async", "ge", "r1.2", "r1.3"])
def test_any_folder_of_an_asynchronous_dump_will_do(device, tmp_path):
    path = asynchronous(tmp_path / "dump", step(), 12, device)
    leaf = path / device / "Net_graph_0" / "0" / "12"
    for folder in (tmp_path / "dump", path / device, leaf.parents[1], leaf.parent, leaf):
        dump = Dump(folder)
        assert (dump.iterations, dump.device) == ((12,), (path / device).resolve())
        assert [entry.name for entry in dump.entries(12)[2:]] == list(ORDER)


def test_mindspore_r1_3(tmp_path):
    """Its synchronous tree: .npy below the rank, names with the last part of the scope only."""
    folder = tmp_path / "rank_0" / "ResNet50" / "1" / "7"
    folder.mkdir(parents=True)
    array = np.arange(6, dtype=np.float32).reshape(1, 6, 1, 1)
    for name in ("Conv2D.Conv2D-op107.0.0.162000.input.0.NCHW.npy", "Parameter.conv1.0.0.162001.output.0.Float32.npy"):
        np.save(folder / name, array)
    dump = Dump(tmp_path)
    assert dump.iterations == (7,)
    assert [(entry.name, entry.is_value) for entry in dump.entries(7)] == [("conv1", True), ("Conv2D-op107", False)]
    assert np.array_equal(dump.entries(7)[1].tensors()["input_0"].array(), array)


def test_mindspore_r1_2_on_a_cpu_has_no_device(tmp_path):
    folder = sync(tmp_path, step(), device="Net") / "Net" / "iteration_0"
    assert Dump(tmp_path).locations[0][0].folder == folder.resolve()


@pytest.mark.parametrize(
    "block",
    [
        {"name": "sync", "path": "{place}"},
        {"name": "ge", "dump_path": "{place}"},
        {"name": "none", "config": "{json}"},
        {"name": "sync", "path": None},
    ],
)
def test_a_run_directory_leads_to_its_dump(block, tmp_path):
    run, place, chosen = tmp_path / "run", tmp_path / "elsewhere", tmp_path / "data_dump.json"
    run.mkdir()
    chosen.write_text(json.dumps({"common_dump_settings": {"path": str(place)}}))
    filled = {k: v and v.format(place=place, json=chosen) for k, v in block.items()}
    (run / "config.json").write_text(json.dumps({"dump": filled}))
    sync(run / "dump" if block.get("path", "") is None else place, step())
    assert Dump(run).iterations == (0,)


def test_a_run_directory_without_config(tmp_path):
    sync(tmp_path / "dump", step())
    (tmp_path / "checkpoints" / "0").mkdir(parents=True)
    assert Dump(tmp_path).iterations == (0,)


# What is not there, or too much


def test_no_such_folder(tmp_path):
    with pytest.raises(DataError, match="does not exist") as caught:
        Dump(tmp_path / "nothing")
    assert (caught.value.exit_code, caught.value.rows["path"]) == (7, str(tmp_path / "nothing"))


def test_a_run_without_a_dump_says_how_to_make_one(tmp_path):
    (tmp_path / "config.json").write_text('{"dump": {"name": "none", "config": null}}')
    with pytest.raises(DataError, match="no dump found") as caught:
        Dump(tmp_path)
    assert "dump=sync" in caught.value.rows["hint"]
    assert caught.value.rows["searched"] == str(tmp_path / "dump")


@pytest.mark.parametrize("content", ["{", "[1, 2", "\xff"])
def test_a_damaged_config_is_named(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match="not a JSON file") as caught:
        Dump(tmp_path)
    assert caught.value.rows["file"] == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("first", "second", "choices"),
    [
        ((sync, "Net/0"), (sync, "Net/1"), ["Net/0", "Net/1"]),
        ((sync, "Net/0"), (sync, "Other/0"), ["Net/0", "Other/0"]),
        ((asynchronous, "0"), (asynchronous, "1"), ["0/Net_graph_0", "1/Net_graph_0"]),
        ((asynchronous, "a/0"), (asynchronous, "b/0"), ["a/0/Net_graph_0", "b/0/Net_graph_0"]),
    ],
)
def test_several_dumps_are_listed(first, second, choices, tmp_path):
    for write, device in (first, second):
        write(tmp_path, step(), device=device)
    with pytest.raises(ConfigError, match="several dumps") as caught:
        Dump(tmp_path)
    listed = caught.value.rows["choices"].split("\n")
    assert listed == [str((tmp_path / choice).resolve()) for choice in choices]
    assert all(Dump(Path(choice)).iterations == (0,) for choice in listed)


def test_graphs_of_one_network_are_one_dump(tmp_path):
    """A short last batch has a graph of its own."""
    asynchronous(tmp_path, step(), 4)
    asynchronous(tmp_path / "other", step(seed=5), 5)
    moved = tmp_path / "0" / "Net_graph_1"
    shutil.move(tmp_path / "other" / "0" / "Net_graph_0", moved)
    (moved / "0").rename(moved / "1")
    dump_files.graphs(tmp_path / "0", number=1)
    dump = Dump(tmp_path)
    assert dump.iterations == (4, 5)
    assert_equal(contents(dump, 5), expected(step(seed=5)))


# Damaged files


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_cut_anywhere_is_named(layout, tmp_path):
    path = LAYOUTS[layout](tmp_path, step())
    file = max((f for f in path.rglob(f"*{sanitised(RELU).rpartition('_')[2]}*") if f.is_file()), key=lambda f: f.name)
    whole = file.read_bytes()
    for length in (*range(0, len(whole), 61), len(whole) - 1):
        os.truncate(file, length)
        entry = next(e for e in Dump(path).entries(0) if e.name == RELU)
        with pytest.raises(DataError) as caught:
            [saved.array() for saved in entry.tensors().values()]
        assert caught.value.rows["file"] == str(file.resolve())
        file.write_bytes(whole)
    if layout != "npy":  # numpy reads no further than it must
        file.write_bytes(whole + b"\x00")
        with pytest.raises(DataError):
            [saved.array() for e in Dump(path).entries(0) for saved in e.tensors().values()]


@pytest.mark.parametrize(
    "array", [np.array(["text"]), np.zeros(3, np.complex64), np.array([{}], object)], ids=["text", "complex", "object"]
)
def test_npy_files_that_are_no_tensors(array, tmp_path):
    path = npy(tmp_path, step())
    file = next(path.rglob("ReLU.*output.0*.npy"))
    np.save(file, array)
    with pytest.raises(DataError, match="not a tensor") as caught:
        next(e for e in Dump(path).entries(0) if e.name == RELU).tensors()
    assert caught.value.rows["file"] == str(file.resolve())


@pytest.mark.parametrize(
    "header", [b"{'descr': (\n", b"1+", b"(" * 300, b"-" * 9000 + b"1", b"{'descr': {}, 1: 2}", b"\0"], ids=range(6)
)
def test_npy_files_whose_header_is_no_expression(header, tmp_path):
    """numpy evaluates it, and raises what the parser of Python raises."""
    path = npy(tmp_path, step())
    file = next(path.rglob("ReLU.*output.0*.npy"))
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match="not a tensor"):
        next(e for e in Dump(path).entries(0) if e.name == RELU).tensors()


def test_tables_that_are_no_text(tmp_path):
    file = sync(tmp_path, step()) / "Net/0/execution_order/ms_execution_order_graph_0.csv"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not a text file"):
        Dump(tmp_path).entries(0)


def test_a_file_that_cannot_be_read(tmp_path):
    dump = Dump(sync(tmp_path, step()))
    saved = dump.entries(0)[0].tensors()["output_0"]
    saved.path.unlink()
    with pytest.raises(StorageError, match="cannot read") as caught:
        saved.array()
    assert caught.value.rows["path"] == str(saved.path)


# Names


def entries(names) -> list[DumpEntry]:
    return [DumpEntry(name, "-op" not in name, list) for name in names]


SUNK = [name.replace("Default", "Default/network-TrainOneStepCell", 1) for name in ORDER]


def classless(names: list[str]) -> list[str]:
    return ["/".join([*(p.partition("-")[0] for p in name.split("/")[:-1]), name.split("/")[-1]]) for name in names]


@table(
    ("a", "b"),
    [
        (list(ORDER), list(ORDER)),
        (SUNK, list(ORDER)),
        (SUNK, SUNK),
        (classless(SUNK), classless(list(ORDER))),
        (classless(SUNK), classless(SUNK)),
        (classless(SUNK), list(ORDER)),
        (SUNK, classless(list(ORDER))),
        ([sanitised(name) for name in SUNK], list(ORDER)),
        ([sanitised(name) for name in classless(SUNK)], classless(list(ORDER))),
        ([sanitised(name) for name in SUNK], [sanitised(name) for name in ORDER]),
    ],
)
@table("turned", [False, True])
def test_names_of_two_runs_are_matched(a, b, turned):
    a, b = (b, a) if turned else (a, b)
    found = match(DumpSide(entries(a)), DumpSide(entries(b)))
    assert [(one.name, other.name) for one, other in found.pairs] == list(zip(a, b, strict=True))


def test_the_classless_sunk_root_is():
    assert classless(SUNK)[0] == "Default/network/network/conv1/Conv2D-op0"


def test_number_and_type_belong_to_the_name():
    a = ["Default/a-A/Mul-op1", "Default/a-A/Mul-op2", "Default/a-A/Add-op3"]
    b = ["Default/a-A/Mul-op2", "Default/a-A/Sub-op3", "Default/a-A/Mul-op1"]
    found = match(DumpSide(entries([*a, "x.w"])), DumpSide(entries([*b, "x_w", "y"])))
    assert [(one.name, other.name) for one, other in found.pairs] == [(a[0], a[0]), (a[1], a[1]), ("x.w", "x_w")]
    assert [entry.name for entry in found.only_a] == [a[2]]
    assert [entry.name for entry in found.only_b] == [b[1], "y"]
