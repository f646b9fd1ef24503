"""Einsum against stock onnxruntime (numpy where it lacks a form), and its gradients against differences."""

import numpy as np
import pytest
from both_modes import nodes_of
from one_node import RNG, check_gradients, check_outputs, node
from tables import table

from runner.errors import ConfigError


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def row(equation, *shapes):
    return node("Einsum", *(normal(*shape) for shape in shapes), equation=equation)


ROWS = [
    row("ij,jk->ik", (3, 4), (4, 5)),
    row("ij,kj->ik", (3, 4), (5, 4)),
    row("ji,jk->ki", (4, 3), (4, 5)),
    row(" i j , j k ", (3, 4), (4, 5)),
    row("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    row("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    row("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    row("bhqk,bhkd->bqhd", (2, 2, 3, 5), (2, 2, 5, 4)),
    row("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    row("ij->ji", (3, 4)),
    row("ijk->", (2, 3, 4)),
    row("ijk->kj", (2, 3, 4)),
    row("ij", (3, 4)),
    row("ba", (3, 4)),
    row("i,i->", (4,), (4,)),
    row("i,j->ij", (3,), (4,)),
    row("bi,bi->b", (3, 4), (3, 4)),
    row("bi,bi->bi", (3, 4), (3, 4)),
    row("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    row("bi,ij,bj->b", (3, 2), (2, 4), (3, 4)),
    row("i,j,k->kji", (2,), (3,), (4,)),
    row("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    row("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    row("...,...->...", (2, 3), (2, 3)),
    row("...ij,...jk", (2, 3, 4), (2, 4, 5)),
    row("b...,b->b...", (3, 2, 2), (3,)),
    row("...i->...", (2, 3)),
    row("bij,jk->bik", (1, 3, 4), (4, 5)),
    row("ik,jk->ij", (3, 1), (4, 5)),
    row("...ij,...jk->...ik", (1, 3, 4), (6, 4, 5)),
    row("ii->i", (4, 4)),
    row("ii->", (4, 4)),
    row("bii->bi", (2, 3, 3)),
    row("iji->ij", (3, 2, 3)),
    row("ii,ij->j", (3, 3), (3, 2)),
]


def by_numpy(one):
    return np.einsum(one.attributes["equation"].replace(" ", ""), *(x.astype(np.float64) for x in one.given))


@table("one", ROWS, ids=str)
def test_outputs(one, tmp_path):
    check_outputs(one, tmp_path, [by_numpy(one)])


@table("one", ROWS[:9] + ROWS[18:20] + ROWS[21:23], ids=str)
def test_outputs_are_those_of_onnxruntime(one, tmp_path):
    check_outputs(one, tmp_path)


@table("one", ROWS, ids=str)
def test_gradients(one, tmp_path):
    check_gradients(one, tmp_path)


def test_whole_numbers_are_multiplied_and_summed(tmp_path):
    x, y = RNG.integers(-5, 5, (3, 4)), RNG.integers(-5, 5, (4, 2))
    one = node("Einsum", x, y, equation="ij,jk->ik", ints=(0,))
    check_outputs(one, tmp_path, [(x @ y).astype(np.float32)])


def test_a_stack_of_products_needs_no_transposes(tmp_path):
    one = node("Einsum", normal(2, 2, 3, 4), normal(2, 2, 5, 4), equation="bhqd,bhkd->bhqk")
    network = one.network(one.write(tmp_path))
    made = [entry.op.name for entry in nodes_of(network.network.construct, "graph", *one.given)]
    assert made == ["Reshape", "Reshape", "BatchMatMul", "Reshape"]


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (row("ij,jk", (3, 4)), "another number of operands"),
        (row("ijk->ij", (3, 4)), "the labels do not match"),
        (row("ij,jk->ik", (3, 4), (5, 4)), "several lengths"),
        (row("ij->iz", (3, 4)), "the output has a label twice, or one of no operand"),
        (row("ij->ii", (3, 4)), "the output has a label twice, or one of no operand"),
    ],
    ids=lambda value: getattr(value, "attributes", {}).get("equation", ""),
)
def test_what_is_refused(one, what, tmp_path):
    with pytest.raises(ConfigError, match=what) as caught:
        one.network(one.write(tmp_path)).run("pynative")
    assert "Einsum" in str(caught.value)
