"""The profile of a run: the profiler of its model, or the times of a single operator."""

from __future__ import annotations

from dataclasses import replace

from runner.communication.world import process_number
from runner.config.groups import services
from runner.config.schema import RunRequest
from runner.errors import ConfigError
from runner.experiment.build import Experiment
from runner.experiment.output_directories import place
from runner.host.files import write_json
from runner.observe import profile
from runner.train import profile as profiler


def settings(request: RunRequest) -> profile.ProfileSettings:
    """The profile settings of a checked run that requests a profile. Creates the folder of its files.

    Raises StorageError, and ConfigError or ConfigErrors when a folder has changed since the config was checked.
    """
    config = request.config
    chosen = services.profiling_settings(
        config.profiling, config.session, request.folder, process_number(config.device.card)
    )
    return replace(chosen, result_path=place(request.directories, chosen.result_path)).with_folder()


def attach(request: RunRequest, experiment: Experiment) -> None:
    """Measure the operator of `op_trace`, or attach a profiler to the model. Raises ConfigError and StorageError."""
    chosen = settings(request)
    if chosen.op_trace:
        _trace_operator(chosen, chosen.op_trace, experiment)
    else:
        experiment.model.profiler = profiler.profiler_from_settings(
            chosen, experiment.model.mode, experiment.model.device
        )


def _trace_operator(chosen: profile.ProfileSettings, op_trace: str, experiment: Experiment) -> None:
    """Measure a single operator in both modes."""
    model = experiment.model
    try:
        found = profiler.find_operator(op_trace, model.train_network, experiment.train_data.column_types())
    except ConfigError as error:
        error.rows["key"] = chosen.keys.get("op_trace", "op_trace")
        raise
    timings = profiler.measure_in_both_modes(found, model.device)
    write_json(chosen.result_path / f"op_trace_{chosen.device_id}.json", profile.single_op.report(found, timings))
    for line in profile.single_op.lines(found, timings):
        print(line)  # noqa: T201  the summary
