"""How long things took."""

import time

from runner.train.callback import Callback, RunContext


class Clock(Callback):
    """Seconds since it was made: until training began, until the first loss was there, and of the steps themselves."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._begin = self._step = 0.0
        self.first_loss_seconds: float | None = None
        self.train_seconds = 0.0

    def begin(self, run_context: RunContext) -> None:
        self._begin = time.perf_counter()

    def step_begin(self, run_context: RunContext) -> None:
        self._step = time.perf_counter()

    def step_end(self, run_context: RunContext) -> None:
        end = time.perf_counter()
        self.train_seconds += end - self._step
        if self.first_loss_seconds is None:
            self.first_loss_seconds = end - self._start

    def sink_left(self, run_context: RunContext) -> None:
        self.train_seconds += time.perf_counter() - self._step

    @property
    def init_seconds(self) -> float:
        """Until training began."""
        return self._begin - self._start
