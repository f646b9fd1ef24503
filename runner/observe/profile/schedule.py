"""The schedule of a profile: which steps of a training have their operators timed.

Timing operators is expensive (onnxruntime's profile makes a LeNet step half as long again), so it runs in bursts: the
first one soon after the start, a few others far between. The first steps of a burst warm up and are not counted. There
are at most `BURSTS` of them, because onnxruntime keeps a kilobyte for each node that it executes.

Figures need `SAMPLES` steps, so a short training is divided by need: first `SAMPLES` counted steps, then steps that
warm up, then as many steps before and after them that show what a step takes without the profile.
"""

from typing import NamedTuple


class ProfileSchedule(NamedTuple):
    """`bursts` bursts of `length` steps: one every `every` steps, from step `first` on.

    The first `warm_up` steps of each burst are not counted.
    """

    first: int
    length: int
    every: int
    warm_up: int
    bursts: int

    def is_profiled(self, step: int) -> bool:
        """Whether the operators of this step are timed."""
        burst, place = divmod(step - self.first, self.every)
        return 0 <= burst < self.bursts and place < self.length

    def is_counted(self, step: int) -> bool:
        """Whether its times are used: it is profiled and does not warm up."""
        return self.is_profiled(step) and (step - self.first) % self.every >= self.warm_up

    def run_length(self, step: int) -> int:
        """The number of steps from this one on, at least 1, that are all profiled or all not profiled."""
        if step < self.first:
            return self.first - step
        burst, place = divmod(step - self.first, self.every)
        if place < self.length and burst < self.bursts:
            return self.length - place
        return self.every - place if burst + 1 < self.bursts else ENDLESS


SAMPLES = 5  # fewer steps give no spread, so no ranking and no advice
BURST, WARM_UP, EVERY, BURSTS = 12, 2, 1000, 5
BOUNDARIES_BURST, BOUNDARIES_EVERY = SAMPLES + WARM_UP, 2500  # when only the boundaries of the parts are measured
BEFORE = 3  # steps that are not profiled before the first burst, the first of which allocates memory
ENDLESS = 1 << 62


def schedule(first_step: int, total: int, operators: bool) -> ProfileSchedule:
    """The schedule for the steps from `first_step` to `total`. `operators`: whether every operator is measured."""
    longest, every = (BURST, EVERY) if operators else (BOUNDARIES_BURST, BOUNDARIES_EVERY)
    steps, shortest = max(1, total - first_step), SAMPLES + WARM_UP
    before = min(BEFORE, max(0, steps - shortest))
    after = SAMPLES - (BEFORE - 1)  # with those before, without the first one, SAMPLES steps are not profiled
    length = min(longest, steps - before, max(shortest, steps - before - after))
    return ProfileSchedule(first_step + before, length, every, max(0, min(WARM_UP, length - SAMPLES)), BURSTS)
