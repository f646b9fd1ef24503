"""The files of a profiled training, and its summary.

measurements (`ProfileRecord`)  ->  analysis (`Analysis`)  ->  tables, JSON, timeline
                                                           ->  figures (`ProfileFigures`)  ->  summary, `runner report`

Sources of the measurements:

the host's clock                    every wait for data, call to the device and callback
the interpreter with a clock        the operators of some steps in PyNative mode
onnxruntime's profile               the nodes of some steps in graph mode, also inside a sink; a node has the names of
                                    all operators that it implements
counters, the machine's peak        the metrics of `ai_core_metrics`
"""

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from runner.dataset.stages import Stage
from runner.host.files import make_directory, names, remove, storage_errors, write_atomically, write_json
from runner.host.lazy import gc_paused
from runner.observe.profile import data_pipeline, hardware_metrics, peak, step_trace, summary, tables, timeline
from runner.observe.profile.analysis import Analysis
from runner.observe.profile.figures import figures
from runner.observe.profile.record import ProfileRecord
from runner.observe.profile.settings import FILES, ProfileSettings, ProfileTarget


@gc_paused()
def write(
    record: ProfileRecord, settings: ProfileSettings, target: ProfileTarget, stages: Sequence[Stage]
) -> list[str]:
    """Write the files that the settings request; returns the lines of the summary, which only the first rank has.

    Each rank writes its own files, with its rank in place of the device number. Raises StorageError.
    """
    analysis = Analysis(record, settings)
    folder, device = make_directory(settings.result_path), target.device
    d = target.rank if target.ranks > 1 else settings.device_id  # on several machines, devices have equal numbers
    point_info = f"step_trace_point_info{f'_{d}' if target.rank else ''}.json"  # the reference has no number here
    _remove_earlier(folder, d, point_info)
    if settings.task_trace:
        write_atomically(folder / f"{device}_op_detail_info_{d}.csv", tables.detail(analysis, target))
        write_atomically(folder / f"{device}_op_type_info_{d}.csv", tables.types(analysis))
        write_atomically(folder / f"framework_raw_{d}.csv", tables.framework(analysis))
    if settings.ai_core_metrics:
        needed = settings.ai_core_metrics in hardware_metrics.FROM_PEAK
        measured = peak.measure_peak(record.threads) if needed else None
        write_json(
            folder / f"ai_core_metrics_{d}.json", hardware_metrics.table(analysis, settings.ai_core_metrics, measured)
        )
    if settings.aicpu_trace:
        write_atomically(folder / f"minddata_pipeline_raw_{d}.csv", data_pipeline.raw(analysis, stages))
        write_json(folder / f"pipeline_profiling_{d}.json", data_pipeline.profile(analysis, stages))
    # The timeline is not indented: it may have 100000 events.
    trace = json.dumps(timeline.events(analysis, target), separators=(",", ":"), allow_nan=False)
    write_atomically(folder / f"{device}_timeline_display_{d}.json", trace)
    if settings.training_trace:
        write_atomically(folder / f"step_trace_raw_{d}_detail_time.csv", step_trace.detail(analysis))
        write_json(folder / point_info, step_trace.point_info(analysis))
    found = figures(analysis, target)
    write_json(folder / f"profile_summary_{d}.json", found.as_json())
    return [] if target.rank else list(summary.lines(found))


def _remove_earlier(folder: Path, number: int, point_info: str) -> None:
    """Remove the profile of an earlier training in this folder, which may have other tables."""
    with storage_errors("cannot remove an earlier profile", folder):
        for name in names(folder):
            numbered = re.search(rf"_{number}(_detail_time)?\.(csv|json)$", name)
            if name == point_info or (numbered and any(fnmatch(name, pattern) for pattern in FILES)):
                remove(folder / name)
