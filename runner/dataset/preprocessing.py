"""What reads new files as the inputs of a dataset."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.dataset.pipeline import Dataset


class Preprocessing(ABC):
    """How new files become the inputs of a trained network: fitted to the training split, stored as JSON with a run.

    `class_names` are those of the training's target, or None.
    """

    class_names: tuple[str, ...] | None = None

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> Dataset:
        """The input columns of the samples in these files, in their order, unbatched; `row_names` says where each was.

        Raises DataError for a file that is missing, damaged, or without an input.
        """

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Values of plain JSON, from which `stored_preprocessing` creates an equal object."""
