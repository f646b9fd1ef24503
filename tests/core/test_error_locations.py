"""An operator that does not fit says which, with what, in which scope, and on which line of the user's network."""

import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from both_modes import MODES, nodes_of, step_of
from tables import table

from runner import nn, ops
from runner.core.source import PACKAGE, is_users, user_line, users_line
from runner.core.values import Parameter, Tensor
from runner.errors import RunnerError, ShapeError, TrainingError

HERE = Path(__file__)


class Inner(nn.Cell):
    """One operator that the user calls, and one inside a layer of runner."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 2)

    def construct(self, x, y):
        total = x + y  # add
        return self.fc(total)  # fc


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.relu = nn.ReLU()

    def construct(self, x, y):
        return self.inner(self.relu(x), y)


def line_of(comment: str) -> str:
    """`file:number  text` of the line of this file that ends with the comment."""
    number, text = next((k, t) for k, t in enumerate(HERE.read_text().splitlines(), 1) if t.endswith(f"  # {comment}"))
    return f"{HERE}:{number}  {text.strip()}"


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def failure(function, mode: str, *arrays: np.ndarray) -> RunnerError:
    with pytest.raises(RunnerError) as caught:
        step_of(function, mode)(*arrays)
    return caught.value


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_that_the_user_calls(mode):
    error = failure(Net().construct, mode, floats(2, 3), floats(4))
    assert isinstance(error, ShapeError)
    assert str(error) == (
        "ShapeError: Add: shapes do not broadcast\n"
        "  operands  Float32[2, 3] against Float32[4]\n"
        "  scope     Default/inner-Inner/Add-op1\n"
        f"  line      {line_of('add')}"
    )


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_inside_a_layer_is_reported_at_the_users_line(mode):
    error = failure(Net().construct, mode, floats(2, 3), floats(2, 3))
    assert str(error) == (
        "ShapeError: MatMul: inner axes differ\n"
        "  x           Float32[2, 3] has 3\n"
        "  y           Float32[2, 4] has 4\n"
        "  operands    Float32[2, 3], Float32[2, 4]\n"
        "  attributes  transpose_a=False, transpose_b=True\n"
        "  scope       Default/inner-Inner/fc-Dense/MatMul-op2\n"
        f"  line        {line_of('fc')}"
    )


def test_both_modes_say_the_same():
    for y in (floats(4), floats(2, 3), np.zeros((2, 3), np.int32)):
        first, second = (str(failure(Net().construct, mode, floats(2, 3), y)) for mode in MODES)
        assert first == second


@pytest.mark.parametrize("mode", MODES)
def test_the_first_location_of_an_error_stays(mode):
    """An error that passes through the cells above is not located again."""
    text = str(failure(Net().construct, mode, floats(2, 3), floats(4)))
    assert text.count("scope") == 1
    assert text.count(str(HERE)) == 1


def test_outside_of_any_cell_the_callers_line_is_told():
    with pytest.raises(ShapeError) as caught:
        ops.Add()(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0]))  # outside
    assert caught.value.rows["line"] == line_of("outside")
    assert re.fullmatch(r"Default/Add-op\d+", caught.value.rows["scope"])


def test_a_kernel_that_fails_is_located_too():
    class Pick(nn.Cell):
        def construct(self, x, indices):
            return ops.Gather()(x, indices)  # pick

    error = failure(Pick().construct, "pynative", floats(3, 2), np.array([0, 3], np.int32))
    assert isinstance(error, TrainingError)
    assert str(error) == (
        "TrainingError: Gather: index 3 is out of bounds for axis 0 with size 3\n"
        "  operands    Float32[3, 2], Int32[2]\n"
        "  attributes  axis=0\n"
        "  scope       Default/Gather-op0\n"
        f"  line        {line_of('pick')}"
    )


def test_a_step_that_fails_in_onnxruntime_names_the_operator():
    class Pick(nn.Cell):
        def construct(self, x, indices):
            return ops.Gather()(x, indices)

    error = failure(Pick().construct, "graph", floats(3, 2), np.array([0, 3], np.int32))
    assert isinstance(error, TrainingError)
    assert error.rows["operator"] == "Default/Gather-op0"


@pytest.mark.parametrize("mode", MODES)
def test_an_assignment_that_changes_a_type(mode):
    class Keep(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor([1.0, 2.0]))

        def construct(self, x):
            self.assign(self.w, x)
            return x

    error = failure(Keep().construct, mode, floats(3))
    assert str(error) == (
        "ShapeError: a parameter keeps its type\n  parameter  w\n  has        Float32[2]\n  given      Float32[3]"
    )


def test_a_branch_on_a_value_in_graph_mode():
    class Branch(nn.Cell):
        def construct(self, x):
            return x if ops.ReduceSum()(x) else -x

    for mode in MODES:
        step = step_of(Branch().construct, mode)
        assert step(np.ones(2, np.float32))[0].tolist() == [1, 1]
        assert step(np.float32([1, -1]))[0].tolist() == [-1, 1]


def test_a_network_that_returns_something_else():
    error = failure(lambda x: {"y": x}, "graph", floats(2))
    assert str(error) == "ConfigError: a network must return tensors\n  network   step\n  returned  dict"


def sequence() -> nn.SequentialCell:
    return nn.SequentialCell(
        nn.Dense(4, 3),  # first
        nn.SequentialCell(nn.ReLU(), nn.Dense(4, 2)),  # second
    )


class Sequence(nn.SequentialCell):
    """A container of the user, without a `construct` of its own."""

    def __init__(self):
        super().__init__(nn.ReLU(), nn.Dense(4, 2))  # inherited


def of_loss(network: nn.Cell) -> nn.Cell:
    loss = nn.MSELoss()  # loss
    return nn.WithLossCell(network, loss)


def of_step(network: nn.Cell) -> nn.Cell:
    return nn.TrainOneStepCell(of_loss(network), nn.Momentum(network.trainable_params(), 0.1, 0.9))


@pytest.mark.parametrize("mode", MODES)
@table(
    ("cell", "shapes", "operator", "where"),
    [
        (sequence, [(2, 5)], "MatMul", "first"),
        (sequence, [(2, 4)], "MatMul", "second"),
        (Sequence, [(2, 5)], "MatMul", "inherited"),
        (lambda: of_loss(nn.SequentialCell(nn.ReLU())), [(2, 3), (4,)], "output and target of a loss", "loss"),
        (lambda: of_step(sequence()), [(2, 4), (2, 2)], "MatMul", "second"),
    ],
)
def test_layers_without_a_construct_of_the_user_are_reported_where_they_were_built(mode, cell, shapes, operator, where):
    """It was a line of the container, which is not the user's."""
    error = failure(cell(), mode, *[floats(*shape) for shape in shapes])
    assert error.what.startswith(operator)
    assert str(error.rows["line"]) == line_of(where)


def test_a_container_that_a_cell_of_the_user_applies_is_reported_at_its_line():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = sequence()

        def construct(self, x):
            return self.layers(x)  # layers

    assert str(failure(Net().construct, "graph", floats(2, 5)).rows["line"]) == line_of("layers")


def test_graph_files_have_the_line_that_built_a_layer():
    nodes = nodes_of(nn.SequentialCell(nn.Dense(5, 3)), "graph", floats(2, 5))  # listed
    assert {str(user_line(node.source)) for node in nodes} == {line_of("listed")}


@table(
    ("file", "users"),
    [
        (PACKAGE + "nn/basic.py", False),
        (PACKAGE[:-1] + "_networks.py", True),  # beside the package
        (PACKAGE[:-1] + "-work/net.py", True),
        (threading.__file__, False),
        (os.path.dirname(os.__file__) + "/site-packages/network.py", True),
        ("<frozen runpy>", False),
        ("<string>", True),
    ],
)
def test_files_of_the_user(file, users):
    assert is_users(file) is users


def test_the_command_line_is_not_the_users_code():
    """What calls it is a script of the installation."""
    launcher = compile("def main(): return users_line(sys._getframe())", PACKAGE + "cli.py", "exec")
    names = {"users_line": users_line, "sys": sys}
    exec(launcher, names)
    assert names["main"]() is None
