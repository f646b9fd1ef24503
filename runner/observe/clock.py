"""How long things took."""

import time

from runner.train.callback import Callback, RunContext


class Clock(Callback):
    """Seconds since it was made: until training began, until the first loss was there, and of training itself."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._begin = self._end = 0.0
        self.first_loss_seconds: float | None = None

    def begin(self, run_context: RunContext) -> None:
        self._begin = time.perf_counter()

    def step_end(self, run_context: RunContext) -> None:
        self._end = time.perf_counter()
        if self.first_loss_seconds is None:
            self.first_loss_seconds = self._end - self._start

    @property
    def init_seconds(self) -> float:
        """Until training began."""
        return self._begin - self._start

    @property
    def train_seconds(self) -> float:
        """From there to the end of the last step."""
        return self._end - self._begin
