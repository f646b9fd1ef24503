"""A run beside a golden file, value by value."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from runner.config.schema import changed
from runner.report.ci.golden_file import Golden


class Row(NamedTuple):
    """One value that was compared; `allowed` says how, empty when it must be equal."""

    name: str
    was: Any
    now: Any
    differs: bool
    allowed: str = ""


def check(golden: Golden, found: Golden) -> tuple[list[Row], list[str]]:
    """All rows, and the names of the parts of the key that differ as they may.

    When the key differs in what must be equal, only these rows are given: the numbers are those of something else.
    """
    names = list(changed(golden.key, found.key))
    foreign = [
        Row(f"key.{name}", golden.key.get(name), found.key.get(name), True) for name in names if not golden.may(name)
    ]
    foreign += [Row("steps", golden.steps, found.steps, True)] if golden.steps != found.steps else []
    if foreign:
        return foreign, []
    compared = _equal if golden.exact and not names else _close
    return list(compared(golden, found)), names


def _equal(golden: Golden, found: Golden) -> Iterator[Row]:
    """Bit for bit."""
    for name in {**golden.metrics, **found.metrics}:
        was, now = golden.metrics.get(name), found.metrics.get(name)
        yield Row(name, was, now, was != now)
    was, now = golden.losses["sha256"], found.losses["sha256"]
    yield _first_loss(golden, found) if was != now else Row("losses", was, now, False)
    for name in {**golden.tensors, **found.tensors}:
        a, b = golden.tensors.get(name), found.tensors.get(name)
        yield Row(f"tensor {name}", _short(a), _short(b), a is None or b is None or _identity(a) != _identity(b))


def _close(golden: Golden, found: Golden) -> Iterator[Row]:
    """Within the tolerance of the file."""
    for name in {**golden.metrics, **found.metrics}:
        yield _within(name, golden.metrics.get(name), found.metrics.get(name), golden.bound(name))
    bound = golden.bound("losses")
    last = bound.get("steps", golden.steps)
    for step, was in golden.losses["at"].items():
        if int(step) <= last:
            yield _within(f"loss at step {step}", was, found.losses["at"].get(step), bound)
    for name in {**golden.tensors, **found.tensors}:
        a, b = golden.tensors.get(name), found.tensors.get(name)
        if a is None or b is None or (a["shape"], a["dtype"]) != (b["shape"], b["dtype"]):
            yield Row(f"tensor {name}", _kind(a), _kind(b), True)
        else:
            yield _within(f"norm of {name}", a["norm"], b["norm"], golden.bound("tensors"))


def _within(name: str, was: float | None, now: float | None, bound: dict[str, float]) -> Row:
    rtol, atol = bound.get("rtol", 0.0), bound.get("atol", 0.0)
    differs = was is None or now is None or abs(now - was) > atol + rtol * abs(was)
    return Row(name, was, now, differs, f"rtol {rtol:g}, atol {atol:g}")


def _first_loss(golden: Golden, found: Golden) -> Row:
    """Of the losses that the file has, the first that is another; when none is, a loss between them differs."""
    theirs = found.losses["at"]
    for step, was in golden.losses["at"].items():
        if theirs.get(step) != was:
            return Row(f"loss at step {step}", was, theirs.get(step), True)
    return Row("losses", golden.losses["sha256"][:12], found.losses["sha256"][:12], True)


def _identity(tensor: dict[str, Any]) -> tuple[Any, ...]:
    return tensor["shape"], tensor["dtype"], tensor["sha256"]


def _kind(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{tensor['dtype']}{tensor['shape']}"


def _short(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{_kind(tensor)} sha256 {str(tensor['sha256'])[:12]}, norm {tensor['norm']:.9g}"
