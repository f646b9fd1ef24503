"""Measures of the hardware: counters of the kernel, the peak of the machine, and what is said where there is none."""

import json
import threading
import time
from types import SimpleNamespace

import pytest
from profile_training import Training

from runner.observe.profile.files import hardware_metrics
from runner.observe.profile.record import COUNTERS, Cost, Counter, Counters, Peak, ProfileRecord, measure_peak
from runner.observe.profile.settings import METRICS

SOFTWARE = 1  # a perf_type_id
TASK_CLOCK = Counter("task_clock", SOFTWARE, 1)  # nanoseconds of processor time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_counter_of_the_kernel_counts_and_threads_count_too():
    counters = Counters((TASK_CLOCK,))
    if counters.missing:
        pytest.skip(counters.missing["task_clock"])
    before = counters.read()["task_clock"]
    spin(0.02)
    alone = counters.read()["task_clock"] - before
    threads = [threading.Thread(target=spin, args=(0.02,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spin(0.001)
    both = counters.read()["task_clock"] - before - alone
    assert 0.019e9 < alone < 0.2e9
    assert both > 0.038e9


def test_an_unknown_counter():
    counters = Counters((Counter("no_such", 77, 0),))
    assert counters.read() == {}
    assert "perf_event_open" in counters.missing["no_such"]


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_gives_figures_or_reasons(tmp_path, metric):
    training = Training(tmp_path, "graph", False, 6, ai_core_metrics=metric)
    found = json.loads((tmp_path / "ai_core_metrics_0.json").read_text())
    assert found["ai_core_metrics"] == metric
    if metric not in COUNTERS:
        assert len(found["operators"]) > 20
        return
    names = {counter.name for counter in COUNTERS[metric]}
    assert names == set(found["counted_per_step"]) | set(found["missing"])
    assert not set(found["counted_per_step"]) & set(found["missing"])
    said = [line for line in training.lines if line.startswith(f"note: ai_core_metrics={metric}: this machine")]
    assert len(said) == len(set(found["missing"].values()))
    for name, reason in found["missing"].items():
        assert any(name in line and line.endswith(reason) for line in said), "the console mentions what is missing"
    assert all("perf_event_open" in reason for reason in found["missing"].values())
    assert "operators" not in found


def test_products_are_measured_against_the_peak(tmp_path):
    training = Training(tmp_path, "pynative", False, 8, ai_core_metrics="ArithmeticUtilization")
    found = training.json("ai_core_metrics_0.json")
    for row in found["operators"]:
        product = row["op_type"] in ("MatMul", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput")
        ratio = row["mac_fp32_ratio" if product else "vec_fp32_ratio"]
        assert row["gflops_per_second"] == pytest.approx(row["flops"] / row["time_us"] / 1e3, rel=0.02, abs=1e-3)
        assert ratio == pytest.approx(row["gflops_per_second"] / found["peak_gflops_per_second"], rel=0.02, abs=1e-4)


def timed(kind: str, flops: int, moved: int, nanoseconds: float) -> SimpleNamespace:
    """An operator with this work in this time."""
    operator = SimpleNamespace(kind=kind, cost=Cost(flops, moved))
    return SimpleNamespace(name=f"Default/{kind}-op0", kind=kind, operator=operator, median=nanoseconds, shared_with=())


@pytest.mark.parametrize(
    ("operator", "metric", "ratios", "bound"),
    [
        (timed("MatMul", 1000, 10, 2000), "PipeUtilization", {"compute_ratio": 0.5, "move_ratio": 0.00125}, "compute"),
        (timed("Add", 10, 4 << 20, 8 << 20), "PipeUtilization", {"move_ratio": 0.5}, "data movement"),
        (timed("Reshape", 0, 4 << 20, 1 << 20), "PipeUtilization", {"move_ratio": 4.0}, None),
        (timed("Add", 10, 4000, 1000), "PipeUtilization", {"move_ratio": 1.0}, "data movement"),
        (timed("Conv2D", 3000, 10, 1000), "PipeUtilization", {"compute_ratio": 3.0}, None),
        (timed("Conv2D", 3000, 10, 1000), "ArithmeticUtilization", {"mac_fp32_ratio": 3.0}, None),
        (timed("Add", 500, 10, 1000), "ArithmeticUtilization", {"vec_fp32_ratio": 0.5}, None),
    ],
)
def test_a_ratio_above_1_has_a_note_and_no_bound(operator, metric, ratios, bound):
    """A peak of 1e9 operations, 1e9 bytes from memory, and 4e9 from caches."""
    analysis = SimpleNamespace(longest_first=[operator])
    (row,) = hardware_metrics(analysis, metric, Peak(1e9, 1e9, 4e9))["operators"]
    assert {name: row[name] for name in ratios} == ratios
    assert row.get("bound") == bound
    assert ("note" in row) == (max(ratios.values()) > 1)


def test_small_arrays_are_moved_at_least_as_fast_as_large_ones():
    peak = measure_peak(2)
    assert peak.cached >= peak.bytes


def test_the_peak_is_no_wish():
    peak = measure_peak(1)
    assert 1e9 < peak.flops < 1e14
    assert 1e8 < peak.bytes < 1e13


def test_counters_become_rates():
    """Cache lines of 64 bytes over the time of all calls; few machines let a process count them."""
    calls = [SimpleNamespace(start=0, stop=500_000, steps=3), SimpleNamespace(start=600_000, stop=1_100_000, steps=1)]
    record = ProfileRecord(0, calls=calls, missing_counters={"l2_write": "no"})
    record.counters = {"main_mem_read": 1000, "l2_read": 8, "cycles": 400, "stalled_cycles_backend": 100}
    memory = hardware_metrics(SimpleNamespace(record=record), "Memory", None)
    assert memory["counted_per_step"]["main_mem_read"] == 250
    assert memory["main_mem_read_bw_gbytes_per_second"] == pytest.approx(1000 * 64 / 1e-3 / 1e9)
    assert memory["l2_read_bw_gbytes_per_second"] == pytest.approx(8 * 64 / 1e-3 / 1e9)
    assert memory["missing"] == {"l2_write": "no"}
    conflicts = hardware_metrics(SimpleNamespace(record=record), "ResourceConflictRatio", None)
    assert conflicts["stalled_cycles_backend_ratio"] == 0.25


def test_metrics_that_are_missing_are_on_the_console_by_reason(tmp_path, monkeypatch):
    reasons = {"main_mem_read": "forbidden", "main_mem_write": "unknown", "l2_read": "forbidden"}
    counters = SimpleNamespace(missing=reasons, read=dict)
    monkeypatch.setattr("runner.observe.profile.record.Counters", lambda requested: counters)
    lines = Training(tmp_path, "pynative", False, 6, ai_core_metrics="Memory").lines
    prefix = "note: ai_core_metrics=Memory: this machine does not provide "
    assert [line.removeprefix(prefix) for line in lines if line.startswith(prefix)] == [
        "main_mem_read, l2_read: forbidden",
        "main_mem_write: unknown",
    ]
