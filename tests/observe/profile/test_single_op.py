"""`op_trace`: what a text asks for, and an operator alone in both modes."""

import numpy as np
import pytest
from profile_training import data_of, model_of

from runner import dtype as dt, ops
from runner.device import Device
from runner.errors import ConfigError
from runner.observe.profile.single_op import TimingStatistics, lines, measure_time, report
from runner.train.profile.profiler import find_operator, measure_in_both_modes

CONV = "Default/network-WithLossCell/_backbone-LeNet5/conv2-Conv2d/Conv2D-op3"


def parsed(text):
    return find_operator(text, model_of("lenet", "graph").train_network, data_of("lenet").column_types())


@pytest.mark.parametrize(
    ("text", "op", "shapes"),
    [
        ("MatMul(32x400,400x120)", ops.MatMul(), [(32, 400), (400, 120)]),
        (" MatMul ( 4x3 , 2x3 ; transpose_b=True )", ops.MatMul(transpose_b=True), [(4, 3), (2, 3)]),
        ("Conv2D(8x1x6x6,2x1x3x3; out_channel=2, kernel_size=3)", ops.Conv2D(2, 3), [(8, 1, 6, 6), (2, 1, 3, 3)]),
        ("Neg(:float32)", ops.Neg(), [()]),
        ("Transpose(2x3; perm=(1,0))", ops.Transpose((1, 0)), [(2, 3)]),
    ],
)
def test_types_with_shapes(text, op, shapes):
    found = parsed(text)
    assert found.op == op
    assert [x.shape for x in found.inputs] == shapes
    assert all(x.dtype is dt.float32 for x in found.inputs)


def test_element_types():
    found = parsed("Gather(9x4,5:int32; axis=0)")
    assert list(map(str, found.inputs)) == ["Float32[9, 4]", "Int32[5]"]
    assert str(found.outputs[0]) == "Float32[5, 4]"
    assert [x.dtype for x in found.operands()] == [np.float32, np.int32]


@pytest.mark.parametrize("name", [CONV, CONV.replace("Default/", "Default/network-TrainOneStepCell/", 1)])
def test_a_full_name(name):
    found = parsed(name)
    assert found.name == CONV
    assert found.op.name == "Conv2D"
    assert [x.shape for x in found.inputs] == [(8, 6, 14, 14), (16, 6, 5, 5)]


@pytest.mark.parametrize(
    ("text", "what", "rows"),
    [
        ("MatMull(3x3,3x3)", "no operator has this type", {"nearest": "MatMul"}),
        ("MatMul(3x3,4x3)", "inner axes differ", {}),
        ("MatMul(3x3)", "", {}),
        ("MatMul(3xa,3x3)", "not a type of an operand", {"part": "3xa"}),
        ("MatMul(3x3:float31,3x3)", "not a type of an operand", {"part": "3x3:float31"}),
        ("MatMul(3x3,3x3; turned=True)", "no such attribute", {"allowed": "transpose_a, transpose_b"}),
        ("MatMul(3x3,3x3; transpose_a=exit())", "attributes are written name=value, with commas", {}),
        ("MatMul(3x3,3x3; 1)", "attributes are written name=value, with commas", {}),
        ("Conv2D(8x1x6x6,2x1x3x3)", "", {"value": "Conv2D(8x1x6x6,2x1x3x3)"}),
        ("Conv2D", "neither a full name nor a type with shapes", {"nearest": "Conv2D"}),
        (CONV + "7", "no operator of the training step has this name", {"nearest": CONV}),
    ],
)
def test_errors_name_the_faulty_part(text, what, rows):
    with pytest.raises(ConfigError) as error:
        parsed(text)
    assert what in error.value.what
    assert error.value.rows["key"] == "op_trace"
    assert error.value.rows["value"] == text
    assert {name: error.value.rows[name] for name in rows} == rows


def test_both_modes_compute_it():
    found = parsed("MatMul(64x80,80x48)")
    timings = measure_in_both_modes(found, Device(threads=1))
    assert set(timings) == {"graph", "pynative"}
    for timing in timings.values():
        assert 20 <= timing.runs <= 1000
        assert 0 < timing.min <= timing.p10 <= timing.median <= timing.p90
    written = report(found, timings)
    assert written["flops"] == 2 * 64 * 80 * 48
    assert written["inputs"] == ["Float32[64, 80]", "Float32[80, 48]"]
    graph = written["time_us"]["graph"]
    assert graph["gflops_per_second"] == pytest.approx(written["flops"] / graph["median"] / 1e3, rel=0.01, abs=1e-3)
    assert len(list(lines(found, timings))) == 4


def test_figures():
    timing = TimingStatistics.of(list(range(1, 102)))
    assert (timing.runs, timing.median, timing.min) == (101, 51, 1)
    assert (timing.p10, timing.p90) == pytest.approx((10.2, 91.8))
    calls = []
    assert measure_time(lambda: calls.append(1)).runs == 1000
    assert len(calls) == 1005
