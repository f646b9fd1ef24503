"""The ranks of a data-parallel run as one: one folder, one voice, one end.

The first rank makes the run as if it were alone; the others only train with it (`follower.py`). When one rank
fails alone, the others would wait for it for ever, so it tells why and ends all of them. What all ranks find alike, the
first one tells.
"""

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.communication import auto_parallel
from runner.communication.management import ALIKE_SECONDS
from runner.communication.world import World
from runner.config.groups.parallel import DataParallel
from runner.config.schema import RunConfig, RunRequest
from runner.errors import ConfigError, InternalError, RunnerError, StorageError
from runner.experiment.ranks import follower
from runner.host import files
from runner.host.machine import usable_cores
from runner.host.signals import Terminated

STOP_SECONDS = 8.0  # how long the ranks wait for the checkpoint that one of them writes when a signal has come
HEARD_SECONDS = 0.3  # mpirun passes on what a rank says, unless it has ended all of them before
STATUS_FILE = "status.json"


class Company:
    """One rank among others."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place: Path | None = None

    def folder(self, claim: Callable[[], Path]) -> Path:
        """The folder that the first rank has claimed."""
        return Path(self.world.shared(str(claim()) if self.world.rank == 0 else None))

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        """The whole run on the first rank, on the others the training; these have no summary."""
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

    def failed_alone(self, block: str, exit_code: int) -> None:
        """Tell why, on the screen and in the folder, and end all ranks."""
        sys.stdout.flush()
        sys.stderr.write(f"{block}\n")
        sys.stderr.flush()
        with suppress(StorageError, OSError, ValueError):
            if self.world.rank and self.place is not None:  # the first rank has done so already
                known = json.loads((self.place / STATUS_FILE).read_text())
                ended = {"status": "failed", "exit_code": exit_code, "error": block}
                files.write_json(self.place / STATUS_FILE, {**known, **ended})
        time.sleep(HEARD_SECONDS)
        self.world.abort(exit_code)
        os._exit(exit_code)  # mpirun ends this process too, but perhaps not before it could say more


@contextmanager
def joined(world: World, parallel: DataParallel) -> Iterator[Company]:
    """This rank's part of a run; networks that are built inside sum their gradients. All ranks leave together.

    A rank whose error is its own ends all processes. Raises what the first rank raises, and on other ranks SystemExit
    with the same exit code.
    """
    company = Company(world)
    names = "gradients_mean", "parameter_broadcast", "all_reduce_fusion_config"
    settings = {name: getattr(parallel, name) for name in names}
    try:
        _check(world, parallel)
        with auto_parallel.applied(parallel_mode=parallel.name, device_num=None, global_rank=None, **settings):
            yield company
    except BaseException as error:
        _left(company, error)
        raise
    world.met()


def _left(company: Company, error: BaseException) -> None:
    """This rank is on its way out: with the others, or alone."""
    stopped = isinstance(error, KeyboardInterrupt)
    exit_code = (143 if isinstance(error, Terminated) else 130) if stopped else getattr(error, "exit_code", 1)
    if company.world.met(STOP_SECONDS if stopped else ALIKE_SECONDS):
        if company.world.rank:
            raise SystemExit(exit_code) from None
        return
    if isinstance(error, RunnerError):
        error.add(rank=f"{company.world.rank} of {company.world.size}; it ends the others")
    company.failed_alone(str(error) or type(error).__name__, exit_code)


def of_rank(config: RunConfig, world: World) -> RunConfig:
    """The config of one rank: its own card, its share of the cores; only the first one prints into a file."""
    device, cards = config.device, config.device.target != "CPU"
    threads = device.threads or max(1, usable_cores() // world.local_size)
    device = replace(device, id=world.local_rank if cards else world.rank, threads=threads)
    return replace(config, device=device, print_file_path=None if world.rank else config.print_file_path)


def _check(world: World, parallel: DataParallel) -> None:
    for name, found in (("device_num", world.size), ("global_rank", world.rank)):
        given = getattr(parallel, name)
        if given not in (None, found):
            hint = f"mpirun -n {given} runner ..., or leave it out" if name == "device_num" else "leave it out"
            rows = {"key": f"parallel.{name}", "value": given, "found": found, "hint": hint}
            raise ConfigError("not what mpirun has started", **rows)


@contextmanager
def _silent() -> Iterator[None]:
    """What every rank would print is printed by the first one."""
    log = logging.getLogger("runner")
    before = log.level
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(before)
