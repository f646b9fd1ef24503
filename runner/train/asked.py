"""The profiler that the context asks for: `context.set_context(enable_profiling=True, profiling_options=...)`."""

from runner import context
from runner.communication.world import world
from runner.dataset.pipeline import Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.errors import ConfigError
from runner.profiling import report
from runner.profiling.place import Place
from runner.profiling.record import Record
from runner.profiling.settings import ProfilingSettings
from runner.train.profiler import Profiler

MODES = {context.GRAPH_MODE: "graph", context.PYNATIVE_MODE: "pynative"}


def of_context(mode: int, device: Device) -> Profiler | None:
    """Who profiles a model of this mode on this device, writes the files and prints the summary; None when nobody asks.

    Of several ranks the first one prints. Raises ConfigError for `op_trace`, which trains nothing, and StorageError
    when the folder cannot be made.
    """
    settings = context.profile()
    if settings is None:
        return None
    if settings.op_trace:
        hint = f"runner profiling=trace profiling.op_trace='{settings.op_trace}'"
        raise ConfigError("a model that trains has no op_trace", key="profiling_options.op_trace", hint=hint)
    return telling(settings, mode, device)


def telling(settings: ProfilingSettings, mode: int, device: Device) -> Profiler:
    """Who profiles trainings of this mode and device, writes the files and, on the first rank, prints the summary."""

    def written(record: Record, data: Dataset) -> None:
        place = Place(MODES[mode], device.target.lower(), device.workers, world().rank, world().size)
        for line in report.write(record, settings, place, stages(data)):
            print(line)  # noqa: T201  the summary

    return Profiler(settings, written)
