"""Checks of the metrics of a run against its expectations (`expect`)."""

from collections.abc import Mapping

from runner.config.schema import Expectation
from runner.errors import MismatchError


def check_expectations(expected: Mapping[str, Expectation], values: dict[str, float]) -> None:
    """Raise MismatchError with a row for every expected metric when one is out of its bounds."""
    rows, failed = {}, False
    for metric, bound in expected.items():
        value = values.get(metric)
        low = bound.min is not None and (value is None or value < bound.min)
        high = bound.max is not None and (value is None or value > bound.max)
        failed |= low or high
        limits = [f"{name} {limit}" for name, limit in vars(bound).items() if limit is not None]
        rows[metric] = f"{'FAILED' if low or high else 'ok'}: {value}, expected {', '.join(limits)}"
    if failed:
        raise MismatchError("the run does not meet its expectations", **rows)
