"""Distances of tensors against slow formulas: Python's floats one by one, and all numbers of float16 in a row."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE
from tables import table

from runner import dtype as dt
from runner.errors import ShapeError
from runner.observe.tolerance import Measures, Tolerance, comparable, measure, ulps
from runner.types import TensorType

RANDOM = np.random.default_rng(7)


def slowly(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> dict[str, object]:
    """The definitions, one element after the other, in Python's floats."""
    pairs = [(float(x), float(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    finite = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    rms = math.sqrt(math.fsum(y * y for _, y in finite) / max(1, len(finite)))
    normal = max(2.0**-14 if x.dtype == np.float16 else 2.0**-126 if x.dtype.itemsize == 4 else 0.0 for x in (a, b))

    def outside(x: float, y: float) -> bool:
        if math.isfinite(x) and math.isfinite(y):
            return abs(x - y) > atol + rtol * max(abs(y), rms, normal)
        return not (x == y or (math.isnan(x) and math.isnan(y)))

    def distance(pairs: list[tuple[float, float]]) -> float:
        if any(x != y and not (math.isnan(x) and math.isnan(y)) for x, y in pairs if not math.isfinite(x - y)):
            return math.inf
        squares = math.fsum((x - y) ** 2 for x, y in finite) / len(pairs)
        return math.sqrt(squares) / rms

    lengths = [math.sqrt(math.fsum(p[k] ** 2 for p in finite)) for k in (0, 1)]
    return {
        "elements": len(pairs),
        "outside": sum(outside(x, y) for x, y in pairs),
        "max_abs": max((abs(x - y) for x, y in finite), default=0.0),
        "max_rel": max((abs(x - y) / abs(y) for x, y in finite if y), default=0.0),
        "cosine": math.fsum(x * y for x, y in finite) / math.prod(lengths) if all(lengths) else float(not any(lengths)),
        "l2": distance(pairs),
        "nan": tuple(sum(math.isnan(p[k]) for p in pairs) for k in (0, 1)),
        "inf": tuple(sum(math.isinf(p[k]) for p in pairs) for k in (0, 1)),
    }


def near(measured: Measures, expected: dict[str, object]) -> None:
    for name, value in expected.items():
        found = getattr(measured, name)
        assert found == (pytest.approx(value, rel=1e-12, abs=0) if isinstance(value, float) else value), name


# Steps between neighbours


def test_steps_in_float16_count_all_numbers_in_between():
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    place = np.unique(numbers, return_inverse=True)[1]  # -0 and 0 are one number
    other = RANDOM.permutation(len(numbers))
    assert ulps(numbers, numbers[other]).tolist() == np.abs(place - place[other]).tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 1e-30, -3e5])
def test_steps_are_those_of_nextafter(kind, start):
    first = last = kind(start)
    for step in range(20):
        assert ulps(np.array([first]), np.array([last])).tolist() == [step]
        assert ulps(np.array([last]), np.array([first])).tolist() == [step]
        last = np.nextafter(last, kind(np.inf))
    below = np.nextafter(kind(0), kind(-1))
    assert ulps(np.array([below, kind(-0.0)]), np.array([-below, kind(0)])).tolist() == [2, 0]


def test_steps_from_end_to_end_of_float64_do_not_overflow():
    largest = np.finfo(np.float64).max
    steps = int(ulps(np.array([-largest]), np.array([largest]))[0])
    assert steps == 2 * (0x7FF << 52) - 2
    x = np.float64(math.pi)
    assert int(ulps(np.array([x]), np.array([x + 5 * math.ulp(math.pi)]))[0]) == 5


def test_steps_of_mixed_types_are_those_of_the_coarser():
    a, b = np.float32([1.0, 2.0]), np.float16([1.0 + 3 * 2**-10, 2.0])
    assert measure(a, b).max_ulp == measure(b, a).max_ulp == 3


# Everything at once


@table("chunk", [1, 7, 8192])
@table("kinds", [("f4", "f4"), ("f8", "f8"), ("f2", "f2"), ("f4", "f2"), ("f8", "f4"), (">f4", "f4")])
def test_measures_are_those_of_the_definitions(kinds, chunk):
    b = RANDOM.normal(size=(5, 3, 4)) * 10.0 ** RANDOM.integers(-6, 4, (5, 3, 4))
    a = b * (1 + 1e-3 * RANDOM.normal(size=b.shape))
    a[0, 0], b[0, 0] = (math.nan, math.inf, 0.0, -math.inf), (math.nan, math.inf, -0.0, math.inf)
    a[4, 1], b[4, 1] = (1.0, math.nan, 5e-3, 0.0), (math.inf, 2.0, 0.0, 5e-3)
    x, y = a.astype(kinds[0]), b.astype(kinds[1])
    for rtol, atol in ((1e-3, 0.0), (0.0, 1e-3), (1e-4, 1e-5)):
        near(measure(x, y, Tolerance(rtol, atol), chunk), slowly(x, y, rtol, atol))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_])
def test_whole_numbers_must_be_equal(kind):
    b = RANDOM.integers(0, 2, (40,)).astype(kind)
    a = b.copy()
    a[[3, 17, 39]] = 1 - a[[3, 17, 39]]
    measured = measure(a, b, Tolerance(1.0, 10.0), chunk=8)
    assert (measured.outside, measured.max_abs, measured.max_ulp) == (3, 1.0, None)
    assert measured.worst == (3,)
    assert measured.values == (a[3], b[3])


def test_whole_numbers_that_are_one_number_in_float64_still_differ():
    a, b = np.array([5, 2**62 + 1]), np.array([5, 2**62])
    measured = measure(a, b)
    assert (measured.outside, measured.worst, measured.values) == (1, (1,), (2**62 + 1, 2**62))


def test_signed_and_unsigned_are_compared_by_value():
    assert measure(np.array([1, 2], np.int32), np.array([1, 2], np.uint8)).outside == 0
    assert measure(np.array([-1], np.int8), np.array([255], np.uint8)).outside == 1


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_equal_bits(kind):
    a = np.array([[1, math.nan, math.inf], [-math.inf, 0, 2]], kind)
    expected = Measures(6, max_ulp=0, nan=(1, 1), inf=(2, 2), identical=True)
    assert measure(a, a.copy(), chunk=2) == expected
    swapped = measure(a.astype(a.dtype.newbyteorder(">")), a)
    assert swapped == expected


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_no_elements_and_no_axes(shape):
    zeros, size = np.zeros(shape, np.float32), math.prod(shape)
    assert measure(zeros, zeros.copy()) == Measures(size, max_ulp=0, identical=True)
    ones = measure(zeros + np.float32(1), zeros)
    assert (ones.elements, ones.outside) == (size, size)
    assert ones.worst == (() if size else None)


def test_a_wrong_factor_is_found_however_small_the_numbers_are():
    b = (1e-20 * RANDOM.normal(size=(64, 64))).astype(np.float32)
    measured = measure(b * np.float32(1.01), b)
    assert measured.outside > 0.95 * b.size
    assert measured.max_rel == pytest.approx(0.01, rel=1e-3)
    assert measured.cosine == pytest.approx(1)


def test_rounding_near_zero_is_no_difference():
    """A sum whose terms cancel in one order of summation and leave their rounding in another."""
    terms = np.float32([1e4, 1, -1e4]) / 3
    one, other = (terms[0] + terms[1]) + terms[2], (terms[0] + terms[2]) + terms[1]
    a, b = np.float32([one, 1e3]), np.float32([other, 1e3])
    assert abs(one - other) > 1e-4 * abs(other)
    assert measure(a, b).outside == 0
    assert measure(a, b, Tolerance(1e-8)).outside == 1


def test_float16_below_its_smallest_normal_number():
    """There are 6e-8 between neighbours, whatever their size."""
    b = np.float32([1e-6, -3e-6, 2.2e-6])
    a = b.astype(np.float16)
    assert (np.abs(a - b) > 1e-2 * np.abs(b)).any()
    assert measure(a, b).outside == 0
    assert measure(a.astype(np.float32), b).outside > 0
    assert measure(a * np.float16(2), b).outside > 0


def test_float64_beyond_its_squares():
    b = np.array([1e300, -1e300, 3e299])
    measured = measure(b * [1, 1, 1.5], b)
    assert (measured.outside, measured.worst) == (1, (2,))
    assert measured.max_rel == pytest.approx(0.5)
    small = measure(b * 1e-320 * [1, 1, 1.5], b * 1e-320, chunk=1)
    assert small.outside == 1
    exact = (1 + 1 + 1.5 * 0.09) / math.sqrt((2 + 0.2025) * 2.09)
    assert measured.cosine == pytest.approx(exact)
    assert small.cosine == pytest.approx(exact, rel=1e-6)
    opposite = measure(np.array([1.7e308]), np.array([-1.7e308]))
    assert (opposite.outside, opposite.max_abs, opposite.cosine) == (1, math.inf, -1.0)


def test_the_worst_element_is_the_one_furthest_beyond_its_bound():
    b = np.float32([[100, 1], [1, 0]])
    a = np.float32([[101, 1], [1, -9]])
    measured = measure(a, b, Tolerance(1e-3), chunk=1)
    assert (measured.worst, measured.values) == ((1, 1), (-9.0, 0.0))
    assert measured.bound == pytest.approx(1e-3 * math.sqrt(10002 / 4))
    a[0, 1] = math.nan
    assert measure(a, b, Tolerance(1e-3)).worst == (0, 1)


@pytest.mark.parametrize("values", [((0, 0), (0, 0), 1.0), ((0, 0), (1, 0), 0.0), ((1, 0), (0, 1), 0.0)])
def test_cosine_of_nothing(values):
    a, b, expected = values
    assert measure(np.float32(a), np.float64(b)).cosine == expected


@pytest.mark.parametrize("order", [(3, 0, 1, 2), (0, 2, 1, 3)])
def test_the_order_of_memory_does_not_matter(order):
    a, b = (RANDOM.normal(size=(6, 5, 4, 3)).astype(np.float32) for _ in range(2))
    lying = np.ascontiguousarray(b.transpose(order)).transpose(np.argsort(order))
    measured, expected = measure(a, lying, chunk=16), measure(a, b, chunk=16)
    assert measured.cosine == pytest.approx(expected.cosine, rel=1e-12)  # sums of chunks of other lengths
    assert measured.l2 == pytest.approx(expected.l2, rel=1e-12)
    assert replace(measured, cosine=0, l2=0) == replace(expected, cosine=0, l2=0)


def test_tensors_that_cannot_be_compared():
    one = TensorType(dt.float32, (2, 3))
    assert comparable(one, one.with_dtype(dt.float16))
    assert comparable(one.with_dtype(dt.int8), one.with_dtype(dt.uint64))
    for other in (one.with_shape(3, 2), one.with_dtype(dt.int32), one.with_dtype(dt.bool_)):
        assert not comparable(one, other)
        with pytest.raises(ShapeError, match="cannot be compared"):
            measure(np.zeros(one.shape, one.dtype.numpy), np.zeros(other.shape, other.dtype.numpy))


@table("chunk", [1, 7, 8192])
@table("factors", [(1024.0, 1.0), (1.0, 3.0)])
def test_elements_are_multiplied_before_they_are_compared(factors, chunk):
    """As multiplied in Float64, without rounding to the type that they have."""
    random = np.random.default_rng(4)
    b = random.normal(size=(5, 7)).astype(np.float32)
    a = (b * factors[1] / factors[0]).astype(np.float16)
    x, y = a.astype(np.float64) * factors[0], b.astype(np.float64) * factors[1]
    found = measure(a, b, chunk=chunk, factors=factors)
    rms = np.sqrt(np.mean(y**2))
    bounds = 1e-2 * np.maximum(np.maximum(np.abs(y), rms), np.finfo(np.float16).smallest_normal)
    assert found.outside == np.count_nonzero(np.abs(x - y) > bounds)
    assert found.max_abs == pytest.approx(np.abs(x - y).max())
    assert found.l2 == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(y))
    assert found.values == pytest.approx((x[found.worst], y[found.worst]))
    assert measure(b, b, factors=factors).outside == b.size


def test_rounding_of_an_earlier_operator_is_allowed_for():
    """Its relative tolerance, and its smallest normal number; a tolerance that was given is not changed."""
    b = np.float32([1, 2, 3])
    a = b * np.float32(1.005)
    half = Tolerance(coarser=dt.float16)
    assert (measure(a, b).outside, measure(a, b, half).outside) == (3, 0)
    assert measure(a, b, Tolerance(1e-4, coarser=dt.float16)).outside == 3
    assert measure(b * np.float32(1.03), b, half).outside == 3
    tiny = np.float32([1e-6, 2e-6])
    assert measure(tiny + np.float32(5e-7), tiny, half).outside == 0
    assert measure(tiny + np.float32(7e-7), tiny, half).outside == 2
    assert half.relative(dt.float64, dt.float64) == 1e-2
    assert half.relative(dt.int32, dt.int32) == 0
    assert measure(np.int32([1, 2]), np.int32([1, 3]), half).outside == 1


def test_default_tolerance_is_that_of_the_coarser_type():
    for types, expected in (("f8 f8", 1e-9), ("f8 f4", 1e-4), ("f4 f4", 1e-4), ("f4 f2", 1e-2)):
        a, b = types.split()
        x, y = np.full(64, 1, a), np.full(64, 1 + 0.9 * expected).astype(b)
        assert measure(x, y).outside == 0
        assert measure(x, np.full(64, 1 + 2 * expected).astype(b)).outside == 64


SCRIPT = """
import sys
import numpy as np
from runner.observe.tolerance import measure
def peak():  # in KiB; ru_maxrss begins with that of the parent
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
a, b = (np.memmap(path, np.float32, "r", shape=(32, 512, 512)) for path in sys.argv[1:3])
measure(a[:1], b[:1])
before = peak()
found = measure(a, b)
print(found.elements, found.outside, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_tensors(tmp_path):
    """Neither what Python holds nor what the system has in memory of the files, in a process of its own."""
    paths = [tmp_path / name for name in "ab"]
    for k, path in enumerate(paths):
        np.full(1 << 23, 1 + k * 1e-6, np.float32).tofile(path)  # 32 MiB
    command = [sys.executable, "-c", SCRIPT, *map(str, paths)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=True)
    elements, outside, kilobytes = map(int, done.stdout.split())
    assert (elements, outside) == (1 << 23, 0)
    assert kilobytes < 40 << 10
