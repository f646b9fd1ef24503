"""Files of bytes and arrays are whole or not there, in C order however arrays lie, and cost no copy of the whole."""

import errno
import os
import stat
import tracemalloc

import numpy as np
import pytest
from step_graphs import tiny_graph

from runner import ops
from runner.core.graph import ObservedValue
from runner.core.operators import Node
from runner.errors import StorageError
from runner.host import files
from runner.observe.dump.files import long_names
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.writers import DumpWriter, SyncWriter, write_metadata, write_pieces
from runner.observe.graph.listing import describe, text
from runner.observe.graph.proto import proto
from runner.report.dump.walk import Dump

STEPS = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
ARRAYS = {
    "as it is": STEPS,
    "turned": STEPS.transpose(3, 0, 2, 1),
    "every other": STEPS[::-1, :, ::2, 1:4],
    "spread": np.broadcast_to(np.float16(3), (7, 2)),
    "without axes": np.array(-1.5),
    "empty": np.empty((0, 3), np.int8),
    "empty, turned": np.empty((3, 0), np.int64).T,
    "booleans": np.array([True, False]),
    "more than a block": np.arange(300_000, dtype=np.int32).reshape(300, 1000).T,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_elements_in_order(tmp_path, name):
    array = ARRAYS[name]
    write_pieces(tmp_path / "file", [b"head", array, b"", array])
    assert (tmp_path / "file").read_bytes() == b"head" + 2 * array.tobytes()
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("n" * 255)
    write_pieces(path, [b"content"])
    assert path.read_bytes() == b"content"


def test_names_that_are_too_long_of_a_synchronous_dump(tmp_path):
    """Two executions of one step, as of two graphs, and one that has failed: the names are in `mapping.csv`."""
    scope = "Default/" + "/".join(["cell-Dense"] * 30)
    writer = SyncWriter(DumpSettings("sync", tmp_path, "net"), 0)
    for step in range(2):
        writer.begin_step(step, 0)
        for number in range(3):
            add = Node(ops.Add(), (), (), scope, number, ())
            writer.write_operator(step, 0, number, add, [ObservedValue(np.float32(number))] * 2, None)
        if step == 0:
            writer.finish_step(step)
    writer.close()
    for step in range(2):
        folder = tmp_path / f"net/0/iteration_{step}"
        names = long_names(folder)
        assert sorted([*names, "mapping.csv"]) == sorted(path.name for path in folder.iterdir())
        assert sorted(names.values()) == [
            f"{scope.replace('/', '--')}--Add-op{number}_input_{slot}_shape_0_Float32_DefaultFormat.bin"
            for number in range(3)
            for slot in range(2)
        ]
    entries = Dump(tmp_path).side(1).entries
    assert [entry.name for entry in entries] == [f"{scope}/Add-op{number}" for number in range(3)]
    assert [entry.tensors()["input_1"].array().item() for entry in entries] == [0, 1, 2]


def test_an_old_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"a long one", b"short"):
        write_pieces(path, [content])
        assert path.read_bytes() == content


@pytest.mark.parametrize("operation", ["open", "write", "rename"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_file_that_failed(tmp_path, monkeypatch, operation, error):
    path = tmp_path / "file"
    write_pieces(path, [b"old"])

    def fails(now, place):
        assert place == path
        if now == operation:
            raise error

    monkeypatch.setattr(files, "before_operation", fails)
    with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        write_pieces(path, [STEPS])
    if isinstance(error, OSError):
        assert (caught.value.rows["path"], caught.value.exit_code) == (str(path), 5)
        assert caught.value.rows["reason"] == "No space left on device"
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match=rf"{tmp_path}/none/file\n  reason +No such file or directory"):
        write_pieces(tmp_path / "none" / "file", [b""])


def test_large_arrays_are_not_copied(tmp_path):
    plain = np.zeros((96, 1 << 16), np.float32)  # 24 MiB: above COPIED
    for array in (plain, plain.T):
        tracemalloc.start()
        write_pieces(tmp_path / "file", [array])
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
        tracemalloc.stop()


def test_the_settings_are_kept_word_for_word(tmp_path):
    settings = DumpSettings("async", tmp_path, "net", source=b'{ "common_dump_settings" : {}}\n')
    for _ in range(2):
        write_metadata(tmp_path, settings)
        kept = tmp_path / ".metadata" / "data_dump.json"
        assert kept.read_bytes() == settings.source
        assert stat.S_IMODE(kept.stat().st_mode) == 0o400
        assert os.listdir(tmp_path / ".metadata") == ["data_dump.json"]


def test_settings_without_json_leave_nothing(tmp_path):
    write_metadata(tmp_path, DumpSettings("sync", tmp_path, "net"))
    assert os.listdir(tmp_path) == []


def test_a_graph(tmp_path):
    graph = tiny_graph()
    names = DumpWriter(tmp_path).write_graph(3, graph)
    assert names == [node.name for node in graph.nodes]
    found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {
        "graphs/ms_output_trace_code_graph_3.ir": text(describe(graph, 3)).encode(),
        "graphs/ms_output_trace_code_graph_3.pb": proto(graph),
        "execution_order/ms_execution_order_graph_3.csv": "\n".join(
            ["NodeExecutionOrder-FullNameWithScope", *names, ""]
        ).encode(),
    }
