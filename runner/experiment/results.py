"""What a run writes after its last step, for people and other programs: the trained network and the worst predictions.

`write_networks` writes `model/network.onnx` and `model/predict.onnx`; `WorstPredictions`, a callback of the evaluation,
`eval/worst.json` with small pictures beside it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner import __version__, rundir
from runner.dataset.batches import facts_of
from runner.dataset.column import Column, sample_type
from runner.dataset.pipeline import Dataset
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.experiment.build import Experiment
from runner.host import png
from runner.host.console import LOG, as_unicode
from runner.host.files import make_directory, remove, storage_errors, write_atomically, write_json, write_whole
from runner.host.png import MAX_SIDE
from runner.nn.loss.losses import ANY_NUMBERS, LOGITS, VALUES, LossInput
from runner.nn.metrics.base import without_units
from runner.ops.activation import Softmax
from runner.train import onnx_export
from runner.train.callback import Callback, RunContext

# The trained network.


def write_networks(experiment: Experiment, folder: Path) -> None:
    """Write the network in inference mode with its weights, and a second time with the preprocessing of the test split.

    The second file is left out, with a warning, when a transform has no operators, or wrong ones.
    """
    make_directory(folder / rundir.MODEL)
    metadata = metadata_of(experiment.test_data)
    types = experiment.train_data.column_types()[:-1]
    write_atomically(folder / rundir.NETWORK, experiment.model.export(types, metadata))
    try:
        write_atomically(folder / rundir.PREDICT, _predictor(experiment, types[0].shape[0], metadata))
    except ConfigError as error:
        LOG.warning("model/predict.onnx is not written: %s", error)
        remove(folder / rundir.PREDICT)  # of the run before it was resumed


def metadata_of(data: Dataset) -> dict[str, str]:
    """The metadata of exported networks: version, preprocessing, and how files become rows."""
    metadata = {"runner": __version__, "preprocessing": json.dumps(onnx_export.describe(data), default=str)}
    if data.preprocessing is not None:
        metadata["reader"] = json.dumps(data.preprocessing.as_json())
    if data.class_names is not None:
        metadata["class_names"] = json.dumps(list(data.class_names))
    return metadata


def _predictor(experiment: Experiment, batch_size: int, metadata: dict[str, str]) -> bytes:
    classes = facts_of(experiment.train_data).get("num_classes")
    return onnx_export.predictor(experiment.model, experiment.test_data, batch_size, metadata, classes)


# Small pictures of samples whose input is an image.

CHANNELS = (1, 3)


def thumbnails(data: Dataset, visits: np.ndarray) -> list[np.ndarray] | None:
    """A picture of each visit, uint8 [H, W, 1 or 3] with sides of at most MAX_SIDE; None if no input is an image.

    An input is an image if its samples have three axes, of which the first or the last has length 1 or 3. Where the
    source has bytes [H, W, 1 or 3], these are the pixels; otherwise the values of the input, rescaled to 0..255.
    """
    for column in data.columns[:-1]:
        if (axis := _channel_axis(column.sample.shape)) is not None:
            return [_reduced(_picture(column, visit, axis)) for visit in visits]
    return None


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    if len(shape) != 3 or 0 in shape:
        return None
    return next((axis for axis in (0, 2) if shape[axis] in CHANNELS), None)


def _picture(column: Column, visit: np.generic, axis: int) -> np.ndarray:
    """uint8 [H, W, C] of one visit: inputs may be large."""
    visits, stored = Visits.of(np.atleast_1d(visit), len(column.source)), sample_type(column.source)
    if stored.dtype.numpy == np.uint8 and _channel_axis(stored.shape) is not None and stored.shape[2] in CHANNELS:
        picture: np.ndarray = column.source.take(visits.rows, axis=0)[0]
        return picture
    return _rescaled(np.moveaxis(column.fetch(visits)[0], axis, -1).astype(np.float64))


def _rescaled(values: np.ndarray) -> np.ndarray:
    """The smallest finite value becomes 0 and the largest 255; what is not finite becomes 0."""
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    scale = 255.0 / (high - low) if high > low else 0.0
    return np.rint(np.where(finite, values - low, 0.0) * scale).astype(np.uint8)


def _reduced(picture: np.ndarray) -> np.ndarray:
    """The means of equal blocks, so that the longer side has at most MAX_SIDE pixels."""
    longest = max(picture.shape[:2])
    if longest <= MAX_SIDE:
        return picture
    values = picture.astype(np.float64)
    for axis in (0, 1):
        length = values.shape[axis]
        starts = np.arange(count := max(1, length * MAX_SIDE // longest)) * length // count
        sums = np.add.reduceat(values, starts, axis=axis)
        sizes = np.diff(np.append(starts, length))
        values = sums / np.expand_dims(sizes, [other for other in range(3) if other != axis])
    return np.rint(values).astype(np.uint8)


# `eval/worst.json`: the samples of an evaluation whose true class has the lowest probability, and their images.
#
# Of each batch only the candidates among the COUNT worst are kept; samples are read again at the end, by their visits.

FILE, IMAGES = "worst.json", "worst"
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
    def of(
        cls,
        output: np.ndarray,
        target: np.ndarray,
        rows: np.ndarray,
        visits: np.ndarray,
        loss: LossInput = ANY_NUMBERS,
    ) -> "Predictions | None":
        """Those of a batch: outputs (N, C) are what a loss takes, or logits, targets class numbers. None for others."""
        is_classification = output.ndim == 2 and output.shape[1] > 1 and target.dtype.kind in "iu"
        if not is_classification or not without_units(target.shape) == output.shape[:1] == rows.shape:
            return None
        true = target.reshape(-1).astype(np.int64)
        if (true < 0).any() or (true >= output.shape[1]).any():
            return None
        with np.errstate(all="ignore"):
            scores = output.astype(np.float64)
            operator = Softmax() if loss.takes in (None, LOGITS, VALUES) else loss.to_probabilities
            probabilities = scores if operator is None else np.asarray(operator.kernel(scores))
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

    def __init__(self, run_dir: Path, global_step: int, loss: LossInput = ANY_NUMBERS) -> None:
        self.folder, self.global_step, self.loss = run_dir / rundir.EVAL, global_step, loss
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
        found = Predictions.of(output, target, cb_params.valid_dataset.rows(visits), visits, self.loss)
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
