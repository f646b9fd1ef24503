"""The points of a step and their times: configured ones, and those of the network."""

import pytest

from runner import ops
from runner.errors import ConfigError
from runner.observe.profile.record import NodeExecution, ProfiledOperator, ProfiledStep, with_parts
from runner.observe.profile.steps import (
    PointTimes,
    StepPoints,
    check_point,
    find_operator,
    find_points,
    point_times,
)

SCOPES = {
    "Default/net/conv/Neg-op0": ops.Neg(),
    "Default/net/relu/ReLU-op1": ops.ReLU(),
    "Gradients/Default/net/relu/gradReLU/ReluGrad-op2": ops.ReluGrad(),
    "Gradients/Default/net/conv/gradNeg/Neg-op3": ops.Neg(),
    "Default/optimizer-Momentum/Sub-op4": ops.Sub(),
}
OPERATORS = {
    o.name: o for o in with_parts(ProfiledOperator(n, op, k, (), ()) for k, (n, op) in enumerate(SCOPES.items()))
}
CONV, RELU, GRAD_RELU, GRAD_CONV, UPDATE = SCOPES
LOOK = ProfiledStep(
    0,
    100,
    200,
    [
        NodeExecution((RELU, CONV), "n0", 110, 120),
        NodeExecution((GRAD_RELU,), "n1", 120, 130),
        NodeExecution((UPDATE,), "n2", 130, 140),
        NodeExecution((GRAD_CONV, UPDATE), "n3", 150, 160),
        NodeExecution((), "copy", 170, 180),
    ],
)


def test_parts():
    assert [o.part for o in OPERATORS.values()] == ["forward", "forward", "backward", "backward", "update"]
    inference = with_parts(ProfiledOperator(n, SCOPES[n], k, (), ()) for k, n in enumerate((CONV, RELU)))
    assert [o.part for o in inference] == ["forward", "forward"]


def test_points_of_a_network():
    # CONV has no node of its own, so forward begins with RELU; the gradient of CONV is the last one.
    assert find_points(OPERATORS, [LOOK]) == StepPoints(RELU, GRAD_CONV)
    assert find_points({CONV: OPERATORS[CONV]}, []) == StepPoints(CONV, None)


def test_point_times():
    assert point_times(LOOK, StepPoints(CONV, GRAD_RELU)) == PointTimes(110, 130)
    assert point_times(LOOK, StepPoints(UPDATE, GRAD_CONV)) == PointTimes(130, 160)
    assert point_times(LOOK, StepPoints(RELU, None)) == PointTimes(110, None)


def test_names_may_have_the_root_of_a_sunk_step():
    sunk = [name.replace("Default/net/", "Default/network-TrainOneStepCell/net/") for name in OPERATORS]
    for name, with_root in zip(OPERATORS, sunk, strict=True):
        assert find_operator(name, sunk) == with_root
        assert find_operator(with_root, list(OPERATORS)) == name
    assert find_operator("Default/net/Neg-op9", OPERATORS) is None


def test_an_unknown_name():
    with pytest.raises(ConfigError) as error:
        check_point("Default/net/relu/ReLU-op7", "fp_point", list(OPERATORS), "leave it out")
    rows = error.value.rows
    assert rows["key"] == "fp_point"
    assert rows["nearest"] == RELU
    assert rows["hint"] == "leave it out"
    assert "5 operators" in rows["allowed"]
