"""Which steps are looked at: every question against a plain list of the answers."""

import pytest
from tables import table

from runner.observe.profile.schedule import Plan, planned


@pytest.mark.parametrize("plan", [Plan(3, 4, 10, 2, 3), Plan(0, 1, 1, 0, 99), Plan(5, 3, 3, 1, 2), Plan(1, 1, 7, 0, 1)])
def test_bursts(plan):
    looked = [False] * plan.first
    for _ in range(plan.bursts):
        looked += [True] * plan.length + [False] * (plan.every - plan.length)
    looked += [False] * 60
    assert [plan.looks(step) for step in range(60)] == looked[:60]
    for step in range(40):
        alike = plan.alike(step)
        assert alike >= 1
        assert len(set(looked[step : min(60, step + alike)])) == 1
    counted = [step for step in range(60) if plan.counts(step)]
    assert all(looked[step] for step in counted)
    firsts = [step for step in range(60) if looked[step] and (step - plan.first) % plan.every < plan.warm]
    assert not set(firsts) & set(counted)


@table("operators", [True, False])
@table("first", [0, 7, 1000])
@table("steps", [1, 2, 3, 5, 10, 44, 5000])
def test_something_is_looked_at_and_something_is_not(operators, first, steps):
    plan = planned(first, first + steps, operators)
    made = range(first, first + steps)
    counted = [step for step in made if plan.counts(step)]
    assert counted
    assert steps < 3 or any(not plan.looks(step) for step in made)
    assert steps < 100 or sum(map(plan.looks, made)) < steps / 3
    assert steps < 5000 or sum(map(plan.looks, made)) <= (60 if operators else 18)
