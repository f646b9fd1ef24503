"""Which operators take most of a step, as far as the timed steps can separate them."""

from typing import NamedTuple

from runner.observe.profile.analysis import Analysis, OperatorTimes
from runner.observe.profile.distribution import BETWEEN_RUNS
from runner.observe.profile.schedule import SAMPLES

WIDTH = 88  # of a name in a line


class RankedOperator(NamedTuple):
    """An operator with its places, 1 for the most expensive one.

    Operators that the timed steps do not separate have the same places, from `first` to `last`.
    """

    operator: OperatorTimes
    first: int
    last: int

    @property
    def places(self) -> str:
        """The places as text: `3`, or `1-4`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def label(self) -> str:
        """The full name, or the end of a long one."""
        name = self.operator.name
        return name if len(name) <= WIDTH else "…" + name[1 - WIDTH :]


def ranking(analysis: Analysis) -> list[RankedOperator]:
    """The operators that take time, the longest median first; none when too few steps were timed."""
    if len(analysis.record.profiled_steps) < SAMPLES:
        return []
    ordered = sorted((t for t in analysis.operator_times if t.median), key=lambda times: -times.median)
    groups: list[list[OperatorTimes]] = []
    for operator in ordered:
        if not groups or groups[-1][0].distribution.exceeds(operator.distribution):
            groups.append([])
        groups[-1].append(operator)
    ranked: list[RankedOperator] = []
    for group in groups:
        first = len(ranked) + 1
        ranked += [RankedOperator(operator, first, len(ranked) + len(group)) for operator in group]
    return ranked


def remark(analysis: Analysis, ranked: list[RankedOperator]) -> str | None:
    """A sentence on what the ranking does not say; None when the first place is clear, or no operator was timed."""
    timed = len(analysis.record.profiled_steps)
    if 0 < timed < SAMPLES:
        steps = f"{timed} step{'' if timed == 1 else 's'}"
        return f"Operators are not ranked: they were timed in {steps}, and a ranking needs {SAMPLES}."
    if not ranked or ranked[0].last == 1:
        return None
    return (
        f"The first {ranked[0].last} cannot be separated: their quartiles overlap, or they differ by less than"
        f" {BETWEEN_RUNS:.0%}, as the same operator does from run to run."
    )
