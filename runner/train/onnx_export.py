"""ONNX files for other programs: of a network with the preprocessing of its dataset in front, and of a training step.

`predictor` and `describe` are for inference, `export_step`, `export_steps` and `export_network` for training elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import compile as compiler, dtype as dt, nn, ops
from runner.core.graph import NO_LOSS, RETURN_LOSS
from runner.core.interpreter import current
from runner.core.precision import use_precision
from runner.core.trace import trace
from runner.core.values import Parameter, Value, values_of
from runner.dataset.column import Column, sample_type
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError
from runner.nn.loss.losses import LossInput
from runner.ops.random import MASK, STRIDE, random_counter
from runner.train.model import Model, inference
from runner.train.sink import transformed
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto
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

    Inputs are named after the columns. Outputs: for a loss with an `activation`, `logits`, unless it takes
    probabilities, and `probabilities`; with one number per class (`softmax`, or `num_classes`) also `class`, the Int64
    number of the most probable one. Other networks have `output`, or `output0` and so on. Raises ConfigError when a
    transform has no operators, or wrong ones.
    """
    require_operators(columns := input_columns(dataset))
    names = _input_names(columns, {parameter.name for parameter in model.network.get_parameters()})
    raw = [sample_type(column.source) for column in columns]
    types = [kind.with_shape(batch_size, *kind.shape) for kind in raw]
    with inference(model.network, model.precision):
        predict = _predict(model.network.compute, columns, LossInput.of(model.loss_fn), num_classes)
        prefixes = names if len(names) > 1 else [""]
        free = [_free_axes(column, prefix) for column, prefix in zip(columns, prefixes, strict=True)]
        return compiler.export_onnx(predict, types, "predict", free=free, input_names=names, metadata=metadata)


def _predict(
    construct: Callable[..., Any], columns: Sequence[Column], loss: LossInput, num_classes: int | None
) -> Callable[..., dict[str, Value]]:
    """Preprocessing, network and probabilities as one function that returns its outputs by name."""

    def predict(*rows: Value) -> dict[str, Value]:
        # Data have the types of the pipeline, independent of the precision of the network.
        with current().use_precision(None):
            inputs = [transformed(x, column.chain) for x, column in zip(rows, columns, strict=True)]
        returned = construct(*inputs)
        outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
        with current().use_precision(None):
            return _named(outputs, loss, num_classes)

    return predict


def _named(outputs: Sequence[Value], loss: LossInput, num_classes: int | None) -> dict[str, Value]:
    scores = outputs[0]
    is_matrix = len(outputs) == 1 and isinstance(scores, Value) and scores.ndim == 2
    kind = loss.activation
    by_class = is_matrix and (kind == "softmax" or (kind is None and scores.shape[1] == num_classes))
    if not is_matrix or not (kind or by_class):
        return {"output" if len(outputs) == 1 else f"output{k}": x for k, x in enumerate(outputs)}
    wide = ops.Cast(dt.float32)(scores) if scores.dtype is dt.float16 else scores
    operator = loss.to_probabilities
    named = {PROBABILITIES: wide} if loss.takes == PROBABILITIES else {SCORES: scores}
    if operator is not None:
        named[PROBABILITIES] = operator(wide)
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


# The training step of a model as an ONNX file for other programs: they keep the parameters, and feed them.

LOSS, LOSSES, ACCURACY, STEP, UPDATED = "loss", "losses", "accuracy", "step", ".updated"


class ExportedStep(NamedTuple):
    """The model of a training step. Its inputs: the columns, perhaps `counter`, then parameters by their names.

    `counter` is the input with the number of the step, from which random operators draw; None without these.
    `carried` has, by input, the output that is its value in the next step. `batch_reason` is empty for batches of any
    size, otherwise the reason.
    """

    model: ModelProto
    columns: tuple[str, ...]
    counter: str | None
    parameters: tuple[Parameter, ...]
    carried: Mapping[str, str]
    batch_reason: str


def export_step(model: Model, dataset: Dataset) -> ExportedStep:
    """The training step for batches of this dataset.

    Outputs: `loss`, `accuracy` of the batch if the loss is one of classes, and the new values of the parameters. Random
    operators draw the numbers of a training of this process. Raises ConfigError for a step without a loss.
    """
    types = dataset.column_types()
    model.network.set_train(True)
    random_counter().begin_training(model, 0)
    with use_precision(model.precision):
        is_random = random_counter().parameter in trace(model.train_network.compute, types, "train_step").parameters
        given = [*dataset.get_col_names(), *([STEP] if is_random else [])]
        names = compiler.free_names(given, _taken(model))
        kinds = [*types, *([TensorType(dt.int64, ())] if is_random else [])]
        step = compiler.export_step(_step(model, len(types)), kinds, "train_step", names, {random_counter().parameter})
    carried = {p.name: p.name + UPDATED for p in step.graph.updates}
    counter = names[-1] if is_random else None
    return ExportedStep(
        step.model, tuple(names[: len(types)]), counter, tuple(step.graph.parameters), carried, step.batch_reason
    )


def export_steps(step: ExportedStep, steps: int) -> ModelProto:
    """The model that makes so many steps in one call: columns have the steps as first axis, `losses` are [steps]."""
    return compiler.repeat_step(step.model, steps, step.columns, step.carried, step.counter)


def export_network(model: Model, dataset: Dataset, metadata: Mapping[str, str]) -> tuple[ModelProto, ModelProto]:
    """The network in inference mode for preprocessed batches: with its weights, and with weights as inputs.

    Random operators draw the numbers of the first batch of an evaluation.
    """
    types = dataset.column_types()[:-1]
    names = compiler.free_names(dataset.get_col_names()[:-1], _taken(model))
    with inference(model.network, model.precision):
        random_counter().begin_batch(0)
        compute, fixed = model.network.compute, {random_counter().parameter}
        return compiler.export_network(compute, types, "network", input_names=names, metadata=metadata, fixed=fixed)


def _taken(model: Model) -> set[str]:
    """The names of other values in the models."""
    parameters = [p.name for p in (random_counter().parameter, *model.train_network.get_parameters())]
    return {LOSS, LOSSES, ACCURACY, *parameters, *(name + UPDATED for name in parameters)}


def _step(model: Model, columns: int) -> Callable[..., dict[str, Value]]:
    """The step as a function of a batch, and of the number of the step if there is one more operand."""

    def step(*operands: Value) -> dict[str, Value]:
        batch, numbers = operands[:columns], operands[columns:]
        for number in numbers:
            with current().use_precision(None):
                current().assign(random_counter().parameter, _place(number))
        with _loss_operands(model.loss_fn) as read:
            outputs = list(values_of(model.train_network.compute(*batch)))
        if not outputs:
            raise ConfigError(NO_LOSS, network=type(model.train_network).__name__, repair=RETURN_LOSS)
        return {LOSS: outputs[0], **_accuracy(model.loss_fn, read)}

    return step


def _place(number: Value) -> Value:
    """The counter at the beginning of a step, as `random_counter().of_steps`."""
    return ops.BitwiseAnd()(number * STRIDE + int(random_counter().of_steps(0, 1)[0]), MASK)


class _Operands:
    """A hook of a cell that records the operands of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def around(self, construct: Callable[..., Any]) -> Callable[..., Any]:
        """`construct`, whose operands are recorded."""

        def computed(*inputs: Any, **options: Any) -> Any:
            self.calls.append(inputs)
            return construct(*inputs, **options)

        return computed


@contextmanager
def _loss_operands(loss: nn.Cell | None) -> Iterator[list[tuple[Any, ...]]]:
    """The operands with which the loss is called in the context."""
    hook = _Operands()
    if loss is None or loss.__dict__["_hook"] is not None:
        yield hook.calls
        return
    loss.__dict__["_hook"] = hook
    try:
        yield hook.calls
    finally:
        loss.__dict__["_hook"] = None


def _accuracy(loss: nn.Cell | None, calls: Sequence[tuple[Any, ...]]) -> dict[str, Value]:
    """The share of rows whose largest score is that of their class; {} if the loss is not one of classes."""
    if getattr(loss, "activation", None) != "softmax" or len(calls) != 1 or len(calls[0]) != 2:
        return {}
    scores, target = calls[0]
    if scores.ndim != 2 or target.ndim not in (1, 2) or target.shape[0] != scores.shape[0]:
        return {}
    largest = ops.Argmax(output_type=dt.int64)
    with current().use_precision(None), current().tape.unrecorded():
        classes = ops.Cast(dt.int64)(target) if target.ndim == 1 else largest(target)
        hits = ops.Cast(dt.float32)(ops.Equal()(largest(scores), classes))
        return {ACCURACY: ops.ReduceMean()(hits)}
