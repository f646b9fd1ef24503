"""Layers, losses and schedules of MindSpore r1.2 that only its scripts use; `runner.nn` has their names."""
