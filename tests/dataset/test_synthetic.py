"""Synthetic images can be learnt, and come back for the same seed."""

import numpy as np
import pytest

from runner.dataset.readers import digits
from runner.dataset.readers.digits import make_images
from runner.errors import ConfigError


def test_the_label_can_be_learnt() -> None:
    images, labels = make_images(400, (8, 8, 3), 5, 1, "train")
    means = np.stack([images[labels == k].mean(axis=0) for k in range(5)])
    unseen, truth = make_images(200, (8, 8, 3), 5, 1, "test")
    distances = ((unseen[:, None].astype(np.float64) - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == truth).mean() > 0.99


def test_types_and_balance() -> None:
    images, labels = make_images(23, (4, 6, 1), 5, 1, "train")
    assert (images.shape, images.dtype, labels.dtype) == ((23, 4, 6, 1), np.uint8, np.int32)
    assert sorted(np.bincount(labels).tolist()) == [4, 4, 5, 5, 5]


def test_the_seed_decides() -> None:
    first = make_images(10, (4, 4, 1), 3, 1, "train")
    np.testing.assert_array_equal(first[0], make_images(10, (4, 4, 1), 3, 1, "train")[0])
    assert (first[0] != make_images(10, (4, 4, 1), 3, 2, "train")[0]).any()
    assert (first[0] != make_images(10, (4, 4, 1), 3, 1, "test")[0]).any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = make_images(10, (4, 4, 1), 3, 1, "train")
    monkeypatch.setattr(digits, "CHUNK_VALUES", 48)
    np.testing.assert_array_equal(make_images(10, (4, 4, 1), 3, 1, "train")[0], whole)


def test_an_unknown_split() -> None:
    with pytest.raises(ConfigError, match="unknown split of synthetic images"):
        make_images(10, (4, 4, 1), 3, 1, "all")
