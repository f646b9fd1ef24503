"""Operators of MindSpore r1.2 that only its scripts use; `runner.ops` has their names."""
