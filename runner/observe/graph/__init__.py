"""Graphs as files: text (`.ir`), drawings (`.dot`) and the reference's protobuf (`.pb`)."""

from runner.observe.graph.reader import read

__all__ = ["read"]
