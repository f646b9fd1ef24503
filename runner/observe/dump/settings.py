"""What is dumped, where, and in which steps: one checked object, whether YAML, JSON or Python asked for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.errors import ConfigError

Kind = Literal["sync", "async", "ge"]
VARIABLE = "MINDSPORE_DUMP_CONFIG"  # of the environment: the absolute path of a JSON file that requests a dump
ALL = "all"
ITERATION_HINT = 'numbers and ranges with "|" between them, counted from 0, such as "0|5-8|100-120", or "all"'
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True)
class Iterations:
    """Steps of a training, counted from 0: inclusive ranges in ascending order, or None for every step."""

    ranges: tuple[tuple[int, int], ...] | None

    @classmethod
    def parse(cls, value: object) -> "Iterations":
        """The steps that `"0|5-8|100-120"`, `"all"` or a single number means.

        Raises ConfigError with `value`, `allowed` and, where a part is wrong, `part`.

        >>> Iterations.parse("5-8|0").ranges, Iterations.parse("all").ranges
        (((0, 0), (5, 8)), None)
        """
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ConfigError("not a choice of steps", value=repr(value), allowed=ITERATION_HINT)
        if value == ALL:
            return cls(None)
        parts = str(value).split("|")
        return cls(tuple(sorted(_bounds(part, value) for part in parts)))

    def __contains__(self, step: int) -> bool:
        return self.following(step) == step

    def following(self, step: int) -> int | None:
        """The first of the steps that is not before `step`; None when there is none."""
        if self.ranges is None:
            return step
        return min((max(first, step) for first, last in self.ranges if last >= step), default=None)

    def __str__(self) -> str:
        if self.ranges is None:
            return ALL
        return "|".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)


def _bounds(part: str, value: object) -> tuple[int, int]:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise ConfigError("not a choice of steps", value=repr(value), part=repr(part), allowed=ITERATION_HINT)
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    if last < first:
        hint = f"{last}-{first}"
        raise ConfigError("a range of steps runs backwards", value=repr(value), part=part, hint=hint)
    return first, last


@dataclass(frozen=True)
class DumpSettings:
    """A dump that will happen. `path` is absolute and the root of the layout (interface of each `kind`).

    `inputs`, `outputs`: which side of operators. `kernels`: full names, operator types or patterns with `*`; None means
    all operators. `op_debug_mode` 1 to 3: only operators whose results overflow (compute, accumulating, all).
    `trans_flag`: whether values come as (N, C, H, W), or else as they lie on the device. `file_format` of the
    asynchronous kinds: `bin` (the CANN dump file) or `npy`. `queue_mb`: what may wait to be written, in MiB.
    `source`: the JSON that asked for it, kept as `.metadata/data_dump.json`.
    """

    kind: Kind
    path: Path
    net_name: str
    iterations: Iterations = Iterations(None)
    inputs: bool = True
    outputs: bool = True
    kernels: Sequence[str] | None = None
    op_debug_mode: int = 0
    trans_flag: bool = True
    file_format: Literal["bin", "npy"] = "bin"
    queue_mb: int = 256
    source: bytes = b""
