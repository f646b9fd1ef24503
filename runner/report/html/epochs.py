"""A table of the epochs of a run: the mean loss, as the console printed it, and the metrics of each evaluation."""

import numpy as np

from runner.report.html.layout import collapsible
from runner.report.html.markup import Content, Markup, concat, measured, metric_label, table, tag
from runner.report.record import RunRecord
from runner.report.values import is_number

MAX_EPOCHS = 200  # of a run with more, the last ones are shown
_PLACE = ("event", "epoch", "global_step")


def epoch_table(run: RunRecord) -> Markup | None:
    """The table, below a title that opens it; None if no step says of which epoch it is."""
    epochs = np.unique(run.metrics.epochs[run.metrics.epochs > 0])
    if not len(epochs):
        return None
    evaluations = {row.get("epoch"): row for row in run.metrics.evaluations}
    names = list(dict.fromkeys(name for row in evaluations.values() for name in row if name not in _PLACE))
    names = [name for name in names if any(is_number(row.get(name)) for row in evaluations.values())]
    rows = [_row(run, int(epoch), evaluations.get(int(epoch), {}), names) for epoch in epochs[-MAX_EPOCHS:]]
    labels = [metric_label("eval.loss" if name == "loss" else name) for name in names]
    rest = len(epochs) - len(rows)
    return collapsible(
        f"{len(epochs)} {'epoch' if len(epochs) == 1 else 'epochs'}",
        concat(
            tag("p", f"The last {len(rows)} of {len(epochs)}.", class_="sub") if rest else None,
            table(("epoch", "last step", "mean loss", *labels), rows),
        ),
    )


def _row(run: RunRecord, epoch: int, evaluation: dict[str, object], names: list[str]) -> tuple[Content, ...]:
    metrics = run.metrics
    inside = metrics.epochs == epoch
    mean = f"{metrics.losses[inside].mean():.4g}"  # as callbacks=epoch_monitor prints it
    found = (evaluation.get(name) for name in names)
    values = [measured(value) if is_number(value) and isinstance(value, int | float) else None for value in found]
    return (epoch, int(metrics.steps[inside][-1]), float(mean), *values)
