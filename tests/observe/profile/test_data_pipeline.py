"""The data of a profiled training: operators, queues and waits, against pipelines that are known to be slow or not."""

import csv
import json
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from profile_training import BATCH, WAYS, Training, model_of, train

from runner import dtype
from runner.dataset import NumpySlicesDataset
from runner.dataset.stages import stages
from runner.dataset.transforms.transform import Transform
from runner.observe.profile import files
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.train.profile.profiler import TrainingProfiler

COLUMNS = "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length"
COLUMNS += ",output_queue_usage_rate,sample_interval,parent_id,children_id"
SLOW = 0.05


class Clock:
    """`time` for the profiler: it counts what this process computes and what it says that it slept, and not what
    others do on the machine meanwhile.
    """

    slept = 0.0

    def perf_counter_ns(self):
        return time.process_time_ns() + round(self.slept * 1e9)


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    for module in ("observe.profile.record", "dataset.stages", "core.recorder", "compile.profiled_session"):
        monkeypatch.setattr(f"runner.{module}.time", CLOCK)


class Slow(Transform):
    """A user's transform that takes its time."""

    def infer(self, sample):
        return sample.with_dtype(dtype.float32)

    def __call__(self, batch):
        CLOCK.slept += SLOW
        return batch.astype(np.float32)


def pipeline(transforms, workers):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4 * BATCH, 1, 32, 32)).astype(np.float16)  # `Slow` changes the type: it is not cached
    data = NumpySlicesDataset((images, rng.integers(0, 10, 4 * BATCH, np.int32)))
    data = data.map(transforms) if transforms else data
    return data.shuffle(8).batch(BATCH, num_parallel_workers=workers)


def profiled(folder, data, mode="graph", sunk=False):
    settings = ProfileSettings(folder, True, aicpu_trace=True)
    lines = []
    model = model_of("lenet", mode)
    place = ProfileTarget(mode, "cpu")
    model.profiler = TrainingProfiler(
        settings, lambda record, d: lines.extend(files.write(record, settings, place, stages(d)))
    )
    train(model, data, sunk, 12)
    with open(folder / "minddata_pipeline_raw_0.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, json.loads((folder / "pipeline_profiling_0.json").read_text()), lines


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_slow_transform_is_found(tmp_path, mode):
    rows, whole, lines = profiled(tmp_path, pipeline([Slow()], None), mode)
    assert ",".join(rows[0]) == COLUMNS
    assert [row["op_type"] for row in rows] == ["Batch", "Map", "Shuffle", "Generator"]
    assert [row["op_id"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["parent_id"] for row in rows] == ["", "0", "1", "2"]
    assert [json.loads(row["children_id"]) for row in rows] == [[1], [2], [3], []]
    assert whole["waited_ms"] >= 12 * SLOW * 1e3
    took = {op["op_type"]: (op["metrics"] or {}).get("time_us_per_batch") for op in whole["op_info"]}
    assert took["Map"] >= SLOW * 1e6 > took["Generator"] > 0
    assert took["Shuffle"] is None
    assert "waits for data" in whole["sentence"]
    assert whole["sentence"] in lines
    assert whole["waited_share"] > 0.25
    assert lines[-1].startswith("next: dataset.num_parallel_workers")


def test_a_queue(tmp_path):
    rows, whole, _ = profiled(tmp_path, pipeline([Slow()], 2))
    sizes = json.loads(rows[0]["output_queue_size"])
    assert len(sizes) == 12
    assert rows[0]["output_queue_length"] == "4"
    assert rows[0]["num_workers"] == "2"
    assert all(0 <= size <= 4 for size in sizes)
    assert float(rows[0]["output_queue_average_size"]) == pytest.approx(sum(sizes) / 12, abs=0.01)
    assert float(rows[0]["output_queue_usage_rate"]) == pytest.approx(sum(sizes) / 12 / 4, abs=0.001)
    assert all(row["output_queue_size"] == "" for row in rows[1:])
    assert whole["op_info"][0]["metrics"]["output_queue"] == {"size": sizes, "length": 4}
    assert whole["op_info"][0]["children"] == [1]
    assert whole["op_info"][-1]["children"] is None


class Unready:
    """An executor whose work is never done before its result is needed."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, work, *arguments):
        return SimpleNamespace(result=lambda: work(*arguments), done=lambda: False)


def test_a_sink_that_is_fed(tmp_path, monkeypatch):
    monkeypatch.setattr("runner.train.sink.ThreadPoolExecutor", Unready)
    _, whole, _ = profiled(tmp_path, pipeline([Slow()], None), sunk=True)
    assert whole["waited_ms"] > SLOW * 1e3
    assert "waits for data" in whole["sentence"]


@pytest.mark.parametrize(("mode", "sunk"), WAYS)
def test_data_that_lie_ready(tmp_path, mode, sunk):
    training = Training(tmp_path, mode, sunk, 12)
    rows = training.table("minddata_pipeline_raw_0.csv")
    assert [row["op_type"] for row in rows] == ["Batch", "Generator"]
    calls = training.records[0].calls[1:]  # the first step warms up
    waited = sum(call.waited for call in calls) / sum(call.steps for call in calls) / 1e3
    parts = training.json("step_trace_point_info.json")["parts_us_per_step"]
    assert parts["data_preparation"] == pytest.approx(waited, abs=1e-3) or (sunk and parts["data_preparation"] > waited)
    share = parts["data_preparation"] / sum(parts.values())
    whole = training.json("pipeline_profiling_0.json")
    assert whole["waited_share"] == pytest.approx(share, abs=1e-5)
    (said,) = re.findall(r"[0-9.]+%", whole["sentence"])
    assert float(said[:-1]) == pytest.approx(share * 100, abs=0.06)
    (line,) = [line for line in training.lines if line.startswith("  data preparation ")]
    assert f" {said} " in line, "the console has one figure for both"
