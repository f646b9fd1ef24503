"""What observes a run, made from its config: tuning, profile, graphs, step graph, dump; and the folders it writes to.

Each reads its settings, which may have changed since the config was checked, and creates its folder. Folders outside
of the run directory are checked, and claimed, before a run begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from runner import compile as compiler, context, rundir
from runner.communication.world import process_number
from runner.config.groups import services
from runner.config.schema import RunConfig, RunRequest
from runner.core.dependence import NOTE_LOWERINGS
from runner.core.graph import Graph, GraphObserver, GraphObservers
from runner.device import Device
from runner.errors import BusyError, ConfigError, StorageError
from runner.experiment.build import Experiment
from runner.host import files
from runner.host.console import LOG
from runner.host.files import make_directory, write_atomically, write_json
from runner.host.json import read_optional
from runner.nn.cell import Cell
from runner.observe import dump as dumps, graph as observe_files, profile
from runner.observe.dump.settings import FILES as DUMP_FILES, PATH_KEY
from runner.observe.graph.folder import FILES as GRAPH_FILES, check_folder
from runner.observe.profile.settings import FILES as PROFILE_FILES
from runner.ops import effects
from runner.ops.effects import PrintFile
from runner.ops.random import random_counter
from runner.rundir import OutputDirectory
from runner.train import profile as profiler
from runner.train.callback import Callback, RunContext

# The directories that a run fills outside of its run directory: each belongs to this run, or the run is refused.
#
# The jobs of a sweep write into subdirectories with their numbers, and a dump of GE into one with its time. The record
# of the run directory has the resulting paths, so a resumed run and the readers of a run find them.

GE_TIME = "%Y%m%d%H%M%S"  # the name of a folder of GE


def check(config: RunConfig, folder: Path) -> None:
    """Refuse a new run in `folder` whose directories belong to other runs; nothing is written.

    Raises BusyError, which names all of them, and ConfigError when `save_graphs_path` is a file.
    """
    errors = [error for one in _requested(config, folder) if (error := rundir.conflict(one)) and not _is_ge(one)]
    if errors:
        others = ["{key} {path}: {owner}; {hint}".format(**error.rows) for error in errors[1:]]
        raise errors[0].add(also="\n".join(others) or None)


def claim(request: RunRequest, sweep: Path | None = None, job: int = 0) -> dict[str, str]:
    """Claim the directories of a run, or of a job of a sweep: paths by the paths in the config.

    Raises BusyError when one belongs to another run, StorageError when one cannot be created.
    """
    requested = list(_requested(request.config, request.folder))
    if not requested:
        return {}
    owner = rundir.owner_of(request.folder)
    chosen = dict(owner.directories)
    for one in requested:
        if str(one.path) not in chosen:
            chosen[str(one.path)] = str(_place(one, sweep, job))
    rundir.record_directories(owner, chosen)  # before they are claimed: a run that is killed now may be resumed
    for one in requested:
        rundir.claim(one._replace(path=Path(chosen[str(one.path)])), owner)
    return {str(one.path): chosen[str(one.path)] for one in requested}


@contextmanager
def released_unless_started(request: RunRequest) -> Iterator[None]:
    """Release the directories of a run that ends before it has written anything into its run directory."""
    try:
        yield
    except BaseException:
        if request.directories and rundir.failed_to_start(request.folder):
            owner = rundir.owner_of(request.folder)
            with suppress(StorageError):  # the error of the start is more informative
                for one in _requested(request.config, request.folder):
                    rundir.release(one._replace(path=Path(request.directories[str(one.path)])), owner)
        raise


def with_directories(
    request: RunRequest, first: Callable[[Callable[[], dict[str, str]]], dict[str, str]]
) -> RunRequest:
    """The request with its directories, which the first rank claims; `first` returns on all ranks what it computes."""
    return replace(request, directories=first(lambda: claim(request)))


def _place(directory: OutputDirectory, sweep: Path | None, job: int) -> Path:
    if _is_ge(directory):
        return _new_ge_folder(directory.path)
    if sweep is None:
        return directory.path
    rundir.claim(directory, rundir.owner_of(sweep))
    return directory.path / str(job)


def _new_ge_folder(parent: Path) -> Path:
    """A new folder with the local time; a run that starts in the same second has the next one."""
    now = datetime.now()
    while True:
        try:
            return files.claim_directory(parent / now.strftime(GE_TIME))
        except BusyError:
            now += timedelta(seconds=1)


def _is_ge(directory: OutputDirectory) -> bool:
    return directory.key == "dump.dump_path"


def _requested(config: RunConfig, folder: Path) -> Iterator[OutputDirectory]:
    inside = folder.absolute()
    for directory in (*_dump(config, inside), *_profile(config, inside), *_graphs(config, inside)):
        if not directory.path.is_relative_to(inside):
            yield directory


def _dump(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    group = services.requested_dump(config.dump, config.session)
    if not services.dump_is_requested(group) or not config.session.graph_run_mode:
        return
    requested = services.settings(group, {"path": str(inside), "net_name": config.network.name})
    if requested is not None and requested.enabled:
        key, file = "dump.dump_path" if requested.kind == "ge" else "dump.path", None
        if isinstance(group, services.NoDump):
            key, file = PATH_KEY, group.config or os.environ[dumps.VARIABLE]
        yield OutputDirectory(requested.path, key, DUMP_FILES, file)


def _profile(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    if services.profiling_is_requested(config.profiling, config.session) and config.session.graph_run_mode:
        requested = services.profiling_settings(config.profiling, config.session, inside)
        yield OutputDirectory(requested.result_path, "profiling.result_path", PROFILE_FILES)


def _graphs(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    if config.save_graphs:
        path = inside / config.save_graphs_path
        check_folder(path)
        yield OutputDirectory(path, "save_graphs_path", GRAPH_FILES)


def place(directories: Mapping[str, str], path: Path) -> Path:
    """The directory of a run for a path in its config."""
    return Path(directories.get(str(path), path))


# Tuning.

# The tuning: a model with the fastest training steps on this machine.


def tune(config: RunConfig, experiment: Experiment, folder: Path, resume: bool) -> None:
    """Tune the training steps as `session.auto_tune_mode` requests, and print the tuning.

    A resumed run keeps the tuning in its manifest, so that its results are bit-identical. Raises what compiling and the
    device raise.
    """
    reason = _reason_not_to_tune(config)
    if reason:
        LOG.warning("session.auto_tune_mode has no effect: %s", reason)
        return
    report = _from_manifest(folder) if resume else None

    def tuned(cell: Cell, device: Device) -> Device:
        nonlocal report
        if report is None:
            with closing(experiment.train_data.read(0)) as batches:
                arrays = next(batches)
            modes = str(config.session.auto_tune_mode).split(",")
            report = compiler.find_tuning(cell.compute, arrays, device, modes, config.session.auto_tune_seconds)
        return replace(device, tuning=compiler.parse_tuning(report["tuning"]))

    experiment.model.tune(tuned)
    assert report is not None  # set by `tuned`
    experiment.tuning = report
    for line in compiler.report_lines(report):
        print(line)  # noqa: T201  the summary


def _reason_not_to_tune(config: RunConfig) -> str | None:
    if config.mode == "pynative":
        return "PyNative mode has one kernel for each operator"
    return f"a {config.device.target} chooses its own kernels" if config.device.target != "CPU" else None


def _from_manifest(folder: Path) -> dict[str, Any] | None:
    """The tuning of the resumed run; None, with a warning, when its manifest has none."""
    report: Any = read_optional(folder / rundir.MANIFEST).get("tuning")
    try:
        compiler.parse_tuning(report["tuning"])
    except (KeyError, TypeError, ConfigError):
        LOG.warning("%s has no tuning of the run in its manifest: later results may differ in the last digits", folder)
        return None
    return dict(report)


# The profile of a run: the profiler of its model, or the times of a single operator.


def profile_settings(request: RunRequest) -> profile.ProfileSettings:
    """The profile settings of a checked run that requests a profile. Creates the folder of its files.

    Raises StorageError, and ConfigError or ConfigErrors when a folder has changed since the config was checked.
    """
    config = request.config
    chosen = services.profiling_settings(
        config.profiling, config.session, request.folder, process_number(config.device.card)
    )
    return replace(chosen, result_path=place(request.directories, chosen.result_path)).with_folder()


def attach(request: RunRequest, experiment: Experiment) -> None:
    """Measure the operator of `op_trace`, or attach a profiler to the model. Raises ConfigError and StorageError."""
    chosen = profile_settings(request)
    if chosen.op_trace:
        _trace_operator(chosen, chosen.op_trace, experiment)
    else:
        model, tuned = experiment.model, request.config.session.auto_tune_mode is not None
        model.profiler = profiler.profiler_from_settings(chosen, model.mode, model.device, tuned=tuned)


def _trace_operator(chosen: profile.ProfileSettings, op_trace: str, experiment: Experiment) -> None:
    """Measure a single operator in both modes."""
    model = experiment.model
    try:
        found = profiler.find_operator(op_trace, model.train_network, experiment.train_data.column_types())
    except ConfigError as error:
        error.rows["key"] = chosen.keys.get("op_trace", "op_trace")
        raise
    timings = profiler.measure_in_both_modes(found, model.device)
    write_json(chosen.result_path / f"op_trace_{chosen.device_id}.json", profile.single_op.report(found, timings))
    for line in profile.single_op.lines(found, timings):
        print(line)  # noqa: T201  the summary


# The graph files of a run: all stages with `save_graphs`, compiled models with `op_debug_level`, and failed graphs.


class FailedGraph(GraphObserver):
    """Writes only a graph that failed: `analyze_fail.ir`, as far as it was traced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def failed(self, graph: Graph) -> None:
        observe_files.write_failed(self.folder, graph)


def graph_observer(request: RunRequest) -> GraphObserver:
    """The observer of the graphs of a run.

    Raises ConfigError when a path is a file, StorageError when it cannot be written.
    """
    config, folder = request.config, request.folder
    observer: GraphObserver = FailedGraph(folder)
    if config.save_graphs:
        path = place(request.directories, folder.absolute() / config.save_graphs_path)
        observer = observe_files.GraphFolder(path, folder, replaces=request.resume)
    if not config.session.op_debug_level:
        return GraphObservers(observer, NOTE_LOWERINGS)
    level = config.session.op_debug_level
    meta = compiler.KernelMeta(folder / rundir.KERNEL_META, level, replaces=request.resume)
    return GraphObservers(observer, meta, NOTE_LOWERINGS)


# The print file of a run. Its name is recorded, so a resumed run continues it: it may have a suffix.


@contextmanager
def printing(request: RunRequest) -> Iterator[PrintFile | None]:
    """Context in which the operators Print of a run write to `print_file_path`; yields the file.

    Raises ConfigError for a path that cannot be one, StorageError.
    """
    requested = request.config.print_file_path
    if requested is None:
        yield None
        return
    known = _known_print_file(request.folder, requested) if request.resume else None
    with context.printing_to(known or PrintFile(effects.new_path(requested))) as file:
        if known is None:
            write_json(request.folder / rundir.PRINTS, {"path": str(file.path)})
        yield file
        if file.is_empty:
            LOG.warning("print_file_path has no effect: no operator Print was executed")


def _known_print_file(folder: Path, requested: str) -> PrintFile | None:
    """The recorded print file, if it is that of this path, or with the suffix of a path that existed."""
    path, known = str(effects.checked_path(requested)), read_optional(folder / rundir.PRINTS).get("path")
    is_own = isinstance(known, str) and re.fullmatch(rf"{re.escape(path)}(\.[0-9]+)*", known) is not None
    return PrintFile(Path(str(known)), is_own=True) if is_own else None


# The file of the training step that every run in graph mode writes.


class StepGraphWriter(Callback):
    """Writes the step graph with the initial values after the first step, behind the callbacks that report its loss."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.path = experiment, folder / rundir.TRAIN_STEP
        self.start = {p.name: p.array for p in experiment.model.train_network.get_parameters()}

    def begin(self, run_context: RunContext) -> None:
        # No parameter of the network, but of a step that draws random numbers.
        step = run_context.original_args().cur_step_num
        self.start[random_counter().parameter.name] = random_counter().of_steps(step, 1).reshape(())

    def step_end(self, run_context: RunContext) -> None:
        if self.start and self.experiment.model.programs and not self.path.exists():
            columns = self.experiment.train_data.get_col_names()
            graph = self.experiment.model.programs[0].graph
            content = compiler.standalone_step(graph, columns, ("loss",), self.start)
            make_directory(self.path.parent)
            write_atomically(self.path, content)
        self.start = {}


# The dump of a run.


def dump_settings(request: RunRequest) -> dumps.DumpSettings | None:
    """The dump settings of a checked run; None when nothing is dumped. Creates the dump's folder.

    Logs warnings. Raises StorageError when the dump cannot be written, and ConfigError or ConfigErrors when a JSON file
    has changed since the config was checked.
    """
    config = request.config
    defaults = {"path": str(request.folder.absolute() / rundir.DUMP), "net_name": config.network.name}
    group = services.requested_dump(config.dump, config.session)
    requested = services.settings(group, defaults)
    if os.environ.get(dumps.VARIABLE) and group != services.NoDump():
        LOG.warning("%s has no effect: the config of the run selects the dump", dumps.VARIABLE)
    if requested is None:
        return None
    return replace(requested, path=place(request.directories, requested.path)).on(config.device.card)
