"""`runner doctor`, and what it and the run manifest know of a machine."""

import os
import platform
import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from runner.device import Device, device_error
from runner.errors import DeviceError
from runner.host import machine
from runner.report import doctor


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own, as a user's working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(capsys) -> dict[str, str]:
    """The report as a mapping from name to the rest of its line."""
    return dict(re.findall(r"^\w+ +(\S+) +(.+)$", capsys.readouterr().out, re.MULTILINE))


def test_a_healthy_machine(here, capsys):
    assert doctor.doctor(Namespace()) == 0
    report = lines_of(capsys)
    assert report["python"] == platform.python_version()
    assert report["numpy"].startswith(np.__version__)
    assert report["CPU"] == "usable (CPUExecutionProvider ran a convolution)"
    assert report["outputs"] == f"{here / 'outputs'} is writable"
    assert not (here / "outputs").exists()
    assert set(machine.PACKAGES) <= set(report)


def test_a_device_that_is_not_usable_comes_with_reason_and_repair(here, capsys, monkeypatch):
    trouble = DeviceError("the device cannot be used", reason="no driver", repair="install it\nand reboot")
    monkeypatch.setattr(doctor, "device_problem", lambda target: None if target == "CPU" else trouble)
    assert doctor.doctor(Namespace()) == 0
    margin = "\n" + " " * 25
    assert f"device   GPU             warning: not usable: no driver{margin}repair: install it{margin}and reboot\n" in (
        capsys.readouterr().out
    )


def test_a_machine_whose_cpu_does_not_work(here, capsys, monkeypatch):
    monkeypatch.setattr(
        doctor, "device_problem", lambda target: device_error(Device(target), "onnxruntime is not there")
    )
    assert doctor.doctor(Namespace()) == 3
    assert lines_of(capsys)["CPU"] == "failed: not usable: onnxruntime is not there"


def test_a_missing_package(here, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module == "hydra" else object())
    assert doctor.doctor(Namespace()) == 3
    assert lines_of(capsys)["hydra-core"] == "failed: not installed: pip install hydra-core"


def test_several_onnxruntimes_are_a_warning(here, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "runtimes", lambda: {"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"})
    assert doctor.doctor(Namespace()) == 0
    assert lines_of(capsys)["onnxruntime"] == (
        "warning: onnxruntime 1.31.1, onnxruntime-gpu 1.31.1: they overwrite each other, keep one"
    )


def test_on_a_terminal_the_report_is_a_table(here, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    trouble = device_error(Device("GPU"), "because")
    monkeypatch.setattr(doctor, "device_problem", lambda target: None if target == "CPU" else trouble)
    assert doctor.doctor(Namespace()) == 0
    shown = capsys.readouterr().out
    assert "\x1b[33mwarning" in shown
    assert '"onnxruntime-gpu[cuda,cudnn]"' in shown


def test_a_folder_that_cannot_be_written(here, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = doctor._outputs(Path("outputs"))
    assert (finding.state, finding.value) == (
        "failed",
        f"{here / 'outputs'} cannot be written: no permission in {here}",
    )


def test_a_file_in_the_place_of_the_folder(here):
    (here / "outputs").write_text("")
    assert doctor._outputs(Path("outputs")).state == "failed"


def test_versions_and_machine_for_the_manifest():
    versions = machine.packages()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    assert all(isinstance(version, str) for version in versions.values())
    assert set(machine.runtimes()) <= set(versions)
    assert machine.cpu_model()
    assert 1 <= machine.usable_cores() <= len(os.sched_getaffinity(0))
    assert machine.memory_bytes() > 2**28


def test_the_processor_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(machine, "_text_of", lambda path: "")
    assert machine.cpu_model() == (platform.processor() or platform.machine())
