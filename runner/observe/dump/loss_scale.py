"""The loss scales of two dumps: gradients of a scaled loss are compared with those of an unscaled one."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.observe.dump.operator_names import GRADIENTS
from runner.observe.dump.reader import DumpEntry

SCALE = "scale_sense"  # the parameter of a step with loss scaling


@dataclass(frozen=True)
class LossScales:
    """The scale of each dump, None without loss scaling.

    If only one dump has it, the gradients of the other one are multiplied by it, and not its own gradients divided: the
    type in which they were rounded has its smallest number there. Two scales that differ are a difference of the runs.
    """

    a: float | None
    b: float | None

    @classmethod
    def of(cls, a: Sequence[DumpEntry], b: Sequence[DumpEntry]) -> "LossScales":
        """Read the scales of an iteration. Raises DataError for a damaged file."""
        return cls(*map(_scale, (a, b)))

    @property
    def factors(self) -> tuple[float, float]:
        """What gradients of A and of B are multiplied by to be comparable."""
        if (self.a is None) == (self.b is None):
            return 1.0, 1.0
        return self.b or 1.0, self.a or 1.0

    @staticmethod
    def multiply(entry: DumpEntry) -> bool:
        """Whether an entry may have values that are multiplied by the loss scale."""
        return entry.name.startswith((f"{GRADIENTS}/", f"{GRADIENTS}_"))

    def __str__(self) -> str:
        one, other = ("A", "B") if self.b is None else ("B", "A")
        scale = self.a if self.b is None else self.b
        return f"only {one} has a loss scale, {scale:g}: gradients of {other} are multiplied by it to be compared"


def _scale(entries: Sequence[DumpEntry]) -> float | None:
    for entry in entries:
        if entry.is_value and entry.name == SCALE:
            return next((float(tensor.array().reshape(-1)[0]) for tensor in entry.tensors().values()), None)
    return None
