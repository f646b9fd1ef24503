"""The time of day in records that a run writes."""

from datetime import datetime


def now() -> str:
    """The local time with its offset, to the second, such as `2026-11-22T18:09:54+00:00`."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
