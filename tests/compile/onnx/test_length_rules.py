"""Constants that follow from the length of a batch: rules found from a few lengths hold for all others."""

import math
from fractions import Fraction

import numpy as np
from tables import table

from runner.compile.onnx.free_axes import Quotient, linear, quotient

LENGTHS = [{"batch": 7}, {"batch": 11}, {"batch": 32}]
OTHERS = (1, 2, 3, 5, 8, 30, 64, 100, 1000)
RULES = {
    "mean": lambda n: 1 / n,
    "mean of pixels": lambda n: 1 / (n * 784),
    "scaled": lambda n: 1024 / n,
    "share": lambda n: 0.9 / n,
    "negative": lambda n: -2 / (3 * n),
    "sum": lambda n: 3.0 * n,
    "part": lambda n: n / 7,
    "constant": lambda n: 0.123,
    "unbiased": lambda n: 4 * n / (4 * n - 1),
}


def values(rule, n: int, dtype: type) -> np.ndarray:
    return np.array([rule(n), 0.5], dtype)


def evaluated(rule: Quotient, n: int, dtype: type) -> np.ndarray:
    """In the arithmetic of the model: Float32 for halves."""
    wide = np.float64 if dtype is np.float64 else np.float32
    a, b, c, d = (part.astype(wide) for part in rule)
    return ((a * wide(n) + b) / np.maximum(c * wide(n) + d, wide(1))).astype(dtype)


@table("name", RULES, ids=str)
def test_a_rule_holds_for_other_lengths(name):
    for dtype in (np.float32, np.float64, np.float16):
        rule = quotient([values(RULES[name], known["batch"], dtype) for known in LENGTHS], LENGTHS)
        if rule is None:
            assert dtype is np.float16  # so few bits determine no factor of pixels
            continue
        for n in OTHERS:
            expected, found = values(RULES[name], n, dtype), evaluated(rule, n, dtype)
            different = found != expected
            assert np.all(np.abs(found - expected)[different] <= np.spacing(np.abs(expected[different])))


def test_infinite_constants():
    rule = quotient([np.array([math.inf, -math.inf], np.float32)] * 3, LENGTHS)
    assert rule is not None
    assert evaluated(rule, 9, np.float32).tolist() == [math.inf, -math.inf]


def test_an_unbiased_variance_of_many_pixels():
    """The factor is known to a few digits, and so is what it changes."""
    for pixels in (1, 9, 784, 12544):
        rule = quotient([np.array(pixels * n / (pixels * n - 1), np.float32) for n in (7, 11, 32)], LENGTHS)
        assert rule is not None
        for n in OTHERS[pixels == 1 :]:
            assert abs(float(evaluated(rule, n, np.float32)) - pixels * n / (pixels * n - 1)) < 1e-6


OTHER = {
    "squares": [np.array(float(n * n)) for n in (7, 11, 32)],
    "roots": [np.array(math.sqrt(n)) for n in (7, 11, 32)],
    "zero once": [np.array(0.0), np.array(1 / 11), np.array(1 / 32)],
    "random": [np.random.default_rng(n).random(3) for n in (7, 11, 32)],
    "integers": [np.array(n) for n in (7, 11, 32)],
    "other shapes": [np.ones(n) for n in (7, 11, 32)],
    "other types": [np.array(1 / 7), np.array(1 / 11, np.float32), np.array(1 / 32)],
    "almost": [np.array(1 / 7), np.array(1 / 11), np.array(1 / 32 + 1e-12)],
}


@table("name", OTHER, ids=str)
def test_what_is_no_quotient(name):
    assert quotient(OTHER[name], LENGTHS) is None


def test_several_names_have_no_quotients():
    lengths = [{"a": 7, "b": 7}, {"a": 11, "b": 7}, {"a": 7, "b": 13}]
    assert quotient([np.array(1 / known["a"]) for known in lengths], lengths) is None


@table("seed", range(50))
def test_fractions_made_at_random(seed):
    random = np.random.default_rng(seed)
    fraction = Fraction(int(random.integers(1, 2000)), int(random.integers(1, 2000)))
    arrays = [np.array(float(fraction) / known["batch"], np.float32) for known in LENGTHS]
    rule = quotient(arrays, LENGTHS)
    assert rule is not None
    for n in OTHERS:
        expected = np.float32(float(fraction) / n)
        assert abs(evaluated(rule, n, np.float32) - expected) <= 4 * np.spacing(expected)


def test_integers_are_linear():
    lengths = [{"a": 7, "b": 5}, {"a": 11, "b": 5}, {"a": 7, "b": 13}, {"a": 4, "b": 9}]
    rule = linear([np.array([2 * known["a"] - known["b"] + 3]) for known in lengths], lengths)
    assert rule is not None
    assert (rule.constant.tolist(), {k: v.tolist() for k, v in rule.factors.items()}) == ([3], {"a": [2], "b": [-1]})
