"""Values of metrics as JSON: a number, or nested lists of numbers for a metric that is an array."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from runner.errors import TrainingError
from runner.host.json import without_lists
from runner.nn.metrics.base import AnyMetric, is_scalar


def as_json(metrics: Mapping[str, AnyMetric], values: Mapping[str, Any], **rows: object) -> dict[str, Any]:
    """The values by name.

    Raises TrainingError, with these rows, for one that is not what its class declares, or not finite.
    """
    found = {name: _plain(name, metrics[name], value, rows) for name, value in values.items()}
    bad = [name for name, value in found.items() if not np.isfinite(value).all()]
    if bad:
        shown = found | {name: "NaN or infinity in it" for name in bad if isinstance(found[name], list)}
        repair = "a smaller optimizer.learning_rate"
        what = "a metric of the evaluation is not a finite number"
        raise TrainingError(what, **without_lists(shown), **rows, repair=repair)
    return found


def _plain(name: str, metric: AnyMetric, value: Any, rows: Mapping[str, object]) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths, such as the curves of several classes
        array = np.asarray(None)
    are_numbers = array.dtype.kind in "iuf" and array.size > 0
    if not are_numbers or (is_scalar(metric) and array.ndim):
        given = f"an array {array.shape}" if are_numbers else repr(value)
        repair = f"is_scalar = False in the class {type(metric).__name__}, for an array" if are_numbers else None
        details = {"metric": name, "given": given, "allowed": "a number, as the result of eval()", **rows}
        raise TrainingError("the value of a metric is not a number", **details, repair=repair)
    return float(array) if is_scalar(metric) else array.tolist()
