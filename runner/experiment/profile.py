"""The profile of a run: from its config to who profiles it."""

from pathlib import Path
from typing import TYPE_CHECKING

from runner.config.groups.profiling import NoProfiling, wanted
from runner.config.schema import RunConfig
from runner.experiment.build import Experiment
from runner.host.files import write_json
from runner.host.lazy import lazy_import

if TYPE_CHECKING:
    from runner.observe.profile.settings import ProfilingSettings

# Few runs are profiled, and most of them do not measure one operator alone.
alone = lazy_import("runner.observe.profile.single_op")
keys = lazy_import("runner.observe.profile.keys")
train_alone = lazy_import("runner.train.profiler")
asked = lazy_import("runner.train.profiler")


def settings(config: RunConfig, folder: Path) -> "ProfilingSettings":
    """The profile of a checked run in `folder` that asks for one; the folder of its files is there afterwards.

    Without words or JSON that choose, the group `profiling=trace` traces everything. Raises StorageError.
    """
    profiling, session = config.profiling, config.session
    everything = not isinstance(profiling, NoProfiling) and profiling.options is None
    made: ProfilingSettings = keys.settings(wanted(profiling, session), everything, folder, config.device.id)
    return made


def watch(config: RunConfig, built: Experiment, folder: Path) -> None:
    """Measure the operator that `op_trace` asks for, or else let the training be profiled.

    Raises ConfigError and StorageError.
    """
    chosen = settings(config, folder)
    if chosen.op_trace:
        _trace_one(chosen, built)
    else:
        built.model.profiler = asked.telling(chosen, built.model.mode, built.model.device)


def _trace_one(chosen: "ProfilingSettings", built: Experiment) -> None:
    """Measure one operator alone, in both modes."""
    model = built.model
    found = train_alone.find(chosen.op_trace, model.train_network, built.train_data.column_types())
    timings = train_alone.both_modes(found, model.device)
    write_json(chosen.result_path / f"op_trace_{chosen.device_id}.json", alone.report(found, timings))
    for line in alone.lines(found, timings):
        print(line)  # noqa: T201  the summary
