"""Cells: names of parameters, children, training mode, and what users do wrong."""

from collections import OrderedDict

import numpy as np
import pytest
from both_modes import MODES, step_of

from models.lenet import LeNet5
from runner import nn, ops
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, has_bias=True)
        self.scale = Parameter(ones(2))
        self.frozen = Parameter(ones(1), requires_grad=False)

    def construct(self, x):
        return self.conv(x)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.SequentialCell([nn.Flatten(), nn.Dense(32, 4)])

    def construct(self, x):
        return self.head(self.block(x))


NAMES = ["block.scale", "block.frozen", "block.conv.weight", "block.conv.bias", "head.1.weight", "head.1.bias"]


def test_parameters_are_named_after_the_attributes_that_lead_to_them():
    net = Net()
    assert [p.name for p in net.get_parameters()] == NAMES
    assert list(net.parameters_dict()) == NAMES
    assert isinstance(net.parameters_dict(), OrderedDict), "the type of r1.2"
    assert [name for name, _ in net.parameters_and_names()] == NAMES
    assert [p.name for p in net.untrainable_params()] == ["block.frozen"]
    assert [p.name for p in net.trainable_params()] == [n for n in NAMES if n != "block.frozen"]


def test_lenet_has_the_references_names_and_shapes():
    assert {name: p.shape for name, p in LeNet5().parameters_and_names()} == {
        "conv1.weight": (6, 1, 5, 5),
        "conv2.weight": (16, 6, 5, 5),
        "fc1.weight": (120, 400),
        "fc1.bias": (120,),
        "fc2.weight": (84, 120),
        "fc2.bias": (84,),
        "fc3.weight": (10, 84),
        "fc3.bias": (10,),
    }


def test_wrapping_cells_leave_names_alone():
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    assert [p.name for p in net.get_parameters()] == NAMES
    assert list(step.parameters_dict())[: len(NAMES)] == NAMES
    assert "moments.block.conv.weight" in step.parameters_dict()


def test_a_name_that_was_given_stays():
    class Named(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(ones(1), name="own")

    assert [p.name for p in Named().get_parameters()] == ["own"]


def test_children():
    net = Net()
    assert list(net.name_cells()) == ["block", "head"]
    assert [type(c).__name__ for c in net.cells()] == ["Block", "SequentialCell"]
    found = {name: type(cell).__name__ for name, cell in net.cells_and_names()}
    assert found == {
        "": "Net",
        "block": "Block",
        "block.conv": "Conv2d",
        "head": "SequentialCell",
        "head.0": "Flatten",
        "head.1": "Dense",
    }
    assert (len(net.head), type(net.head[1]).__name__) == (2, "Dense")
    dense = "Dense<input_channels=32, output_channels=4, has_bias=True>"
    assert repr(net.head) == f"SequentialCell<\n  (0): Flatten<>\n  (1): {dense}\n  >"


def test_a_parameter_that_two_cells_share_is_listed_once():
    class Tied(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Dense(2, 2, has_bias=False), nn.Dense(2, 2, has_bias=False)
            self.b.weight = self.a.weight

    assert [p.name for p in Tied().get_parameters()] == ["a.weight"]


def test_an_attribute_that_is_replaced_is_forgotten():
    net = Net()
    net.head = nn.Flatten()
    assert list(net.name_cells()) == ["block", "head"]
    assert "head.1.weight" not in net.parameters_dict()
    net.block.scale = None
    assert "block.scale" not in net.parameters_dict()


def test_set_train_reaches_all_cells():
    net = Net()
    assert not any(cell.training for _, cell in net.cells_and_names())
    assert net.set_train() is net
    assert all(cell.training for _, cell in net.cells_and_names())
    net.set_train(False)
    assert not any(cell.training for _, cell in net.cells_and_names())


@pytest.mark.parametrize("mode", MODES)
def test_operators_read_what_the_step_has_assigned(mode):
    class Count(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = Parameter(Tensor([1.0]))

        def construct(self, x):
            self.assign(self.count, self.count + x)
            return self.count * 1.5

    net = Count()
    run = step_of(net.construct, mode)
    two = np.array([2.0], np.float32)
    assert [run(two)[0].tolist() for _ in range(3)] == [[4.5], [7.5], [10.5]]
    assert net.count.asnumpy().tolist() == [7]


def test_two_parameters_with_one_name():
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b = Parameter(ones(1), "w"), Parameter(ones(1), "w")

    with pytest.raises(ConfigError) as caught:
        Twice().parameters_dict()
    assert str(caught.value) == "ConfigError: two parameters have the same name\n  name  w\n  cell  Twice"


def test_attributes_before_init():
    class Hasty(nn.Cell):
        def __init__(self):
            self.relu = nn.ReLU()
            super().__init__()

    with pytest.raises(ConfigError) as caught:
        Hasty()
    assert str(caught.value) == (
        "ConfigError: call super().__init__() before setting attributes\n  cell       Hasty\n  attribute  relu"
    )


def test_a_mistyped_attribute():
    with pytest.raises(AttributeError, match=r"^LeNet5 has no attribute conv3; did you mean conv\d\?$"):
        LeNet5().conv3  # noqa: B018
    with pytest.raises(AttributeError, match=r"^LeNet5 has no attribute zzz$"):
        LeNet5().zzz  # noqa: B018


def test_a_cell_without_construct():
    with pytest.raises(NotImplementedError, match="Cell must define construct"):
        nn.Cell().construct(1)


def test_sequential_cells_take_cells():
    with pytest.raises(ConfigError) as caught:
        nn.SequentialCell(nn.ReLU(), ops.Tanh())
    assert str(caught.value) == "ConfigError: SequentialCell takes cells\n  given  Tanh()\n  at     1"


@pytest.mark.parametrize("wrap", [list, tuple, lambda cells: dict(enumerate(cells))])
def test_cells_in_a_list_are_refused_since_they_would_not_be_trained(wrap):
    class Listed(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = wrap([nn.Dense(2, 2), nn.Dense(2, 2)])

    with pytest.raises(ConfigError) as caught:
        Listed()
    assert str(caught.value) == (
        "ConfigError: cells in a list are not part of the network, and would not be trained\n"
        "  cell       Listed\n  attribute  layers\n  repair     nn.CellList([...])"
    )


def test_parameters_in_a_list_need_names():
    with pytest.raises(ConfigError, match="parameters in a list are not part of the network"):
        nn.Cell().weights = [Parameter(ones(2))]


def test_a_list_may_repeat_what_has_its_own_attribute():
    class Both(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Dense(2, 2), nn.Dense(2, 2)
            self.layers = [self.first, self.second]

    assert len(Both().get_parameters()) == 4


@pytest.mark.parametrize("mode", MODES)
def test_a_layer_created_in_construct_is_refused(mode):
    class Late(nn.Cell):
        def construct(self, x):
            return nn.Dense(2, 2)(nn.ReLU()(x))

    with pytest.raises(ConfigError) as caught:
        step_of(Late().construct, mode)(np.ones((1, 2), np.float32))
    assert caught.value.what == "a layer created in construct is new in each step, not trained"
    assert (caught.value.rows["layer"], caught.value.rows["parameter"]) == ("Dense", "weight")
    assert "nn.Dense(2, 2)" in caught.value.rows["line"]
