"""JSON files that ask for a dump: those of seed 002 word for word, and every way to switch the kinds on and off."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import StorageError
from runner.host import files
from runner.observe.dump import VARIABLE, settings as json_config
from runner.observe.dump.settings import DumpSettings, Iterations, from_environment, read

ASYNC_OF_THE_SEED = """{
    "common_dump_settings": {
        "dump_mode": 0,
        "path": "/absolute_path",
        "net_name": "ResNet50",
        "iteration": "0",
        "input_output": 0,
        "kernels": ["Default/Conv-op12"],
        "support_device": [0,1,2,3,4,5,6,7],
        "op_debug_mode": 0
    }
}
"""
SYNC_OF_THE_SEED = """{
    "common_dump_settings": {
        "dump_mode": 0,
        "path": "/absolute_path",
        "net_name": "ResNet50",
        "iteration": "0",
        "input_output": 0,
        "kernels": ["Default/Conv-op12"],
        "support_device": [0,1,2,3,4,5,6,7]
    },
    "e2e_dump_settings": {
        "enable": true,
        "trans_flag": true
    }
}
"""
COMMON = json.loads(SYNC_OF_THE_SEED)["common_dump_settings"]
ON, OFF = ({"enable": on, "trans_flag": True} for on in (True, False))


@pytest.fixture
def settings_of(tmp_path, monkeypatch):
    """The dump that a file of this content requests."""
    monkeypatch.delenv(VARIABLE, raising=False)

    def write_and_read(content: object) -> DumpSettings:
        file = tmp_path / "data_dump.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return read(file, "dump.config")

    return write_and_read


@pytest.fixture
def warned(caplog):
    """The warnings so far."""
    caplog.set_level(logging.WARNING, "runner")
    return lambda: [record.message for record in caplog.records]


@pytest.mark.parametrize(
    ("text", "kind", "trans_flag"), [(ASYNC_OF_THE_SEED, "async", False), (SYNC_OF_THE_SEED, "sync", True)]
)
def test_the_files_of_the_seed(text, kind, trans_flag, settings_of):
    expected = DumpSettings(
        kind=kind,
        path=Path("/absolute_path"),
        net_name="ResNet50",
        iterations=Iterations(((0, 0),)),
        kernels=None,  # dump_mode 0: all of them, whatever the list says
        trans_flag=trans_flag,
        source=text.encode(),
        devices=(0, 1, 2, 3, 4, 5, 6, 7),
    )
    assert settings_of(text) == expected


def test_the_source_is_kept_byte_for_byte(tmp_path):
    text = SYNC_OF_THE_SEED.replace("    ", "\t").replace("\n", "\r\n") + "  \n"
    (tmp_path / "mine.json").write_bytes(text.encode())
    assert read(tmp_path / "mine.json", "dump.config").source == text.encode()


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"dump_mode": 1}, "kernels", ("Default/Conv-op12",)),
        ({"dump_mode": 1, "kernels": ["Conv2D", "*fc1*", "Conv2D"]}, "kernels", ("Conv2D", "*fc1*")),
        ({"kernels": []}, "kernels", None),
        ({"input_output": 1}, "outputs", False),
        ({"input_output": 1}, "inputs", True),
        ({"input_output": 2}, "inputs", False),
        ({"input_output": 2}, "outputs", True),
        ({"iteration": "0|5-8|100-120"}, "iterations", Iterations(((0, 0), (5, 8), (100, 120)))),
        ({"iteration": "all"}, "iterations", Iterations(None)),
        ({"iteration": 0}, "iterations", Iterations(((0, 0),))),
        ({"net_name": "Res-Net_50"}, "net_name", "Res-Net_50"),
        ({"path": "/a/b-c_d/"}, "path", Path("/a/b-c_d")),
        ({"op_debug_mode": 3}, "op_debug_mode", 3),
        ({"file_format": "npy"}, "file_format", "npy"),
    ],
)
def test_what_the_common_keys_mean(changes, field, expected, settings_of):
    made = settings_of({"common_dump_settings": {**COMMON, **changes}})
    assert getattr(made, field) == expected


def test_a_synchronous_dump_keeps_the_format_of_the_device(settings_of):
    sections = {"common_dump_settings": COMMON, "e2e_dump_settings": {"enable": True, "trans_flag": False}}
    assert settings_of(sections).trans_flag is False


def test_overflow_in_the_section_of_the_asynchronous_dump(settings_of):
    sections = {"common_dump_settings": COMMON, "async_dump_settings": {"enable": True, "op_debug_mode": 2}}
    assert (settings_of(sections).kind, settings_of(sections).op_debug_mode) == ("async", 2)


@pytest.mark.parametrize(
    ("common", "sync", "other", "kind", "warnings"),
    [
        (None, None, None, "async", 0),
        (None, ON, None, "sync", 0),
        (None, OFF, None, None, 1),
        (None, None, True, "async", 0),
        (None, None, False, None, 1),
        (None, ON, True, "sync", 1),
        (None, ON, False, "sync", 0),
        (None, OFF, True, "async", 0),
        (None, OFF, False, None, 1),
        (True, None, None, "async", 0),
        (False, None, None, None, 1),
        (True, ON, None, "sync", 1),
        (True, OFF, None, "async", 0),
        (False, ON, None, "sync", 0),
        (False, OFF, None, None, 1),
        (True, ON, True, "sync", 1),
    ],
)
def test_which_kind_is_on(common, sync, other, kind, warnings, settings_of):
    sections = {"common_dump_settings": COMMON if common is None else {**COMMON, "enable": common}}
    if sync is not None:
        sections["e2e_dump_settings"] = sync
    if other is not None:
        sections["async_dump_settings"] = {"enable": other}
    made = settings_of(sections)
    assert (made.kind if made.enabled else None) == kind
    assert bool(made.warning) == warnings
    assert not warnings or "data_dump.json" in made.warning


def settings(path: Path, devices: tuple[int, ...] | None = None) -> DumpSettings:
    return DumpSettings("sync", path, "net", devices=devices)


def test_the_folder_is_made_when_it_is_known_that_something_is_dumped(tmp_path, warned):
    path = tmp_path / "a" / "b"
    assert settings(path, (0, 2)).on(1) is None
    assert not (tmp_path / "a").exists()
    assert warned() == ["nothing is dumped: device 1 is not in support_device (0, 2)"]
    assert settings(path, (0, 2)).on(2) == settings(path, (0, 2))
    assert path.is_dir()
    assert len(warned()) == 1


def test_an_empty_list_of_devices_has_none(tmp_path, warned):
    assert settings(tmp_path, ()).on(0) is None
    assert warned() == ["nothing is dumped: device 0 is not in support_device (empty)"]


def test_what_is_switched_off_tells_why(tmp_path, warned):
    assert replace(settings(tmp_path), enabled=False, warning="neither").on(0) is None
    assert warned() == ["neither"]


def test_all_devices(tmp_path):
    assert settings(tmp_path).on(4095) == settings(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    def full(operation: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "before_operation", full)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        settings(tmp_path / "new").on(0)
    assert caught.value.rows["path"] == str(tmp_path / "new")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """Root may write everywhere, so the system's answer is replaced."""
    monkeypatch.setattr(json_config.os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="not writable") as caught:
        settings(tmp_path).on(0)
    assert caught.value.rows["path"] == str(tmp_path)


@pytest.mark.parametrize("value", [None, ""])
def test_no_variable_no_dump(value, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert from_environment(VARIABLE) is None


def test_the_variable(tmp_path, monkeypatch, warned):
    file = tmp_path / "data_dump.json"
    sections = {"common_dump_settings": {**COMMON, "path": f"{tmp_path}/dump", "support_device": [3]}}
    file.write_text(json.dumps(sections))
    monkeypatch.setenv(VARIABLE, str(file))
    assert from_environment(VARIABLE).on(0) is None
    assert warned() == ["nothing is dumped: device 0 is not in support_device (3)"]
    assert not (tmp_path / "dump").exists()
    made = from_environment(VARIABLE).on(3)
    assert (made.kind, made.path, made.source) == ("async", tmp_path / "dump", file.read_bytes())
    assert (tmp_path / "dump").is_dir()


def test_the_examples_in_errors_are_right(settings_of):
    """What an error shows for a missing key can be copied."""
    sections = {name: dict(keys) for name, keys in json_config.EXAMPLES.items()}
    made = settings_of(sections)
    assert made.kind == "sync"
    assert made.iterations == Iterations(((0, 0), (5, 8), (100, 120)))
