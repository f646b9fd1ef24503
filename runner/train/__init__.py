"""Training: `Model`, its loop, callbacks, checkpoints, loss scaling and profiling."""

from runner.train.model import Model

__all__ = ["Model"]
