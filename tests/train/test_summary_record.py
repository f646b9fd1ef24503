"""`SummaryRecord`: what its event files contain, and what becomes of them when something fails."""

import errno
import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import event_records
import numpy as np
import pytest
from tables import table

from runner import Tensor, ops
from runner.errors import ConfigError, StorageError
from runner.host import event_files, files
from runner.train.summary import SummaryRecord

pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
RNG = np.random.default_rng(0)


def recorded(folder: Path, *values, **options) -> list[event_records.Summary]:
    """The values of a file with one record, at step 7."""
    with SummaryRecord(str(folder), **options) as record:
        for plugin, name, value in values:
            record.add_value(plugin, name, Tensor(value) if isinstance(value, np.ndarray) else value)
        assert record.record(7) is True
    return event_records.summaries(Path(record.log_dir))


def test_numbers_and_tensors(tmp_path):
    kinds = ["float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]
    arrays = {kind: (RNG.normal(size=(2, 3)) * 9).astype(kind) for kind in kinds}
    wholes = [("scalar", "loss", np.array(0.1, np.float32)), ("scalar", "one", np.array([3], np.int32))]
    found = recorded(tmp_path, *wholes, *[("tensor", kind, array) for kind, array in arrays.items()])
    assert [(one.kind, one.tag, one.step, one.value) for one in found[:2]] == [
        ("scalar", "loss", 7, float(np.float32(0.1))),
        ("scalar", "one", 7, 3.0),
    ]
    assert [one.tag for one in found[2:]] == kinds
    for one in found[2:]:
        assert (one.kind, one.value.dtype) == ("tensor", arrays[one.tag].dtype)
        np.testing.assert_array_equal(one.value, arrays[one.tag])


HISTOGRAMS = {
    "normal": RNG.normal(size=5000).astype(np.float32),
    "few": np.array([3.0, -1.0, 3.0], np.float32),
    "equal": np.full(30, 0.25, np.float32),
    "whole": np.arange(60, dtype=np.int64).reshape(5, 12),
    "bools": np.array([True, False, True]),
    "some are not finite": np.array([np.nan, 1.0, np.inf, 2.0, -np.inf], np.float32),
    "none is finite": np.array([np.nan, np.inf], np.float32),
    "largest": np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max]),
    "zeros": np.zeros(4, np.float32),
    "no element": np.zeros(0, np.float32),
}


@table(("name", "array"), HISTOGRAMS.items(), HISTOGRAMS)
def test_histograms(tmp_path, name, array):
    (found,) = recorded(tmp_path / name, ("histogram", name, array))
    value = found.value
    finite = array.astype(np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    assert value["num"] == value["counts"].sum() == len(finite)
    assert len(value["limits"]) == len(value["counts"])
    assert (np.diff(value["limits"]) > 0).all()
    if len(finite):
        assert (value["min"], value["max"], value["sum"]) == (finite.min(), finite.max(), finite.sum())
        with np.errstate(over="ignore"):
            assert value["sum_squares"] == (finite**2).sum()
        # Each limit has as many elements up to it as the file says; one that lies on a limit may be on either side.
        below = np.cumsum(value["counts"])
        for limit, count in zip(value["limits"][:-1], below[:-1], strict=True):
            near = np.isclose(finite, limit, rtol=1e-12, atol=1e-12)
            assert (finite[~near] < limit).sum() <= count <= (finite[~near] < limit).sum() + near.sum()
        assert value["limits"][-1] >= finite.max() or np.isclose(value["limits"][-1], finite.max())


def test_images(tmp_path):
    batch = RNG.integers(0, 256, (11, 3, 4, 5)).astype(np.uint8)
    ones = np.linspace(0, 1, 2 * 6 * 6, dtype=np.float32).reshape(2, 1, 6, 6)
    others = RNG.normal(size=(1, 1, 3, 3)) * 100
    broken = np.array([np.nan, 0.0, 1.0, np.inf], np.float32).reshape(1, 1, 2, 2)
    found = recorded(tmp_path, *[("image", f"{k}", x) for k, x in enumerate((batch, ones, others, broken))])
    first, second, third, fourth = (one.value for one in found)
    assert first.shape == (2 * 4, 8 * 5, 3)  # eight in a row
    for k in range(16):
        row, column = divmod(k, 8)
        part = first[4 * row : 4 * row + 4, 5 * column : 5 * column + 5]
        np.testing.assert_array_equal(part, batch[k].transpose(1, 2, 0) if k < 11 else 0)
    np.testing.assert_array_equal(second[..., 0], np.concatenate(np.floor(ones[:, 0] * 255.0), axis=1))
    plain = others[0, 0]
    scaled = (plain - plain.min()) / (plain.max() - plain.min()) * 255
    assert np.abs(third[..., 0] - np.floor(scaled)).max() <= 1
    assert fourth[..., 0].tolist() == [[0, 0], [255, 0]]


def test_texts(tmp_path):
    (found,) = recorded(tmp_path, ("custom_lineage_data", "mine", {"epochs": 3, "name": "ü"}))
    assert (found.kind, found.tag, found.step) == ("text", "mine/text_summary", 7)
    assert '"epochs": 3' in found.value


def test_the_last_value_of_a_name_is_recorded(tmp_path):
    values = [("scalar", "a", np.array(k, np.float32)) for k in (1, 2, 3)]
    (found,) = recorded(tmp_path, *values)
    assert found.value == 3
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "a", Tensor(1.0))
        record.record(1)
        record.record(2)  # nothing is left
    assert [one.step for one in event_records.summaries(Path(record.log_dir))] == [1]


def test_values_of_operators(tmp_path):
    mark = ops.ScalarSummary()
    mark("before", Tensor(1.0))
    with SummaryRecord(tmp_path) as record:
        for step in (1, 2, 3):
            mark("a", Tensor(float(step)))
            record.record(step, plugin_filter=lambda plugin, step=step: plugin != "scalar" or step != 2)
        record.set_mode("eval")
        mark("a", Tensor(9.0))
        record.record(4)
        mark("a", Tensor(9.0))
        record.set_mode("train")
        record.record(5)
        mark("a", Tensor(6.0))
        ops.ImageSummary()("no image", Tensor(np.zeros((1, 2, 3, 3), np.float32)))  # two channels
        record.record(6)
    found = event_records.summaries(Path(record.log_dir))
    assert [(one.tag, one.step, one.value) for one in found] == [("a", 1, 1.0), ("a", 3, 3.0), ("a", 6, 6.0)]


def test_two_records_have_the_same_values_of_operators(tmp_path):
    with SummaryRecord(tmp_path / "a") as a, SummaryRecord(tmp_path / "b") as b:
        ops.ScalarSummary()("x", Tensor(2.5))
        a.record(1)
        b.record(1)
    assert [[one.value for one in event_records.summaries(Path(x.log_dir))] for x in (a, b)] == [[2.5], [2.5]]


def test_names_of_files(tmp_path, monkeypatch):
    """Two processes that begin in the same second, in one folder, have one file each, and later names sort behind."""
    monkeypatch.setattr(event_files.time, "time", lambda: 1612942122.5)
    monkeypatch.setattr(event_files.socket, "gethostname", lambda: "host")
    paths = []
    for _ in range(3):
        with SummaryRecord(str(tmp_path / "new" / "folder"), "xx_", "_yy") as record:
            paths.append(record.log_dir)
    start = tmp_path / "new" / "folder"
    assert paths == [f"{start}/xx_.out.tfevents.16129421{k}.host_yy" for k in (22, 23, 24)]
    assert len(list(start.iterdir())) == 3


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_it(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    x = RNG.normal(size=(2, 3)).astype(np.float32)
    image = RNG.integers(0, 256, (1, 1, 4, 4)).astype(np.uint8)
    plugins = {"scalar": x[0, :1], "tensor": x, "histogram": x, "image": image}
    recorded(tmp_path, *[(plugin, plugin, array) for plugin, array in plugins.items()])
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    found = {kind: names for kind, names in reader.Tags().items() if names}
    assert found == {
        "scalars": ["scalar"],
        "images": ["image"],
        "tensors": ["tensor"],
        "histograms": ["histogram"],
        "distributions": ["histogram"],
    }
    assert reader.Scalars("scalar")[0].value == x[0, 0]
    assert reader.Tensors("tensor")[0].tensor_proto.tensor_content == x.tobytes()
    assert reader.Histograms("histogram")[0].histogram_value.num == 6


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_drops_what_is_repeated(tmp_path):
    """After a kill at step 5, a training continues with step 4."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first, steps in ((1, 5), (4, 6)):
        with SummaryRecord(tmp_path) as record:
            if first > 1:
                record.restart(first)
            for step in range(first, steps + 1):
                record.add_value("scalar", "a", Tensor(float(10 * first + step)))
                record.record(step)
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert [(one.step, one.value) for one in reader.Scalars("a")] == [
        *((k, 10.0 + k) for k in (1, 2, 3)),
        *((k, 40.0 + k) for k in (4, 5, 6)),
    ]


def test_the_largest_size(tmp_path, caplog):
    with SummaryRecord(tmp_path, max_file_size=400) as record:
        for step in range(20):
            record.add_value("tensor", "a", Tensor(np.ones(20, np.float32)))
            wrote = record.record(step)
    assert not wrote
    assert Path(record.log_dir).stat().st_size <= 400
    assert 1 <= len(event_records.summaries(Path(record.log_dir))) < 4
    assert caplog.text.count("max_file_size=400") == 1


@pytest.mark.parametrize("raises", [False, True])
def test_a_full_disk(tmp_path, monkeypatch, caplog, raises):
    """The training continues and the values before are in the file, or there is an error."""
    record = SummaryRecord(tmp_path, raise_exception=raises)
    record.add_value("scalar", "a", Tensor(1.0))
    assert record.record(1)

    def before(operation, path):
        if operation == "write" and ".tfevents." in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "before_operation", before)
    record.add_value("scalar", "a", Tensor(2.0))
    if raises:
        with pytest.raises(StorageError, match="No space left"):
            record.record(2)
    else:
        assert [record.record(2), record.record(3)] == [False, False]
        assert caplog.text.count("No space left") == 1
    monkeypatch.undo()
    record.close()
    assert [one.step for one in event_records.summaries(Path(record.log_dir))] == [1]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        SummaryRecord(tmp_path / "file" / "folder")


def test_a_closed_record(tmp_path):
    record = SummaryRecord(tmp_path)
    record.close()
    record.close()
    record.flush()
    record.add_value("scalar", "a", Tensor(1.0))
    assert record.record(1) is False
    assert event_records.summaries(Path(record.log_dir)) == []


def test_exported_tensors(tmp_path):
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    options = {"export_options": {"tensor_format": "npy"}}
    recorded(tmp_path, ("tensor", "a/b ../c", x), ("scalar", "s", x[0, :1]), **options)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (path,) = (folder / "tensor").iterdir()
    assert path.name == "a%2Fb%20..%2Fc_7.npy"
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), x)
    recorded(tmp_path / "none", ("tensor", "a", x), export_options={"tensor_format": None})
    assert len(list((tmp_path / "none").iterdir())) == 1


WRONG = {
    "no directory": ({"log_dir": ""}, "log_dir must be the name of a directory"),
    "a path as prefix": ({"file_prefix": "a/b"}, "file_prefix must be a part of a file name"),
    "a number as suffix": ({"file_suffix": 3}, "file_suffix must be a part of a file name"),
    "a size of 0": ({"max_file_size": 0}, "max_file_size must be a whole number of at least 1"),
    "a size as text": ({"max_file_size": "1"}, "max_file_size"),
    "raise_exception": ({"raise_exception": 1}, "raise_exception must be True or False"),
    "an option": ({"export_options": {"tensor": "npy"}}, "nearest  tensor_format"),
    "a format": ({"export_options": {"tensor_format": "txt"}}, "npy"),
    "options": ({"export_options": ["npy"]}, "export_options must be a mapping"),
}


@table(("arguments", "text"), WRONG.values(), WRONG)
def test_wrong_arguments(tmp_path, arguments, text):
    with pytest.raises(ConfigError) as caught:
        SummaryRecord(**{"log_dir": tmp_path, **arguments})
    assert text in str(caught.value)
    assert list(tmp_path.iterdir()) == []


WRONG_VALUES = {
    "a plugin": (("scalars", "a", Tensor(1.0)), "nearest  scalar"),
    "no name": (("scalar", "", Tensor(1.0)), "a summary needs a name"),
    "a number": (("scalar", "a", 1.0), "must be a Tensor"),
    "two numbers": (("scalar", "a", Tensor([1.0, 2.0])), "one element"),
    "two channels": (("image", "a", Tensor(np.zeros((1, 2, 3, 3), np.float32))), "1 or 3 channels"),
    "no image": (("image", "a", Tensor(np.zeros((0, 1, 3, 3), np.float32))), "1 or 3 channels"),
    "no axis": (("histogram", "a", Tensor(1.0)), "at least one axis"),
    "no mapping": (("train_lineage", "a", 3), "must be a mapping"),
}


@table(("value", "text"), WRONG_VALUES.values(), WRONG_VALUES)
def test_wrong_values(tmp_path, value, text):
    with SummaryRecord(tmp_path) as record, pytest.raises(ConfigError) as caught:
        record.add_value(*value)
    assert text in str(caught.value)


def test_wrong_steps_and_modes(tmp_path):
    with SummaryRecord(tmp_path) as record:
        with pytest.raises(ConfigError, match="step must be a whole number"):
            record.record("3")
        with pytest.raises(ConfigError, match="mode is not one of the choices"):
            record.set_mode("predict")


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ConfigError) as caught:
        SummaryRecord(tmp_path / "new")
    assert "tensorboardX" in str(caught.value)
    assert 'pip install "runner-ml[tensorboard]"' in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_addresses_of_the_reference():
    module = importlib.import_module("runner.train.summary.summary_record")
    assert module.SummaryRecord is SummaryRecord
    assert importlib.import_module("runner.train").summary.SummaryRecord is SummaryRecord


def test_a_script_ends_without_closing(tmp_path):
    """No thread or process of a record keeps a script alive, and what was recorded is in the file."""
    script = (
        "import sys, runner\nfrom runner.train.summary import SummaryRecord\n"
        "r = SummaryRecord(sys.argv[1])\nr.add_value('scalar', 'a', runner.Tensor(2.0))\nr.record(1)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=300)
    (path,) = tmp_path.iterdir()
    assert [(one.tag, one.value) for one in event_records.summaries(path)] == [("a", 2.0)]
