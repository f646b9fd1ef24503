"""Softmax over drawn classes, in both modes, against Float64 and numbers of MindSpore 2.10."""

import numpy as np
import pytest
from tables import table

from runner import Tensor, context, nn, ops
from runner.errors import ConfigError, ShapeError
from runner.host.seed import set_seed

MODES = [context.GRAPH_MODE, context.PYNATIVE_MODE]
RNG = np.random.default_rng(2)
WEIGHTS, BIAS, INPUTS = (RNG.standard_normal(shape).astype(np.float32) for shape in ((9, 4), (9,), (3, 4)))
SAMPLED = np.array([8, 0, 3, 5], np.int32)


def expected_loss(weights, bias, labels, inputs, sampled, own_count, count):
    own = np.stack([[weights[k] @ x + bias[k] for k in row] for row, x in zip(labels, inputs, strict=True)])
    scores = np.concatenate([own - np.log(own_count), inputs @ weights[sampled].T + bias[sampled] - np.log(count)], 1)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return -np.log(shares[:, : labels.shape[1]]).mean(1)


def wide(*arrays):
    return [array.astype(np.float64) for array in arrays]


# By the number of true classes: the losses that MindSpore 2.10 computes of the operands of the test.
OF_MINDSPORE = {
    1: [1.0904783010482788, 5.9790568351745605, 5.170259952545166],
    2: [3.7103755474090576, 4.662710189819336, 5.283164024353027],
}


@table("mode", MODES)
def test_given_classes(mode):
    context.set_context(mode=mode)
    rng = np.random.default_rng(2)
    weights, bias, inputs = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 4), (9,), (3, 4)))
    for true, of_mindspore in OF_MINDSPORE.items():
        labels = rng.integers(0, 9, (3, true)).astype(np.int32)
        counts = rng.random((3, true)).astype(np.float32), rng.random(4).astype(np.float32)
        expected = expected_loss(*wide(weights, bias), labels, *wide(inputs), SAMPLED, *wide(*counts))
        operands = [Tensor(array) for array in (weights, bias, labels, inputs)]
        for reduction, value in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
            given = [Tensor(SAMPLED), *map(Tensor, counts)]
            loss = nn.SampledSoftmaxLoss(4, 9, true, sampled_values=given, reduction=reduction)
            np.testing.assert_allclose(loss(*operands).asnumpy(), value, rtol=1e-5)
        np.testing.assert_allclose(expected, of_mindspore, rtol=1e-6)


@table("mode", MODES)
def test_slopes(mode):
    context.set_context(mode=mode)
    labels = np.array([[1], [4], [1]], np.int32)
    counts = np.full((3, 1), 0.5, np.float32), np.full(4, 0.5, np.float32)
    given = [Tensor(SAMPLED), *map(Tensor, counts)]
    loss = nn.SampledSoftmaxLoss(4, 9, 1, given, reduction="sum")
    gradients = ops.GradOperation(get_all=True)(loss)(*map(Tensor, (WEIGHTS, BIAS, labels, INPUTS)))
    made = [gradients[0].asnumpy(), gradients[1].asnumpy(), gradients[-1].asnumpy()]
    arrays = wide(WEIGHTS, BIAS, INPUTS)
    for array, slope in zip(arrays, made, strict=True):
        for place in np.ndindex(array.shape):
            values = []
            for step in (1e-6, -2e-6):
                array[place] += step
                values.append(expected_loss(arrays[0], arrays[1], labels, arrays[2], SAMPLED, *wide(*counts)).sum())
            array[place] += 1e-6
            assert slope[place] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-5)


class Drawn(nn.Cell):
    def __init__(self, **options):
        super().__init__()
        self.loss = nn.SampledSoftmaxLoss(3, 9, **options)

    def construct(self, labels):
        return self.loss.draw(labels)


def draws(mode, count, labels, **options):
    set_seed(1)
    context.set_context(mode=mode)
    cell = Drawn(**options)
    return [cell(Tensor(np.array(labels, np.int32))).asnumpy().tolist() for _ in range(count)]


def test_classes_are_drawn():
    """Different ones in each step, in both modes the same, none that is true, each as often."""
    graph, pynative = (draws(mode, 300, [[1], [4], [1]], seed=3) for mode in MODES)
    assert graph == pynative
    assert all(len(set(row)) == 3 and not {1, 4} & set(row) for row in graph)
    assert len({tuple(row) for row in graph}) > 100
    counts = np.bincount(np.ravel(graph), minlength=9)[[0, 2, 3, 5, 6, 7, 8]]
    assert (np.abs(counts - 900 / 7) < 5 * np.sqrt(300 * 3 / 7 * 4 / 7)).all()
    hits = draws(MODES[1], 50, [[1], [4], [1]], seed=3, remove_accidental_hits=False)
    assert {1, 4} <= set(np.ravel(hits))


@table("mode", MODES)
def test_all_classes_are_the_whole_softmax(mode):
    """All others drawn: the cross-entropy of the softmax over all classes."""
    context.set_context(mode=mode)
    labels = np.array([2, 2, 2], np.int64)
    scores = INPUTS.astype(np.float64) @ WEIGHTS.T.astype(np.float64) + BIAS
    expected = np.log(np.exp(scores).sum(1)) - scores[:, 2]
    made = nn.SampledSoftmaxLoss(num_sampled=8, num_classes=9)(*map(Tensor, (WEIGHTS, BIAS, labels, INPUTS)))
    np.testing.assert_allclose(made.asnumpy(), expected, rtol=1e-5)


@table(
    ("make", "text"),
    [
        (lambda: nn.SampledSoftmaxLoss(10, 9), "num_sampled must be a whole number from 1 to 9"),
        (lambda: nn.SampledSoftmaxLoss(3, 9, 0), "num_true must be a whole number from 1 to 9"),
        (lambda: nn.SampledSoftmaxLoss(3, 9, seed=-1), "seed must be a whole number of at least 0"),
        (lambda: nn.SampledSoftmaxLoss(3, 9, sampled_values=[1]), "sampled_values are three tensors"),
        (
            lambda: nn.SampledSoftmaxLoss(3, 8)(*map(Tensor, (WEIGHTS, BIAS, np.zeros(3, np.int32), INPUTS))),
            "operands of a sampled softmax\n  weights  (9, 4)\n  bias     (9,)\n  labels   (3,)\n  inputs   (3, 4)\n"
            "  allowed  (8, D), (8,), (N, 1), (N, D)",
        ),
        (
            lambda: nn.SampledSoftmaxLoss(3, 9)(*map(Tensor, (WEIGHTS, BIAS, np.zeros(3, np.float32), INPUTS))),
            "class numbers are Int32 or Int64\n  labels  Float32",
        ),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
    assert isinstance(caught.value, ShapeError) == ("softmax" in text or "numbers are" in text)
