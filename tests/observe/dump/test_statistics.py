"""Each column against a formula over all elements at once, in float64 or in whole numbers."""

import csv
import io
import math

import numpy as np
import pytest
from tables import table

from runner import dtype as dt
from runner.observe.dump import writers
from runner.observe.dump.files import AsyncName

RNG = np.random.default_rng(7)
INF, NAN = np.inf, np.nan
NAME = AsyncName("Conv2D", "Default_network-Net_Conv2D-op5", 5, 0, 1624605159829577)


def noise(shape, kind, scale=3.0):
    return (RNG.standard_normal(shape) * scale).astype(kind)


ARRAYS = {
    **{kind.name: noise((3, 50), kind.numpy) for kind in dt.ALL if kind.numpy.kind in "fi"},
    **{kind.name: RNG.integers(0, 9, (4, 5)).astype(kind.numpy) for kind in dt.ALL if kind.numpy.kind in "bu"},
    "largest int64": np.array([2**63 - 1, -(2**63), 2**63 - 2]),
    "largest uint64": np.array([2**64 - 1, 0], np.uint64),
    "extremes of int8": np.array([127, -128], np.int8),
    "extremes of float16": np.array([65504, -65504, 6e-8], np.float16),
    "extremes of float32": np.array([3.4e38, -3.4e38, 3e38], np.float32),
    "one": np.array(0.1, np.float16),
    "zeros": np.array([0.0, -0.0, -0.0], np.float32),
    "all kinds": np.array([INF, -INF, -INF, NAN, 0.0, -0.0, 1, 2, 3, -4], np.float32),
    "positive infinity": np.array([INF, 1, INF], np.float64),
    "negative infinity": np.array([-INF, 1], np.float16),
    "only nan": np.array([NAN, NAN], np.float16),
    "several blocks": noise((3, 300_000), np.float32),
    "turned blocks": noise((700, 3, 400), np.float32).transpose(2, 0, 1)[:, ::2],
    "nan in the first block": np.concatenate([np.array([NAN], np.float32), noise(600_000, np.float32)]),
    "nan in the last block": np.concatenate([noise(600_000, np.float32), np.array([NAN, INF], np.float32)]),
}


def oracle(array):
    """The columns from Max Value on, from Python's own numbers."""
    values = array.ravel().tolist()
    counts = [
        len(values),
        sum(x < 0 for x in values),
        sum(x > 0 for x in values),
        sum(x != x for x in values),
        values.count(-INF),
        values.count(INF),
        sum(x == 0 for x in values),
    ]
    if any(x != x for x in values):
        return [NAN, NAN, NAN, *counts]
    if INF in values or -INF in values:
        average = sum(x for x in values if math.isinf(x))
    else:
        average = math.fsum(values) / len(values)
    return [max(values), min(values), average, *counts]


@table("name", ARRAYS)
def test_a_tensor(name):
    array = ARRAYS[name]
    found, expected = writers.statistics(array).cells, oracle(array)
    scale = float(np.abs(array.astype(np.float64)).max()) if np.isfinite(array.astype(np.float64)).all() else 0.0
    np.testing.assert_array_equal(np.array(found[:2], object).astype(float), np.array(expected[:2], float))
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-12, atol=1e-15 * scale)
    assert list(found[3:]) == expected[3:]
    if array.dtype.kind in "iu":
        assert [int(x) for x in found[:2]] == expected[:2]  # also above 2**53


def test_an_empty_tensor():
    cells = writers.statistics(np.empty((0, 3), np.float32)).cells
    assert all(math.isnan(x) for x in cells[:3])
    assert cells[3:] == (0,) * 7


def test_the_table():
    array = np.array([[0.1, -0.0, NAN], [2.5, -1, INF]], np.float32)
    rows = [
        writers.statistics_row(NAME, "input", 0, (2, 3), array),
        writers.statistics_row(NAME, "output", 1, (), np.array(0.1, np.float16)),
        writers.statistics_row(NAME, "output", 2, (2,), np.array([True, False])),
    ]
    text = writers.table(rows).decode()
    assert text.split("\n") == [
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
        "Count,Negative Zero Count,Positive Zero Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count",
        "Conv2D,Default_network-Net_Conv2D-op5,5,0,1624605159829577,input,0,24,Float32,"
        '"(2,3)",nan,nan,nan,6,1,3,1,0,1,1',
        "Conv2D,Default_network-Net_Conv2D-op5,5,0,1624605159829577,output,1,2,Float16,"
        "(),0.1,0.1,0.0999755859375,1,0,1,0,0,0,0",
        "Conv2D,Default_network-Net_Conv2D-op5,5,0,1624605159829577,output,2,2,Bool,(2),1,0,0.5,2,0,1,0,0,0,1",
        "",
    ]


def test_what_is_printed_reads_back():
    values = noise(40, np.float32)
    text = writers.table([writers.statistics_row(NAME, "output", 0, (40,), values)]).decode()
    (line,) = csv.DictReader(io.StringIO(text))
    assert np.float32(line["Max Value"]) == values.max()
    assert np.float32(line["Min Value"]) == values.min()
    assert float(line["Avg Value"]) == pytest.approx(values.astype(np.float64).mean(), rel=1e-13)
