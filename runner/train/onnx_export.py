"""The network with the preprocessing of its dataset in front, as an ONNX file for other programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner import compile as compiler, dtype as dt, ops
from runner.core.operators import current
from runner.core.values import Value
from runner.dataset.column import Column, sample_type
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError
from runner.train.inference import inference
from runner.train.model import Model
from runner.train.preprocessing import transformed

BATCH = "batch"
SCORES, PROBABILITIES, CLASS = "logits", "probabilities", "class"
OUTPUTS = (SCORES, PROBABILITIES, CLASS)


def input_columns(dataset: Dataset) -> tuple[Column, ...]:
    """The columns that are inputs of the network: all but the last one, the target."""
    return dataset.columns[:-1]


def describe(dataset: Dataset) -> list[dict[str, Any]]:
    """For each input: its name, the type and shape of a row before preprocessing, and the transforms in order."""
    described = []
    for column in input_columns(dataset):
        raw = sample_type(column.source)
        steps = [{"operation": type(step).__name__, **step.attributes()} for step in column.transforms]
        entry = {"input": column.name, "dtype": raw.dtype.numpy.name, "shape": list(raw.shape), "steps": steps}
        described.append(entry)
    return described


def require_operators(columns: Sequence[Column]) -> None:
    """Raise ConfigError, with the transform, unless all of these columns can be a part of a graph."""
    for column in columns:
        for step in column.chain:
            if not step.has_operators:
                repair = f"give {type(step).__name__} a method lower(self, batch, ops)"
                rows = {"column": column.name, "transform": type(step).__name__, "repair": repair}
                raise ConfigError("a transform has no operators", **rows)


def predictor(
    model: Model, dataset: Dataset, batch_size: int, metadata: Mapping[str, str], num_classes: int | None = None
) -> bytes:
    """The network for rows as they are in the source of this dataset: any number of them, or else `batch_size`.

    Inputs are named after the columns. Outputs: for a loss with an `activation`, `logits` and `probabilities`; with one
    number per class (`softmax`, or `num_classes`) also `class`, the Int64 number of the most probable one. Other
    networks have `output`, or `output0` and so on. Raises ConfigError when a transform has no operators, or wrong ones.
    """
    require_operators(columns := input_columns(dataset))
    names = _input_names(columns, {parameter.name for parameter in model.network.get_parameters()})
    raw = [sample_type(column.source) for column in columns]
    types = [kind.with_shape(batch_size, *kind.shape) for kind in raw]
    activation = getattr(model.loss_fn, "activation", None)
    with inference(model.network, model.precision):
        predict = _predict(model.network.compute, columns, activation, num_classes)
        prefixes = names if len(names) > 1 else [""]
        free = [_free_axes(column, prefix) for column, prefix in zip(columns, prefixes, strict=True)]
        return compiler.export_onnx(predict, types, "predict", free=free, input_names=names, metadata=metadata)


def _predict(
    construct: Callable[..., Any], columns: Sequence[Column], activation: str | None, num_classes: int | None
) -> Callable[..., dict[str, Value]]:
    """Preprocessing, network and probabilities as one function that returns its outputs by name."""

    def predict(*rows: Value) -> dict[str, Value]:
        # Data have the types of the pipeline, independent of the precision of the network.
        with current().use_precision(None):
            inputs = [transformed(x, column.chain) for x, column in zip(rows, columns, strict=True)]
        returned = construct(*inputs)
        outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
        with current().use_precision(None):
            return _named(outputs, activation, num_classes)

    return predict


def _named(outputs: Sequence[Value], activation: str | None, num_classes: int | None) -> dict[str, Value]:
    scores = outputs[0]
    is_matrix = len(outputs) == 1 and isinstance(scores, Value) and scores.ndim == 2
    by_class = is_matrix and (activation == "softmax" or (activation is None and scores.shape[1] == num_classes))
    if not is_matrix or not (activation or by_class):
        return {"output" if len(outputs) == 1 else f"output{k}": x for k, x in enumerate(outputs)}
    named = {SCORES: scores}
    wide = ops.Cast(dt.float32)(scores) if scores.dtype is dt.float16 else scores
    if activation is not None:
        named[PROBABILITIES] = ops.Softmax()(wide) if activation == "softmax" else ops.Sigmoid()(wide)
    if by_class:
        named[CLASS] = ops.Argmax(output_type=dt.int64)(scores)
    return named


def _input_names(columns: Sequence[Column], parameters: set[str]) -> list[str]:
    """The names of the columns, with an underscore where a name has another meaning in the file."""
    names: list[str] = []
    for column in columns:
        name = column.name
        while name in parameters or name in OUTPUTS or name.startswith("output") or name in names:
            name += "_"
        names.append(name)
    return names


def _free_axes(column: Column, prefix: str) -> dict[int, str]:
    """The batch, and the axes of a row that the first transform takes at any length."""
    first = column.chain[0].free_axes if column.chain else ()
    return {0: BATCH} | {k: f"{prefix}_{name}" if prefix else name for k, name in enumerate(first, 1)}
