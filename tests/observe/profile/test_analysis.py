"""Figures of a record that was made by hand: every number is computed here on paper."""

from pathlib import Path

import pytest

from runner import dtype as dt, ops
from runner.observe.profile import files
from runner.observe.profile.analysis import Analysis, sentence, waiting_share
from runner.observe.profile.record import (
    DeviceCall,
    NodeExecution,
    ProfiledOperator,
    ProfiledStep,
    ProfileRecord,
    with_parts,
)
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.types import TensorType

FORWARD, BACKWARD, UPDATE = "Default/a/Neg-op0", "Gradients/Default/a/gradNeg/Neg-op1", "Default/optimizer/Sub-op2"
STEPS = 7
X = TensorType(dt.float32, (2,))


def record():
    """Seven steps of 1000 ns, 100 ns of waiting before each and 50 ns of callbacks after it; step 3 was profiled, took
    1400 ns, and 800 ns of these in three nodes.
    """
    made = ProfileRecord(0)
    made.add_operators(
        with_parts(
            [
                ProfiledOperator(FORWARD, ops.Neg(), 0, (X,), (X,)),
                ProfiledOperator(BACKWARD, ops.Neg(), 1, (X,), (X,)),
                ProfiledOperator(UPDATE, ops.Sub(), 2, (X, X), (X,)),
            ]
        )
    )
    clock = 0
    for step in range(STEPS):
        length = 1400 if step == 3 else 1000
        made.calls.append(DeviceCall(step, 1, clock + 100, clock + 100 + length, 100, step == 3))
        clock += 100 + length + 50
    start = made.calls[3].start
    spans = (((FORWARD,), 100, 400), ((BACKWARD, UPDATE), 500, 900), ((UPDATE,), 1100, 1200))
    moments = [NodeExecution(names, "n", start + a, start + b) for names, a, b in spans]
    made.profiled_steps.append(ProfiledStep(3, start, start + 1400, moments))
    return made


SETTINGS = ProfileSettings(Path(), True, True)  # no file is written here


def analysis(settings):
    return Analysis(record(), settings)


def test_pauses_are_scaled_to_a_step_that_is_not_profiled():
    figures = analysis(SETTINGS)
    assert figures.unprofiled_step == 1000
    assert figures.profiled_step == 1400
    assert figures.pause_factor == pytest.approx((1000 - 800) / 600)
    assert sum(measure.total for measure in figures.operator_times) == pytest.approx(1000)
    by_name = {measure.name: measure.total for measure in figures.operator_times}
    # Pauses: 100 before the first, 100 before the second, 200 before the third and 200 after it.
    third = 1 / 3
    assert by_name == pytest.approx(
        {FORWARD: 300 + 100 * third, BACKWARD: 400 + 100 * third, UPDATE: 100 + 400 * third}
    )
    assert {m.name: m.shared_with for m in figures.operator_times} == {
        FORWARD: (),
        BACKWARD: (UPDATE,),
        UPDATE: (BACKWARD,),
    }


def test_the_parts_of_a_step():
    parts = {name: part.value for name, part in analysis(SETTINGS).parts.items()}
    assert parts["data_preparation"] == 100
    assert parts["callbacks_and_python"] == 50
    assert parts["aggregation"] == 0
    assert parts["forward"] + parts["backward"] + parts["update"] == pytest.approx(1000)
    assert parts["rest_of_the_device_call"] == pytest.approx(0)


def test_points_of_other_steps_are_placed_as_in_the_profiled_step():
    rows = analysis(SETTINGS).steps
    assert [row.measured for row in rows] == [step == 3 for step in range(STEPS)]
    assert (rows[0].start, rows[0].stop) == (0, 1100)
    assert rows[0].fp == 100 + round(1000 * 100 / 1400)
    assert rows[0].bp == 100 + round(1000 * 900 / 1400)
    assert (rows[1].start, rows[1].stop) == (1100, 2250)
    profiled = rows[3]
    assert profiled.fp == profiled.stop - 1400 + 100
    assert profiled.bp == profiled.stop - 1400 + 900


def test_the_steps_of_a_sink_have_equal_shares():
    made = ProfileRecord(0)
    made.calls = [DeviceCall(0, 4, 1000, 5000, 0, False)]
    rows = Analysis(made, SETTINGS).steps
    assert [row.stop for row in rows] == [2000, 3000, 4000, 5000]
    assert all(row.fp is None for row in rows)
    assert files.step_trace_table(Analysis(made, SETTINGS)).count("\n") == 1  # nothing is known of the borders


def test_exchanges_count_as_long_as_in_steps_that_are_not_profiled():
    made = record()
    sums = ProfiledOperator("Default/AllReduce-op3", ops.AllReduce(), 3, (X,), (X,))
    made.add_operators(with_parts([sums]))
    made.calls = [c._replace(exchanges=((c.stop - (300 if c.profiled else 60), c.stop),)) for c in made.calls]
    (look,) = made.profiled_steps
    made.profiled_steps = [
        look._replace(executions=[*look.executions[:2], NodeExecution((sums.name,), "", look.stop - 300, look.stop)])
    ]
    figures = Analysis(made, SETTINGS)
    assert figures.exchange_factor == 60 / 300
    # Nodes take 300 and 400 of 1000 ns, the exchange 60; 400 ns of pauses count as the 240 that are left.
    assert figures.pause_factor == pytest.approx(240 / 400)
    assert figures.parts["aggregation"].value == pytest.approx(60 + 200 * 240 / 400)
    assert sum(measure.total for measure in figures.operator_times) == pytest.approx(1000)
    rows = files.step_trace_table(figures).splitlines()
    assert rows[0].endswith(
        "tail,stream_0_0_AllReduce-op3,stream_0_0_AllReduce-op3_start_point,stream_0_0_AllReduce-op3_end_point"
    )
    assert rows[1].endswith(",6,104,110")
    # fp and bp lie 100 and 900 ns after the beginning of 1100 until the exchange, so in the others of 940.
    assert figures.steps[0].fp == 100 + round(940 * 100 / 1100)
    assert figures.steps[0].bp == 100 + round(940 * 900 / 1100)


def test_inference_has_no_backward_columns():
    made = record()
    made.operators = {FORWARD: made.operators[FORWARD]}
    text = files.step_trace_table(Analysis(made, SETTINGS)).splitlines()
    assert text[0] == "step_num,start_point,end_point,total,fp_point,iteration_interval,fp"
    number, start, end, total, fp, interval, forward = map(int, text[4].split(","))
    assert (number, total, interval + forward) == (4, end - start, total)
    assert start < fp < end


def test_ticks():
    rows = files.step_trace_table(analysis(SETTINGS)).splitlines()
    assert rows[1].startswith("1,0,110,110,17,")  # 171 ns after the beginning: 17 ticks
    assert rows[-1].startswith("-,")


def test_a_point_that_the_compiler_has_merged_is_a_remark():
    settings = ProfileSettings(Path(), True, True, fp_point="Default/a/Gone-op7", bp_point=UPDATE)
    figures = Analysis(record(), settings)
    assert figures.points == (FORWARD, UPDATE)
    assert "fp_point Default/a/Gone-op7 is not executed" in figures.record.remarks[0]


def test_types_and_details_on_paper():
    figures = analysis(SETTINGS)
    rows = files.type_table(figures).splitlines()
    assert rows[1].startswith("Neg,2,2,0.000767,")  # (333.3 + 433.3) ns
    assert rows[2].startswith("Sub,1,1,0.000233,")
    first = files.operator_table(figures, ProfileTarget("graph", "gpu")).splitlines()[1].split(",")
    assert first[:5] == ["Device", "Neg", "Neg-op1", BACKWARD, "1"]


@pytest.mark.parametrize(
    ("waited", "said"),
    [(0, "does not wait for data: 0.0%"), (100, "sometimes waits for data: 9.1%"), (1000, "waits for data: 50.0%")],
)
def test_waiting_for_data(waited, said):
    made = ProfileRecord(0)
    made.calls = [
        DeviceCall(k, 1, k * (1000 + waited) + waited, (k + 1) * (1000 + waited), waited, False) for k in range(4)
    ]
    figures = Analysis(made, SETTINGS)
    assert waiting_share(figures) == pytest.approx(waited / (1000 + waited))
    assert sentence(figures) == f"The run {said} of its time."


def test_nothing_was_made():
    figures = Analysis(ProfileRecord(0), SETTINGS)
    assert figures.steps == []
    assert figures.operator_times == []
    assert figures.parts == {}
    assert "does not wait" in sentence(figures)
