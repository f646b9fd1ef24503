"""Which operators are ranked, and what is recommended: records made by hand, whose times are known."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tables import table

from runner import dtype as dt, ops
from runner.observe.profile.analysis import Analysis, advice, figures, ranking, remark
from runner.observe.profile.files import lines
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

X = TensorType(dt.float32, (2,))
TIMED = ProfileSettings(Path(), True, True)
MS = 1_000_000


def record(times, waited=0, callbacks=0, pause=0):
    """Steps whose operators take these times in ns, (steps, operators), after five that are not timed."""
    times = np.asarray(times)
    names = [f"Default/Neg-op{k}" for k in range(times.shape[1])]
    made = ProfileRecord(0)
    made.add_operators(with_parts([ProfiledOperator(n, ops.Neg(), k, (X,), (X,)) for k, n in enumerate(names)]))
    clock = 0
    for number, row in enumerate([times[0]] * 5 + [*times]):
        moments = np.cumsum([0, *(row + pause)]) + clock + waited
        start, stop = int(moments[0]), int(moments[-1])
        profiled = number >= 5
        made.add_call(DeviceCall(number, 1, start, stop, waited, profiled), lambda step: True)
        if profiled:
            nodes = [
                NodeExecution((n,), "", int(at), int(end) - pause)
                for n, (at, end) in zip(names, pairwise(moments), strict=True)
            ]
            made.profiled_steps.append(ProfiledStep(number, start, stop, nodes))
        clock = stop + callbacks
    return made


def places(times):
    return [(one.operator.name[-1], one.places) for one in ranking(Analysis(record(times), TIMED))]


def noisy(seed, medians, steps=5):
    """Times of a run: those of an operator differ by up to 10% from run to run, and by 2% from step to step; one in
    twenty is disturbed by another process.
    """
    rng = np.random.default_rng(seed)
    shape = steps, len(medians)
    own = np.asarray(medians) * rng.uniform(0.9, 1.1, len(medians)) * rng.normal(1, 0.02, shape)
    return (own * np.where(rng.random(shape) < 0.05, rng.uniform(1, 9, shape), 1)).astype(int)


def test_places():
    steady = np.tile([100, 1000, 950, 400, 390, 90], (5, 1))
    assert places(steady) == [("1", "1-2"), ("2", "1-2"), ("3", "3-4"), ("4", "3-4"), ("0", "5-6"), ("5", "5-6")]


@table("steps", [1, 2, 3, 4])
def test_few_steps_are_not_ranked(steps):
    figures_of_a_clear_case = Analysis(record(np.tile([1000, 10], (steps, 1))), TIMED)
    assert ranking(figures_of_a_clear_case) == []
    said = remark(figures_of_a_clear_case, [])
    assert said == (
        f"Operators are not ranked: they were timed in {steps} step{'s' * (steps > 1)}, and a ranking needs 5."
    )
    text = advice(figures_of_a_clear_case, ProfileTarget(), [])
    assert text == f"max_steps=7 or more: {steps} timed steps are too few for advice, 5 are needed"
    assert advice(figures_of_a_clear_case, ProfileTarget("pynative"), []) == text
    printed = "\n".join(lines(figures(figures_of_a_clear_case, ProfileTarget())))
    assert "largest" not in printed
    assert said in printed


def test_runs_that_name_one_operator_name_the_same_one():
    """Three operators of nearly equal time, in 300 runs: the first place is clear in none, or always that of one."""
    clear = set()
    for seed in range(300):
        first = [one for one in ranking(Analysis(record(noisy(seed, [1000, 990, 980, 500])), TIMED)) if one.first == 1]
        clear |= {first[0].operator.name} if len(first) == 1 else set()
    assert len(clear) <= 1


def test_a_clear_first_place_is_found():
    found = [ranking(Analysis(record(noisy(seed, [1000, 500, 400])), TIMED))[0] for seed in range(100)]
    clear = [one.operator.name for one in found if one.places == "1"]
    assert set(clear) == {"Default/Neg-op0"}
    assert len(clear) > 80


def test_a_clear_first_place_has_no_remark_and_its_name_in_the_advice():
    analysis = Analysis(record(np.tile([1000, 10], (5, 1))), TIMED)
    ranked = ranking(analysis)
    assert remark(analysis, ranked) is None
    assert advice(analysis, ProfileTarget(), ranked).endswith("99% of it in Default/Neg-op0")
    equal = Analysis(record(np.tile([1000, 990], (5, 1))), TIMED)
    assert advice(equal, ProfileTarget(), ranking(equal)).endswith("100% of it in the first 2 operators")
    assert remark(equal, ranking(equal)).startswith("The first 2 cannot be separated: ")


@table(
    ("made", "target", "said"),
    [
        ({"waited": 5 * MS}, ProfileTarget(), "dataset.num_parallel_workers"),
        ({"callbacks": 5 * MS}, ProfileTarget(), "dataset_sink_mode=true: "),
        ({"callbacks": 5 * MS}, ProfileTarget(ranks=2), "a narrower network"),
        ({"pause": MS}, ProfileTarget(), "a larger dataset.batch_size: 50% of a step are pauses"),
        ({}, ProfileTarget("pynative"), "mode=graph"),
        ({}, ProfileTarget(), "session.auto_tune_mode='RL,GA' or a narrower network"),
        ({}, ProfileTarget(device="gpu"), "a narrower network"),
        ({}, ProfileTarget(device="ascend"), "a narrower network"),
        ({}, ProfileTarget(tuned=True), "a narrower network"),
        ({"callbacks": 5 * MS}, ProfileTarget(can_sink=False), "session.auto_tune_mode"),
        ({"waited": 5 * MS}, ProfileTarget(scripted=True), "num_parallel_workers=2 of the dataset or more"),
        ({"callbacks": 5 * MS}, ProfileTarget(scripted=True), "dataset_sink_mode=True of Model.train: "),
        ({"pause": MS}, ProfileTarget(scripted=True), "a larger batch: 50% of a step are pauses"),
        ({}, ProfileTarget("pynative", scripted=True), "context.set_context(mode=context.GRAPH_MODE): the same"),
        ({}, ProfileTarget(scripted=True), "a narrower network"),
    ],
)
def test_advice(made, target, said):
    analysis = Analysis(record(np.full((5, 2), MS), **made), TIMED)
    assert advice(analysis, target, ranking(analysis)).startswith(said)


def test_one_long_wait_and_one_long_callback_are_no_advice():
    made = record(np.full((5, 2), MS))
    late = [call._replace(start=call.start + 60 * MS, stop=call.stop + 60 * MS) for call in made.calls[7:]]
    made.calls[7:] = [late[0]._replace(waited=30 * MS), *late[1:]]
    analysis = Analysis(made, TIMED)
    assert advice(analysis, ProfileTarget(), ranking(analysis)).startswith("session.auto_tune_mode")


def test_preparation_is_in_no_figure():
    """Ten milliseconds of preparation before two of the calls, one millisecond of waiting before each."""
    made = ProfileRecord(0)
    clock = 0
    for number in range(9):
        prepared = 10 * MS if number in (0, 4) else 0
        start = clock + MS + prepared
        made.add_call(DeviceCall(number, 1, start, start + 2 * MS, MS, False, (), prepared), lambda step: True)
        clock = start + 2 * MS
    assert made.warm_up == {0, 4}
    analysis = Analysis(made, TIMED)
    assert {name: part.value for name, part in analysis.parts.items() if part.value} == {
        "data_preparation": MS,
        "rest_of_the_device_call": 2 * MS,
    }
    assert analysis.step_distribution[1:4] == pytest.approx([3 * MS] * 3)
    assert [row.warm_up for row in analysis.steps] == [number in (0, 4) for number in range(9)]


def test_few_steps_without_the_profile_are_not_compared_with():
    made = record(np.full((5, 2), MS), pause=MS)
    made.calls = made.calls[2:]
    analysis = Analysis(made, TIMED)
    assert analysis.unprofiled_step is None
    assert analysis.pause_factor == 1
    assert analysis.step == pytest.approx(4 * MS)
    assert any(
        "fewer than 5 steps ran without timed operators" in note for note in figures(analysis, ProfileTarget()).notes
    )
