"""The program as files: text (`.ir`), pictures (`.dot`) and the reference's protobuf (`.pb`)."""

from runner.observe.graph.reader import read

__all__ = ["read"]
