"""Comparison of a run with a golden file, value by value."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from runner.config.schema import changed_keys
from runner.report.ci.golden_file import Golden
from runner.report.values import array_of, cells, size_text


class ComparedValue(NamedTuple):
    """A value of the file and of the run; `allowed` is the tolerance as text, empty if they must be equal."""

    name: str
    was: Any
    now: Any
    differs: bool
    allowed: str = ""


def compare(golden: Golden, found: Golden) -> tuple[list[ComparedValue], list[str]]:
    """All compared values, and the names in the key that differ although nothing is wrong (`may_differ`).

    If the key differs in values that must be equal, only these are returned: the results are not comparable.
    """
    names = list(changed_keys(golden.key, found.key))
    foreign = [
        ComparedValue(f"key.{name}", golden.key.get(name), found.key.get(name), True)
        for name in names
        if not golden.allows_difference(name)
    ]
    foreign += [ComparedValue("steps", golden.steps, found.steps, True)] if golden.steps != found.steps else []
    if foreign:
        return foreign, []
    compare_values = _bit_for_bit if golden.exact and not names else _within_tolerance
    return list(compare_values(golden, found)), names


def _bit_for_bit(golden: Golden, found: Golden) -> Iterator[ComparedValue]:
    for name, was, now in _both(golden.metrics, found.metrics):
        yield from _compare_metric(name, was, now, None)
    was, now = golden.losses["sha256"], found.losses["sha256"]
    yield _first_loss(golden, found) if was != now else ComparedValue("losses", was, now, False)
    for name, a, b in _both(golden.tensors, found.tensors):
        differs = a is None or b is None or _identity(a) != _identity(b)
        yield ComparedValue(f"tensor {name}", _short(a), _short(b), differs)


def _within_tolerance(golden: Golden, found: Golden) -> Iterator[ComparedValue]:
    for name, was, now in _both(golden.metrics, found.metrics):
        yield from _compare_metric(name, was, now, golden.bound(name))
    bound = golden.bound("losses")
    last = bound.get("steps", golden.steps)
    for step, was in golden.losses["at"].items():
        if int(step) <= last:
            yield _compare_floats(f"loss at step {step}", was, found.losses["at"].get(step), bound)
    for name, a, b in _both(golden.tensors, found.tensors):
        if a is None or b is None or (a["shape"], a["dtype"]) != (b["shape"], b["dtype"]):
            yield ComparedValue(f"tensor {name}", _type(a), _type(b), True)
        else:
            yield _compare_floats(f"norm of {name}", a["norm"], b["norm"], golden.bound("tensors"))


def _both(golden: dict[str, Any], found: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The names of both, with their values; None where one lacks it."""
    return ((name, golden.get(name), found.get(name)) for name in golden | found)


def _compare_metric(name: str, was: Any, now: Any, bound: dict[str, float] | None) -> Iterator[ComparedValue]:
    """A row for a number; for an array a row for each element that differs, or one row if none does.

    Without a bound values must be equal.
    """
    a, b = array_of(was), array_of(now)
    if a is None and b is None:
        yield ComparedValue(name, was, now, was != now) if bound is None else _compare_floats(name, was, now, bound)
    elif a is None or b is None or a.shape != b.shape:
        yield ComparedValue(name, _size(was), _size(now), True)
    else:
        rtol, atol = (bound or {}).get("rtol", 0.0), (bound or {}).get("atol", 0.0)
        differing = list(cells(a, b, abs(b - a) > atol + rtol * abs(a)))
        allowed = "" if bound is None else _tolerance_text(rtol, atol)
        yield from (ComparedValue(f"{name}{place}", x, y, True, allowed) for place, x, y in differing)
        if not differing:
            yield ComparedValue(name, size_text(was), size_text(now), False, allowed)


def _size(value: Any) -> Any:
    return size_text(value) if isinstance(value, list) else value


def _compare_floats(name: str, was: float | None, now: float | None, bound: dict[str, float]) -> ComparedValue:
    rtol, atol = bound.get("rtol", 0.0), bound.get("atol", 0.0)
    differs = was is None or now is None or abs(now - was) > atol + rtol * abs(was)
    return ComparedValue(name, was, now, differs, _tolerance_text(rtol, atol))


def _tolerance_text(rtol: float, atol: float) -> str:
    return f"rtol {rtol:g}, atol {atol:g}"


def _first_loss(golden: Golden, found: Golden) -> ComparedValue:
    """The first differing loss among those that the file lists; if these agree, an unlisted loss differs."""
    losses = found.losses["at"]
    for step, was in golden.losses["at"].items():
        if losses.get(step) != was:
            return ComparedValue(f"loss at step {step}", was, losses.get(step), True)
    return ComparedValue("losses", golden.losses["sha256"][:12], found.losses["sha256"][:12], True)


def _identity(tensor: dict[str, Any]) -> tuple[Any, ...]:
    return tensor["shape"], tensor["dtype"], tensor["sha256"]


def _type(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{tensor['dtype']}{tensor['shape']}"


def _short(tensor: dict[str, Any] | None) -> str | None:
    return None if tensor is None else f"{_type(tensor)} sha256 {str(tensor['sha256'])[:12]}, norm {tensor['norm']:.9g}"
