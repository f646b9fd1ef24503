"""Parameter files, in runner's own format (`state`) and in MindSpore's (`parameters`)."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
