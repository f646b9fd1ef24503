"""The ranks of a data-parallel run as one run: one run directory, one output, one exit code.

The first rank executes the whole run; the others only the training (`follower.py`). A rank that fails before the
training reports its error to the others (`start_up.py`), and the first rank prints it. When one rank fails later, the
others would wait for it in the next collective, so it prints its error and ends all of them. An error that all ranks
have in common is printed by the first one.
"""

import json
import logging
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from runner import rundir
from runner.communication import settings as auto_parallel
from runner.communication.management import SAME_ERROR_SECONDS
from runner.communication.world import UnjoinedWorld, World
from runner.config.code import loaded_files
from runner.config.groups.services import DataParallel, profiling_is_requested
from runner.config.schema import RunConfig, RunRequest
from runner.core.graph import NO_GRAPHS
from runner.errors import ConfigError, RunnerError, TrainingError, unexpected
from runner.experiment import manifest, observers, run
from runner.experiment.build import build
from runner.experiment.ranks import start_up
from runner.experiment.ranks.guardian import guarded
from runner.host.console import LOG
from runner.host.files import sha256
from runner.host.machine import usable_cores
from runner.host.process import Interruption, exit_code, ignored, stop_text
from runner.train.callback import LossMonitor
from runner.validation.rules import show

# The part of a run that ranks other than the first execute: training; they write only dumps and profiles.


def follow(request: RunRequest) -> None:
    """Execute the training steps of a run; the first rank also evaluates. Raises the errors of training."""
    config, folder = request.config, request.folder
    if not config.session.graph_run_mode:
        return
    with run.run_environment(config), closing(run.value_observer(request)) as values:
        experiment = build(config, NO_GRAPHS, values, run.failure_observer(config, folder))
        if profiling_is_requested(config.profiling, config.session):
            observers.attach(request, experiment)
        network = {path.name: sha256(path) for path in experiment.model.network.source_files}
        start_up.require_equal_inputs(config.dataset, experiment.train_data.fingerprint(), network)
        if config.checkpoint.load is not None and not request.resume:
            start_up.read_on_first_rank(experiment.model.network)
        before = {}
        if request.resume:
            before = start_up.read_on_first_rank(experiment.model.train_network)
            values.rewind(int(before.get("global_step", 0)))
        with Interruption() as interruption:
            flush = start_up.FlushValues(values)  # before the reduction after which the first rank may save
            callbacks = [LossMonitor(0), flush, start_up.SynchronizeSignals(interruption)]
            run.execute_steps(config, experiment, callbacks, before)


# The ranks of a data-parallel run as one run: one run directory, one output, one exit code.

STOP_SECONDS = 8.0  # how long ranks wait for the first one, which saves a checkpoint after a signal
OUTPUT_SECONDS = 0.3  # for mpirun to forward the output of a rank before it ends all of them
T = TypeVar("T")


class RankGroup:
    """This rank's part of the run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.place: Path | None = None

    def first(self, compute: Callable[[], T]) -> T:
        """A JSON value on all ranks, which the first one computes. Raises on all ranks what it raises."""
        with start_up.failures_shared(self.world, first_leads=True):
            value: T = start_up.exchange(self.world, compute() if self.world.rank == 0 else None)[0]
            return value

    def run(self, request: RunRequest, work: Callable[[RunRequest], dict[str, Any]]) -> dict[str, Any]:
        """The whole run on the first rank; on the others the training, without a summary."""
        self.place = request.folder
        with start_up.failures_shared(self.world, first_leads=True):
            cores = tuple(start_up.exchange(self.world, max(1, usable_cores() // self.world.local_size)))
            config = of_rank(request.config, self.world, cores[self.world.rank])
            request = replace(request, config=config, cores=cores)
            if not request.config.session.graph_run_mode:  # nothing is trained: the others have nothing to do
                start_up.training_begins(self.world)
            if self.world.rank == 0:
                with guarded(request.folder) if self.world.size > 1 else nullcontext():
                    return work(request)
            with _silent(), _unexpected_errors():
                follow(request)
        return {}

    def abort(self, block: str, exit_code: int, status: str = "failed") -> None:
        """Report the error on stderr and in status.json, and end all ranks."""
        sys.stdout.flush()
        sys.stderr.write(f"{block}\n")
        sys.stderr.flush()
        with suppress(RunnerError, OSError):
            place = self.place if self.world.rank else None  # the first rank keeps status.json itself
            if place is not None and rundir.read_status(place).get("status") == "running":
                rundir.record_failure(place, exit_code, block, status=status)
        time.sleep(OUTPUT_SECONDS)
        self.world.abort(exit_code)
        os._exit(exit_code)  # mpirun ends this process too, but it could print more before


@contextmanager
def joined(
    world: World, parallel: DataParallel, config: Mapping[str, object], failed: RunnerError | None = None
) -> Iterator[RankGroup]:
    """This rank's part of a run; networks that are built inside sum their gradients. All ranks leave at the same time.

    `config` are the values that all ranks share, by key; `failed` is the error of a rank that cannot begin. An error of
    one rank ends all processes. Raises on the first rank the error, and on other ranks SystemExit with the same exit
    code.
    """
    group = RankGroup(world)
    names = "gradients_mean", "parameter_broadcast", "all_reduce_fusion_config", "sync_batch_norm"
    settings = {name: getattr(parallel, name) for name in names}
    world.limit, world.ended = parallel.timeout_seconds, False
    if world.heartbeat is not None:
        world.heartbeat.allow(60 * parallel.heartbeat_minutes)
    try:
        with start_up.failures_shared(world):
            if failed is not None:
                raise failed
            _check(world, parallel)
            _check_code_and_config(world, config)
        with auto_parallel.applied(parallel_mode=parallel.name, device_num=None, global_rank=None, **settings):
            yield group
        all_leave = world.met(None if world.rank else parallel.timeout_seconds)  # the others wait for its evaluation
    except BaseException as error:
        _leave(group, error)
        raise
    if not all_leave:
        rows = {"waited": f"{parallel.timeout_seconds:g} seconds", "key": "parallel.timeout_seconds"}
        group.abort(
            str(TrainingError("the run is complete, but ranks have not ended", **rows)), TrainingError.exit_code
        )


def _leave(group: RankGroup, error: BaseException) -> None:
    """End this rank: with the others when they fail too, otherwise by ending all of them."""
    stopped = isinstance(error, KeyboardInterrupt)
    # The signal that stops a run reaches every rank, and some ranks only after another rank has reported it.
    with ignored() if stopped else nullcontext():
        seconds = STOP_SECONDS if stopped else SAME_ERROR_SECONDS
        all_leave = group.world.met(group.world.limit if group.world.ended else seconds)
    if all_leave:
        if group.world.rank:
            raise SystemExit(exit_code(error)) from None
        return
    if isinstance(error, RunnerError):
        rank = f"{group.world.rank} of {group.world.size}; it ends the others"
        error.add(rank=rank, host=platform.node())
    if isinstance(error, KeyboardInterrupt):
        group.abort(stop_text(error), exit_code(error), "interrupted")
    block = str(error) if isinstance(error, RunnerError) else traceback.format_exception_only(error)[-1].strip()
    group.abort(block, exit_code(error))


def stop_all(stop: KeyboardInterrupt) -> None:
    """End all processes of mpirun from one that has not joined them; return when they do not start MPI."""
    with ignored(), suppress(RunnerError):
        RankGroup(UnjoinedWorld(STOP_SECONDS)).abort(stop_text(stop), exit_code(stop))


def of_rank(config: RunConfig, world: World, cores: int) -> RunConfig:
    """The config of one rank: its own card, a thread for each of its cores; only the first rank has a print file."""
    device = config.device
    number = 0 if device.card is None else world.local_rank
    device = replace(device, id=number, threads=device.threads or cores)
    return replace(config, device=device, print_file_path=None if world.rank else config.print_file_path)


def _check(world: World, parallel: DataParallel) -> None:
    for name, found in (("device_num", world.size), ("global_rank", world.rank)):
        given = getattr(parallel, name)
        if given not in (None, found):
            hint = f"mpirun -n {given} runner ..., or leave it out" if name == "device_num" else "leave it out"
            rows = {"key": f"parallel.{name}", "value": given, "found": found, "hint": hint}
            raise ConfigError("does not agree with mpirun", **rows)


def _check_code_and_config(world: World, config: Mapping[str, object]) -> None:
    """Raise ConfigError, the same on all ranks, when one has another config, or other files of the user, than the first
    one."""
    files = loaded_files()
    code = {name: (digest, f"{files[name]} ({digest[:12]})") for name, digest in manifest.hashes(files).items()}
    start_up.require_equal(world, "ranks have different code", "file", code, "the same files on every host")
    values = {key: (json.dumps(value), f"{key}={show(value)}") for key, value in config.items()}
    start_up.require_equal(world, "ranks have different configs", "key", values, "the same command on every rank")


@contextmanager
def _unexpected_errors() -> Iterator[None]:
    """Raise unforeseen exceptions as InternalError with their place."""
    try:
        yield
    except (RunnerError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise unexpected(error) from error


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
