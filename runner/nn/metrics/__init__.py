"""Metrics of an evaluation: the names of `mindspore.nn.metrics` r1.2, and R2, listed in `__init__.pyi`.

`base.Metric` is what they have in common: `clear`, `update` for each batch, `eval`. A class has MindSpore's arguments
and values; the metrics of configs, one number each where possible, are in `runner/config/groups/entries.py`.
"""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
