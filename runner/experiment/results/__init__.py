"""Files that a run writes after its last step: the trained network and the worst predictions."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
