"""Floor 6: the training loop and what listens to it."""

from runner.train.model import Model

__all__ = ["Model"]
