"""Profiles of several ranks: a made-up world in one process, then real ranks by mpirun."""

import csv
import json
import re
import statistics
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ranks import Several, mpirun, needs_mpi

from runner import Model, context, nn, ops
from runner.communication import world
from runner.core.values import Parameter
from runner.dataset import NumpySlicesDataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.observe.profile import files
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.train.profile.profiler import TrainingProfiler

STEPS, TICKS = 20, 1e5  # of 10 ns in a millisecond
SLOW = 2.0  # milliseconds of an exchange
MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}


class Slowly(Several):
    """Two exchanges in a step, each of which takes two milliseconds at least."""

    def summed(self, arrays):
        time.sleep(SLOW / 1e3)
        return super().summed(arrays)

    def shared_arrays(self, arrays):
        self.told.append(f"share {len(arrays)}")
        return list(arrays)


class Line(nn.Cell):
    """loss = mean of (w x + b - y)^2."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(np.ones((3, 1), np.float32))
        self.b = Parameter(np.zeros(1, np.float32))

    def construct(self, x, y):
        return ops.ReduceMean()(ops.Square()(ops.MatMul()(x, self.w) + self.b - y))


def trained(mode, folder=None, **settings):
    """Parameters after 20 steps; of a profile the record and the lines of the summary."""
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, **settings)
    rows = np.random.default_rng(0).normal(size=(STEPS * 2, 4)).astype(np.float32)
    data = NumpySlicesDataset({"x": rows[:, :3], "y": rows[:, 3:]}).batch(2)
    net, said = Line(), []

    def written(record, data):
        place = ProfileTarget(mode, "cpu", world.world().rank, world.world().size)
        said.extend([record, files.write(record, profiled, place, stages(data))])

    model = Model(net, mode=MODES[mode], device=Device(threads=1))
    model.train_network = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    model.train_step = model._train_step()
    if folder is not None:
        profiled = ProfileSettings(folder, training_trace=True, task_trace=True)
        model.profiler = TrainingProfiler(profiled, written)
    model.train(1, data, dataset_sink_mode=False)
    return [p.array.tobytes() for p in net.trainable_params()], said


@pytest.fixture(scope="module", params=MODES)
def both(request, tmp_path_factory):
    """What a training gives and tells without a profile and with one, and the folder of that."""
    folder = tmp_path_factory.mktemp("profile")
    made, told = [], []
    with pytest.MonkeyPatch.context() as patch:
        for place in (None, folder):
            one = Slowly()
            patch.setattr(world.WORLD, "of_process", one)
            made.append(trained(request.param, place, parameter_broadcast=True))
            assert world.world() is one
            told.append(one.told)
            context.reset_auto_parallel_context()
    return made, told, folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_profile_changes_no_number_and_no_exchange(both):
    (plain, watched), told, _ = both
    assert plain[0] == watched[0]
    assert told[0] == told[1]
    assert Counter(told[1])["sum 2"] == STEPS  # gradients
    assert [k for k, one in enumerate(told[1]) if one.startswith("share")] == [0]  # parameters, before the first step


def test_a_rank_writes_its_own_files_and_tells_nothing(both):
    (_, (_, (_, lines))), _, folder = both
    assert lines == []
    assert {path.name for path in folder.iterdir()} == {
        *("cpu_op_detail_info_1.csv", "cpu_op_type_info_1.csv", "cpu_timeline_display_1.json", "framework_raw_1.csv"),
        *("profile_summary_1.json", "step_trace_point_info_1.json", "step_trace_raw_1_detail_time.csv"),
    }


def test_the_step_trace_has_the_exchanges(both):
    *steps, average = table(both[2] / "step_trace_raw_1_detail_time.csv")
    names = [name for name in average if re.fullmatch(r"stream_0_\d_AllReduce-op\d+", name)]
    assert [name[:10] for name in names] == ["stream_0_0", "stream_0_1"]
    assert list(average)[9:] == [name + end for name in names for end in ("", "_start_point", "_end_point")]
    for row in steps:
        at = [int(row[column]) for column in ("start_point", "fp_point", "bp_point")]
        for name in names:
            at += [int(row[f"{name}_start_point"]), int(row[f"{name}_end_point"])]
            assert int(row[name]) == at[-1] - at[-2] >= SLOW * TICKS
        at.append(int(row["end_point"]))
        assert at == sorted(at) or at[3] - at[2] > -200  # onnxruntime's clock counts microseconds
    assert len(steps) == STEPS


def test_the_parts_and_operators_have_the_exchanges(both):
    (_, (_, (record, _))), _, folder = both
    info = json.loads((folder / "step_trace_point_info_1.json").read_text())
    sums = [(call.profiled, sum(stop - start for start, stop in call.exchanges)) for call in record.calls]
    plain, profiled = [ns for timed, ns in sums[1:] if not timed], [ns for timed, ns in sums if timed]
    counted = statistics.median(plain) / statistics.median(profiled)
    assert info["exchanges_counted"] == pytest.approx(counted, abs=1e-4)
    parts = info["parts_us_per_step"]
    # Every one takes two milliseconds at least, and is counted by this share: as in a step that is not profiled.
    assert parts["aggregation"] >= 2 * SLOW * 990 * counted
    assert parts["forward"] > 0 < parts["backward"]
    assert len(info["exchanges"]) == 2
    rows = {row["full_op_name"]: row for row in table(folder / "cpu_op_detail_info_1.csv")}
    for name in info["exchanges"]:
        assert rows[name]["op_type"] == "AllReduce"
        assert int(rows[name]["op_occurrences"]) == len(info["measured_steps"])
        assert float(rows[name]["op_avg_time(ms)"]) >= 0.99 * SLOW * counted
    totals = {name: float(row["op_total_time(ms)"]) for name, row in rows.items()}
    for name, row in rows.items():
        assert float(row["total_proportion"]) == pytest.approx(totals[name] / sum(totals.values()), abs=1e-3)
    kinds = {row["full_op_name"]: json.loads(row["op_info"]) for row in table(folder / "framework_raw_1.csv")}
    gradients = kinds[info["exchanges"][0]]
    assert (gradients["part"], gradients["flops"], gradients["bytes"]) == ("aggregation", 4, 2 * 4 * 4)


def test_a_profiled_step_has_all_parts_and_the_exchanges_between_them(both):
    (_, (_, (record, _))), _, _ = both
    assert record.profiled_steps
    assert {name.rpartition("/")[2].partition("-")[0] for name in record.operators} >= {"MatMul", "AllReduce", "SGD"}
    for step in record.profiled_steps:
        # What splits a batch, or adds the terms of its parts, is no operator of the network.
        names = [m.operators[0] for m in step.executions if m.operators]
        order = [record.operators[name].part for name in names if name in record.operators]
        first, last = order.index("aggregation"), len(order) - order[::-1].index("aggregation")
        assert set(order[:first]) >= {"forward", "backward"}
        assert "update" in order
        assert {*order[first:last]} <= {"aggregation", "update"}
        stops = [step.start, *(m.stop for m in step.executions)]
        assert all(m.start >= stop - 2000 for m, stop in zip(step.executions, stops, strict=False))
        assert step.executions[-1].stop <= step.stop + 2000


def test_the_timeline_has_the_exchanges(both):
    events = json.loads((both[2] / "cpu_timeline_display_1.json").read_text())
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    (process,) = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert process == "runner, rank 1 of 3"
    shown = Counter(tracks[e["tid"]] for e in events if e["ph"] == "X" and "xchange" in e["name"])
    assert shown == {"exchanges": 2 * STEPS}
    profiled = json.loads((both[2] / "step_trace_point_info_1.json").read_text())["measured_steps"]
    operators = Counter(e["args"]["step"] for e in events if e["ph"] == "X" and e["args"].get("type") == "AllReduce")
    assert operators == dict.fromkeys(profiled, 2)


LENET = (
    *("+experiment=lenet_seed", "parallel=data_parallel", "parallel.gradients_mean=true", "dataset_sink_mode=false"),
    *("callbacks=quiet", "eval.every=never", "max_steps=9"),
)
KINDS = (
    *("ai_core_metrics_{}.json", "cpu_op_detail_info_{}.csv", "cpu_op_type_info_{}.csv", "framework_raw_{}.csv"),
    *("cpu_timeline_display_{}.json", "minddata_pipeline_raw_{}.csv", "pipeline_profiling_{}.json"),
    "profile_summary_{}.json",
    "step_trace_raw_{}_detail_time.csv",
)


@needs_mpi
@pytest.mark.parametrize("mode", MODES)
def test_ranks_of_mpirun(tmp_path, mode):
    words = [*LENET, f"mode={mode}"]
    code, out, err = mpirun(2, "-m", "runner", *words, "profiling=trace", f"hydra.run.dir={tmp_path / 'watched'}")
    assert code == 0, err
    assert out.count("profile of rank 0 of 2: 9 steps, ") == out.count("profile") == 1
    assert "gradient aggregation" in out
    folder = tmp_path / "watched" / "profiling"
    assert {path.name for path in folder.iterdir()} == {
        *(kind.format(rank) for kind in KINDS for rank in (0, 1)),
        *("step_trace_point_info.json", "step_trace_point_info_1.json"),
    }
    for rank, name in enumerate(("step_trace_point_info.json", "step_trace_point_info_1.json")):
        info = json.loads((folder / name).read_text())
        assert info["parts_us_per_step"]["aggregation"] > 0
        rows = table(folder / f"cpu_op_detail_info_{rank}.csv")
        assert sorted(row["full_op_name"] for row in rows if row["op_type"] == "AllReduce") == sorted(info["exchanges"])
    assert mpirun(2, "-m", "runner", *words, f"hydra.run.dir={tmp_path / 'plain'}")[0] == 0
    for name in ("metrics.jsonl", "checkpoints/CKP-1_9/state.safetensors"):
        assert (tmp_path / "watched" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
