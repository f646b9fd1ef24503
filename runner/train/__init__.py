"""Training: `Model`, its loop, callbacks, checkpoints, loss scaling and profiling."""

from functools import partial

from runner.host.lazy import reference_attribute
from runner.train.model import Model as Model

__getattr__ = partial(reference_attribute, __name__)
