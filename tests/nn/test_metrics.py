"""Metrics against sums over single samples, in whatever batches they come."""

import math

import numpy as np
import pytest

from runner import nn
from runner.errors import ConfigError
from runner.nn.metrics import ALIASES, METRICS, Accuracy, Loss, get_metrics

RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal((11, 4)).astype(np.float32)
LABELS = RNG.integers(0, 4, 11).astype(np.int32)
LOSSES = RNG.random(11).astype(np.float32)
CUTS = [(11,), (4, 4, 3), (1,) * 11, (10, 1)]


def parts(cut, *arrays):
    edges = np.cumsum(cut)[:-1]
    return list(zip(*(np.split(array, edges) for array in arrays), strict=True))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("one_hot", [False, True])
def test_accuracy_counts_samples(cut, one_hot):
    expected = sum(max(range(4), key=lambda k: row[k]) == label for row, label in zip(SCORES, LABELS, strict=True)) / 11
    labels = np.eye(4, dtype=np.float32)[LABELS] if one_hot else LABELS
    metric = Accuracy()
    for scores, label in parts(cut, SCORES, labels):
        metric.update(np.float32(0), scores, label)
    assert metric.eval() == pytest.approx(expected, abs=1e-12)
    assert 0 < expected < 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("reduced", [False, True])
def test_the_loss_is_a_mean_over_samples(cut, reduced):
    """A short last batch weighs as much as its samples, whether the loss comes per batch or per sample."""
    metric = Loss()
    for losses, label in parts(cut, LOSSES, LABELS):
        metric.update(losses.mean() if reduced else losses, SCORES[: len(label)], label)
    assert metric.eval() == pytest.approx(math.fsum(map(float, LOSSES)) / 11, rel=1e-6)


def test_many_small_losses_are_not_lost():
    metric = Loss()
    for _ in range(20_000):
        metric.update(np.float32(0.1), SCORES[:1], LABELS[:1])
    assert metric.eval() == pytest.approx(float(np.float32(0.1)), rel=1e-9)


@pytest.mark.parametrize("kind", [Accuracy, Loss])
def test_clear_forgets(kind):
    metric = kind()
    metric.update(np.float32(3), SCORES[:2], LABELS[:2])
    metric.clear()
    with pytest.raises(ConfigError) as caught:
        metric.eval()
    assert str(caught.value) == f"ConfigError: a metric without data\n  metric  {kind.__name__}"
    metric.update(np.float32(0), np.eye(2, dtype=np.float32), np.array([0, 1], np.int32))
    assert metric.eval() == (1.0 if kind is Accuracy else 0.0)


def test_a_metric_of_the_user():
    class Largest(nn.Metric):
        def clear(self):
            self.value = 0.0

        def update(self, loss, output, label):
            self.value = max(self.value, float(np.max(output)))

        def eval(self):
            return self.value

    chosen = get_metrics({"largest": Largest(), "acc": Accuracy()})
    assert list(chosen) == ["largest", "acc"]
    chosen["largest"].clear()
    chosen["largest"].update(np.float32(0), SCORES, LABELS)
    assert chosen["largest"].eval() == SCORES.max()


def test_the_base_class_leaves_everything_to_others():
    base = nn.Metric()
    for call in (base.clear, base.eval, lambda: base.update(None, None, None)):
        with pytest.raises(NotImplementedError):
            call()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, []),
        ([], []),
        ({"loss", "accuracy"}, ["accuracy", "loss"]),
        (["loss", "acc"], ["loss", "acc"]),
        (("accuracy",), ["accuracy"]),
        ("accuracy", ["accuracy"]),
    ],
)
def test_metrics_by_name(wanted, names):
    made = get_metrics(wanted)
    assert list(made) == names
    assert all(type(metric) is METRICS[ALIASES.get(name, name)] for name, metric in made.items())


KNOWN = ", ".join([*METRICS, *ALIASES])


@pytest.mark.parametrize("is_sum", [False, True])
def test_metrics_of_a_run_know_what_its_loss_is(is_sum):
    made = {name: kind.for_loss(is_sum) for name, kind in METRICS.items()}
    assert {name: type(metric) for name, metric in made.items()} == METRICS
    assert made["loss"].summed is is_sum


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"acuracy"}, f"unknown metric\n  given    acuracy\n  allowed  {KNOWN}\n  nearest  accuracy"),
        ([3], f"unknown metric\n  given    3\n  allowed  {KNOWN}"),
        ("precision", f"unknown metric\n  given    precision\n  allowed  {KNOWN}"),
        ({"loss": "loss"}, "not a metric\n  name     loss\n  given    'loss'\n  allowed  objects of runner.nn.Metric"),
        ({"loss": Loss}, f"not a metric\n  name     loss\n  given    {Loss!r}\n  allowed  objects of runner.nn.Metric"),
    ],
)
def test_what_is_no_metric(wanted, text):
    with pytest.raises(ConfigError) as caught:
        get_metrics(wanted)
    assert str(caught.value) == f"ConfigError: {text}"
