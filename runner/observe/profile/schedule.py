"""Which steps of a training have their operators timed.

The clock of the operators costs something (onnxruntime's profile makes a LeNet step half as long again), so it runs in
bursts: the first soon after the start, a few others far apart. The first steps of a burst warm up and are not counted.
No more than `BURSTS` of them, because onnxruntime keeps a kilobyte for each node that it executes.
"""

from typing import NamedTuple


class Plan(NamedTuple):
    """So many `bursts` of `length` steps, from step `first` on and then every `every` steps; `warm` of each warm up."""

    first: int
    length: int
    every: int
    warm: int
    bursts: int

    def looks(self, step: int) -> bool:
        """Whether the operators of this step are timed."""
        burst, place = divmod(step - self.first, self.every)
        return 0 <= burst < self.bursts and place < self.length

    def counts(self, step: int) -> bool:
        """Whether its times are used: not those of a burst that warms up."""
        return self.looks(step) and (step - self.first) % self.every >= self.warm

    def alike(self, step: int) -> int:
        """How many steps from this one on are timed as this one is; at least 1."""
        if step < self.first:
            return self.first - step
        burst, place = divmod(step - self.first, self.every)
        if place < self.length and burst < self.bursts:
            return self.length - place
        return self.every - place if burst + 1 < self.bursts else ENDLESS


BURST, WARM, EVERY, BURSTS = 12, 2, 1000, 5
BORDERS_BURST, BORDERS_EVERY = 6, 2000  # when only the borders of the parts are wanted
ENDLESS = 1 << 62


def planned(first_step: int, total: int, operators: bool) -> Plan:
    """The plan for the steps from `first_step` to `total`. `operators`: whether every operator is wanted.

    A training of few steps warms up less, so that something is left to be looked at.
    """
    length, every = (BURST, EVERY) if operators else (BORDERS_BURST, BORDERS_EVERY)
    steps = max(1, total - first_step)
    before = min(3, (steps - 1) // 2)
    length = min(length, steps - before)
    return Plan(first_step + before, length, max(every, length), min(WARM, length - 1), BURSTS)
