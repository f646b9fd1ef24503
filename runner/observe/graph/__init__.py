"""Graphs as files: text (`.ir`), drawings (`.dot`) and MindSpore's protobuf (`.pb`); `read` reads the text."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
