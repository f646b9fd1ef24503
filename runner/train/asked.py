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
    chosen = settings

    def written(record: Record, data: Dataset) -> None:
        sunk, here = any(call.steps > 1 for call in record.calls), world()
        place = Place(MODES[mode], device.target.lower(), device.workers, sunk, here.rank, here.size)
        for line in report.write(record, chosen, place, stages(data)):
            print(line)  # noqa: T201  the summary

    return Profiler(chosen, written)
