"""The tuning of a run: from its config to a model with the fastest training steps on this machine."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import compile as compiler
from runner.config.schema import RunConfig
from runner.device import Device
from runner.errors import ConfigError
from runner.experiment.build import Experiment
from runner.host.console import LOG
from runner.host.json import read_optional
from runner.nn.cell import Cell


def tune(config: RunConfig, experiment: Experiment, folder: Path, resume: bool) -> None:
    """Tune the training steps as `session.auto_tune_mode` requests, and print the tuning.

    A resumed run keeps the tuning in its manifest, so that its results are bit-identical. Raises what compiling and the
    device raise.
    """
    reason = _reason_not_to_tune(config)
    if reason:
        LOG.warning("session.auto_tune_mode has no effect: %s", reason)
        return
    report = _from_manifest(folder) if resume else None

    def tuned(cell: Cell, device: Device) -> Device:
        nonlocal report
        if report is None:
            with closing(experiment.train_data.read(0)) as batches:
                arrays = next(batches)
            modes = str(config.session.auto_tune_mode).split(",")
            report = compiler.find_tuning(cell.compute, arrays, device, modes, config.session.auto_tune_seconds)
        return replace(device, tuning=compiler.parse_tuning(report["tuning"]))

    experiment.model.tune(tuned)
    assert report is not None  # set by `tuned`
    experiment.tuning = report
    for line in compiler.report_lines(report):
        print(line)  # noqa: T201  the summary


def _reason_not_to_tune(config: RunConfig) -> str | None:
    if config.mode == "pynative":
        return "PyNative mode has one kernel for each operator"
    return f"a {config.device.target} chooses its own kernels" if config.device.target != "CPU" else None


def _from_manifest(folder: Path) -> dict[str, Any] | None:
    """The tuning of the resumed run; None, with a warning, when its manifest has none."""
    report: Any = read_optional(folder / "manifest.json").get("tuning")
    try:
        compiler.parse_tuning(report["tuning"])
    except (KeyError, TypeError, ConfigError):
        LOG.warning("%s has no tuning of the run in its manifest: later results may differ in the last digits", folder)
        return None
    return dict(report)
