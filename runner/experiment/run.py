"""A run from its checked config to the folder that describes it; or the rest of a run that ended too early."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from runner import compile as compiler, context, nn
from runner.communication.world import world
from runner.config.groups.dump import is_requested
from runner.config.groups.profiling import is_requested as is_profiled
from runner.config.groups.session import SessionSettings
from runner.config.schema import RunConfig, RunRequest
from runner.core.observers import NO_VALUES, GraphObserver, ValueObserver
from runner.errors import MismatchError, TrainingError
from runner.experiment import dump, profile, tune
from runner.experiment.build import MODES, Experiment, build, device_of
from runner.experiment.callbacks import Checkpointer, MetricsJournal, ProgressBar, Stopwatch
from runner.experiment.expect import check_expectations
from runner.experiment.graphs import graph_observer
from runner.experiment.manifest import ManifestWriter, RunDescription, check_identity
from runner.experiment.ranks import synchronize
from runner.host import seed
from runner.host.files import Journal, make_directory, write_atomically, write_json
from runner.host.machine import thread_limit
from runner.host.signals import Interruption
from runner.observe import dump as dumps
from runner.train import device_setup
from runner.train.callback import Callback, CallbackParameters, LossMonitor, RunContext, TimeMonitor, check_losses
from runner.train.checkpoint import initial_weights, state

_LOG = logging.getLogger("runner")
CONFIG_FILE = "config.json"


def run(request: RunRequest) -> dict[str, Any]:
    """Train, evaluate, write the run folder, and return the summary.

    Raises the RunnerError of whatever fails, and MismatchError (after everything is written) when `expect` is not met.
    """
    config, folder, stopwatch = request.config, request.folder, Stopwatch()
    if not request.resume:
        write_json(folder / CONFIG_FILE, request.resolved)
    with settled(config):
        with closing(value_observer(config, folder)) as shown:
            built = _built(request, shown)
            watch = Watch(built, folder)
            description = RunDescription(request, built, stopwatch, {})
            with Journal(folder / "metrics.jsonl") as journal:
                if request.resume:
                    description.before = _read(built.model.train_network, lambda: _restore(description, journal))
                metrics = MetricsJournal(journal)
                seen = _train(description, watch, metrics)
                values = {} if config.eval.every == "never" else evaluate(built, metrics, seen)
        write_network(built, folder)
    return concluded(request, description.summary(seen, values), values)


def _built(request: RunRequest, shown: ValueObserver) -> Experiment:
    """What the config names, with all who watch it, and with the weights that it begins with."""
    config, folder = request.config, request.folder
    built = build(config, graphs_of(config, folder), shown, failure_observer(config, folder))
    if config.session.auto_tune_mode:
        tune.tune(config, built, folder, request.resume)
    if is_profiled(config.profiling, config.session):
        profile.watch(config, built, folder)
    elif config.session.profiling_options != SessionSettings.profiling_options:
        _LOG.warning("session.profiling_options has no effect without session.profiling_mode=true")
    if config.checkpoint.load is not None and not request.resume:
        network, given = built.model.network, (config.checkpoint.load, config.checkpoint.prefix)
        _read(network, lambda: initial_weights.load(network, *given))
    return built


def _read(network: nn.Cell, read: Callable[[], Any]) -> Any:
    """What a function returns that reads parameters; among ranks the first one reads for all."""
    return synchronize.read_on_first_rank(network, read) if world().size > 1 else read()


@contextmanager
def settled(config: RunConfig) -> Iterator[None]:
    """Inside, seed, context and threads are those of a run."""
    with context.preserved(), seed.preserved(), thread_limit(config.device.threads):
        seed.set_seed(config.seed)
        context.set_context(
            mode=MODES[config.mode],
            reserve_class_name_in_scope=config.reserve_class_name_in_scope,
            print_file_path=config.print_file_path or "",
        )
        if config.session.initialize_system:
            device_setup.prepared(device_of(config), config.mode == "graph")
        yield


def graphs_of(config: RunConfig, folder: Path) -> GraphObserver:
    """Who hears of the graphs of a run. Raises ConfigError and StorageError for a folder that cannot be used."""
    return graph_observer(config.save_graphs, config.save_graphs_path, folder, config.session.op_debug_level)


def concluded(request: RunRequest, summary: dict[str, Any], values: dict[str, float]) -> dict[str, Any]:
    """The summary, which is written whatever comes. Raises MismatchError when `expect` is not met."""
    config = request.config
    if config.session.initialize_system:
        phases = device_setup.prepared(device_of(config), config.mode == "graph")
        summary["system"] = device_setup.with_compilation(phases, summary["compile_seconds"], summary["train_seconds"])
    try:
        check_expectations(config.expect, {**values, "loss": summary["loss"]})
    except MismatchError:
        summary["status"] = "failed"  # as in status.json
        raise
    finally:
        write_json(request.folder / "summary.json", summary)
    return summary


class Evaluation(Callback):
    """Evaluates after every epoch."""

    def __init__(self, built: Experiment, metrics: MetricsJournal) -> None:
        self.built, self.metrics = built, metrics

    def epoch_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        if seen.cur_step_num < self.built.total_steps:  # the last epoch is followed by the evaluation at the end
            evaluate(self.built, self.metrics, seen)


class Watch(Callback):
    """Stops at losses that are not finite, writes the step graph with the values before the first step, and remembers
    where the run is."""

    def __init__(self, built: Experiment, folder: Path) -> None:
        self.built, self.path = built, folder / "model" / "train_step.onnx"
        self.start = {p.name: p.data for p in built.model.train_network.get_parameters()}
        self.seen = CallbackParameters()

    def begin(self, run_context: RunContext) -> None:
        self.seen = run_context.original_args()

    def sink_left(self, run_context: RunContext) -> None:
        check_losses(self.seen)

    def step_end(self, run_context: RunContext) -> None:
        check_losses(self.seen)
        if self.start and self.built.model.programs and not self.path.exists():
            content = compiler.standalone_step(
                self.built.model.programs[0].graph, ("image", "label"), ("loss",), self.start
            )
            make_directory(self.path.parent)
            write_atomically(self.path, content)
        self.start = {}


def value_observer(config: RunConfig, folder: Path) -> ValueObserver:
    """Who dumps what the operators of this run take and make; nobody when nothing asks for it.

    Raises StorageError, and ConfigError when not all ranks dump.
    """
    if not is_requested(config.dump):
        return NO_VALUES
    settings = dump.settings(config, folder)
    if world().size > 1:
        synchronize.check_all_or_none(settings is not None)
    made: ValueObserver = NO_VALUES if settings is None else dumps.Dumper(settings, config.device.id)
    return made


def failure_observer(config: RunConfig, folder: Path) -> dumps.FirstFailure | None:
    """Who finds the operator that makes the run fail, when `session.enable_exception_dump` asks for it."""
    if not config.session.enable_exception_dump:
        return None
    path = folder.absolute() / "exception_dump"
    found = dumps.FirstFailure(path, config.network.name, config.device.id)
    return found


def _restore(description: RunDescription, journal: Journal) -> dict[str, Any]:
    """Put the newest good checkpoint into the model and the journal; the progress that it had recorded.

    Raises ConfigError when what the numbers depend on has changed, unless the request says that this does not matter.
    """
    folder = description.request.folder / "checkpoints"
    for place in (description.request.folder, folder, description.request.folder / "model"):
        state.sweep_temporaries(place)
    found, damaged = state.newest(folder, description.request.config.checkpoint.prefix)
    for line in damaged:
        _LOG.warning("%s", line)
    if found is None:
        journal.cut(0)
        return {}
    if not description.request.force:
        check_identity(found.identity, description.identity)
    write_json(description.request.folder / CONFIG_FILE, description.request.resolved)
    for name, parameter in description.built.model.train_network.parameters_dict().items():
        parameter.set_data(found.arrays[name])
    journal.cut(found.progress["journal_bytes"])
    return dict(found.progress)


def _train(description: RunDescription, watch: Watch, metrics: MetricsJournal) -> CallbackParameters:
    config, built = description.request.config, description.built
    with Interruption() as interruption:
        signals = [synchronize.SynchronizeSignals(interruption)] if world().size > 1 else []
        checkpointer = _checkpointer(description, metrics, interruption)
        built.model.train(
            config.epochs,
            built.train_data,
            [*_observers(description, watch, metrics), *signals, checkpointer],
            config.dataset_sink_mode,
            config.sink_size,
            max_steps=config.max_steps,
            first_step=int(description.before.get("global_step", 0)),
        )
    if watch.seen.net_outputs is None:  # nothing was left to do
        watch.seen.net_outputs = np.float32(description.before["loss"])
    return watch.seen


def _observers(description: RunDescription, watch: Watch, metrics: MetricsJournal) -> list[Callback]:
    shown, built = description.request.config.callbacks, description.built
    callbacks: list[Callback] = [description.stopwatch, watch, metrics]
    if sys.stdout.isatty() and shown.progress:
        callbacks.append(ProgressBar(built.total_steps))
    if shown.loss_monitor:
        callbacks.append(LossMonitor(shown.loss_monitor))
    if shown.time_monitor:
        callbacks.append(TimeMonitor())
    callbacks.append(ManifestWriter(description.request.folder / "manifest.json", description.manifest))
    if description.request.config.eval.every == "epoch":
        callbacks.append(Evaluation(built, metrics))
    return callbacks


def _checkpointer(description: RunDescription, metrics: MetricsJournal, interruption: Interruption) -> Checkpointer:
    settings = description.request.config.checkpoint
    return Checkpointer(
        make_directory(description.request.folder / "checkpoints"),
        settings.prefix,
        settings.keep_max,
        settings.every_steps,
        settings.every_seconds,
        total=description.built.total_steps,
        journal=metrics.journal,
        interruption=interruption,
        identity=lambda: description.identity,
        device=lambda: {"host_interactions": description.interactions, "providers": description.providers},
    )


def evaluate(
    built: Experiment, metrics: MetricsJournal, seen: CallbackParameters, callbacks: Sequence[Callback] = ()
) -> dict[str, float]:
    """The metrics of the test split, which the journal gets too. Raises TrainingError when one is not finite."""
    if not built.model.metrics:
        return {}
    values = built.model.eval(built.test_data, callbacks)
    if not all(map(math.isfinite, values.values())):
        raise TrainingError(
            "the evaluation has results that are not finite numbers",
            **values,
            epoch=seen.cur_epoch_num,
            global_step=seen.cur_step_num,
            repair="a smaller optimizer.learning_rate",
        )
    metrics.evaluated(values, seen.cur_epoch_num, seen.cur_step_num)
    return values


def write_network(built: Experiment, folder: Path) -> None:
    """`model/network.onnx`: the network in inference mode, with its weights."""
    sample = built.train_data.column_types()[:1]
    write_atomically(make_directory(folder / "model") / "network.onnx", built.model.export(sample))
