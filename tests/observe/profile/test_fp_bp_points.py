"""The borders of a step, by hand and by themselves."""

import pytest

from runner import ops
from runner.errors import ConfigError
from runner.observe.profile.fp_bp_points import Borders, Points, borders, check, executed, found
from runner.observe.profile.record import Look, Moment, Operator, with_parts

SCOPES = {
    "Default/net/conv/Neg-op0": ops.Neg(),
    "Default/net/relu/ReLU-op1": ops.ReLU(),
    "Gradients/Default/net/relu/gradReLU/ReluGrad-op2": ops.ReluGrad(),
    "Gradients/Default/net/conv/gradNeg/Neg-op3": ops.Neg(),
    "Default/optimizer-Momentum/Sub-op4": ops.Sub(),
}
OPERATORS = {o.name: o for o in with_parts(Operator(n, op, k, (), ()) for k, (n, op) in enumerate(SCOPES.items()))}
CONV, RELU, GRAD_RELU, GRAD_CONV, UPDATE = SCOPES
LOOK = Look(
    0,
    100,
    200,
    [
        Moment((RELU, CONV), "n0", 110, 120),
        Moment((GRAD_RELU,), "n1", 120, 130),
        Moment((UPDATE,), "n2", 130, 140),
        Moment((GRAD_CONV, UPDATE), "n3", 150, 160),
        Moment((), "copy", 170, 180),
    ],
)


def test_parts():
    assert [o.part for o in OPERATORS.values()] == ["forward", "forward", "backward", "backward", "update"]
    inference = with_parts(Operator(n, SCOPES[n], k, (), ()) for k, n in enumerate((CONV, RELU)))
    assert [o.part for o in inference] == ["forward", "forward"]


def test_points_are_found():
    # CONV has no node of its own, so forward begins with RELU; the gradient of CONV is the last one.
    assert found(OPERATORS, [LOOK]) == Points(RELU, GRAD_CONV)
    assert found({CONV: OPERATORS[CONV]}, []) == Points(CONV, None)


def test_borders():
    assert borders(LOOK, Points(CONV, GRAD_RELU)) == Borders(110, 130)
    assert borders(LOOK, Points(UPDATE, GRAD_CONV)) == Borders(130, 160)
    assert borders(LOOK, Points(RELU, None)) == Borders(110, None)


def test_names_may_have_the_root_of_a_sunk_step():
    sunk = [name.replace("Default/net/", "Default/network-TrainOneStepCell/net/") for name in OPERATORS]
    for name, with_root in zip(OPERATORS, sunk, strict=True):
        assert executed(name, sunk) == with_root
        assert executed(with_root, list(OPERATORS)) == name
    assert executed("Default/net/Neg-op9", OPERATORS) is None


def test_a_name_that_nobody_has():
    with pytest.raises(ConfigError) as error:
        check("Default/net/relu/ReLU-op7", "fp_point", list(OPERATORS), "leave it out")
    rows = error.value.rows
    assert rows["key"] == "fp_point"
    assert rows["nearest"] == RELU
    assert rows["hint"] == "leave it out"
    assert "5 operators" in rows["allowed"]
