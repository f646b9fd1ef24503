"""The ranks of a data-parallel run as one run: one run directory, one output, one exit code.

The first rank executes the whole run; the others only the training (`follower.py`). When one rank fails, the others
would wait for it in the next collective, so it reports its error and ends all of them. An error that all ranks have in
common is reported by the first one.
"""

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from runner.communication import auto_parallel
from runner.communication.management import SAME_ERROR_SECONDS
from runner.communication.world import World
from runner.config.groups.parallel import DataParallel
from runner.config.schema import RunConfig, RunRequest
from runner.errors import ConfigError, InternalError, RunnerError, StorageError
from runner.experiment.ranks import follower
from runner.host import files
from runner.host.log import LOG
from runner.host.machine import usable_cores
from runner.host.signals import exit_code, ignored

STOP_SECONDS = 8.0  # how long ranks wait for the first one, which saves a checkpoint after a signal
OUTPUT_SECONDS = 0.3  # for mpirun to forward the output of a rank before it ends all of them
STATUS_FILE = "status.json"
T = TypeVar("T")


class RankGroup:
    """This rank's part of the run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place: Path | None = None

    def first(self, compute: Callable[[], T]) -> T:
        """A JSON value on all ranks, which the first one computes.

        Raises its error there, and one with the same exit code on the others, so that all end alike.
        """
        known, failed = None, None
        if self.world.rank == 0:
            try:
                known = compute()
            except RunnerError as error:
                failed = error
        value, exit_code = self.world.shared([known, failed.exit_code if failed else None])
        if failed is None and exit_code is not None:
            failed = RunnerError("the first rank could not start the run")
            failed.exit_code = exit_code
        if failed is not None:
            raise failed
        first: T = value
        return first

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        """The whole run on the first rank; on the others the training, without a summary."""
        self.place = request.folder
        request = replace(request, config=of_rank(request.config, self.world))
        if self.world.rank == 0:
            return work(request)
        with _silent():
            try:
                follower.follow(request)
            except (RunnerError, KeyboardInterrupt):
                raise
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{last.filename}:{last.lineno} in {last.name}"
                raise InternalError(f"{type(error).__name__}: {error}", at=place) from error
        return {}

    def abort(self, block: str, exit_code: int) -> None:
        """Report the error on stderr and in status.json, and end all ranks."""
        sys.stdout.flush()
        sys.stderr.write(f"{block}\n")
        sys.stderr.flush()
        with suppress(StorageError, OSError, ValueError):
            if self.world.rank and self.place is not None:  # the first rank keeps status.json itself
                known = json.loads((self.place / STATUS_FILE).read_text())
                ended = {"status": "failed", "exit_code": exit_code, "error": block}
                files.write_json(self.place / STATUS_FILE, {**known, **ended})
        time.sleep(OUTPUT_SECONDS)
        self.world.abort(exit_code)
        os._exit(exit_code)  # mpirun ends this process too, but it could print more before


@contextmanager
def joined(world: World, parallel: DataParallel) -> Iterator[RankGroup]:
    """This rank's part of a run; networks that are built inside sum their gradients. All ranks leave at the same time.

    An error of one rank ends all processes. Raises the error of the first rank, and on other ranks SystemExit with the
    same exit code.
    """
    group = RankGroup(world)
    names = "gradients_mean", "parameter_broadcast", "all_reduce_fusion_config"
    settings = {name: getattr(parallel, name) for name in names}
    try:
        _check(world, parallel)
        with auto_parallel.applied(parallel_mode=parallel.name, device_num=None, global_rank=None, **settings):
            yield group
    except BaseException as error:
        _leave(group, error)
        raise
    world.met()


def _leave(group: RankGroup, error: BaseException) -> None:
    """End this rank: with the others when they fail too, otherwise by ending all of them."""
    stopped = isinstance(error, KeyboardInterrupt)
    # The signal that stops a run reaches every rank, and some ranks only after another rank has reported it.
    with ignored() if stopped else nullcontext():
        all_leave = group.world.met(STOP_SECONDS if stopped else SAME_ERROR_SECONDS)
    if all_leave:
        if group.world.rank:
            raise SystemExit(exit_code(error)) from None
        return
    if isinstance(error, RunnerError):
        error.add(rank=f"{group.world.rank} of {group.world.size}; it ends the others")
    group.abort(str(error) or type(error).__name__, exit_code(error))


def of_rank(config: RunConfig, world: World) -> RunConfig:
    """The config of one rank: its own card and its share of the cores; only the first rank has a print file."""
    device = config.device
    threads = device.threads or max(1, usable_cores() // world.local_size)
    device = replace(device, id=0 if device.card is None else world.local_rank, threads=threads)
    return replace(config, device=device, print_file_path=None if world.rank else config.print_file_path)


def _check(world: World, parallel: DataParallel) -> None:
    for name, found in (("device_num", world.size), ("global_rank", world.rank)):
        given = getattr(parallel, name)
        if given not in (None, found):
            hint = f"mpirun -n {given} runner ..., or leave it out" if name == "device_num" else "leave it out"
            rows = {"key": f"parallel.{name}", "value": given, "found": found, "hint": hint}
            raise ConfigError("does not agree with mpirun", **rows)


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress output that the first rank prints."""
    before = LOG.level
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        LOG.setLevel(logging.ERROR)
        try:
            yield
        finally:
            LOG.setLevel(before)
