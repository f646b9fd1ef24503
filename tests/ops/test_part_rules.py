"""What operators compute of a part of a batch, for every row of the contract and each axis that can be divided.

The oracle is the kernel of the whole, in Float64 where the operator takes it.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from operands import Sample, normal, row
from samples import SAMPLES, WIDE
from soak import thinned

from runner import ops
from runner.compile.parts import DividedGraph
from runner.core.graph import Graph
from runner.core.operators import Node, Primitive, infer
from runner.core.parts import PartRule, Parts
from runner.core.values import Symbol
from runner.errors import RunnerError
from runner.types import TensorType

MOST = 40  # divisions of the operands of one row


def widened(sample: Sample) -> tuple[Primitive, list[np.ndarray]]:
    """The operator, and its operands in Float64 if it takes them."""
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in sample.arrays]
    try:
        types = tuple([TensorType.of(x) for x in wide])
        made = sample.op.kernel(*wide)
        made = made if isinstance(made, tuple) else (made,)
        fits = [TensorType.of(np.asarray(x)) for x in made] == list(infer(sample.op, types))
    except (RunnerError, TypeError, ValueError):
        fits = False
    return sample.op, wide if fits else list(sample.arrays)


def divisions(arrays: list[np.ndarray]) -> Iterator[tuple[Parts, list[int | None]]]:
    """Parts, and the axis along which each operand is divided, or None."""
    for length in sorted({n for x in arrays for n in x.shape if n and n % 2 == 0}):
        choices = [[None, *[k for k, n in enumerate(x.shape) if n == length]] for x in arrays]
        for axes in itertools.islice(itertools.product(*choices), MOST):
            if any(axis is not None for axis in axes):
                yield Parts(4 if length % 4 == 0 else 2, length), list(axes)


def by_parts(part: PartRule, parts: Parts, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The results from those of the parts."""
    given = [
        [x] * parts.count if axis is None else parts.split(x, axis)
        for x, axis in zip(arrays, part.operands, strict=True)
    ]
    made = []
    for operands in zip(*given, strict=True):
        results = part.op.kernel(*operands)
        results = [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]
        types = infer(part.op, tuple([TensorType.of(x) for x in operands]))
        assert [TensorType.of(x) for x in results] == list(types)
        made.append(results)
    whole = []
    for number, (column, axis) in enumerate(zip(zip(*made, strict=True), part.results, strict=True)):
        if number in part.same:
            assert all(np.array_equal(x, column[0]) for x in column)
            whole.append(column[0])
        else:
            joined = sum(column[1:], column[0]) if axis is None else parts.join(column, axis)
            whole.append(joined if part.scale == 1 else joined * joined.dtype.type(part.scale))
    return whole


def check_rows(samples: list[Sample]) -> set[type[Primitive]]:
    """The operators of which a part was computed; each as the whole."""
    found = set()
    for sample in samples:
        op, arrays = widened(sample)
        types = [TensorType.of(x) for x in arrays]
        whole: list[np.ndarray] | None = None
        for parts, axes in divisions(arrays):
            part = op.part(types, axes, parts)
            if part is None:
                continue
            with np.errstate(all="ignore"):
                if whole is None:
                    made = op.kernel(*arrays)
                    whole = [np.asarray(x) for x in (made if isinstance(made, tuple) else (made,))]
                results = by_parts(part, parts, arrays)
            for a, b in zip(whole, results, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), (sample.name, axes)
                tolerance = {"f8": 1e-10, "f4": 2e-5, "f2": 2e-2}.get(a.dtype.str[1:], 0.0)
                scale = np.nanmax(np.abs(a[np.isfinite(a)]), initial=1.0) if tolerance else 1.0
                np.testing.assert_allclose(
                    b, a, rtol=tolerance, atol=tolerance * scale, err_msg=f"{sample.name} divided along {axes}"
                )
            found.add(type(op))
    return found


EVEN = [  # of operators whose other rows have no batch that two divides
    row(ops.SoftmaxCrossEntropyWithLogits(), normal(4, 3), np.eye(3, dtype=np.float32)[[0, 2, 2, 1]]),
]


def by_operator() -> dict[str, list[Sample]]:
    rows: dict[str, list[Sample]] = {}
    for sample in (*SAMPLES, *WIDE, *EVEN):
        rows.setdefault(type(sample.op).__name__, []).append(sample)
    return rows


ROWS = by_operator()


def has_rule(kind: type[Primitive]) -> bool:
    return kind.part is not Primitive.part or kind.elementwise


@pytest.mark.parametrize("name", [name for name, rows in ROWS.items() if has_rule(type(rows[0].op))])
def test_the_parts_make_the_whole(name):
    assert check_rows(ROWS[name]), "no row reaches the rule"


def test_an_operator_that_sums_over_its_batch_has_terms():
    """A rule that gave parts where terms are due would pass where all rows are equal: so these are written down."""
    parts, x = Parts(2, 4), TensorType.of(np.zeros((4, 6), np.float32))
    assert ops.ReduceSum(axis=0).part([x], [0], parts) == PartRule(ops.ReduceSum(axis=0), (0,), (None,))
    assert ops.ReduceMean(axis=()).part([x], [0], parts) == PartRule(ops.ReduceMean(axis=()), (0,), (None,), 0.5)
    assert ops.ReduceMax(axis=0).part([x], [0], parts) is None
    assert ops.ReduceSum(axis=1).part([x], [0], parts) == PartRule(ops.ReduceSum(axis=1), (0,), (0,))
    assert ops.Softmax(0).part([x], [0], parts) is None
    assert ops.Transpose((1, 0)).part([x], [0], parts) == PartRule(ops.Transpose((1, 0)), (0,), (1,))


# Operators that need the whole batch in between: as one node, divided and computed in numpy.


def computed(op: Primitive, arrays: list[np.ndarray], parts: Parts) -> tuple[list[np.ndarray], DividedGraph]:
    """The results of a graph of one node, divided; an interpreter in ten lines, without sessions."""
    inputs = tuple([Symbol(TensorType.of(x), f"x{k}") for k, x in enumerate(arrays)])
    outputs = tuple([Symbol(kind, f"y{k}") for k, kind in enumerate(infer(op, tuple([x.type for x in inputs])))])
    node = Node(op, inputs, outputs, "Default", 0, ())
    division = DividedGraph(Graph(op.name, inputs, {}, {}, (node,), outputs), parts)
    known: dict[object, np.ndarray] = {**dict(zip(inputs, arrays, strict=True)), **division.constants}

    def run(each: Node, part: int | None) -> None:
        def key(x: Symbol) -> object:
            return (x, part) if part is not None and x in division.of_parts else division.part_of.get(x, x)

        made = each.op.kernel(*[known[key(x)] for x in each.inputs])
        known.update(zip(map(key, each.outputs), made if isinstance(made, tuple) else (made,), strict=True))

    for segment in division.segments:
        for each in segment.whole:
            run(each, None)
        for each in segment.parts:
            for part in range(parts.count):
                run(each, part)
    return [np.asarray(known[y]) for y in outputs], division


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [*thinned([(8, 3), (8, 8), (16, 4, 3, 2), (8, 1, 1, 1)], every=2)])
@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_batch_normalization_in_parts(count, shape, far):
    rng = np.random.default_rng(1)
    c = shape[1]
    x, dout = rng.normal(far, 2.0, shape), rng.normal(size=shape)
    channels = [rng.uniform(0.5, 2.0, c) for _ in range(4)]
    op = ops.BatchNorm(True, 1e-5, 0.1)
    whole = op.kernel(x, *channels)
    results, division = computed(op, [x, *channels], Parts(count, shape[0]))
    assert division.is_divided
    for a, b in zip(whole, results, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8, atol=1e-8)
    gradient, operands = ops.BatchNormGrad(True, 1e-5), [dout, x, channels[0], *whole[3:]]
    for a, b in zip(gradient.kernel(*operands), computed(gradient, operands, Parts(count, shape[0]))[0], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("shape", [(8, 3), (16, 2, 3), (8,)])
def test_dropout_in_parts_drops_what_the_whole_drops(count, shape):
    x, counter = np.random.default_rng(2).normal(size=shape), np.asarray(7)
    op = ops.Dropout(0.6, 3, 5)
    results, division = computed(op, [x, counter], Parts(count, shape[0]))
    assert division.is_divided
    for a, b in zip(op.kernel(x, counter), results, strict=True):
        assert np.array_equal(a, b)
    assert 0 < results[1].mean() < 1
