"""The tuning of a run: from its config to a model whose steps are made in the way that is fastest here."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

from runner import compile as compiler
from runner.config.schema import RunConfig
from runner.device import Device
from runner.errors import ConfigError
from runner.experiment.build import Experiment
from runner.host.json_file import written
from runner.nn.cell import Cell

_LOG = logging.getLogger("runner")


def tune(config: RunConfig, built: Experiment, folder: Path, resume: bool) -> None:
    """Let the training steps be made as `session.auto_tune_mode` finds best, and say what that is.

    A run that goes on keeps what its manifest tells, so that its steps give the same bits. Raises what compiling and
    the device raise.
    """
    reason = _nothing_to_choose(config)
    if reason:
        _LOG.warning("session.auto_tune_mode has no effect: %s", reason)
        return
    report = _of_manifest(folder) if resume else None

    def chosen(cell: Cell, device: Device) -> Device:
        nonlocal report
        if report is None:
            with closing(built.train_data.read(0)) as batches:
                arrays = next(batches)
            ways = str(config.session.auto_tune_mode).split(",")
            report = compiler.find_tuning(cell.construct, arrays, device, ways, config.session.auto_tune_seconds)
        return device.tuned(compiler.tuning_of(report["tuning"]))

    built.model.tune(chosen)
    assert report is not None  # the model has asked
    built.tuning = report
    for line in compiler.report_lines(report):
        print(line)  # noqa: T201  the summary


def _nothing_to_choose(config: RunConfig) -> str | None:
    if config.mode == "pynative":
        return "PyNative mode has one kernel for each operator"
    return f"a {config.device.target} chooses its own kernels" if config.device.target != "CPU" else None


def _of_manifest(folder: Path) -> dict[str, Any] | None:
    """What the run that goes on was tuned to; None, with a warning, when it does not tell."""
    report: Any = written(folder / "manifest.json").get("tuning")
    try:
        compiler.tuning_of(report["tuning"])
    except (KeyError, TypeError, ConfigError):
        _LOG.warning("%s does not tell how the run was tuned: it may go on with other last digits", folder)
        return None
    return dict(report)
