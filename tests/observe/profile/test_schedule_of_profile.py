"""Which steps are profiled, compared with a plain list."""

import pytest
from tables import table

from runner.observe.profile.settings import SAMPLES, ProfileSchedule, schedule


@pytest.mark.parametrize(
    "plan",
    [
        ProfileSchedule(3, 4, 10, 2, 3),
        ProfileSchedule(0, 1, 1, 0, 99),
        ProfileSchedule(5, 3, 3, 1, 2),
        ProfileSchedule(1, 1, 7, 0, 1),
    ],
)
def test_bursts(plan):
    looked = [False] * plan.first
    for _ in range(plan.bursts):
        looked += [True] * plan.length + [False] * (plan.every - plan.length)
    looked += [False] * 60
    assert [plan.is_profiled(step) for step in range(60)] == looked[:60]
    for step in range(40):
        alike = plan.run_length(step)
        assert alike >= 1
        assert len(set(looked[step : min(60, step + alike)])) == 1
    counted = [step for step in range(60) if plan.is_counted(step)]
    assert all(looked[step] for step in counted)
    firsts = [step for step in range(60) if looked[step] and (step - plan.first) % plan.every < plan.warm_up]
    assert not set(firsts) & set(counted)


@table("operators", [True, False])
@table("first", [0, 7, 1000])
@table("steps", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 18, 44, 5000])
def test_some_steps_are_profiled_and_some_are_not(operators, first, steps):
    plan = schedule(first, first + steps, operators)
    made = range(first, first + steps)
    counted = [step for step in made if plan.is_counted(step)]
    assert len(counted) >= min(steps, SAMPLES)
    assert steps < SAMPLES + 3 or any(not plan.is_profiled(step) for step in made)
    assert steps < SAMPLES + 1 or first not in counted, "the first step of a session allocates memory"
    assert steps < 100 or sum(map(plan.is_profiled, made)) < steps / 3
    assert steps < 5000 or sum(map(plan.is_profiled, made)) <= (60 if operators else 18)


@table("operators", [True, False])
@table("steps", range(13, 60))
def test_enough_steps_show_what_a_step_takes_without_the_profile(operators, steps):
    plan = schedule(0, steps, operators)
    assert sum(not plan.is_profiled(step) for step in range(1, steps)) >= SAMPLES
