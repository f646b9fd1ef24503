"""Sequences of brackets, balanced or not.

Each balanced sequence has a partner with the same brackets in another order, which is not balanced. So the number of
each bracket says nothing about the class: a network has to use the order.
"""

from typing import Annotated, Literal

import numpy as np

import runner
from runner.dataset import Dataset, NumpySlicesDataset

TOKENS = "()[]"
PARTNER = {")": "(", "]": "["}


def is_balanced(text: str) -> bool:
    """Whether every bracket is closed by one of its kind, in order."""
    opened: list[str] = []
    for token in text:
        if token not in PARTNER:
            opened.append(token)
        elif not opened or opened.pop() != PARTNER[token]:
            return False
    return not opened


def balanced(rng: np.random.Generator, length: int) -> str:
    """A random balanced sequence of even length."""
    opened: list[str] = []
    text = ""
    while len(text) < length:
        if opened and (len(opened) == length - len(text) or rng.random() < 0.5):
            text += opened.pop()
        else:
            text += (token := str(rng.choice(["(", "["])))
            opened.append(")" if token == "(" else "]")
    return text


def shuffled(rng: np.random.Generator, text: str) -> str:
    """The brackets of a sequence in another order, which is not balanced."""
    while True:
        mixed = "".join(rng.permutation(list(text)))
        if not is_balanced(mixed):
            return mixed


@runner.register.dataset("brackets")
def brackets(
    split: Literal["train", "test"],
    pairs: Annotated[int, runner.key(low=1, high=1_000_000)] = 1500,
    half: Annotated[int, runner.key(low=2, high=500)] = 6,
    seed: Annotated[int, runner.key(low=0)] = 1,
) -> Dataset:
    """Columns `tokens` Int32 [2 * half] and `balanced` Int32, in pairs of rows with the same brackets.

    Args:
        pairs: pairs of rows in the training split; the test split has a fifth
        half: opening brackets in a row, and as many closing ones
        seed: of the rows
    """
    rng = np.random.default_rng([seed, split == "test"])
    count = pairs if split == "train" else max(1, pairs // 5)
    texts: list[str] = []
    for _ in range(count):
        texts.append(text := balanced(rng, 2 * half))
        texts.append(shuffled(rng, text))
    tokens = np.array([[TOKENS.index(token) for token in text] for text in texts], np.int32)
    labels = np.tile(np.array([1, 0], np.int32), count)
    data = NumpySlicesDataset({"tokens": tokens, "balanced": labels})
    data.class_names = ("mixed", "balanced")
    return data
