"""`Metric`, the base of metrics, and what an evaluation does with any of them.

An evaluation needs `AnyMetric`: clear, update with each batch, eval. `update_metrics` passes it the outputs of a step;
the rest are parts of metrics: which inputs they take, means, checks of shapes.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.validation.rules import KeywordNames


@runtime_checkable
class AnyMetric(Protocol):
    """What an evaluation needs of a metric; `Metric` has it, and defaults for the rest."""

    def clear(self) -> None:
        """Reset the accumulated values."""

    def update(self, *inputs: Any) -> None:
        """Add one batch: the outputs of the network, and the targets."""

    def eval(self) -> Any:
        """The value over all batches."""


class Metric(KeywordNames):
    """Base: `clear`, then `update` once per batch, then `eval`.

    `direction` is what a search does with it unless it is configured otherwise: "minimize" or "maximize". A metric
    whose value is an array, such as a confusion matrix, has `is_scalar = False`: it can neither be expected nor
    searched for. `indexes` are the positions of what `update` receives in (loss, output, target): by default output
    and target, as in MindSpore r1.2. After `set_indexes` they are what that call set, and have another meaning: which
    of the inputs of `update` it uses.
    """

    direction: ClassVar[str] = "minimize"
    is_scalar: bool = True
    indexes: Sequence[int] = (1, 2)

    def __call__(self, *inputs: Any) -> Any:
        """The value over one batch: `clear`, `update(*inputs)` and `eval()`."""
        self.clear()
        self.update(*inputs)
        return self.eval()

    def attach(self, loss_fn: Cell) -> None:
        """Called by `Model` with its loss function, for metrics that depend on it."""

    def clear(self) -> None:
        """Reset the accumulated values."""
        raise NotImplementedError

    def update(self, *inputs: Any) -> None:
        """Add one batch: arrays as `indexes` selects them; outputs of the network (N, ...) and targets (N, ...)."""
        raise NotImplementedError

    def eval(self) -> Any:
        """The value over all batches. Raises ConfigError when there were none."""
        raise NotImplementedError

    def set_indexes(self, indexes: list[int]) -> Self:
        """Use, of the inputs of `update`, those at these positions, in this order; returns the metric.

        For the metrics of runner, and those whose `update` has the decorator `rearrange_inputs`. With an `eval_network`
        of three outputs, `nn.Accuracy().set_indexes([0, 2])` compares the first with the third. Raises ConfigError
        for what is no list of whole numbers.
        """
        if not isinstance(indexes, list) or not all(type(index) is int for index in indexes):
            allowed = "a list of positions, such as [0, 2]"
            raise ConfigError("set_indexes takes whole numbers", given=repr(indexes), allowed=allowed)
        self.indexes = self._indexes = indexes
        return self

    def _convert_data(self, data: Any) -> np.ndarray:
        """A tensor, an array or a list as an array: metrics of r1.2 call this."""
        return data.asnumpy() if isinstance(data, Tensor) else np.asarray(data)

    def _check_onehot_data(self, data: np.ndarray) -> bool:
        """Whether an array (N, C, ...) has a single 1 among zeros along axis 1: metrics of r1.2 call this."""
        return is_one_hot(data, 1)


def rearrange_inputs(update: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a metric's `update`, which then receives its inputs as `set_indexes` has chosen them."""

    counts = _input_counts(update)

    @functools.wraps(update)
    def rearranged(self: Any, *inputs: Any) -> Any:
        return update(self, *_chosen(self, inputs, counts))

    return rearranged


def of_arrays(update: Callable[..., None]) -> Callable[..., None]:
    """As `rearrange_inputs`, for an `update` that receives arrays: tensors and lists are converted."""

    counts = _input_counts(update)

    @functools.wraps(update)
    def converted(self: Metric, *inputs: Any) -> None:
        update(self, *(self._convert_data(one) for one in _chosen(self, inputs, counts)))

    return converted


def _input_counts(update: Callable[..., Any]) -> range:
    """How many inputs an `update` may receive, besides the metric."""
    parameters = list(inspect.signature(update).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return range(sys.maxsize)
    return range(sum(p.default is p.empty for p in parameters), len(parameters) + 1)


def _chosen(metric: Any, inputs: Sequence[Any], counts: range) -> Sequence[Any]:
    """The inputs that `set_indexes` has chosen; without a choice all.

    Raises ConfigError for one that there is not, and, with the number allowed, for too few or too many.
    """
    indexes = getattr(metric, "_indexes", None)
    if not indexes:
        if len(inputs) not in counts:
            allowed = " or ".join(map(str, counts))
            raise ConfigError(
                "update receives another number of inputs",
                metric=type(metric).__name__,
                given=len(inputs),
                allowed=allowed,
                update=inspect.signature(metric.update),
            )
        return inputs
    if not all(-len(inputs) <= index < len(inputs) for index in indexes):
        rows = {"metric": type(metric).__name__, "indexes": indexes, "inputs": len(inputs)}
        raise ConfigError("update does not receive this input", **rows)
    return [inputs[index] for index in indexes]


def is_one_hot(data: np.ndarray, axis: int) -> bool:
    """Whether an array of at least two axes has a single 1 among zeros along one of them.

    >>> is_one_hot(np.array([[0, 1], [1, 0]]), 1), is_one_hot(np.array([[1, 1]]), 1)
    (True, False)
    """
    return bool(data.ndim > 1 and ((data == 0) | (data == 1)).all() and (data.sum(axis) == 1).all())


def checked_metrics(wanted: Mapping[str, AnyMetric]) -> dict[str, AnyMetric]:
    """A dict of names and metrics. Raises ConfigError for a value that is not a metric."""
    for name, metric in wanted.items():
        if isinstance(metric, type) or not isinstance(metric, AnyMetric):
            allowed = "objects of runner.nn.Metric"
            raise ConfigError("not a metric", name=name, given=repr(metric), allowed=allowed)
    return dict(wanted)


def is_scalar(metric: object) -> bool:
    """Whether the value of a metric, or of the metrics that a class makes, is a single number."""
    return bool(getattr(metric, "is_scalar", True))


def direction_of(metric: object) -> str:
    """What is better of a metric, or of the metrics that a class makes: "minimize" or "maximize"."""
    return str(getattr(metric, "direction", Metric.direction))


def attach(metrics: Iterable[AnyMetric], loss_fn: Cell) -> None:
    """Give metrics the loss function, for those that depend on it. Raises ConfigError for an `update` that does not
    take what `indexes` selects."""
    for metric in metrics:
        _check_update(metric)
        if isinstance(metric, Metric):
            metric.attach(loss_fn)


def _check_update(metric: AnyMetric) -> None:
    """Raise ConfigError unless `update` takes what `indexes` selects."""
    names = [("loss", "output", "target")[index] for index in _indexes(metric)]
    signature = inspect.signature(metric.update)
    try:
        signature.bind(*names)
    except TypeError as reason:
        code = getattr(inspect.unwrap(metric.update), "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else None
        rows = {"metric": type(metric).__name__, "update": signature, "reason": reason, "where": where}
        raise ConfigError(f"update does not take ({', '.join(names)})", **rows) from None


def _indexes(metric: AnyMetric) -> Sequence[int]:
    """The positions of what a metric receives in (loss, output, target)."""
    holder = type(metric) if getattr(metric, "_indexes", None) else metric  # `set_indexes` hides those of the class
    own = getattr(holder, "indexes", None)
    return own if own and not isinstance(own, property) else Metric.indexes


def update_metrics(
    metrics: Iterable[AnyMetric], outputs: Sequence[np.ndarray], places: Sequence[int] | None = (0, 1, 2)
) -> None:
    """Add the outputs of one batch to metrics.

    `places` are those of loss, output and target, of which each metric receives what its `indexes` selects; None: every
    metric receives all outputs. Raises ConfigError for a place that there is not.
    """
    arrays = [np.asarray(array).view(BatchArray) for array in outputs]
    if places is not None and not all(-len(arrays) <= place < len(arrays) for place in places):
        rows = {"eval_indexes": tuple(places), "outputs": len(arrays)}
        raise ConfigError("the evaluation network does not have these outputs", **rows)
    for metric in metrics:
        wanted = range(len(arrays)) if places is None else [places[index] for index in _indexes(metric)]
        metric.update(*(arrays[index] for index in wanted))


class BatchArray(np.ndarray):
    """An array that a metric receives; metrics of r1.2 call `asnumpy`, since it is a tensor there."""

    def asnumpy(self) -> np.ndarray:
        """The elements, as an ordinary array."""
        return self.view(np.ndarray)


class Mean(Metric):
    """Base of metrics that are a mean over samples."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.total, self.count = 0.0, 0

    def eval(self) -> float:
        require_data(self, self.count)
        return self.total / self.count


def require_data(metric: Metric, count: int) -> None:
    """Raise ConfigError when a metric has seen no samples."""
    if not count:
        raise ConfigError("a metric without data", metric=type(metric).__name__)


def without_units(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its axes of length 1 after the first.

    >>> without_units((32, 1)), without_units((1, 3, 1))
    ((32,), (1, 3))
    """
    return (*shape[:1], *(length for length in shape[1:] if length != 1))


def require_shapes(metric: Metric, fits: bool, output: np.ndarray, target: np.ndarray, allowed: str) -> None:
    """Raise ShapeError with the shapes of output and target unless they fit."""
    if not fits:
        rows = {"metric": type(metric).__name__, "output": output.shape, "target": target.shape}
        raise ShapeError("a metric cannot compare these shapes", **rows, allowed=allowed)
