"""Perplexity against sums over single words, and BLEU against numbers that MindSpore 2.10 computed."""

import math

import numpy as np
import pytest
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError

RNG = np.random.default_rng(3)
SHARES = RNG.dirichlet(np.ones(5), 40)
WORDS = RNG.integers(0, 5, 40)
TRANSLATIONS = [["i", "have", "a", "pen", "on", "my", "desk"], ["a", "b", "c", "d", "e"]]
REFERENCES = [
    [["i", "have", "a", "pen", "in", "my", "desk"], ["there", "is", "a", "pen", "on", "the", "desk"]],
    [["a", "b", "c", "d"], ["x", "a", "b", "c", "d", "e"]],
]
# By n_gram and smooth, of the first translation alone and of both: from MindSpore 2.10.
SCORES = {
    (1, False): (1.0, 1.0),
    (2, False): (0.9128709291752769, 0.9486832980505138),
    (3, False): (0.7937005259840997, 0.8772053214638599),
    (4, False): (0.5946035575013605, 0.7621991222319221),
    (4, True): (0.691441569283882, 0.7972714256536028),
}


@table("cut", [(40,), (16, 16, 8), (1,) * 40])
@table("ignored", [None, 2])
@table("shape", [(40,), (40, 1), (8, 5)])
@table("convert", [np.asarray, Tensor, np.ndarray.tolist])
def test_perplexity(convert, shape, ignored, cut):
    pairs = [(row[word], word) for row, word in zip(SHARES, WORDS, strict=True) if word != ignored]
    expected = math.exp(-math.fsum(math.log(share) for share, _ in pairs) / len(pairs))
    metric = nn.Perplexity(ignored)
    target = WORDS.reshape(shape)
    edges = np.cumsum(cut)[:-1] if len(target) == 40 else [3]
    for batch in zip(np.split(SHARES.reshape(*shape, 5), edges), np.split(target, edges), strict=True):
        metric.update(*map(convert, batch))
    rel = 1e-6 if convert is Tensor else 1e-12
    assert metric.eval() == pytest.approx(expected, rel=rel)


def test_a_probability_of_zero_counts_as_a_small_one():
    assert nn.Perplexity()(np.array([[0.0, 1.0]]), np.array([0])) == pytest.approx(1e10)
    # the example of MindSpore
    assert nn.Perplexity()([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]], [1, 0, 1]) == pytest.approx(2.231443166940565)


@table(("n_gram", "smooth"), SCORES)
@table("batches", [1, 2])
def test_bleu(batches, n_gram, smooth):
    alone, both = SCORES[n_gram, smooth]
    metric = nn.BleuScore(n_gram, smooth)
    assert metric(TRANSLATIONS[:1], REFERENCES[:1]) == pytest.approx(alone, rel=1e-12)
    metric.clear()
    for part in np.split(np.arange(2), batches):
        metric.update([TRANSLATIONS[n] for n in part], [REFERENCES[n] for n in part])
    assert metric.eval() == pytest.approx(both, rel=1e-12)


def test_bleu_without_a_common_run_is_zero():
    assert nn.BleuScore()([["q", "r"]], [[["s", "t"]]]) == 0
    assert nn.BleuScore(1)([["a"]], [[["a", "b", "c"]]]) == pytest.approx(math.exp(1 - 3))  # too short


@table(
    ("make", "text"),
    [
        (lambda: nn.BleuScore(5), "n_gram must be a whole number from 1 to 4\n  given  5"),
        (
            lambda: nn.BleuScore()([["a"]], []),
            "every translation needs its references\n  metric      BleuScore\n  candidates  1\n  references  0",
        ),
        (lambda: nn.BleuScore().eval(), "a metric without data\n  metric  BleuScore"),
        (lambda: nn.Perplexity(0.5), "ignore_label must be a whole number"),
        (lambda: nn.Perplexity(1)(np.ones((2, 3)), np.array([1, 1])), "a metric without data\n  metric  Perplexity"),
        (
            lambda: nn.Perplexity()(np.ones((2, 3)), np.array([1, 3])),
            "a target is no class\n  given    1 to 3",
        ),
        (
            lambda: nn.Perplexity()(np.ones((2, 3)), np.array([1])),
            "a metric cannot compare these shapes\n  metric   Perplexity\n  output   (2, 3)\n  target   (1,)",
        ),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
