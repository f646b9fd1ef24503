"""Datasets and transforms of MindSpore r1.2 that only its scripts use; `runner.dataset` has their names."""
