"""Entries of two dumps are matched: by name, by number, and by cell, type and order where numbers differ."""

import itertools

import numpy as np
from tables import table

from runner.report.dump import match as module
from runner.report.dump.match import DumpSide, NameForm, Traits, align, match
from runner.report.dump.reader import DumpEntry


def entries(names) -> list[DumpEntry]:
    return [DumpEntry(name, "-op" not in name, list) for name in names]


def numbered(*names: str) -> list[str]:
    """Full names from `{cell}/{Type}`, numbered in this order."""
    return [f"{name}-op{number}" for number, name in enumerate(names)]


def pairs(a: list[str], b: list[str]) -> list[tuple[int, int]]:
    """The pairs of operators by their numbers."""
    found = match(DumpSide(entries(a)), DumpSide(entries(b)))
    assert len(found.pairs) + len(found.only_a) == len(a)
    assert len(found.pairs) + len(found.only_b) == len(b)
    return [(a.index(one.name), b.index(other.name)) for one, other in found.pairs]


PLAIN = numbered("Default/n-Net/a-Conv2d/Conv2D", "Default/n-Net/r-ReLU/ReLU", "Default/n-Net/b-Conv2d/Conv2D")
CAST = numbered(
    *("Default/n-Net/a-Conv2d/Cast", "Default/n-Net/a-Conv2d/Cast", "Default/n-Net/a-Conv2d/Conv2D"),
    *("Default/n-Net/r-ReLU/ReLU", "Default/n-Net/b-Conv2d/Cast", "Default/n-Net/b-Conv2d/Conv2D"),
)
RELUS = numbered(*["Default/r-ReLU/ReLU"] * 3, "Default/f-Flatten/Flatten")
CASES = {
    "equal": (PLAIN, PLAIN, [(0, 0), (1, 1), (2, 2)]),
    "casts": (PLAIN, CAST, [(0, 2), (1, 3), (2, 5)]),
    "an operator more in a cell": (
        numbered("Default/a-A/Mul", "Default/a-A/Add", "Default/b-B/Mul"),
        numbered("Default/a-A/Mul", "Default/a-A/Sub", "Default/a-A/Add", "Default/b-B/Mul"),
        [(0, 0), (1, 2), (2, 3)],
    ),
    "another type": (
        numbered("Default/a-A/Mul", "Default/a-A/Add", "Default/a-A/Mul"),
        numbered("Default/a-A/Mul", "Default/a-A/Sub", "Default/a-A/Mul"),
        [(0, 0), (2, 2)],
    ),
    "cells in another order": (
        numbered("Default/a-A/Mul", "Default/a-A/Add", "Default/b-B/Mul"),
        numbered("Default/b-B/Mul", "Default/a-A/Mul", "Default/a-A/Add"),
        [(0, 1), (1, 2), (2, 0)],
    ),
    "a renamed cell": (
        numbered("Default/a-Conv2d/Conv2D", "Default/r-ReLU/ReLU", "Default/b-Conv2d/Conv2D"),
        numbered("Default/first-Conv2d/Conv2D", "Default/r-ReLU/ReLU", "Default/b-Conv2d/Conv2D"),
        [(0, 0), (1, 1), (2, 2)],
    ),
    "a renamed cell with its gradient and below another one": (
        numbered("Default/n-Net/s-Seq/0-Conv2d/Conv2D", "Gradients/Default/n-Net/s-Seq/0-Conv2d/gradConv2D/Mul"),
        numbered("Default/m-Net/t-Seq/0-Conv2d/Conv2D", "Gradients/Default/m-Net/t-Seq/0-Conv2d/gradConv2D/Mul"),
        [(0, 0), (1, 1)],
    ),
    "another class": (
        numbered("Default/a-Conv2d/Conv2D", "Default/b-Dense/MatMul"),
        numbered("Default/a-Mine/Conv2D", "Default/b-Dense/Cast", "Default/b-Dense/MatMul"),
        [(0, 0), (1, 2)],
    ),
    "as many renamed cells of one kind": (
        numbered("Default/a-Dense/MatMul", "Default/b-Dense/MatMul", "Default/r-ReLU/ReLU"),
        numbered("Default/x-Dense/MatMul", "Default/y-Dense/MatMul", "Default/r-ReLU/ReLU"),
        [(0, 0), (1, 1), (2, 2)],
    ),
    "which one was renamed is not known": (
        numbered("Default/a-Dense/MatMul", "Default/b-Dense/MatMul", "Default/r-ReLU/ReLU"),
        numbered("Default/x-Dense/MatMul", "Default/r-ReLU/ReLU"),
        [(2, 1)],
    ),
    "one of them is known": (
        numbered("Default/a-Dense/MatMul", "Default/r-ReLU/ReLU", "Default/b-Dense/MatMul"),
        numbered("Default/x-Dense/MatMul", "Default/r-ReLU/ReLU"),
        [(0, 0), (1, 1)],
    ),
    "one left, with an operator more": (
        numbered("Default/a-Block/MatMul", "Default/r-ReLU/ReLU"),
        numbered("Default/x-Block/MatMul", "Default/x-Block/Tanh", "Default/r-ReLU/ReLU"),
        [(0, 0), (1, 2)],
    ),
    "sunk, with a loss scale": (
        [
            name.replace("Default/", "Default/network-TrainOneStepWithLossScaleCell/")
            for name in numbered("Default/network-Loss/a-A/Mul", "Default/o-Momentum/Sub")
        ],
        numbered("Default/network-Loss/a-A/Cast", "Default/network-Loss/a-A/Mul", "Default/o-Momentum/Sub"),
        [(0, 1), (1, 2)],
    ),
    "sanitised names": (
        [name.replace("/", "_") for name in PLAIN],
        CAST,
        [(0, 2), (1, 3), (2, 5)],
    ),
    "no scopes": (["Conv2D-op3", "ReLU-op7"], ["Cast-op3", "Conv2D-op4", "ReLU-op8"], [(0, 1), (1, 2)]),
    "nothing": (numbered("Default/a-A/Mul"), numbered("Default/a-A/Add"), []),
}


@table(("a", "b", "expected"), CASES.values(), CASES)
@table("turned", [False, True])
def test_operators(a, b, expected, turned):
    assert pairs(a, b) == expected
    assert sorted(pairs(b, a)) == sorted((j, i) for i, j in expected)


def test_renamed_scopes_are_named_up_to_the_part_that_differs():
    a = numbered("Default/n-Net/s-Seq/0-Conv2d/Conv2D", "Default/n-Net/s-Seq/1-Dense/MatMul", "Default/r-ReLU/ReLU")
    b = numbered("Default/n-Net/t-Seq/0-Conv2d/Conv2D", "Default/n-Net/t-Seq/1-Dense/MatMul", "Default/r-ReLU/ReLU")
    assert match(DumpSide(entries(a)), DumpSide(entries(b))).renamed == [("Default/n-Net/s-Seq", "Default/n-Net/t-Seq")]


def test_what_was_executed_but_not_dumped_takes_part():
    """Only two ReLUs were dumped: which ones is known from all operators."""
    plain = numbered(*["Default/r-ReLU/ReLU", "Default/c-Conv2d/Conv2D"] * 3)
    cast = numbered(*["Default/r-ReLU/ReLU", "Default/c-Conv2d/Cast", "Default/c-Conv2d/Conv2D"] * 3)
    found = match(DumpSide(entries([plain[0], plain[4]]), plain), DumpSide(entries([cast[3], cast[6]]), cast))
    assert [(one.name, other.name) for one, other in found.pairs] == [(plain[4], cast[6])]


def test_gradients_and_the_parts_of_a_name():
    form = NameForm(False, False)
    found = form.parse("Gradients/Gradients/Default/a-A/gradMul/gradSub/Add-op12")
    assert (found.depth, found.cell, found.part) == (2, ("Default", "a-A"), ("gradMul", "gradSub"))
    assert (found.type, found.number) == ("Add", 12)
    found = form.parse("Default/gradual-A/gradMul/Add-op1")  # a cell of a user
    assert (found.depth, found.cell, found.part) == (0, ("Default", "gradual-A", "gradMul"), ())


# The alignment


def likeness(a: Traits, b: Traits) -> int:
    """As `align` documents it, for one pair."""
    is_other = a.parameters and b.parameters and a.parameters != b.parameters and a.shapes != b.shapes
    if a.kind != b.kind or is_other:
        return 0
    operands = sum(x == y for x, y in zip(a.operands, b.operands, strict=False))
    return 2 + 3 * (a.shapes == b.shapes) + (a.dtypes == b.dtypes) + 8 * operands


def best(a: list[Traits], b: list[Traits]) -> int:
    """The largest sum of all ways to pair without crossing, by trying them."""
    sums = [0]
    for count in range(1, min(len(a), len(b)) + 1):
        for x in itertools.combinations(range(len(a)), count):
            for y in itertools.combinations(range(len(b)), count):
                values = [likeness(a[i], b[j]) for i, j in zip(x, y, strict=True)]
                sums.append(sum(values) if all(values) else 0)
    return max(sums)


def random_traits(random: np.random.Generator) -> Traits:
    kind, shape, operand = (int(k) for k in random.integers(0, 3, 3))
    return Traits("ABC"[kind], (), ((shape,),), (), (operand, kind)[: int(random.integers(0, 3))])


def test_no_alignment_is_better():
    random = np.random.default_rng(5)
    for _ in range(60):
        a, b = ([random_traits(random) for _ in range(random.integers(0, 6))] for _ in range(2))
        found = align(a, b)
        assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(found))
        assert sum(likeness(a[i], b[j]) for i, j in found) == best(a, b)


def test_parameters_identify_an_operator_wherever_it_is():
    a = [Traits("Momentum", (name,), ((2,),)) for name in ("conv1", "conv2", "fc")]
    assert align(a, [a[1], a[2], a[0]]) == [(0, 2), (1, 0), (2, 1)]


def test_other_parameters_of_other_shapes_are_another_operator():
    a, b = Traits("Momentum", ("conv",), ((2,),)), Traits("Momentum", ("fc",), ((3,),))
    assert align([a], [b]) == []
    assert align([a], [Traits("Momentum", ("first",), ((2,),))]) == [(0, 0)]


def test_five_thousand_operators_take_little_memory(monkeypatch):
    """Rows of a table, not a table of objects: nothing of this size is copied."""
    random = np.random.default_rng(0)
    kinds = random.integers(0, 20, 5000)
    a = [Traits(int(kind)) for kind in kinds]
    b = [one for one in a if random.random() > 0.1]
    calls = []
    usual = module._pairs
    monkeypatch.setattr(module, "_pairs", lambda moves: calls.append(moves.nbytes) or usual(moves))
    assert len(align(a, b)) == len(b)
    assert calls[0] <= len(a) * len(b)
