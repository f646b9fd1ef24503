"""Runs and comparisons as Python objects: `runner.load_run`, `runner.compare_runs`. Notebooks show them as HTML."""
