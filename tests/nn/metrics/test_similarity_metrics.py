"""Cosines between rows, and Dice coefficients, against Float64 sums."""

import math

import numpy as np
import pytest
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError

ROWS = np.random.default_rng(3).standard_normal((6, 4))


@table("similarity", ["cosine", "dot"])
@table("reduction", ["none", "sum", "mean"])
@table("zero_diagonal", [False, True])
def test_similarities_of_all_pairs(zero_diagonal, reduction, similarity):
    expected = np.zeros((6, 6))
    for i, a in enumerate(ROWS):
        for j, b in enumerate(ROWS):
            if i != j or not zero_diagonal:
                length = math.sqrt(math.fsum(a * a) * math.fsum(b * b)) if similarity == "cosine" else 1
                expected[i, j] = math.fsum(a * b) / length
    if reduction != "none":
        expected = expected.sum(1) / (6 if reduction == "mean" else 1)
    metric = nn.CosineSimilarity(similarity, reduction, zero_diagonal)
    metric.update(Tensor(ROWS[:2]))  # the value is that of the last update
    metric.update(ROWS)
    for _ in range(2):  # `eval` changes nothing
        np.testing.assert_allclose(metric.eval(), expected, rtol=1e-12, atol=1e-15)


@table("smooth", [1e-5, 1.0])
def test_dice(smooth):
    """As in MindSpore r1.2, the coefficients of the batches are summed and divided by the number of samples."""
    output, target = np.abs(ROWS), (ROWS > 0).astype(np.float32)
    metric, expected = nn.Dice(smooth), 0.0
    for start in (0, 4):
        a, b = output[start : start + 4].ravel().tolist(), target[start : start + 4].ravel().tolist()
        both = math.fsum(x * y for x, y in zip(a, b, strict=True))
        expected += 2 * both / (math.fsum(x * x for x in a) + math.fsum(y * y for y in b) + smooth)
        metric.update(output[start : start + 4], target[start : start + 4])
    assert metric.eval() == pytest.approx(expected / 6, rel=1e-12)


def test_the_examples_of_mindspore():
    """With the numbers that MindSpore 2.10 computes."""
    made = nn.Dice(smooth=1e-5)([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], np.array([[0, 1], [1, 0], [0, 1]]))
    assert made == pytest.approx(0.20467791371802546, rel=1e-12)
    made = nn.CosineSimilarity()(np.array([[1, 3, 4, 7], [2, 4, 2, 5], [3, 1, 5, 8]]))
    expected = [[0, 0.94025615, 0.95162452], [0.94025615, 0, 0.86146098], [0.95162452, 0.86146098, 0]]
    np.testing.assert_allclose(made, expected, atol=1e-8)


@table(
    ("make", "text"),
    [
        (lambda: nn.Dice(0.0), "smooth must be a number above 0"),
        (lambda: nn.Dice()(ROWS, ROWS[:2]), "a metric cannot compare these shapes\n  metric   Dice"),
        (lambda: nn.Dice().eval(), "a metric without data\n  metric  Dice"),
        (lambda: nn.CosineSimilarity("cos"), "similarity is not one of the choices\n  given    'cos'"),
        (lambda: nn.CosineSimilarity(reduction="max"), "reduction is not one of the choices\n  given    'max'"),
        (lambda: nn.CosineSimilarity()(ROWS[0]), "a metric cannot compare these shapes\n  metric   CosineSimilarity"),
        (lambda: nn.CosineSimilarity().eval(), "a metric without data\n  metric  CosineSimilarity"),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
