"""Float16: every operator computes as if with more digits and rounds once, in both modes and in every form."""

import dataclasses

import numpy as np
import pytest
from contract import Arrays, computed, has_floats, in_float64
from half import half, in_eager
from operands import Sample
from samples import SAMPLES, WIDE
from tables import check_rows

from runner.compile.onnx.lower import lower
from runner.compile.passes.order import layout
from runner.compile.session import Session
from runner.core.operators import Primitive
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType

# Half the distance between two float16 numbers, relative and for the smallest; float32 sums inside lose 3e-6 of the
# largest term (see contract.py). A kernel that accumulated in float16 would miss by ten times as much and more.
RELATIVE, SMALLEST, SUMS = 2.0**-11, 2.0**-25, 3e-6


def fits(arrays: Arrays) -> bool:
    """Whether all numbers are in the range of float16."""
    floats = [a for a in arrays if a.dtype.kind == "f" and a.size]
    return all(np.isfinite(a).all() and np.abs(a).max() < 6e4 for a in floats)


def in_graphs(op: Primitive, arrays: Arrays) -> list[Arrays]:
    """The outputs of onnxruntime for each form of the operator, and as the layout pass chooses."""
    graph = trace(op, [TensorType.of(a) for a in arrays], "one")
    wide = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
    graphs = [layout(graph)]
    for lowering in op.lowerings(*map(TensorType.of, wide)):
        graphs.append(dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], lowering=lowering),)))
    inputs, outputs = [f"input{k}" for k in range(len(arrays))], [f"output{k}" for k in range(len(graph.outputs))]
    made = []
    for one in graphs:
        session = Session(lower(one, inputs, outputs).SerializeToString(), Device(threads=1), optimize=False)
        results = session.run(dict(zip(inputs, arrays, strict=True)))
        made.append(tuple(results[name] for name in outputs))
    return made


def assert_close(made: Arrays, expected: Arrays, roundings: float) -> None:
    for a, b in zip(made, expected, strict=True):
        assert a.shape == b.shape
        if a.dtype.kind != "f":
            assert np.array_equal(a, b)
        elif a.size:
            wide = b.astype(np.float64)
            eps = RELATIVE if a.dtype == np.float16 else SUMS
            room = roundings * (eps * np.abs(wide) + SMALLEST) + SUMS * np.abs(wide).max()
            assert (np.abs(a.astype(np.float64) - wide) <= room).all()


def halves(samples: list[Sample]) -> dict[str, list[Sample]]:
    """The rows of each operator that have numbers, all of them in the range of float16."""
    rows: dict[str, list[Sample]] = {}
    for sample in samples:
        if has_floats(sample.arrays) and fits(computed(*in_float64(*half(sample.op, sample.arrays)))):
            rows.setdefault(sample.op.name, []).append(sample)
    return rows


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Sample]]:
    return halves(SAMPLES)


@pytest.fixture(scope="module")
def wide() -> dict[str, list[Sample]]:
    return halves(WIDE)


OPERATORS = sorted({sample.op.name for sample in SAMPLES if has_floats(sample.arrays)})


def test_nearly_all_rows_fit_into_float16(rows, wide):
    assert sorted(rows) == OPERATORS
    assert sum(map(len, rows.values())) > 0.95 * sum(has_floats(sample.arrays) for sample in SAMPLES)
    assert sum(map(len, wide.values())) == len(WIDE)


@pytest.mark.parametrize("operator", OPERATORS)
def test_results_are_rounded_once(operator: str, rows):
    def check(sample: Sample) -> None:
        op, arrays = half(sample.op, sample.arrays)
        assert_close(in_eager(op, arrays), computed(*in_float64(op, arrays)), roundings=1.0)

    check_rows(rows[operator], check, name=lambda s: s.name)


@pytest.mark.parametrize("operator", OPERATORS)
def test_onnxruntime_agrees(operator: str, rows, wide):
    def check(sample: Sample) -> None:
        op, arrays = half(sample.op, sample.arrays)
        expected = in_eager(op, arrays)
        for made in in_graphs(op, arrays):
            assert [a.dtype for a in made] == [a.dtype for a in expected]
            assert_close(made, expected, roundings=2.0)

    check_rows([*rows[operator], *wide.get(operator, [])], check, name=lambda s: s.name)
