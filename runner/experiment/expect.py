"""Checks of the metrics of a run against its expectations (`expect`)."""

from runner.config.schema import Expectation
from runner.errors import MismatchError


def check_expectations(expected: tuple[Expectation, ...], values: dict[str, float]) -> None:
    """Raise MismatchError with a row for every expected metric when one is out of its bounds."""
    rows, failed = {}, False
    for bound in expected:
        value = values.get(bound.metric)
        low = bound.min is not None and (value is None or value < bound.min)
        high = bound.max is not None and (value is None or value > bound.max)
        failed |= low or high
        limits = [f"{name} {limit}" for name, limit in (("min", bound.min), ("max", bound.max)) if limit is not None]
        rows[bound.metric] = f"{'FAILED' if low or high else 'ok'}: {value}, expected {', '.join(limits)}"
    if failed:
        raise MismatchError("the run does not meet its expectations", **rows)
