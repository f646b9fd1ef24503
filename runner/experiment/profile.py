"""The profile of a run: from its config to who profiles it."""

from __future__ import annotations

from pathlib import Path

from runner.config.groups.profiling import NoProfiling, wanted
from runner.config.schema import RunConfig
from runner.experiment.build import Experiment
from runner.host.files import write_json
from runner.observe import profile
from runner.train import profile as profiler


def settings(config: RunConfig, folder: Path) -> profile.ProfilingSettings:
    """The profile of a checked run in `folder` that asks for one; the folder of its files is there afterwards.

    Without words or JSON that choose, the group `profiling=trace` traces everything. Raises StorageError.
    """
    profiling, session = config.profiling, config.session
    everything = not isinstance(profiling, NoProfiling) and profiling.options is None
    made = profile.keys.settings(wanted(profiling, session), everything, folder, config.device.id)
    return made


def watch(config: RunConfig, built: Experiment, folder: Path) -> None:
    """Measure the operator that `op_trace` asks for, or else let the training be profiled.

    Raises ConfigError and StorageError.
    """
    chosen = settings(config, folder)
    if chosen.op_trace:
        _trace_one(chosen, chosen.op_trace, built)
    else:
        built.model.profiler = profiler.telling(chosen, built.model.mode, built.model.device)


def _trace_one(chosen: profile.ProfilingSettings, op_trace: str, built: Experiment) -> None:
    """Measure one operator alone, in both modes."""
    model = built.model
    found = profiler.find(op_trace, model.train_network, built.train_data.column_types())
    timings = profiler.both_modes(found, model.device)
    write_json(chosen.result_path / f"op_trace_{chosen.device_id}.json", profile.single_op.report(found, timings))
    for line in profile.single_op.lines(found, timings):
        print(line)  # noqa: T201  the summary
