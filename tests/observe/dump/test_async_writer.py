"""Asynchronous dumps as others read them: names and places of CANN, bytes through a foreign reader and numpy."""

import csv
import errno
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import foreign_reader
import numpy as np
import pytest
from patience import PATIENCE, SlowDisk, wait_until
from step_graphs import tiny_graph

from runner import dtype as dt, ops
from runner.core.graph import ObservedValue
from runner.core.lowering import LAST, TILED
from runner.core.operators import Node
from runner.errors import StorageError
from runner.host import files
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.writers import AsyncWriter

ROOT = Path(__file__).parents[3]
RNG = np.random.default_rng(3)
SCOPE = "Default/network-Net/my.cell-Dense"
START = 1624605159.829577
STAMP = 1624605159829577
ADD = Node(ops.Add(), (), (), SCOPE, 7, ())
ADD_FILE = r"Add\.Default_network-Net_my_cell-Dense_Add-op7\.7\.0\.(\d+)"


def settings(folder, **changes):
    return DumpSettings(changes.pop("kind", "async"), folder, "Net", source=b'{"a": 1}', **changes)


def opened(folder, **changes):
    return AsyncWriter(settings(folder, **changes), 0, now=lambda: START)


def shown(*arrays):
    return [ObservedValue(np.asarray(array)) for array in arrays]


def noise(*shape, kind=np.float32):
    return (RNG.standard_normal(shape) * 9).astype(kind)


def dumped(folder):
    """Paths below a folder, without what every dump has."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != ".metadata")
    return sorted(str(path.relative_to(folder)) for path in found)


def only(folder):
    (name,) = dumped(folder)
    return folder / name


def equal(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


# The CANN dump file


def test_an_operator_is_one_file_under_the_names_of_the_seed(tmp_path):
    folder = opened(tmp_path)
    x, y, made = noise(2, 3), noise(3), noise(2, 3)
    folder.write_operator(5, 1, 7, ADD, shown(x, y), shown(made))
    folder.finish_step(5)
    folder.close()
    assert re.fullmatch(rf"0/Net_graph_1/1/5/{ADD_FILE}", dumped(tmp_path)[0])[1] == str(STAMP)
    read = foreign_reader.read(only(tmp_path))
    assert (read.name, read.time) == (f"{SCOPE}/Add-op7", STAMP)
    assert [(t.format, t.original) for t in (*read.inputs, *read.outputs)] == [
        *(("ND", (2, 3)), ("ND", (3,)), ("ND", (2, 3))),
    ]
    for tensor, array in zip((*read.inputs, *read.outputs), (x, y, made), strict=True):
        equal(tensor.array, array)


@pytest.mark.parametrize("kind", dt.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (2, 0), (2, 3, 4, 5), (2, 1, 2, 1, 2)], ids=str)
def test_every_type_and_shape(tmp_path, kind, shape):
    array = np.asarray(RNG.integers(0, 2, shape), kind.numpy)
    folder = opened(tmp_path)
    folder.write_operator(0, 0, 7, ADD, None, shown(array))
    folder.close()
    (found,) = foreign_reader.read(only(tmp_path)).outputs
    assert found.format == ("NCHW" if len(shape) == 4 else "ND")
    assert found.original == shape
    equal(found.array, array)


def test_arrays_in_any_order_of_memory(tmp_path):
    array = noise(2, 3, 4, 5)
    ways = [array.transpose(order) for order in itertools.permutations(range(4))] + [array[:, ::-1, 1::2]]
    folder = opened(tmp_path)
    folder.write_operator(0, 0, 7, ADD, shown(*ways), None)
    folder.close()
    for found, way in zip(foreign_reader.read(only(tmp_path)).inputs, ways, strict=True):
        equal(found.array, way)


def test_values_as_they_lie(tmp_path):
    lying, matrix, tiles = noise(3, 4, 5, 2), noise(3, 2), noise(2, 2, 3, 4, 5, 6)
    folder = opened(tmp_path)
    values = [ObservedValue(lying, LAST), ObservedValue(matrix, LAST), ObservedValue(tiles, TILED)]
    folder.write_operator(0, 0, 7, ADD, values, None)
    folder.close()
    four, two, tiled = foreign_reader.read(only(tmp_path)).inputs
    assert [(t.format, t.original) for t in (four, two, tiled)] == [
        *(("CHWN", (2, 3, 4, 5)), ("ND", (2, 3)), ("NCHW", (6, 3, 8, 10))),
    ]
    equal(four.array, lying)
    for (n, k), element in np.ndenumerate(two.array):
        assert element == matrix[k, n]
    for (n, c, h, w), element in np.ndenumerate(tiled.array):
        assert element == tiles[h % 2, w % 2, c, h // 2, w // 2, n]


@pytest.mark.parametrize(("inputs", "outputs", "sizes"), [(None, [1.0], (0, 1)), ([1.0, 2.0], None, (2, 0))])
def test_a_side_that_is_not_wanted(tmp_path, inputs, outputs, sizes):
    folder = opened(tmp_path)
    folder.write_operator(0, 0, 7, ADD, inputs and shown(*inputs), outputs and shown(*outputs))
    folder.close()
    read = foreign_reader.read(only(tmp_path))
    assert (len(read.inputs), len(read.outputs)) == sizes


def test_parameters_and_constants_are_operators_of_their_own(tmp_path):
    weight, constant = noise(4, 3, 2, 2), np.float32(0.5)
    folder = opened(tmp_path)
    folder.write_value(3, 0, "backbone.conv1.weight", ObservedValue(weight))
    folder.write_value(3, 0, "const 1", ObservedValue(np.asarray(constant)))
    folder.close()
    place = tmp_path / "0/Net_graph_0/0/3"
    first = foreign_reader.read(place / f"Parameter.backbone_conv1_weight.0.0.{STAMP}")
    second = foreign_reader.read(place / f"Parameter.const_1.0.0.{STAMP + 1}")
    assert (first.name, first.inputs, first.outputs[0].format) == ("backbone.conv1.weight", [], "NCHW")
    equal(first.outputs[0].array, weight)
    equal(second.outputs[0].array, np.asarray(constant))


def test_no_two_timestamps_are_alike_and_they_ascend(tmp_path):
    clock = iter([START, START, START - 9, START + 1, START + 1, START + 2])
    folder = AsyncWriter(settings(tmp_path), 0, now=lambda: next(clock))
    for _ in range(6):
        folder.write_operator(0, 0, 7, ADD, None, shown(0.0))
    folder.close()
    found = sorted(int(re.search(ADD_FILE, name)[1]) - STAMP for name in dumped(tmp_path))
    assert found == [0, 1, 2, 1_000_000, 1_000_001, 2_000_000]


def test_graphs_steps_and_devices_have_folders(tmp_path):
    for device in (0, 3):
        folder = AsyncWriter(settings(tmp_path), device)
        for step, graph in ((0, 0), (0, 1), (8, 0)):
            folder.write_operator(step, graph, 7, ADD, None, shown(0.0))
            folder.finish_step(step)
        folder.write_graph(1, tiny_graph())
        folder.close()
    graph = ["execution_order/ms_execution_order_graph_1.csv", "graphs/ms_output_trace_code_graph_1.ir"]
    graph += ["graphs/ms_output_trace_code_graph_1.pb"]
    values = [f"Net_graph_{g}/{g}/{s}" for g, s in ((0, 0), (0, 8), (1, 0))]
    found = {re.sub(r"/Add\..*", "", name) for name in dumped(tmp_path)}
    assert found == {f"{device}/{name}" for device in (0, 3) for name in (*graph, *values)}


def test_the_settings_are_kept_for_their_owner(tmp_path):
    for _ in range(2):
        opened(tmp_path).close()
        kept = tmp_path / ".metadata/data_dump.json"
        assert kept.read_bytes() == b'{"a": 1}'
        assert stat.S_IMODE(kept.stat().st_mode) == 0o400


def test_a_ge_dump_has_the_asynchronous_layout(tmp_path):
    folder = opened(tmp_path, kind="ge")
    folder.write_operator(2, 0, 7, ADD, shown(1.0), None)
    folder.close()
    assert re.fullmatch(rf"0/Net_graph_0/0/2/{ADD_FILE}", dumped(tmp_path)[0])
    assert (tmp_path / ".metadata/data_dump.json").read_bytes() == b'{"a": 1}'


# .npy and statistic.csv


def test_npy_files_are_those_of_numpy(tmp_path):
    arrays = [noise(2, 3), noise(4, 3).T, np.array(2.5, np.float16), np.empty((0, 3), np.int64), np.array([True])]
    lying = noise(3, 4, 5, 2)
    folder = opened(tmp_path, file_format="npy")
    folder.write_operator(1, 0, 7, ADD, shown(*arrays), [ObservedValue(lying, LAST)])
    folder.close()
    stem = f"0/Net_graph_0/0/1/Add.Default_network-Net_my_cell-Dense_Add-op7.7.0.{STAMP}"
    expected = {f"{stem}.input.{slot}.DefaultFormat.npy": array for slot, array in enumerate(arrays)}
    expected[f"{stem}.output.0.CHWN.npy"] = lying
    assert set(dumped(tmp_path)) == {*expected, "0/Net_graph_0/0/1/statistic.csv"}
    for name, array in expected.items():
        np.save(tmp_path / "saved.npy", np.array(array, order="C"))
        equal(np.load(tmp_path / name, allow_pickle=False), array)
        assert (tmp_path / name).read_bytes() == (tmp_path / "saved.npy").read_bytes()


def test_a_line_of_statistics_for_each_tensor(tmp_path):
    x, lying, weight = noise(2, 3), noise(3, 4, 5, 2), np.array([-1, 0, 4])
    folder = opened(tmp_path, file_format="npy")
    folder.write_operator(1, 0, 7, ADD, shown(x), [ObservedValue(lying, LAST)])
    folder.write_value(1, 0, "weight", ObservedValue(weight))
    folder.finish_step(1)
    folder.write_operator(2, 0, 7, ADD, None, shown(x))
    folder.finish_step(2)
    folder.close()
    with open(tmp_path / "0/Net_graph_0/0/1/statistic.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["Op Type"], line["IO"], line["Slot"], line["Shape"]) for line in lines] == [
        *(("Add", "input", "0", "(2,3)"), ("Add", "output", "0", "(3,4,5,2)"), ("Parameter", "output", "0", "(3)")),
    ]
    assert [np.float64(line["Max Value"]).astype(np.float32) for line in lines] == [x.max(), lying.max(), 4]
    assert [line["Timestamp"] for line in lines] == [str(STAMP), str(STAMP), str(STAMP + 1)]
    for line in lines:  # a line leads to its file
        stem = ".".join(line[c] for c in ("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot"))
        assert len(list((tmp_path / "0/Net_graph_0/0/1").glob(f"{stem}.*.npy"))) == 1
    assert (tmp_path / "0/Net_graph_0/0/2/statistic.csv").read_text().count("\n") == 2


def test_a_step_that_broke_off_has_its_statistics(tmp_path):
    folder = opened(tmp_path, file_format="npy")
    folder.write_operator(1, 0, 7, ADD, None, shown(1.0))
    folder.write_operator(4, 0, 7, ADD, None, shown(1.0))
    folder.close()
    assert [name for name in dumped(tmp_path) if name.endswith("csv")] == [
        *("0/Net_graph_0/0/1/statistic.csv", "0/Net_graph_0/0/4/statistic.csv"),
    ]


# Names that are too long


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_names_that_are_too_long(tmp_path, file_format):
    long = [Node(ops.Add(), (), (), "Default/" + "/".join(["cell-Dense"] * 30), number, ()) for number in range(3)]
    for run in range(2):
        folder = AsyncWriter(settings(tmp_path, file_format=file_format), 0, now=lambda run=run: START + run)
        for number, node in enumerate(long):
            folder.write_operator(0, 0, number, node, None, shown(np.float32(number)))
        folder.write_operator(0, 0, 7, ADD, None, shown(0.0))
        folder.finish_step(0)
        folder.close()
    place = tmp_path / "0/Net_graph_0/0/0"
    with open(place / "mapping.csv", newline="") as file:
        mapping = dict(csv.reader(file))
    assert len(mapping) == 6
    end = ".output.0.DefaultFormat.npy" if file_format == "npy" else ""
    for position, (number, name) in enumerate(mapping.items()):
        node = long[position % 3]
        stamp = STAMP + position if position < 3 else STAMP + 1_000_000 + position - 3
        assert name == f"Add.{node.name.replace('/', '_')}.{position % 3}.0.{stamp}{end}"
        assert re.fullmatch(r"\d{20}", number)
        if file_format == "bin":
            found = foreign_reader.read(place / number)
            assert (found.name, found.outputs[0].array) == (node.name, position % 3)
        else:
            assert np.load(place / number, allow_pickle=False) == position % 3
    others = {"mapping.csv", *mapping, *(["statistic.csv"] if end else [])}
    assert len({path.name for path in place.iterdir()} - others) == 2  # those with short names


def test_the_longest_name_that_fits(tmp_path):
    room = 255 - len(f"Add.Default__Add-op7.7.0.{STAMP}")
    for letters in (room, room + 1):
        folder = opened(tmp_path / str(letters))
        folder.write_operator(0, 0, 7, Node(ops.Add(), (), (), "Default/" + "n" * letters, 7, ()), None, shown(0.0))
        folder.close()
    assert [len(only(tmp_path / str(room)).name), len(dumped(tmp_path / str(room + 1)))] == [255, 2]


# Errors


class Failing:
    """Lets the n-th operation on files fail, from 1."""

    def __init__(self, n):
        self.n, self.failed = n, None

    def __call__(self, operation, path):
        self.n -= 1
        if self.n == 0:
            self.failed = path
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def a_dump(folder, file_format):
    writer = opened(folder, file_format=file_format)
    try:
        for step in range(2):
            writer.write_operator(step, 0, 7, ADD, shown(noise(30, 20)), shown(noise(5)))
            writer.write_value(step, 0, "n" * 300, ObservedValue(noise(9)))
            writer.finish_step(step)
    finally:
        writer.close()


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_a_disk_that_is_full_at_any_operation(tmp_path, monkeypatch, file_format):
    for n in itertools.count(1):
        monkeypatch.setattr(files, "before_operation", failing := Failing(n))
        if not_reached(tmp_path / str(n), file_format, failing):
            break
    assert n > 25


def not_reached(folder, file_format, failing):
    """Whether a dump was over before its disk was full; else what is there is whole, and the error names the file."""
    try:
        a_dump(folder, file_format)
    except StorageError as error:
        reason = error
    else:
        assert failing.failed is None
        return True
    assert (reason.rows["reason"], reason.exit_code) == ("No space left on device", 5)
    named = Path(reason.rows["path"])
    assert failing.failed in (named, named.parent) or failing.failed.name.startswith(f".{named.name}.")
    assert_whole(folder)
    assert not [name for name in dumped(folder) if name.endswith(".tmp")]
    return False


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "0").write_text("in the way")
    with pytest.raises(StorageError, match=rf"cannot create a directory\n  path +{tmp_path}/0\n  reason +File exists"):
        opened(tmp_path)


def test_a_step_that_cannot_have_a_folder(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "0/Net_graph_0").write_text("in the way")
    with pytest.raises(StorageError, match=rf"cannot create a directory\n  path +{tmp_path}/0/Net_graph_0/0/2\n"):
        folder.write_operator(2, 0, 7, ADD, None, shown(1.0))
    folder.close()


def test_the_limit_holds_for_a_whole_dump(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "before_operation", SlowDisk())
    folder = AsyncWriter(settings(tmp_path, queue_mb=1), 0)
    sizes = [70_000, 100, 1_200_000, 3, 250_000, 90_000, 400_000, 300_000] * 4
    for number, size in enumerate(sizes):
        folder.write_operator(number % 3, 0, number, ADD, shown(np.zeros(size, np.uint8)), None)
    folder.close()
    assert 1 << 19 < folder.queue.peak <= 1 << 20
    found = sorted(foreign_reader.read(tmp_path / name).inputs[0].array.size for name in dumped(tmp_path))
    assert found == sorted(sizes)


# Kills

DUMPS = """
import os, sys
import numpy as np
from pathlib import Path
from runner import ops
from runner.host import files
from runner.core.graph import ObservedValue
from runner.core.operators import Node
from runner.observe.dump.writers import AsyncWriter
from runner.observe.dump.settings import DumpSettings

def dump(folder, file_format, steps):
    writer = AsyncWriter(DumpSettings("async", folder, "Net", file_format=file_format, queue_mb=1), 0)
    for step in range(steps):
        for number in range(4):
            node = Node(ops.Add(), (), (), "Default/" + "n" * 40 * number * number, number, ())
            writer.write_operator(step, 0, number, node, [ObservedValue(np.full((50_000,), number, np.float32))], None)
        writer.finish_step(step)
    writer.close()
"""
DIES_AT_EACH = """
def die_at(n):
    seen = iter(range(1, n + 1))
    def before(operation, path):
        if next(seen, None) == n:
            os._exit(9)
    files.before_operation = before

for n in range(1, 60):
    child = os.fork()
    if not child:
        die_at(n)
        dump(Path(sys.argv[1], str(n)), sys.argv[2], 2)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(n)
        break
"""
DUMPS_ON = """
print("begins", flush=True)
dump(Path(sys.argv[1]), sys.argv[2], 10**6)
"""


def started(code, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def final_files(folder):
    """Files under a final name, without those of the graph."""
    return [name for name in dumped(folder) if not name.endswith((".tmp", ".ir", ".pb"))]


def assert_whole(folder):
    """Every file under a final name is whole; the number of them."""
    whole = final_files(folder)
    for name in whole:
        path = folder / name
        if name.endswith(".csv"):
            assert path.read_bytes().endswith(b"\n")
        elif path.read_bytes().startswith(b"\x93NUMPY"):
            np.load(path, allow_pickle=False)
        else:
            foreign_reader.read(path)
    return len(whole)


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_a_kill_before_any_operation_leaves_whole_files(tmp_path, file_format):
    running = started(DUMPS + DIES_AT_EACH, tmp_path, file_format)
    assert running.communicate(timeout=PATIENCE)[0].strip() in [str(n) for n in range(20, 60)]
    counts = [assert_whole(folder) for folder in sorted(tmp_path.iterdir(), key=lambda path: int(path.name))]
    assert counts == sorted(counts)  # the later it dies, the more is there
    assert counts[-1] == (12 if file_format == "npy" else 10)


@pytest.mark.parametrize("file_format", ["bin", "npy"])
def test_a_kill_at_a_random_moment_leaves_whole_files(tmp_path, file_format):
    running = started(DUMPS + DUMPS_ON, tmp_path, file_format)
    running.stdout.readline()
    wait_until(lambda: len(final_files(tmp_path)) >= 20, alive=lambda: running.poll() is None)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait(PATIENCE) == -signal.SIGKILL
    running.stdout.close()
    assert assert_whole(tmp_path) >= 20


def test_no_thread_is_left(tmp_path):
    before = threading.active_count()
    opened(tmp_path).close()
    assert threading.active_count() == before
