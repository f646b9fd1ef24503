"""Metrics as values of config keys: which of them can be expected, or searched for."""

from runner.nn.metrics import METRICS, scalar_names
from runner.validation.rules import Rule
from runner.validation.validate import Invalid, validate


def single_number(metric: object) -> str:
    """The name of a metric that is a single number.

    Raises Invalid, with the names of these, for a metric that is an array, and for what is no metric.
    """
    allowed = scalar_names(METRICS)
    if isinstance(metric, str) and metric in METRICS and metric not in allowed:
        raise Invalid("this metric is an array, not a single number", ", ".join(allowed))
    name: str = validate(str, Rule(choices=allowed), metric)
    return name
