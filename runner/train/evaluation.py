"""The evaluation of a `Model`: its cell, and the loop over a dataset."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from runner import nn
from runner.core.values import Tensor
from runner.errors import ConfigError
from runner.nn.metrics.base import AnyMetric, attach, checked_metrics, update_metrics
from runner.nn.steps import Step
from runner.ops.random import COUNTER
from runner.train.callback import CallbackList, RunContext


def metrics_for(
    loss_fn: nn.Cell | None, wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None
) -> dict[str, AnyMetric]:
    """As `nn.get_metrics`, for outputs that this loss function is computed of."""
    if isinstance(wanted, Mapping):
        found = checked_metrics(wanted)
    else:
        found = nn.get_metrics(wanted) if wanted else {}
    if loss_fn is not None:
        attach(found.values(), loss_fn)
    return found


def evaluation_cell(
    network: nn.Cell, loss_fn: nn.Cell | None, eval_network: nn.Cell | None, eval_indexes: Sequence[int] | None
) -> tuple[nn.Cell | None, Sequence[int] | None]:
    """The cell whose outputs metrics receive, and the places of loss, output and label among them.

    The cell is that of the user, or else has these three outputs; None without a loss. Without places metrics receive
    all outputs of the user's cell. Raises ConfigError for other places.
    """
    cell = nn.WithEvalCell(network, loss_fn) if eval_network is None and loss_fn is not None else eval_network
    return cell, _output_places(eval_network, eval_indexes)


def _output_places(eval_network: nn.Cell | None, eval_indexes: Sequence[int] | None) -> Sequence[int] | None:
    if eval_indexes is None:
        return (0, 1, 2) if eval_network is None else None
    if len(eval_indexes) != 3 or not all(type(place) is int for place in eval_indexes):
        allowed = "the places of loss, output and label"
        raise ConfigError("eval_indexes must be three whole numbers", given=repr(eval_indexes), allowed=allowed)
    return tuple(eval_indexes)


def evaluate(
    step: Step,
    metrics: Mapping[str, AnyMetric],
    places: Sequence[int] | None,
    hooks: CallbackList,
    run_context: RunContext,
) -> dict[str, Any]:
    """The values of metrics after one epoch. Raises ConfigError for places that the outputs do not have."""
    cb_params = run_context.original_args()
    for metric in metrics.values():
        metric.clear()
    with closing(cb_params.valid_dataset.read(0)) as batches, COUNTER.preserved():
        for arrays in batches:
            cb_params.cur_step_num += 1
            hooks.fire("step_begin", run_context)
            COUNTER.begin_batch(cb_params.cur_step_num - 1)
            outputs = step(arrays)
            cb_params.net_outputs = tuple(map(Tensor, outputs))
            hooks.fire("step_end", run_context)
            update_metrics(metrics.values(), outputs, places)
    return {name: metric.eval() for name, metric in metrics.items()}
