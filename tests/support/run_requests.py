"""Requests of runs, for what takes one and needs nothing else."""

from pathlib import Path

from runner.config.schema import RunConfig, RunRequest


def request_of(config: RunConfig, folder: Path = Path()) -> RunRequest:
    """The request of a new run with this config in a folder."""
    return RunRequest(config, folder, None, {}, ())
