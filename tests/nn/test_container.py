"""SequentialCell and CellList as lists: order, names of parameters, and what they refuse."""

from collections import OrderedDict

import numpy as np
import pytest
from both_modes import MODES, step_of
from tables import table

from runner import nn
from runner.core.values import Tensor
from runner.errors import ConfigError


def dense(value: float = 1.0) -> nn.Dense:
    return nn.Dense(1, 1, weight_init=value, has_bias=False)


def values(cells) -> list[float]:
    return [float(cell.weight.asnumpy()[0, 0]) for cell in cells]


def names(cell: nn.Cell) -> list[str]:
    return [p.name for p in cell.get_parameters()]


class Net(nn.Cell):
    def __init__(self, cells: nn.Cell):
        super().__init__()
        self.block = nn.SequentialCell([nn.ReLU(), cells])


@table("mode", MODES)
@table(
    "make",
    [
        lambda: nn.SequentialCell([dense(2), dense(3)]),
        lambda: nn.SequentialCell(dense(2), dense(3)),
        lambda: nn.SequentialCell((dense(2), dense(3))),
        lambda: nn.SequentialCell(OrderedDict(a=dense(2), b=dense(3))),
        lambda: nn.SequentialCell([dense(2)]).append(dense(3)),
        lambda: nn.SequentialCell([dense(2), dense(3), dense(9)])[:2],
    ],
)
def test_ways_to_build_a_sequence(make, mode):
    cells = make()
    assert step_of(cells.construct, mode)(np.float32([[1]]))[0].tolist() == [[6]]
    assert (len(cells), values(cells), values([cells[-1]])) == (2, [2, 3], [3])


def test_names_of_a_dict():
    cells = nn.SequentialCell(OrderedDict(first=dense(1), second=dense(2)))
    assert names(cells) == ["first.weight", "second.weight"]
    assert list(cells.name_cells()) == ["first", "second"]
    cells.append(dense(3))
    assert names(cells) == ["first.weight", "second.weight", "2.weight"]
    del cells[0]
    assert names(cells) == ["second.weight", "1.weight"]
    with pytest.raises(ConfigError, match="inserted between numbered ones"):
        cells.insert(0, dense())


@table("kind", [nn.SequentialCell, nn.CellList])
def test_changes_rename_the_parameters(kind):
    cells = kind([dense(0), nn.SequentialCell([dense(1)]), dense(2)])
    net = Net(cells)
    where = "block.1."
    assert names(net) == [where + name for name in ("0.weight", "1.0.weight", "2.weight")]
    cells.insert(0, dense(7))
    assert names(net) == [where + name for name in ("0.weight", "1.weight", "2.0.weight", "3.weight")]
    assert values([cells[0], cells[1], cells[2][0], cells[3]]) == [7, 0, 1, 2]
    del cells[1]
    assert names(net) == [where + name for name in ("0.weight", "1.0.weight", "2.weight")]
    cells[1] = dense(8)
    cells.append(dense(9))
    assert names(net) == [where + name for name in ("0.weight", "1.weight", "2.weight", "3.weight")]
    assert values(cells) == [7, 8, 2, 9]
    del cells[1:3]
    assert (names(net), values(cells)) == ([where + "0.weight", where + "1.weight"], [7, 9])
    assert [name for name, _ in net.cells_and_names()][3:] == ["block.1", "block.1.0", "block.1.1"]
    cells += [dense(4)]
    assert values(cells.extend([dense(5)])) == [7, 9, 4, 5]


def test_a_list_without_prefix():
    cells = nn.CellList([dense(1)], auto_prefix=False)
    cells.append(nn.Dense(1, 1))
    assert names(cells) == ["weight", "weight", "bias"]


def test_a_slice_shares_its_cells():
    cells = nn.CellList([dense(1), dense(2), dense(3)])
    part = cells[1:]
    assert (type(part), part[0] is cells[1], names(part)) == (nn.CellList, True, ["1.weight", "2.weight"])
    assert names(nn.SequentialCell([dense(1), dense(2)])[1:]) == ["1.weight"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda cells: cells[2], IndexError),
        (lambda cells: cells.__setitem__(2, dense()), IndexError),
        (lambda cells: cells.__delitem__(-3), IndexError),
        (lambda cells: cells.append(Tensor(1.0)), ConfigError),
        (lambda cells: cells.insert(0, "Dense"), ConfigError),
        (lambda cells: cells.__setitem__(0, None), ConfigError),
    ],
)
def test_what_they_refuse(change, error):
    cells = nn.CellList([dense(1), dense(2)])
    with pytest.raises(error):
        change(cells)
    assert (values(cells), names(cells)) == ([1, 2], ["0.weight", "1.weight"])
