"""The files of a profiled training, and its summary.

measurements (`ProfileRecord`)  ->  analysis (`Analysis`)  ->  tables, JSON, timeline
                                                           ->  figures (`ProfileFigures`)  ->  summary, `runner report`

Sources of the measurements:

the host's clock                    every wait for data, call to the device and callback
the interpreter with a clock        the operators of some steps in PyNative mode
onnxruntime's profile               the nodes of some steps in graph mode, also inside a sink; a node has the names of
                                    all operators that it implements
counters, the machine's peak        the metrics of `ai_core_metrics`

Below is a part for each file, then the summary on the console, and `write`, which writes them all.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from runner.dataset.stages import Stage
from runner.host.console import csv_text
from runner.host.files import make_directory, names, remove, storage_errors, write_atomically, write_json
from runner.host.lazy import gc_paused
from runner.observe.profile.analysis import (
    Analysis,
    Distribution,
    OperatorTimes,
    ProfileFigures,
    RankedOperator,
    figures,
    owner,
    sentence,
    waiting_share,
)
from runner.observe.profile.record import (
    CACHED,
    COUNTERS,
    DATA,
    EXCHANGES,
    HOST,
    REPEATS,
    SIZE,
    SPANS,
    WORKERS,
    WRITERS,
    NodeExecution,
    Peak,
    ProfiledOperator,
    ProfiledStep,
    ProfileRecord,
    measure_peak,
)
from runner.observe.profile.settings import FILES, ProfileSettings, ProfileTarget
from runner.observe.profile.steps import StepRow
from runner.types import TensorType

# `{device}_timeline_display_{d}.json`: a Chrome trace, an array of events in microseconds, that Perfetto opens.

STEPS, OPERATORS = "steps", "operators"
TRACKS = (STEPS, HOST, DATA, WORKERS, OPERATORS, WRITERS, EXCHANGES)
SLICES = 60_000  # of operators; later steps are left out (MindSpore limits its files to 20 MB)

Event = dict[str, Any]


def events(analysis: Analysis, target: ProfileTarget) -> list[Event]:
    """The events of the trace.

    Tracks (threads of one process): `steps`, `host` (calls to the device, compiling), `data` (waits, and operators that
    prepare batches on the device), `data workers`, `operators` (of profiled steps, by full name; operators without
    nodes of their own have a length of 0), `writers` (callbacks) and, with several ranks, `exchanges` (of every step).
    A profiled step has all operators of the graph.
    """
    tracks = TRACKS if EXCHANGES in analysis.record.tracks else TRACKS[:-1]
    trace = list(_named_tracks(target, tracks))
    origin, process = analysis.record.origin, os.getpid()
    threads = {track: tid for tid, track in enumerate(tracks, 1)}

    def add(track: str, name: str, start: int, stop: int, **args: object) -> None:
        begin, length = (start - origin) / 1e3, max(0, stop - start) / 1e3
        event = {"name": name, "ph": "X", "pid": process, "tid": threads[track], "ts": begin, "dur": length}
        trace.append(event | {"args": args})

    for step in analysis.steps[:SPANS]:
        marks = {"borders_measured": step.measured, "warm_up": step.warm_up}
        add(STEPS, f"step {step.number + 1}", step.start + origin, step.stop + origin, **marks)
    for call in analysis.record.calls[:SPANS]:
        last = call.first + call.steps
        args = {"first_step": call.first + 1, "last_step": last, "operators_timed": call.profiled}
        add(HOST, "call of the device", call.start, call.stop, **args)
    for track, spans in analysis.record.tracks.items():
        for span in spans:
            add(track, span.name, span.start, span.stop)
    if len(analysis.steps) > SPANS:
        analysis.record.remarks.append(f"the timeline shows the first {SPANS} steps")
    for profiled in _selected_steps(analysis):
        for name, start, stop, executions in _slices(profiled, analysis):
            operator = analysis.record.operators.get(name)
            track = DATA if operator and operator.part == "data" else OPERATORS
            add(track, name, start, stop, step=profiled.step + 1, **_args(name, executions, analysis))
    return trace


def _named_tracks(target: ProfileTarget, tracks: Sequence[str]) -> Iterator[Event]:
    names = {"process_name": f"runner, {target.label}" if target.label else "runner"}
    for kind, name in names.items():
        yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": 0, "args": {"name": name}}
    for tid, track in enumerate(tracks, 1):
        for kind, args in (("thread_name", {"name": track}), ("thread_sort_index", {"sort_index": tid})):
            yield {"name": kind, "ph": "M", "pid": os.getpid(), "tid": tid, "args": args}


def _selected_steps(analysis: Analysis) -> list[ProfiledStep]:
    steps: list[ProfiledStep] = []
    slices = 0
    for step in analysis.record.profiled_steps:
        slices += max(len(step.executions), len(analysis.record.operators))
        if slices > SLICES and steps:
            left = len(analysis.record.profiled_steps) - len(steps)
            analysis.record.remarks.append(
                f"the timeline leaves out the operators of {left} steps: it would be too long"
            )
            break
        steps.append(step)
    return steps


def _slices(step: ProfiledStep, analysis: Analysis) -> Iterator[tuple[str, int, int, list[NodeExecution]]]:
    """Adjacent nodes of one operator are one slice; operators without nodes are at the start of the step or of the node
    that implements them."""
    groups: list[tuple[str, list[NodeExecution]]] = []
    for execution in step.executions:
        name = owner(execution)
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(execution)
    first: dict[str, int] = {}
    for execution in step.executions:
        for name in execution.operators:
            first.setdefault(name, execution.start)
    own = {name for name, _ in groups}
    for name in analysis.record.operators:
        if name not in own:
            yield name, first.get(name, step.start), first.get(name, step.start), []
    for name, executions in groups:
        yield name, executions[0].start, executions[-1].stop, executions


def _args(name: str, executions: list[NodeExecution], analysis: Analysis) -> dict[str, Any]:
    operator = analysis.record.operators.get(name)
    nodes = [execution.node.removeprefix(f"{name}/") for execution in executions if execution.node]
    shared = list(dict.fromkeys(n for execution in executions for n in execution.operators if n != name))
    args: dict[str, Any] = {"nodes": nodes} if nodes else {}
    if shared:
        args["shared_with"] = shared
    if operator is not None:
        args |= {"type": operator.kind, "part": operator.part}
        args |= {"inputs": list(map(str, operator.inputs)), "outputs": list(map(str, operator.outputs))}
        args |= operator.cost._asdict()
    return args


# `step_trace_raw_{d}_detail_time.csv` and `step_trace_point_info.json`.

TICK = 10  # ns
BOTH = (
    *("step_num", "start_point", "end_point", "total", "fp_point", "bp_point"),
    *("iteration_interval", "fp_and_bp", "tail"),
)
FORWARD_ONLY = ("step_num", "start_point", "end_point", "total", "fp_point", "iteration_interval", "fp")


def step_trace_table(analysis: Analysis) -> str:
    """A row for each step and one with the averages of the steps that do not warm up, in ticks of 10 ns since the start
    of the training.

    A step lasts from the end of the one before to its own end: `iteration_interval` until the fp point (data,
    callbacks, transfer to the device), `fp_and_bp` until the bp point, then `tail`. Without a bp point (no gradients)
    the last column is `fp`, and there is no `bp_point` and no `tail`, as in MindSpore. With several ranks, three
    columns follow for each exchange between them, `stream_0_{i}_{operator}` without suffix, with `_start_point` and
    with `_end_point`: its duration, including the wait for other ranks, its start and its end.
    """
    forward_only = analysis.points.bp is None
    columns = [*(FORWARD_ONLY if forward_only else BOTH), *_exchange_columns(analysis)]
    steps = [step for step in analysis.steps if step.fp is not None]
    if not steps:
        return csv_text([columns])
    rows = [[*_ticks(step, forward_only), *_exchange_ticks(step)] for step in steps]
    numbered = [(step.number + 1, *row) for step, row in zip(steps, rows, strict=True)]
    settled = [row for step, row in zip(steps, rows, strict=True) if not step.warm_up] or rows
    averages = [round(sum(column) / len(settled)) for column in zip(*settled, strict=True)]
    return csv_text([columns, *numbered, ("-", *averages)])


def step_trace_points(analysis: Analysis) -> dict[str, Any]:
    """The points, how their times were measured, and the parts of one step in microseconds."""
    measured = [step.number + 1 for step in analysis.steps if step.measured]
    content: dict[str, Any] = {
        "fp_start": analysis.points.fp,
        "bp_end": analysis.points.bp,
        "tick_ns": TICK,
        "steps": len(analysis.steps),
        "measured_steps": measured,
        "warm_up_steps": [step.number + 1 for step in analysis.steps if step.warm_up],
        "how": _how(len(measured), len(analysis.steps), any(call.steps > 1 for call in analysis.record.calls)),
        "parts_us_per_step": {name: round(part.value / 1e3, 3) for name, part in analysis.parts.items()},
        "operators_us_per_step": round(sum(times.median for times in analysis.operator_times) / 1e3, 3),
        "device_us_per_step": None if analysis.unprofiled_step is None else round(analysis.unprofiled_step / 1e3, 3),
        "device_us_per_measured_step": round(analysis.profiled_step / 1e3, 3),
        "pauses_between_nodes_counted": round(analysis.pause_factor, 4),
    }
    if _exchange_columns(analysis):
        content["exchanges"] = [operator.name for operator in _exchange_operators(analysis)]
        content["exchanges_counted"] = round(analysis.exchange_factor, 4)
    return content | ({"remarks": analysis.record.remarks} if analysis.record.remarks else {})


def _ticks(step: StepRow, forward_only: bool) -> Iterator[int]:
    start, stop = step.start // TICK, step.stop // TICK
    fp = (step.fp or 0) // TICK
    if forward_only:
        yield from (start, stop, stop - start, fp, fp - start, stop - fp)
    else:
        bp = (step.bp or 0) // TICK
        yield from (start, stop, stop - start, fp, bp, fp - start, bp - fp, stop - bp)


def _exchange_columns(analysis: Analysis) -> list[str]:
    """The columns of the exchanges of one step; all steps have the same number. Without known operators they have
    MindSpore's name for unknown ones."""
    count = max((len(step.exchanges) for step in analysis.steps), default=0)
    names = [operator.short for operator in _exchange_operators(analysis)]
    names = names if len(names) == count else ["parallel"] * count
    columns = [f"stream_0_{i}_{name}" for i, name in enumerate(names)]
    return [column + end for column in columns for end in ("", "_start_point", "_end_point")]


def _exchange_operators(analysis: Analysis) -> list[ProfiledOperator]:
    return [operator for operator in analysis.record.operators.values() if operator.part == "aggregation"]


def _exchange_ticks(step: StepRow) -> Iterator[int]:
    for start, stop in step.exchanges:
        yield from (stop // TICK - start // TICK, start // TICK, stop // TICK)


def _how(measured: int, steps: int, sunk: bool) -> str:
    text = "The beginning and the end of every call to the device are measured with the clock of the host. "
    if sunk:
        text += "A call holds many steps: those that are not in measured_steps have equal shares of its time. "
    text += f"The points fp and bp were seen in the {measured} steps of measured_steps, whose operators were timed"
    rest = "; in the other steps they are placed where they lie in those, as a share of the time on the device (median)"
    text += rest if measured < steps else ""
    return text + (
        ". The averages leave out warm_up_steps: in these, sessions are prepared and make their first call, which"
        " allocates memory, or the profile starts."
    )


# `minddata_pipeline_raw_{d}.csv` and `pipeline_profiling_{d}.json`: the operators of the data
# pipeline, their queues, and whether the run waits for data.

PIPELINE_COLUMNS = (
    *("op_id", "op_type", "num_workers", "output_queue_size", "output_queue_average_size", "output_queue_length"),
    *("output_queue_usage_rate", "sample_interval", "parent_id", "children_id"),
)


def pipeline_table(analysis: Analysis, stages: Sequence[Stage]) -> str:
    """The CSV table: a row for each operator, number 0 is the last one.

    The size of a queue is sampled whenever the training requests a batch. Only the last operator has a queue, and only
    where threads prepare batches ahead; the others pass their rows on directly.
    """
    rows = []
    sizes = analysis.record.queue_sizes
    for number, stage in enumerate(stages):
        queue: tuple[object, ...] = ("", "", "", "")
        if stage.queue is not None and sizes:
            mean = sum(sizes) / len(sizes)
            queue = (json.dumps(sizes), f"{mean:.2f}", stage.queue, f"{mean / stage.queue:.4f}")
        parent = "" if number == 0 else number - 1
        children = json.dumps([number + 1] if number + 1 < len(stages) else [])
        rows.append((number, stage.kind, stage.workers, *queue, _interval(analysis), parent, children))
    return csv_text([PIPELINE_COLUMNS, *rows])


def pipeline_content(analysis: Analysis, stages: Sequence[Stage]) -> dict[str, Any]:
    """The content of the JSON file: the same, the time of each operator, and the sentence."""
    listed = []
    for number, stage in enumerate(stages):
        one: dict[str, Any] = {
            "op_id": number,
            "op_type": stage.kind,
            "what": stage.detail,
            "num_workers": stage.workers,
        }
        metrics: dict[str, Any] = {}
        if stage.queue is not None:
            metrics["output_queue"] = {"size": analysis.record.queue_sizes, "length": stage.queue}
        if stage.microseconds is not None:
            metrics["time_us_per_batch"] = round(stage.microseconds, 3)
        listed.append(one | {"metrics": metrics or None, "children": [number + 1][: len(stages) - 1 - number] or None})
    waited = sum(call.waited for call in analysis.record.calls)
    return {
        "sampling_interval": _interval(analysis),
        "sampling": "the queue was sampled when a batch was requested; the interval is the mean, in milliseconds",
        "time_us_per_batch": "measured after the training, each operator alone",
        "waited_ms": round(waited / 1e6, 3),
        "waited_share": round(waiting_share(analysis), 5),
        "sentence": sentence(analysis),
        "op_info": listed,
    }


def _interval(analysis: Analysis) -> float:
    calls = analysis.record.calls
    if len(calls) < 2:
        return 0.0
    return round((calls[-1].start - calls[0].start) / (len(calls) - 1) / 1e6, 3)


# Tables: `{device}_op_detail_info_{d}.csv`, `{device}_op_type_info_{d}.csv`, `framework_raw_{d}.csv`. Their columns are
# those of MindSpore for CPU operators, on every device.

DETAIL = (
    *("op_side", "op_type", "op_name", "full_op_name", "op_occurrences", "op_total_time(ms)", "op_avg_time(ms)"),
    *("total_proportion", "subgraph", "pid"),
)
TYPES = (
    *("op_type", "type_occurrences", "execution_frequency(per-step)", "total_compute_time", "avg_time(ms)", "percent"),
)
FRAMEWORK = ("task_id", "stream_id", "block_dim", "full_op_name", "op_name", "op_type", "subgraph", "op_info")
MS = 1e6


def operator_table(analysis: Analysis, target: ProfileTarget) -> str:
    """A row for each operator, the longest first: times in milliseconds, `total_proportion` the share of all operators
    (0 to 1).
    """
    whole = sum(times.total for times in analysis.operator_times) or 1.0
    side = "HostCpu" if target.device == "cpu" else "Device"
    rows = [
        (
            side,
            times.kind,
            times.name.rpartition("/")[2],
            times.name,
            len(times.times),
            f"{times.total / MS:.6f}",
            f"{times.mean / MS:.6f}",
            f"{times.total / whole:.6f}",
            times.name.partition("/")[0],
            os.getpid(),
        )
        for times in analysis.longest_first
    ]
    return csv_text([DETAIL, *rows])


def type_table(analysis: Analysis) -> str:
    """A row for each type, the longest first; `percent` is its share in percent."""
    groups: dict[str, list[OperatorTimes]] = defaultdict(list)
    for times in analysis.operator_times:
        groups[times.kind].append(times)
    whole = sum(times.total for times in analysis.operator_times) or 1.0
    rows = []
    for kind, group in sorted(groups.items(), key=lambda item: -sum(t.total for t in item[1])):
        total, count = sum(t.total for t in group), sum(len(t.times) for t in group)
        average = total / max(1, count) / MS
        percent = f"{total / whole * 100:.4f}"
        rows.append((kind, count, len(group), f"{total / MS:.6f}", f"{average:.6f}", percent))
    return csv_text([TYPES, *rows])


def framework_table(analysis: Analysis) -> str:
    """A row for each operator in the order of the graph: operands, results and cost.

    Figures without a column in MindSpore (operations, bytes, operators with shared nodes) are in the JSON of
    `op_info`.
    """
    rows = []
    for number, times in enumerate(t for t in analysis.operator_times if t.operator):
        operator = times.operator
        assert operator is not None
        info = json.dumps(_info(operator, times), separators=(",", ":"))
        names = operator.name, operator.short, operator.kind, operator.subgraph
        rows.append((number, 0, analysis.record.threads, *names, info))
    return csv_text([FRAMEWORK, *rows])


def _info(operator: ProfiledOperator, times: OperatorTimes) -> dict[str, Any]:
    sides = (("input", operator.inputs), ("output", operator.outputs))
    info: dict[str, Any] = {f"{side}_{k}": _value(x) for side, values in sides for k, x in enumerate(values)}
    info |= {**operator.cost._asdict(), "part": operator.part}
    if times.shared_with:
        info["shares_nodes_with"] = list(times.shared_with)
    if not times.total:
        info["note"] = "no time of its own: " + (
            "see shares_nodes_with" if times.shared_with else "nothing is executed"
        )
    return info


def _value(x: TensorType) -> dict[str, str]:
    """A value in the form of MindSpore."""
    kind, shape = f"NUMBER_TYPE_{x.dtype.numpy.name.upper()}", ",".join(map(str, x.shape))
    return {"format": "NCHW" if x.ndim == 4 else "DefaultFormat", "data_type": kind, "shape": shape}


# `ai_core_metrics_{d}.json`: the requested hardware metric.

PRODUCTS = {"MatMul", "BatchMatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
ABOVE = (
    "above 1, so no share of the peak: the operator makes fewer operations or moves fewer bytes than counted (views,"
    " transforms, values in caches), or its kernel is faster than what the peak was measured by"
)
FROM_PEAK = {"ArithmeticUtilization", "PipeUtilization"}  # relative to the peak of the machine, not from counters


def hardware_metrics(analysis: Analysis, metric: str, peak: Peak | None) -> dict[str, Any]:
    """The content of the file. `peak` is required for the metrics in `FROM_PEAK`.

    ArithmeticUtilization    operations per second of each operator, relative to the measured peak of the machine
    PipeUtilization          the minimum times for its operations and for its bytes, relative to its measured time
                             (a roofline of measured peak and bandwidth, that of caches for few bytes); `bound` names
                             the longer one, unless one is above 1
    Memory, MemoryL0,        counters of the processor, for whole steps; those that the kernel does not permit are
    ResourceConflictRatio    listed with the reason and have no values
    """
    if metric in COUNTERS:
        return {"ai_core_metrics": metric, **_counted(analysis, metric)}
    assert peak is not None
    row = _arithmetic if metric == "ArithmeticUtilization" else _pipe
    return {
        "ai_core_metrics": metric,
        "peak_gflops_per_second": round(peak.flops / 1e9, 3),
        "peak_gbytes_per_second": round(peak.bytes / 1e9, 3),
        "peak_gbytes_per_second_in_caches": round(peak.cached / 1e9, 3),
        "peak_measured_by": f"the best of {REPEATS} float32 products of {SIZE} x {SIZE}, and of as many copies",
        "operators": [
            {"full_op_name": t.name, "op_type": t.kind, "time_us": round(t.median / 1e3, 3), **row(t, t.operator, peak)}
            for t in analysis.longest_first
            if t.operator is not None and t.median > 0
        ],
    }


def _arithmetic(times: OperatorTimes, operator: ProfiledOperator, peak: Peak) -> dict[str, Any]:
    """`mac_fp32_ratio` of products and convolutions, `vec_fp32_ratio` of all other operators."""
    speed = operator.cost.flops / times.median * 1e9
    name = "mac_fp32_ratio" if operator.kind in PRODUCTS else "vec_fp32_ratio"
    row = {"flops": operator.cost.flops, "gflops_per_second": round(speed / 1e9, 4)}
    ratio = round(speed / peak.flops, 5)
    return row | {name: ratio, **_above(ratio), **_shared(times)}


def _pipe(times: OperatorTimes, operator: ProfiledOperator, peak: Peak) -> dict[str, Any]:
    rate = peak.cached if operator.cost.bytes <= CACHED else peak.bytes
    compute = round(operator.cost.flops / peak.flops * 1e9 / times.median, 5)
    move = round(operator.cost.bytes / rate * 1e9 / times.median, 5)
    row: dict[str, Any] = {**operator.cost._asdict(), "compute_ratio": compute, "move_ratio": move}
    bound = _above(max(compute, move)) or {"bound": "compute" if compute > move else "data movement"}
    return row | bound | _shared(times)


def _above(ratio: float) -> dict[str, Any]:
    """What a ratio above 1 means: it is no share of anything, and says nothing about what bounds the operator."""
    return {"note": ABOVE} if ratio > 1 else {}


def _shared(times: OperatorTimes) -> dict[str, Any]:
    """A node that implements several operators counts for the first one, so the ratio is that of all of them."""
    return {"shares_nodes_with": list(times.shared_with)} if times.shared_with else {}


def _counted(analysis: Analysis, metric: str) -> dict[str, Any]:
    record = analysis.record
    steps = max(1, sum(call.steps for call in record.calls))
    seconds = sum(call.stop - call.start for call in record.calls) / 1e9
    per_step = {name: round(count / steps, 1) for name, count in record.counters.items()}
    content: dict[str, Any] = {"counted_per_step": per_step, "missing": record.missing_counters}
    for counter in COUNTERS[metric]:
        if counter.bytes and counter.name in record.counters and seconds:
            rate = record.counters[counter.name] * counter.bytes / seconds
            content[f"{counter.name}_bw_gbytes_per_second"] = rate / 1e9
    cycles = record.counters.get("cycles")
    for name in ("stalled_cycles_frontend", "stalled_cycles_backend"):
        if cycles and name in record.counters:
            content[f"{name}_ratio"] = record.counters[name] / cycles
    content["note"] = (
        "counters of the processor count for all threads of the process, so for steps and not for operators"
    )
    return content


# The summary of a profiled training on the console: its step, the largest operators, and one recommendation.

TOP = 10


def lines(figures: ProfileFigures) -> Iterator[str]:
    """The summary, line by line."""
    whole = figures.step or 1.0
    samples = figures.spread.samples
    spread = f" (quartiles of {samples}: {_quartiles(figures.spread)})" if samples > 1 else ""
    timed = f"operators were timed in {figures.timed} of them"
    yield f"{figures.title}: {figures.steps} steps, {figures.step / 1e6:.3f} ms each{spread}; {timed}"
    for name, part in figures.parts.items():
        yield f"  {name:22} {part.value / 1e6:10.3f} ms  {part.value / whole:6.1%}  {_spread(part)}"
    if figures.ranked:
        yield f"largest of {figures.operators} operators, with the quartiles of {figures.timed} steps:"
    for one in figures.ranked[:TOP]:
        time = one.operator.distribution
        figure = f"{time.value / 1e6:10.3f} ms  {time.value / whole:6.1%}  {_quartiles(time)}"
        yield f"  {one.places:>5} {figure}  {_name(one)}"
    yield from figures.sentences
    yield from (f"note: {note}" for note in figures.notes)
    yield f"next: {figures.next}"


def _spread(time: Distribution) -> str:
    """The kind of average with the number of samples, and the quartiles."""
    if time.samples < 2:
        return "one sample"
    return f"{'mean' if time.is_mean else 'median'} of {time.samples}, quartiles {_quartiles(time)}"


def _quartiles(time: Distribution) -> str:
    return f"{time.low / 1e6:.3f} to {time.high / 1e6:.3f} ms"


def _name(one: RankedOperator) -> str:
    others = [name.rpartition("/")[2] for name in one.operator.shared_with]
    return one.label + (f" (with parts of {', '.join(others[:3])})" if others else "")


# All files.


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
    point_info = f"step_trace_point_info{f'_{d}' if target.rank else ''}.json"  # MindSpore has no number here
    _remove_earlier(folder, d, point_info)
    if settings.task_trace:
        write_atomically(folder / f"{device}_op_detail_info_{d}.csv", operator_table(analysis, target))
        write_atomically(folder / f"{device}_op_type_info_{d}.csv", type_table(analysis))
        write_atomically(folder / f"framework_raw_{d}.csv", framework_table(analysis))
    if settings.ai_core_metrics:
        needed = settings.ai_core_metrics in FROM_PEAK
        measured = measure_peak(record.threads) if needed else None
        write_json(folder / f"ai_core_metrics_{d}.json", hardware_metrics(analysis, settings.ai_core_metrics, measured))
    if settings.aicpu_trace:
        write_atomically(folder / f"minddata_pipeline_raw_{d}.csv", pipeline_table(analysis, stages))
        write_json(folder / f"pipeline_profiling_{d}.json", pipeline_content(analysis, stages))
    # The timeline is not indented: it may have 100000 events.
    trace = json.dumps(events(analysis, target), separators=(",", ":"), allow_nan=False)
    write_atomically(folder / f"{device}_timeline_display_{d}.json", trace)
    if settings.training_trace:
        write_atomically(folder / f"step_trace_raw_{d}_detail_time.csv", step_trace_table(analysis))
        write_json(folder / point_info, step_trace_points(analysis))
    found = figures(analysis, target)
    write_json(folder / f"profile_summary_{d}.json", found.as_json())
    return [] if target.rank else list(lines(found))


def _remove_earlier(folder: Path, number: int, point_info: str) -> None:
    """Remove the profile of an earlier training in this folder, which may have other tables."""
    with storage_errors("cannot remove an earlier profile", folder):
        for name in names(folder):
            numbered = re.search(rf"_{number}(_detail_time)?\.(csv|json)$", name)
            if name == point_info or (numbered and any(fnmatch(name, pattern) for pattern in FILES)):
                remove(folder / name)
