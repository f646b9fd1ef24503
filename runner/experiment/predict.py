"""Predictions of a trained network for new files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from runner import dtype as dt, nn, rundir
from runner.config import code
from runner.config.check import check
from runner.config.schema import RunConfig
from runner.dataset.catalog import CatalogImages
from runner.dataset.pipeline import Dataset
from runner.dataset.readers.arrays import ArrayPreprocessing, map_array
from runner.dataset.readers.image_folder import ImagePreprocessing
from runner.errors import DataError, TrainingError
from runner.experiment.build import ModelInputs, inference_model, read_inputs, samples_of
from runner.experiment.evaluate import saved_values
from runner.experiment.manifest import naming_code_of
from runner.experiment.run import run_environment
from runner.host.json import read_optional
from runner.nn.loss.losses import LossInput
from runner.train.checkpoint.initial_weights import InitialWeights
from runner.train.model import Model
from runner.validation.rules import Frozen

ARRAYS = (".npy", ".npz")


class Predictions(Frozen):
    """What a network returned for some samples.

    `rows` are the names of the samples. `values` is Float64 [N, n]: a number for each of `names`. With `has_classes`
    these are classes, and the numbers are their probabilities unless `are_scores`. Without, `outputs` has the numbers
    as the network returns them.
    """

    rows: tuple[str, ...]
    values: np.ndarray
    names: tuple[str, ...]
    has_classes: bool = False
    are_scores: bool = False
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # without classes: each [N, ...], by name


def predict(folder: Path, paths: Sequence[Path], given_code: Sequence[str] = ()) -> Predictions:
    """The outputs of the network of a run for the samples in these files, in their order.

    Raises ConfigError when there is no run, DataError for its checkpoints and for files, TrainingError when an output
    is not finite.
    """
    config, inputs = _config_and_inputs(folder, given_code)
    with run_environment(config):
        data = list(_read(inputs, paths))
        model = _trained_model(config, inputs)
        outputs = [_outputs(model, part, config.dataset.batch_size) for part in data]
    rows = tuple(name for part in data for name in part.row_names or ())
    whole = [np.concatenate(parts) for parts in zip(*outputs, strict=True)]
    _require_finite(whole, rows)
    return _named(config, inputs, LossInput.of(model.loss_fn), rows, whole)


def trained_network(folder: Path, given_code: Sequence[str] = ()) -> nn.Cell:
    """The network of a run on the CPU with the parameters of its newest checkpoint, for inference.

    It computes in the mode of the context, as any cell. Raises as `predict`.
    """
    config, inputs = _config_and_inputs(folder, given_code, mode="pynative", device={"target": "CPU", "id": 0})
    with run_environment(config):
        network = _trained_model(config, inputs).network
    return network.set_train(False)


def _config_and_inputs(folder: Path, given_code: Sequence[str], **settings: Any) -> tuple[RunConfig, ModelInputs]:
    """The config of a run with other settings, and the inputs of its network."""
    code.load(code.sources(given_code))
    with naming_code_of(folder, read_optional(folder / rundir.MANIFEST), "predict"):
        config = check(saved_values(folder) | settings)
    inputs = read_inputs(folder)
    if inputs is None or inputs.is_foreign:
        inputs = ModelInputs.of(samples_of(config.dataset, "train"))
    return config, inputs


def _trained_model(config: RunConfig, inputs: ModelInputs) -> Model:
    model = inference_model(config, inputs)
    source = InitialWeights(str(config.checkpoint.load), config.checkpoint.prefix, strict=True)
    source.load(model.network, model.loss_fn)
    return model


def _read(inputs: ModelInputs, paths: Sequence[Path]) -> Iterator[Dataset]:
    """The samples of consecutive files of one kind: arrays, or what the reader of the run reads."""
    reader = inputs.preprocessing
    for is_array, group in groupby(paths, lambda path: path.suffix.lower() in ARRAYS):
        files = list(group)
        if reader is not None and (not is_array or isinstance(reader, ArrayPreprocessing)):
            yield _checked(reader.read(files), inputs, files)
        elif is_array:
            yield from (_read_arrays(inputs, path) for path in files)
        else:
            repair = "save the inputs of the network as .npy, or .npz with one array for each input"
            expected = ", ".join(f"{name} {kind}" for name, kind in inputs.inputs.items())
            raise DataError("the dataset of the run reads no files", file=files[0], expected=expected, repair=repair)


def _read_arrays(inputs: ModelInputs, path: Path) -> Dataset:
    """The samples of a file with arrays: pixels of a network for images, or else its inputs."""
    reader = inputs.preprocessing
    if path.suffix.lower() == ".npy" and isinstance(reader, CatalogImages | ImagePreprocessing):
        values = map_array(path)
        if values.dtype == np.uint8:
            return _of_pixels(reader, values, path)
    shapes = {name: kind.shape for name, kind in inputs.inputs.items()}
    integers = tuple(name for name, kind in inputs.inputs.items() if kind.dtype is dt.int32)
    return _checked(ArrayPreprocessing(shapes, integers).read([path]), inputs, [path])


def _of_pixels(reader: CatalogImages | ImagePreprocessing, values: np.ndarray, path: Path) -> Dataset:
    """Bytes [H, W], [H, W, C] or [N, H, W, C]."""
    shape = values.shape
    stack = values.reshape(1, *shape, 1) if values.ndim == 2 else values[np.newaxis] if values.ndim == 3 else values
    side = reader.image_size if isinstance(reader, ImagePreprocessing) else None
    is_image = stack.ndim == 4 and stack.shape[3] == reader.channels
    if not is_image or (side is not None and stack.shape[1:3] != (side, side)):
        expected = f"[H, W, {reader.channels}]" if side is None else f"[{side}, {side}, {reader.channels}]"
        rows = {"expected": f"bytes {expected}, or a stack of these", "found": f"bytes {list(shape)}"}
        raise DataError("an array has another shape", file=path, **rows)
    data = reader.from_pixels([stack])
    data.row_names = [str(path)] if values.ndim < 4 else [f"{path}[{row}]" for row in range(len(stack))]
    return data


def _checked(data: Dataset, inputs: ModelInputs, files: Sequence[Path]) -> Dataset:
    """The data, if its columns are those of the network's inputs. Raises DataError."""
    found, expected = [column.sample for column in data.columns], [*inputs.inputs.values()]
    if found != expected:
        rows = {"expected": ", ".join(map(str, expected)), "found": ", ".join(map(str, found))}
        raise DataError("a file has other inputs than the network", file=files[0], **rows)
    return data


def _outputs(model: Model, data: Dataset, batch_size: int) -> list[np.ndarray]:
    """Each output of the network for all samples: arrays [N, ...]."""
    parts: list[list[np.ndarray]] = []
    with closing(data.batch(min(batch_size, len(data))).read(0)) as batches:
        for arrays in batches:
            found = model.predict(*arrays)
            parts.append([np.array(one.array) for one in (found if isinstance(found, tuple) else (found,))])
    return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]


def _require_finite(outputs: Sequence[np.ndarray], rows: Sequence[str]) -> None:
    for output in outputs:
        bad = np.flatnonzero(~np.isfinite(output).reshape(len(output), -1).all(axis=1))
        if len(bad):
            repair = "train with a smaller optimizer.learning_rate, or look at the values of this sample"
            raise TrainingError("an output of the network is not finite", sample=rows[bad[0]], repair=repair)


def _named(
    config: RunConfig, inputs: ModelInputs, loss: LossInput, rows: tuple[str, ...], outputs: list[np.ndarray]
) -> Predictions:
    """Outputs as probabilities of classes, if the loss and the data have classes, or as numbers."""
    first = outputs[0].astype(np.float64)
    width = first.shape[1] if first.ndim == 2 and len(outputs) == 1 else 0
    if width == 1 or (len(outputs) == 1 and first.ndim == 1 and loss.activation == "sigmoid"):
        first, width = first.reshape(-1, 1), 1
    if width and loss.activation is not None:
        operator = loss.to_probabilities
        found = first if operator is None else np.asarray(operator.kernel(first))
        if width == 1 and loss.activation == "sigmoid":
            found, width = np.hstack([1.0 - found, found]), 2
        return Predictions(rows, found, _classes(inputs, width), has_classes=True)
    if width > 1 and loss.activation is None and width == inputs.facts.get("num_classes"):
        return Predictions(rows, first, _classes(inputs, width), has_classes=True, are_scores=True)
    names = _output_names(_target(config, inputs), len(outputs))
    return Predictions(rows, *_numbers(names, outputs), outputs=dict(zip(names, outputs, strict=True)))


def _classes(inputs: ModelInputs, count: int) -> tuple[str, ...]:
    """The names of classes; their numbers where there are no names for all."""
    names = inputs.class_names
    return names if names is not None and len(names) == count else tuple(map(str, range(count)))


def _target(config: RunConfig, inputs: ModelInputs) -> str:
    """The name of what is predicted: the key `dataset.target`, or that of the column."""
    named = getattr(config.dataset, "target", None)
    return named if isinstance(named, str) else inputs.target


def _output_names(target: str, count: int) -> list[str]:
    return [target] if count == 1 else [f"{target}.{k}" for k in range(count)]


def _numbers(prefixes: Sequence[str], outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, tuple[str, ...]]:
    """All numbers of the outputs as [N, n], and their names: `price`, `price[1]` or `price.1[0,2]`."""
    names: list[str] = []
    for prefix, output in zip(prefixes, outputs, strict=True):
        shape = output.shape[1:]
        single = int(np.prod(shape)) == 1
        names += [prefix if single else f"{prefix}[{','.join(map(str, place))}]" for place in np.ndindex(*shape)]
    return np.hstack([output.reshape(len(output), -1).astype(np.float64) for output in outputs]), tuple(names)
