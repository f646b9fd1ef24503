"""The processes (ranks) of a data-parallel training; MindSpore's scripts import `management`."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
