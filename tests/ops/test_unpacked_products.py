"""Products of small matrices in parts that OpenBLAS does not pack."""

import numpy as np
import pytest

from runner.ops.matrices import LEAST_COLUMNS, UNPACKED, unpacked_product, unpacked_sum

# Rows, inner, columns: in one part, in equal parts, in parts of which the last is shorter, too large for any.
SIZES = [(6, 25, 100), (6, 25, 2 * UNPACKED // 150), (16, 150, 1001), (100, 60, LEAST_COLUMNS + 1), (3, 4, 0)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_those_of_float64(size):
    (m, k, n), rng = size, np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    out = np.full((m, n), np.nan, np.float32)
    made = unpacked_product(a.astype(np.float32), b.astype(np.float32), out)
    assert made is out
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-5 * k)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sums_are_those_of_float64(size):
    (m, k, n), rng = size, np.random.default_rng(0)
    a, b = rng.standard_normal((m, n)), rng.standard_normal((k, n))
    made = unpacked_sum(a.astype(np.float32), b.astype(np.float32))
    assert made.shape == (m, k)
    np.testing.assert_allclose(made, a @ b.T, rtol=0, atol=1e-4 * max(n, 1) ** 0.5)
