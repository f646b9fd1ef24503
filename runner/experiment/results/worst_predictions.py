"""`eval/worst.json`: the samples of an evaluation whose true class has the lowest probability, and their images.

Of each batch only the candidates among the COUNT worst are kept; samples are read again at the end, by their visits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.pipeline import Dataset
from runner.experiment.results.thumbnails import thumbnails
from runner.host import png
from runner.host.console import as_unicode
from runner.host.files import make_directory, remove, storage_errors, write_json, write_whole
from runner.nn.metrics.base import without_units
from runner.ops.activation import Softmax
from runner.train.callback import Callback, RunContext

FOLDER, FILE, IMAGES = "eval", "worst.json", "worst"
COUNT = 16
MAX_NAME = 4096  # characters of a sample's file name


class Predictions(NamedTuple):
    """Predictions of n samples, arrays (n,): int64 numbers, and the Float64 probabilities of the true and of the
    predicted class, NaN where the outputs have no finite softmax."""

    row: np.ndarray
    visit: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    predicted_probability: np.ndarray

    @classmethod
    def of(cls, output: np.ndarray, target: np.ndarray, rows: np.ndarray, visits: np.ndarray) -> "Predictions | None":
        """Those of a batch: outputs (N, C) are logits, targets class numbers. None for anything else."""
        is_classification = output.ndim == 2 and output.shape[1] > 1 and target.dtype.kind in "iu"
        if not is_classification or not without_units(target.shape) == output.shape[:1] == rows.shape:
            return None
        true = target.reshape(-1).astype(np.int64)
        if (true < 0).any() or (true >= output.shape[1]).any():
            return None
        with np.errstate(all="ignore"):
            scores = output.astype(np.float64)
            probabilities = Softmax().kernel(scores)
        predicted, samples = scores.argmax(1), np.arange(len(true))
        own, highest = probabilities[samples, true], probabilities[samples, predicted]
        return cls(rows, visits, true, predicted, own, highest)

    def worst(self, others: "Predictions | None") -> "Predictions":
        """The COUNT worst of these and others: NaN first, then the lowest probabilities; equal ones by row."""
        both = self if others is None else Predictions(*map(np.concatenate, zip(self, others, strict=True)))
        ranks = np.where(np.isnan(both.probability), -1.0, both.probability)
        order = np.lexsort((both.visit, both.row, ranks))[:COUNT]
        return Predictions(*(values[order] for values in both))


class WorstPredictions(Callback):
    """Observes an evaluation after `global_step` steps and writes its worst predictions into a run directory.

    Without class numbers as targets and outputs (N, C) nothing is written, and the files of an earlier evaluation are
    removed. Raises StorageError.
    """

    def __init__(self, run_dir: Path, global_step: int) -> None:
        self.folder, self.global_step = run_dir / FOLDER, global_step
        self.worst: Predictions | None = None
        self.samples = self.classes = 0
        self._fits = True
        self._batches: Iterator[np.ndarray] = iter(())

    def begin(self, run_context: RunContext) -> None:
        data: Dataset = run_context.original_args().valid_dataset
        self._batches = iter(data.visits(0))

    def step_end(self, run_context: RunContext) -> None:
        if not self._fits:
            return
        cb_params = run_context.original_args()
        visits = np.atleast_1d(next(self._batches))
        output, target = map(np.asarray, cb_params.net_outputs[1:])
        found = Predictions.of(output, target, cb_params.valid_dataset.rows(visits), visits)
        if found is None:
            self._fits, self.worst = False, None
            return
        self.worst = found.worst(self.worst)
        self.samples += len(visits)
        self.classes = output.shape[1]

    def end(self, run_context: RunContext) -> None:
        for name in (FILE, IMAGES):  # the file first: as long as it exists, it describes the images
            with storage_errors("cannot remove an earlier result", self.folder / name):
                remove(self.folder / name)
        if self.worst is None:
            return
        data: Dataset = run_context.original_args().valid_dataset
        pictures = thumbnails(data, self.worst.visit)
        if pictures is not None:
            make_directory(self.folder / IMAGES)
            for number, pixels in enumerate(pictures):
                write_whole(self.folder / image_name(number), [png.encode(pixels)])
        make_directory(self.folder)
        entries = [self._entry(number, data, pictures is not None) for number in range(len(self.worst.row))]
        head = {"global_step": self.global_step, "samples": self.samples, "classes": self.classes}
        write_json(self.folder / FILE, {**head, "predictions": entries})

    def _entry(self, number: int, data: Dataset, has_image: bool) -> dict[str, Any]:
        assert self.worst is not None
        arrays = self.worst._asdict()
        values: dict[str, Any] = {name: _plain(array[number]) for name, array in arrays.items() if name != "visit"}
        names, row = data.row_names, int(self.worst.row[number])
        if names is not None and row < len(names):
            values["file"] = as_unicode(str(names[row])[:MAX_NAME])
        return values | ({"image": image_name(number)} if has_image else {})


def image_name(number: int) -> str:
    """The file of the image of a prediction, relative to `eval/`."""
    return f"{IMAGES}/{number:02d}.png"


def _plain(value: np.generic) -> float | int | None:
    """A number for JSON, which has no NaN."""
    plain: float | int = value.item()
    return None if plain != plain else plain
