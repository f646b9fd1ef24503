"""The training step of a model as an ONNX file for other programs: they keep the parameters, and feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import compile as compiler, dtype as dt, nn, ops
from runner.core.graph import NO_LOSS, RETURN_LOSS
from runner.core.operators import current
from runner.core.precision import use_precision
from runner.core.structure import values_of
from runner.core.tracer import trace
from runner.core.values import Parameter, Value
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError
from runner.ops.random import COUNTER, MASK, STRIDE
from runner.train.inference import inference
from runner.train.model import Model
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.compile.onnx.lower import ModelProto

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
    COUNTER.begin_training(model, 0)
    with use_precision(model.precision):
        is_random = COUNTER.parameter in trace(model.train_network.compute, types, "train_step").parameters
        given = [*dataset.get_col_names(), *([STEP] if is_random else [])]
        names = compiler.free_names(given, _taken(model))
        kinds = [*types, *([TensorType(dt.int64, ())] if is_random else [])]
        step = compiler.export_step(_step(model, len(types)), kinds, "train_step", names, {COUNTER.parameter})
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
        COUNTER.begin_batch(0)
        compute, fixed = model.network.compute, {COUNTER.parameter}
        return compiler.export_network(compute, types, "network", input_names=names, metadata=metadata, fixed=fixed)


def _taken(model: Model) -> set[str]:
    """The names of other values in the models."""
    parameters = [p.name for p in (COUNTER.parameter, *model.train_network.get_parameters())]
    return {LOSS, LOSSES, ACCURACY, *parameters, *(name + UPDATED for name in parameters)}


def _step(model: Model, columns: int) -> Callable[..., dict[str, Value]]:
    """The step as a function of a batch, and of the number of the step if there is one more operand."""

    def step(*operands: Value) -> dict[str, Value]:
        batch, numbers = operands[:columns], operands[columns:]
        for number in numbers:
            with current().use_precision(None):
                current().assign(COUNTER.parameter, _place(number))
        with _loss_operands(model.loss_fn) as read:
            outputs = list(values_of(model.train_network.compute(*batch)))
        if not outputs:
            raise ConfigError(NO_LOSS, network=type(model.train_network).__name__, repair=RETURN_LOSS)
        return {LOSS: outputs[0], **_accuracy(model.loss_fn, read)}

    return step


def _place(number: Value) -> Value:
    """The counter at the beginning of a step, as `COUNTER.of_steps`."""
    place: Value = ops.BitwiseAnd()(number * STRIDE + int(COUNTER.of_steps(0, 1)[0]), MASK)
    return place


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
    with current().use_precision(None), current().unrecorded():
        classes = ops.Cast(dt.int64)(target) if target.ndim == 1 else largest(target)
        hits = ops.Cast(dt.float32)(ops.Equal()(largest(scores), classes))
        return {ACCURACY: ops.ReduceMean()(hits)}
