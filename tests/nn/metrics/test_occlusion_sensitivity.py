"""Occlusion sensitivity against a loop over the elements of an image."""

import itertools

import numpy as np
import pytest
from tables import table

from runner import Tensor, context, nn
from runner.errors import ConfigError

RNG = np.random.default_rng(3)
IMAGE = RNG.random((1, 3, 4)).astype(np.float32)
WEIGHTS = RNG.standard_normal((2, 12)).astype(np.float32)


class Scores(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten, self.dense = nn.Flatten(), nn.Dense(12, 2, weight_init=Tensor(WEIGHTS), has_bias=False)

    def construct(self, x):
        return self.dense(self.flatten(x))


def score(image):
    return float(image.astype(np.float64).ravel() @ WEIGHTS[1].astype(np.float64))


@table("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
@table("n_batch", [128, 5])
@table(("margin", "pad_val"), [(2, 0.0), (1, 0.5), ([1, 2], -1.0), (0, 0.0)])
@table("b_box", [None, [0, 1, 1, -1], [-3, 2, 1, 2]])
def test_scores_of_covered_images(b_box, margin, pad_val, n_batch, mode):
    context.set_context(mode=mode)
    rows, columns = (range(3), range(4)) if b_box is None else (range(max(0, b_box[0]), b_box[1] + 1), None)
    if columns is None:
        columns = range(b_box[2], 4 if b_box[3] < 0 else b_box[3] + 1)
    margins = [margin] * 2 if isinstance(margin, int) else margin
    expected = np.zeros((len(rows), len(columns)))
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        covered = IMAGE.copy()
        for y, x in itertools.product(range(3), range(4)):
            if -margins[0] <= y - row < margins[0] and -margins[1] <= x - column < margins[1]:
                covered[0, y, x] = pad_val
        expected[i, j] = score(IMAGE) - score(covered)
    metric = nn.OcclusionSensitivity(pad_val, margin, n_batch, b_box)
    metric.update(Scores(), Tensor(IMAGE), np.array(1))
    np.testing.assert_allclose(metric.eval(), expected, rtol=1e-5, atol=1e-5)


def test_the_example_of_mindspore():
    """With the numbers of its documentation."""
    dense = nn.Dense(4, 2, weight_init=Tensor([[0.1, 0.8, 0.1, 0.1], [1, 1, 1, 1]]), bias_init=Tensor([0.3, 0.6]))
    made = nn.OcclusionSensitivity()(dense, np.array([[0.1, 0.2, 0.3, 0.4]], np.float32), np.array(1, np.int32))
    np.testing.assert_allclose(made, [0.3, 0.6, 1.0, 0.9], rtol=1e-6)


@table(
    ("make", "text"),
    [
        (lambda: nn.OcclusionSensitivity(margin=-1), "margin must be a whole number of at least 0"),
        (lambda: nn.OcclusionSensitivity(n_batch=0), "n_batch must be a whole number of at least 1"),
        (lambda: nn.OcclusionSensitivity().eval(), "a metric without data"),
        (lambda: nn.OcclusionSensitivity()(len, IMAGE, 1), "the first input is no network"),
        (lambda: nn.OcclusionSensitivity()(Scores(), np.zeros((2, 3, 4)), 1), "one image and one label"),
        (lambda: nn.OcclusionSensitivity(margin=[1])(Scores(), IMAGE, 1), "margin needs a number for each axis"),
        (lambda: nn.OcclusionSensitivity(b_box=[0, 1])(Scores(), IMAGE, 1), "b_box needs two numbers for each axis"),
        (lambda: nn.OcclusionSensitivity(b_box=[0, 3, 0, 1])(Scores(), IMAGE, 1), "b_box is not in the image"),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
