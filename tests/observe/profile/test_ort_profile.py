"""onnxruntime's profile: its text, and a real one of a session of a model that was made here."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.compile.session import Session
from runner.device import Device
from runner.observe.profile.record import EVENT_CAP, EXECUTE, RUN, read


def line(name, start, length, category="Node"):
    event = {"cat": category, "pid": 1, "tid": 1, "dur": length, "ts": start, "ph": "X", "name": name}
    return json.dumps(event, separators=(",", ":"))[:-1] + ',"args" : {"dur" : "9","ts" : 7,"name" : "x"}},'


def text(*lines):
    return "\n".join(["[", *lines, "]"])


NODE = "_kernel_time"
UNSUNK = text(
    line("session_initialization", 0, 5, "Session"),
    line(f"a{NODE}", 12, 3),
    line(f"b{NODE}", 16, 2),
    line("SequentialExecutor::Execute", 11, 8, "Session"),
    line("model_run", 10, 10, "Session"),
    line(f"a{NODE}", 32, 4),
    line(f"b{NODE}", 37, 1),
    line("SequentialExecutor::Execute", 31, 8, "Session"),
    line("model_run", 30, 12, "Session"),
)
SUNK = text(
    line(f"a{NODE}", 13, 3),
    line("SequentialExecutor::Execute", 12, 5, "Session"),
    line(f"a{NODE}", 21, 3),
    line("SequentialExecutor::Execute", 20, 5, "Session"),
    line(f"sink{NODE}", 11, 18),
    line("SequentialExecutor::Execute", 10, 20, "Session"),
    line("model_run", 9, 22, "Session"),
)


def test_calls_and_their_nodes():
    profile = read(UNSUNK.splitlines(), sunk=False)
    assert not profile.full
    assert [(run.start, run.stop) for run in profile.runs] == [(10, 20), (30, 42)]
    nodes = [[(e.name, e.start, e.stop) for step in run.steps for e in step.nodes] for run in profile.runs]
    assert nodes == [[("a", 12, 15), ("b", 16, 18)], [("a", 32, 36), ("b", 37, 38)]]
    assert [(step.start, step.stop) for run in profile.runs for step in run.steps] == [(10, 20), (30, 42)]


def test_the_steps_of_a_sink_fill_the_call_and_have_no_scan():
    (run,) = read(SUNK.splitlines(), sunk=True).runs
    assert [(step.start, step.stop) for step in run.steps] == [(9, 20), (20, 31)]
    assert [[(e.name, e.start) for e in step.nodes] for step in run.steps] == [[("a", 13)], [("a", 21)]]


def test_the_cap_is_noticed():
    lines = UNSUNK.splitlines()[1:-1]
    cut = text(*lines[:6])  # the second call is not whole
    assert len(read(cut.splitlines(), sunk=False, cap=6).runs) == 1
    assert read(cut.splitlines(), sunk=False, cap=6).full
    assert not read(cut.splitlines(), sunk=False, cap=7).full
    assert EVENT_CAP == 1_000_000


def test_a_session_of_onnxruntime(tmp_path):
    """A chain of 7 nodes: each is there once in every call, in order, inside of the call."""
    nodes = [helper.make_node("Neg", [f"v{k}"], [f"v{k + 1}"], name=f"node{k}") for k in range(7)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("v0", "v7")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    session = Session(model.SerializeToString(), Device(threads=1), optimize=False, profile=tmp_path / "p")
    for _ in range(3):
        session.run({"v0": np.ones(64, np.float32)})
    path = Path(session.end_profile())
    assert path.parent == tmp_path
    profile = read(path.read_text().splitlines(), sunk=False)
    assert len(profile.runs) == 3
    for run in profile.runs:
        (step,) = run.steps
        assert [e.name for e in step.nodes] == [f"node{k}" for k in range(7)]
        assert all(run.start <= e.start and e.stop <= run.stop + 1 for e in step.nodes)  # cut to microseconds


def test_an_execution_that_seems_to_end_after_its_call():
    """398 + 25 and 399 + 25, as onnxruntime wrote them: both times and both durations are cut to microseconds."""
    kinds = ("Node", "a_kernel_time", 400, 20), ("Session", EXECUTE, 399, 25), ("Session", RUN, 398, 25)
    lines = [
        f'{{"cat" : "{cat}","dur" :{length},"ts" :{start},"ph" : "X","name" :"{name}","args" : {{}}}},'
        for cat, name, start, length in kinds
    ]
    (run,) = read(lines, sunk=False).runs
    (step,) = run.steps
    assert (step.start, step.stop, [node.name for node in step.nodes]) == (398, 423, ["a"])


@pytest.mark.parametrize("content", ["", "[\n]\n", "[\n"])
def test_an_empty_profile(content):
    assert read(content.splitlines(), sunk=True).runs == []
