"""Which steps of a training have their operators timed.

The clock of the operators costs something (onnxruntime's profile makes a LeNet step half as long again), so it runs in
bursts: the first soon after the start, the others far apart. The first steps of a burst warm up and are not counted.
"""

from typing import NamedTuple


class Plan(NamedTuple):
    """Bursts of `length` steps, from step `first` on and then every `every` steps. `warm` steps of each warm up."""

    first: int
    length: int
    every: int
    warm: int

    def looks(self, step: int) -> bool:
        """Whether the operators of this step are timed."""
        return step >= self.first and (step - self.first) % self.every < self.length

    def counts(self, step: int) -> bool:
        """Whether its times are used: not those of a burst that warms up."""
        return self.looks(step) and (step - self.first) % self.every >= self.warm

    def alike(self, step: int) -> int:
        """How many steps from this one on are timed as this one is; at least 1."""
        if step < self.first:
            return self.first - step
        place = (step - self.first) % self.every
        return self.length - place if place < self.length else self.every - place


BURST, WARM, EVERY = 12, 2, 1000
BORDERS_BURST, BORDERS_EVERY = 6, 2000  # when only the borders of the parts are wanted


def planned(first_step: int, total: int, operators: bool) -> Plan:
    """The plan for the steps from `first_step` to `total`. `operators`: whether every operator is wanted.

    A training of few steps warms up less, so that something is left to be looked at.
    """
    length, every = (BURST, EVERY) if operators else (BORDERS_BURST, BORDERS_EVERY)
    steps = max(1, total - first_step)
    before = min(3, (steps - 1) // 2)
    length = min(length, steps - before)
    return Plan(first_step + before, length, max(every, length), min(WARM, length - 1))
