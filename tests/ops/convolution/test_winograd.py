"""The matrices of Winograd's minimal filtering against correlations in Float64."""

import numpy as np
import pytest

from runner.ops.convolution.winograd import POINTS, one_dimensional, winograd


@pytest.mark.parametrize("tile", POINTS)
def test_one_row_is_a_correlation(tile):
    inputs, filters, outputs = one_dimensional(POINTS[tile])
    x, w = np.random.default_rng(0).standard_normal((2, tile + 2))
    expected = np.correlate(x, w[:3], "valid")
    np.testing.assert_allclose(outputs @ ((filters @ w[:3]) * (inputs @ x)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tile", POINTS)
def test_a_tile_and_its_gradients_are_correlations(tile):
    matrices, rng = winograd(tile), np.random.default_rng(1)
    inputs, filters, outputs = (m.astype(np.float64) for m in (matrices.inputs, matrices.filters, matrices.outputs))
    x, w, dy = (rng.standard_normal((n, n)) for n in (tile + 2, 3, tile))
    y = np.lib.stride_tricks.sliding_window_view(x, (3, 3)) * w
    dw = np.lib.stride_tricks.sliding_window_view(x, (tile, tile)) * dy
    found = outputs @ ((filters @ w.ravel()) * (inputs @ x.ravel()))
    np.testing.assert_allclose(found, y.sum((2, 3)).ravel(), atol=1e-5)  # Float32 thirds in the filters
    found = filters.T @ ((outputs.T @ dy.ravel()) * (inputs @ x.ravel()))
    np.testing.assert_allclose(found, dw.sum((2, 3)).ravel(), atol=1e-5)


def test_tiles_and_results_have_no_rounding_error():
    for tile, points in POINTS.items():
        exact = [np.kron(m, m) for m in one_dimensional(points)]
        np.testing.assert_array_equal(winograd(tile).inputs, exact[0])
        np.testing.assert_array_equal(winograd(tile).outputs, exact[2])
