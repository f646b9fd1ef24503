"""Data: a function that returns the samples of a split; runner shuffles and batches them."""

from typing import Annotated, Literal

import numpy as np

import runner
from runner.dataset import NumpySlicesDataset

ARMS = 3


@runner.register.dataset("spirals")
def spirals(
    split: Literal["train", "test"],
    samples: Annotated[int, runner.key(low=10, high=1_000_000)] = 1200,
    noise: Annotated[float, runner.key(low=0.0, high=1.0)] = 0.02,
    seed: int = 7,
):
    """Points of the plane on three arms of a spiral; the class is the arm.

    Args:
        samples: points of both splits; every fifth one is in the test split
        noise: standard deviation of the coordinates
        seed: of the points
    """
    random = np.random.RandomState(seed)
    arm = np.arange(samples) % ARMS
    radius = np.sqrt(random.uniform(0.02, 1.0, samples))
    angle = 3.0 * radius + 2.0 * np.pi * arm / ARMS
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points += random.normal(0.0, noise, points.shape)
    chosen = (np.arange(samples) % 5 == 4) == (split == "test")
    columns = {"point": points[chosen].astype(np.float32), "arm": arm[chosen].astype(np.int32)}
    dataset = NumpySlicesDataset(columns, shuffle=False)
    dataset.class_names = ("left", "top", "right")
    return dataset
