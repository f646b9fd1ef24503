"""The counter that random operators draw from: set before each step, increased by every draw.

A draw hashes the seeds of its operator, the rank, and the counter. The counter begins each step of a training, each
event of its callbacks and each batch of an evaluation at a place that follows from the global seed and the number of
the step, so what these draw does not depend on what the process has executed before. Other calls of cells and operators
continue the counter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from runner import dtype as dt
from runner.communication.world import world
from runner.core.operators import current
from runner.core.values import Parameter, Tensor, Value
from runner.host import seed
from runner.ops.random_bits import MASK, stream_of

__all__: list[str] = []

# Odd and near 2**32 divided by the golden ratio, so the places of N steps are at least 2**32 / (5 N) draws apart.
STRIDE = 0x9E3779B1


class RandomCounter:
    """The counter of the process. `trainings` counts those that have begun since the seed was set."""

    def __init__(self) -> None:
        self.training = 0
        self.parameter = Parameter(Tensor(0, dt.int64), "random_counter", requires_grad=False)
        self.restart()

    def restart(self) -> None:
        """The state after a seed has been set."""
        self.trainings, self._known = 0, WeakKeyDictionary[object, int]()
        self._begin("call", 0)

    def begin_training(self, owner: object, first_step: int) -> None:
        """Begin a training of `owner`, or continue its last one, with step `first_step`."""
        if not first_step or owner not in self._known:
            self._known[owner] = self.trainings
            self.trainings += 1
        self.training = self._known[owner]
        self.begin_event("begin", first_step)

    def begin_step(self, number: int) -> None:
        """Set the counter for a step of the training."""
        self._begin("step", number, self.training)

    def of_steps(self, first: int, count: int) -> np.ndarray:
        """The values of the counter at the beginning of steps of the training: Int64 [count]."""
        steps = np.arange(first, first + count, dtype=np.int64)
        return (_origin(seed.get_seed(), "step", self.training) + steps * STRIDE) & MASK

    def begin_event(self, event: str, steps: int) -> None:
        """Set the counter for what callbacks draw in an event after so many steps."""
        self._begin(event, steps, self.training)

    def begin_batch(self, number: int) -> None:
        """Set the counter for a batch of an evaluation."""
        self._begin("evaluation", number)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the counter at the end of the context."""
        before, restore = (self.trainings, self.training, self._known), self.parameter.snapshot()
        try:
            yield
        finally:
            self.trainings, self.training, self._known = before
            restore()

    def _begin(self, purpose: str, number: int, training: int = 0) -> None:
        place = _origin(seed.get_seed(), purpose, training) + number * STRIDE
        self.parameter.replace_array(np.asarray(place & MASK, np.int64))


def use_counter(*seeds: int) -> tuple[int, Value]:
    """The stream of an operator with these seeds, and the counter, which is increased for this draw."""
    counter, interpreter = COUNTER.parameter, current()
    drawn = counter + 1
    interpreter.assign(counter, drawn)
    return stream_of(*seeds, world().rank), drawn


@lru_cache(maxsize=64)
def _origin(global_seed: int, purpose: str, training: int) -> int:
    """The counter at step 0. Cached: hashing takes longer than the rest of a step's preparation."""
    return stream_of(global_seed & MASK, global_seed >> 32, crc32(purpose.encode()), training)


COUNTER = RandomCounter()
seed.on_change(COUNTER.restart)
