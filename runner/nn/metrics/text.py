"""Metrics of text: the perplexity of predictions, and the BLEU score of translations."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.errors import ShapeError
from runner.nn.metrics.base import Metric, of_arrays, rearrange_inputs, require_data, require_shapes
from runner.validation.arguments import flag, whole

SMALLEST = 1e-10  # of the probabilities of a perplexity


class Perplexity(Metric):
    """exp of the mean of -log of the probability that the outputs (N, ..., C) give to the targets (N, ...).

    Outputs are probabilities; those below 1e-10 count as 1e-10. Targets that are `ignore_label` do not count. Raises
    ShapeError unless there is one target for each distribution, ConfigError without any that counts.
    """

    def __init__(self, ignore_label: int | None = None) -> None:
        if ignore_label is not None:
            whole({}, -(2**63), ignore_label=ignore_label)
        self.ignore_label = ignore_label
        self.clear()

    def clear(self) -> None:
        self.total, self.count = 0.0, 0

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        fits = output.ndim > 1 and target.size * output.shape[-1] == output.size
        require_shapes(self, fits, output, target, "class numbers (N, ...) for probabilities (N, ..., C)")
        numbers = target.ravel().astype(np.int64)
        rows = output.reshape(len(numbers), -1)
        if self.ignore_label is not None:
            counts = numbers != self.ignore_label
            numbers, rows = numbers[counts], rows[counts]
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows.shape[1]:
            raise ShapeError("a target is no class", given=f"{numbers.min()} to {numbers.max()}", classes=rows.shape[1])
        likely = rows[np.arange(len(numbers)), numbers].astype(np.float64)
        self.total -= float(np.log(np.maximum(likely, SMALLEST)).sum())
        self.count += len(numbers)

    def eval(self) -> float:
        require_data(self, self.count)
        return math.exp(self.total / self.count)


class BleuScore(Metric):
    """BLEU: how many runs of up to `n_gram` words (1 to 4) of translations stand in references.

    `update(candidates, references)` takes N translations, each a list of words, and for each a list of references, each
    a list of words. The value is the geometric mean of the shares of runs of each length, times exp(1 - r / c) if the
    translations have c words, not more than the r of the references whose lengths are closest. Without a common run of
    one of the lengths it is 0. `smooth` adds 1 to the numbers of runs and of common runs.
    """

    direction = "maximize"

    def __init__(self, n_gram: int = 4, smooth: bool = False) -> None:
        whole({}, 1, 4, n_gram=n_gram)
        flag({}, smooth=smooth)
        self.n_gram, self.smooth = n_gram, smooth
        self.clear()

    def clear(self) -> None:
        self.common, self.all = np.zeros(self.n_gram), np.zeros(self.n_gram)  # runs by length
        self.words = self.reference_words = self.count = 0

    @rearrange_inputs
    def update(self, candidates: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
        if len(candidates) != len(references):
            rows = {"candidates": len(candidates), "references": len(references)}
            raise ShapeError("every translation needs its references", metric=type(self).__name__, **rows)
        for words, texts in zip(candidates, references, strict=True):
            self.count += 1
            self.words += len(words)
            self.reference_words += min((len(text) for text in texts), key=lambda length: abs(length - len(words)))
            for place in range(self.n_gram):
                runs, known = _runs(words, place + 1), Counter[tuple[Any, ...]]()
                for text in texts:
                    known |= _runs(text, place + 1)
                self.common[place] += (runs & known).total()
                self.all[place] += runs.total()

    def eval(self) -> float:
        require_data(self, self.count)
        if not self.common.all():
            return 0.0
        shares = (self.common + self.smooth) / (self.all + self.smooth)
        brevity = 1.0 if self.words > self.reference_words else math.exp(1 - self.reference_words / self.words)
        return brevity * math.exp(np.log(shares).mean())


def _runs(words: Sequence[Any], length: int) -> Counter[tuple[Any, ...]]:
    """How often each run of so many words occurs."""
    return Counter(tuple(words[start : start + length]) for start in range(len(words) - length + 1))
