"""Executes a run from its checked config, or the rest of an interrupted run, and writes its folder.

`run` trains and evaluates; `run_evaluation` evaluates trained weights only; both end in `conclude`. The parts are used
by runs of scripts and by the other ranks of a run, too. Below them: metrics as JSON values, and `expect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from runner import compile as compiler, context, nn, rundir
from runner.communication.world import process_number, world
from runner.config.code import loaded_files
from runner.config.groups.services import (
    SessionSettings,
    dump_is_requested,
    profiling_is_requested,
    requested_dump,
)
from runner.config.schema import CheckpointSettings, Expectation, RunConfig, RunRequest, names_of
from runner.core.dependence import NOTES
from runner.core.graph import NO_VALUES, GraphObserver, ValueObserver
from runner.errors import MismatchError, TrainingError
from runner.experiment import observers, results
from runner.experiment.build import MODES, Experiment, ModelInputs, build, device_of
from runner.experiment.callbacks import Checkpointer, MetricsJournal, Signals, restore
from runner.experiment.manifest import ManifestWriter, RunDescription, Stopwatch, description_of, write_copies
from runner.experiment.observers import StepGraphWriter, graph_observer
from runner.experiment.progress import ENDED
from runner.experiment.ranks import start_up
from runner.host import files, seed
from runner.host.console import LOG
from runner.host.files import Journal, write_json
from runner.host.json import without_lists
from runner.host.process import Interruption, only_run
from runner.nn.loss.losses import LossInput
from runner.nn.metrics.base import AnyMetric, is_scalar
from runner.nn.steps import GraphStep
from runner.nn.wrap import WithEvalCell
from runner.observe import dump as dumps
from runner.observe.graph.folder import FAILED
from runner.ops.random import random_counter
from runner.train import setup
from runner.train.callback import Callback, CallbackParameters, RunContext, check_losses
from runner.train.checkpoint.initial_weights import InitialWeights
from runner.train.checkpoint.state import state_file


def run(request: RunRequest) -> dict[str, Any]:
    """Train, evaluate, write the run folder, and return the summary.

    Raises RunnerError, in particular MismatchError (after everything is written) when `expect` is not met.
    """
    config, folder, stopwatch = request.config, request.folder, Stopwatch()
    if not request.resume:
        write_json(folder / rundir.CONFIG, request.resolved)
        write_copies(folder, loaded_files())
    with run_environment(config), observers.printing(request) as prints:
        with closing(value_observer(request)) as values_observer:
            experiment = _build(request, values_observer)
            description = description_of(request, experiment, stopwatch)
            description.prints = prints
            if world().size > 1:
                start_up.require_equal_inputs(config.dataset, description.data["train"], description.network)
            _load(request, experiment)
            step_graph = StepGraphWriter(experiment, folder)
            write_json(folder / rundir.INPUTS, ModelInputs.of(experiment.train_data).as_json())
            with closing(Journal(folder / rundir.METRICS)) as journal:
                if request.resume:
                    network = experiment.model.train_network
                    description.before = _read(network, lambda: _restore(request, description, journal))
                    values_observer.rewind(int(description.before.get("global_step", 0)))
                metrics = MetricsJournal(journal)
                manifest = ManifestWriter(folder / rundir.MANIFEST, description.manifest)
                cb_params = _train(request, description, [manifest, step_graph], metrics)
                is_evaluated = config.eval.every != "never"
                values = final_evaluation(experiment, folder, metrics, cb_params) if is_evaluated else {}
                manifest.complete()
        results.write_networks(experiment, folder)
    return conclude(request, description.summary(cb_params, values), values)


def _build(request: RunRequest, values: ValueObserver) -> Experiment:
    """The experiment of a config with its observers, tuning and profiler."""
    config, folder = request.config, request.folder
    experiment = build(config, graph_observer(request), values, failure_observer(config, folder))
    if config.session.auto_tune_mode:
        observers.tune(config, experiment, folder, request.resume)
    if profiling_is_requested(config.profiling, config.session):
        observers.attach(request, experiment)
    elif config.session.profiling_options != SessionSettings.profiling_options:
        LOG.warning("session.profiling_options has no effect without session.profiling_mode=true")
    return experiment


def _load(request: RunRequest, experiment: Experiment) -> None:
    """Load the initial weights that the config of a new run names."""
    settings, network = request.config.checkpoint, experiment.model.network
    if settings.load is not None and not request.resume:
        source = initial_weights_of(settings, experiment)
        _read(network, lambda: str(source.load(network)))


def initial_weights_of(settings: CheckpointSettings, experiment: Experiment) -> InitialWeights:
    """What a training loads: weights of another program whole, but for the parameters of a new head."""
    names = None if settings.names is None else names_of(settings.names)
    strict = names is not None if settings.strict is None else settings.strict
    return InitialWeights(str(settings.load), settings.prefix, strict, names, experiment.roles.head)


def _read(network: nn.Cell, read: Callable[[], Any]) -> Any:
    """The result of `read`, which reads parameters; with several ranks the first one reads and broadcasts them."""
    return start_up.read_on_first_rank(network, read) if world().size > 1 else read()


@contextmanager
def run_environment(config: RunConfig) -> Iterator[None]:
    """Inside, the seed and the context of a run are set. Raises BusyError while another thread executes a run."""
    with only_run(), context.preserved(), random_counter().preserved(), seed.preserved(), NOTES.apart():
        seed.set_seed(config.seed)
        names = config.reserve_class_name_in_scope
        context.set_context(mode=MODES[config.mode], reserve_class_name_in_scope=names)
        if config.session.initialize_system:
            setup.prepare(device_of(config), config.mode == "graph")
        yield


def conclude(request: RunRequest, summary: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Complete, check and write the summary. Raises MismatchError, after writing it, when `expect` is not met."""
    config = request.config
    summary["split"] = config.eval.split
    if config.session.initialize_system:
        phases = setup.prepare(device_of(config), config.mode == "graph")
        summary["system"] = setup.with_compilation(phases, summary["compile_seconds"], summary["train_seconds"])
    try:
        check_expectations(config.expect, {**without_lists(values), "loss": summary["loss"]})
    except MismatchError:
        summary["status"] = "failed"  # like status.json
        raise
    finally:
        write_json(request.folder / rundir.SUMMARY, summary)
    return summary


class Evaluation(Callback):
    """Evaluates after every epoch."""

    def __init__(self, experiment: Experiment, metrics: MetricsJournal) -> None:
        self.experiment, self.metrics = experiment, metrics

    def epoch_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if cb_params.cur_step_num < self.experiment.total_steps:  # the last epoch is evaluated at the end of the run
            evaluate(self.experiment, self.metrics, cb_params)


class RunMonitor(Callback):
    """Stops at a loss that is not finite, and holds the run's parameters."""

    def __init__(self) -> None:
        self.cb_params = CallbackParameters()

    def begin(self, run_context: RunContext) -> None:
        self.cb_params = run_context.original_args()

    def sink_left(self, run_context: RunContext) -> None:
        check_losses(self.cb_params)

    def step_end(self, run_context: RunContext) -> None:
        check_losses(self.cb_params)

    def ended(self, before: dict[str, Any]) -> CallbackParameters:
        """The parameters of the ended run; `before` has the loss of a run of which no step was left."""
        if ENDED in before:
            self.cb_params = CallbackParameters(cur_epoch_num=before["epoch"], cur_step_num=before["global_step"])
        if self.cb_params.get("net_outputs") is None:
            if "loss" not in before:
                raise TrainingError("a callback stopped the training before the first step")
            self.cb_params.net_outputs = np.float32(before["loss"])
        return self.cb_params


def value_observer(request: RunRequest) -> ValueObserver:
    """The dumper of the operands and outputs of a run's operators; `NO_VALUES` when no dump is requested.

    Raises StorageError, and ConfigError when not all ranks dump.
    """
    config = request.config
    if not dump_is_requested(requested_dump(config.dump, config.session)):
        return NO_VALUES
    settings = observers.dump_settings(request)
    if world().size > 1:
        start_up.check_all_or_none(settings is not None)
    return NO_VALUES if settings is None else dumps.Dumper(settings, process_number(config.device.card))


def failure_observer(config: RunConfig, folder: Path) -> dumps.FirstFailure | None:
    """The observer that locates the operator at which the run fails, with `session.enable_exception_dump`."""
    if not config.session.enable_exception_dump:
        return None
    path = folder.absolute() / rundir.EXCEPTION_DUMP
    return dumps.FirstFailure(path, config.network.name, process_number(config.device.card))


def _restore(request: RunRequest, description: RunDescription, journal: Journal) -> dict[str, Any]:
    """Restore model and journal, and record the config and code with which the run continues. Raises as `restore`."""
    is_told = bool(request.overrides)
    before = restore(description, request.config.checkpoint, journal, request.force, goes_on=is_told)
    with files.storage_errors("cannot remove an earlier graph", request.folder / FAILED):
        files.remove(request.folder / FAILED)
    if before:
        write_json(request.folder / rundir.CONFIG, request.resolved)
    write_copies(request.folder, loaded_files())  # without a checkpoint too: they may not have been complete
    return before


def _train(
    request: RunRequest, description: RunDescription, writers: Sequence[Callback], metrics: MetricsJournal
) -> CallbackParameters:
    settings, monitor, experiment = request.config.checkpoint, RunMonitor(), description.experiment
    with Interruption() as interruption:
        configured = list(_configured(request, experiment))
        callbacks: list[Callback] = [description.stopwatch, monitor, metrics, *configured, *writers]
        if request.config.eval.every == "epoch":
            callbacks.append(Evaluation(experiment, metrics))
        signals: Signals = interruption
        if world().size > 1:
            callbacks.append(signals := start_up.SynchronizeSignals(interruption))
        callbacks.append(Checkpointer(description, settings, metrics.journal, signals, configured))
        execute_steps(request.config, experiment, callbacks, description.before)
    return monitor.ended(description.before)


def execute_steps(
    config: RunConfig, experiment: Experiment, callbacks: Sequence[Callback], before: dict[str, Any]
) -> None:
    """Execute the training steps that follow those of `before`, the progress recorded by a checkpoint.

    A run that a callback has stopped makes no further ones: only what follows the training is left.
    """
    if ENDED in before:
        start_up.training_begins(world())
        return
    experiment.model.train(
        config.epochs,
        experiment.train_data,
        callbacks,
        config.dataset_sink_mode,
        config.sink_size,
        max_steps=config.max_steps,
        first_step=int(before.get("global_step", 0)),
    )


def _configured(request: RunRequest, experiment: Experiment) -> Iterator[Callback]:
    """The callbacks that the config names. Raises ConfigError for what is no callback."""
    facts: dict[str, Any] = {"run_dir": request.folder, "total_steps": experiment.total_steps}
    if (names := experiment.train_data.class_names) is not None:
        facts["class_names"] = names
    for settings in request.config.callbacks.values():
        if settings is not None:
            yield settings.create(Callback, **facts)


def final_evaluation(
    experiment: Experiment,
    folder: Path,
    metrics: MetricsJournal,
    cb_params: CallbackParameters,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Evaluate as `evaluate` does, and write the worst predictions into the run directory. Raises as `evaluate`."""
    worst = results.WorstPredictions(folder, cb_params.cur_step_num, LossInput.of(experiment.model.loss_fn))
    return evaluate(experiment, metrics, cb_params, [*callbacks, worst])


def evaluate(
    experiment: Experiment, metrics: MetricsJournal, cb_params: CallbackParameters, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Evaluate the split of `eval.split` and write its metrics to the journal: numbers, nested lists of numbers, None.

    Raises TrainingError for a loss that is not finite, or a value that is not what its metric declares.
    """
    if not experiment.model.metrics:
        return {}
    values = experiment.model.eval(experiment.eval_data, callbacks)
    rows = {"epoch": cb_params.cur_epoch_num, "global_step": cb_params.cur_step_num}
    values = as_json(experiment.model.metrics, values, **rows)
    metrics.evaluated(values, cb_params.cur_epoch_num, cb_params.cur_step_num)
    return values


# Online inference (`session.graph_run_mode=0`): a run that evaluates a network with the weights of `checkpoint.load`.
#
# Nothing is trained, and no gradients are computed. Graph mode compiles the evaluation with the weights as constants,
# and BatchNorm is folded into the preceding convolutions (`passes.INFERENCE`), unless `eval.freeze` is false; PyNative
# mode evaluates as usual. The run directory has `metrics.jsonl` with one `eval` event, the summary, the manifest, which
# names the weights, and `model/network.onnx`.


def run_evaluation(request: RunRequest) -> dict[str, Any]:
    """Evaluate with the weights of `checkpoint.load`, write the run folder, and return the summary. Raises as `run`."""
    config, folder, stopwatch = request.config, request.folder, Stopwatch()
    write_json(folder / rundir.CONFIG, request.resolved)
    with run_environment(config), observers.printing(request) as prints:
        if prints is not None:
            prints.rewind(None)  # to the start, also of an evaluation that was killed
        experiment = build(config, observer := graph_observer(request))
        weights = _load_weights(config.checkpoint, experiment)
        if config.eval.freeze:
            _freeze(experiment, observer)
        description = description_of(request, experiment, stopwatch)
        path = folder / rundir.MANIFEST
        manifest = ManifestWriter(path, lambda: description.manifest() | {"weights": weights})
        cb_params = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))
        with closing(Journal(folder / rundir.METRICS)) as journal:
            journal.cut(0)  # of an evaluation that was killed
            metrics = MetricsJournal(journal)
            values = final_evaluation(experiment, folder, metrics, cb_params, [stopwatch, manifest])
        results.write_networks(experiment, folder)
    summary = description.summary(cb_params, values) | _evaluation_figures(experiment, stopwatch, values)
    return conclude(request, summary, values)


def _load_weights(settings: CheckpointSettings, experiment: Experiment) -> dict[str, str] | None:
    """Load the weights that the config names; their path and sha256 (hex)."""
    if settings.load is None:
        LOG.warning("the network is evaluated with its initial weights: set checkpoint.load to load others")
        return None
    names = None if settings.names is None else names_of(settings.names)
    source = InitialWeights(settings.load, settings.prefix, settings.strict is not False, names)
    found = source.load(experiment.model.network, experiment.model.loss_fn)
    return {"path": str(found.absolute()), "sha256": files.sha256(state_file(found))}


def _freeze(experiment: Experiment, observer: GraphObserver) -> None:
    """Make the weights constants of the evaluation, in graph mode."""
    model = experiment.model
    if model.eval_mode == context.GRAPH_MODE and model.eval_network is not None:
        names = experiment.eval_data.get_col_names(), WithEvalCell.outputs
        model.eval_step = GraphStep(model.eval_network, model.device, "eval_step", *names, observer, compiler.INFERENCE)


def _evaluation_figures(experiment: Experiment, stopwatch: Stopwatch, values: dict[str, Any]) -> dict[str, Any]:
    """The entries of a training summary that an evaluation computes differently."""
    step = experiment.model.eval_step
    programs: Sequence[compiler.Program] = list(step.programs.values()) if isinstance(step, GraphStep) else []
    compiling = sum(program.compile_seconds for program in programs)
    return {
        "providers": list(programs[0].session.providers) if programs else ["numpy"],
        "loss": values.get("loss"),
        "compile_seconds": compiling,
        "eval_seconds": stopwatch.train_seconds - compiling,
        "train_seconds": 0.0,
    }


# Values of metrics as JSON: a number, or nested lists of numbers for a metric that is an array.


def as_json(metrics: Mapping[str, AnyMetric], values: Mapping[str, Any], **rows: object) -> dict[str, Any]:
    """The values by name; None for a metric that is not finite, with a warning: it may be undefined for a while.

    Raises TrainingError, with these rows, for a loss that is not finite, or a value that its class does not declare.
    """
    found = {name: _plain(name, metrics[name], value, rows) for name, value in values.items()}
    bad = [name for name, value in found.items() if not np.isfinite(value).all()]
    if any(isinstance(metrics[name], nn.Loss) for name in bad):
        repair = "a smaller optimizer.learning_rate"
        raise TrainingError("the loss of the evaluation is not finite", **without_lists(found), **rows, repair=repair)
    for name in bad:
        LOG.warning("the metric %s is not finite after step %s: it is null", name, rows.get("global_step"))
    return found | dict.fromkeys(bad)


def _plain(name: str, metric: AnyMetric, value: Any, rows: Mapping[str, object]) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths, such as the curves of several classes
        array = np.asarray(None)
    are_numbers = array.dtype.kind in "iuf" and array.size > 0
    if not are_numbers or (is_scalar(metric) and array.ndim):
        given = f"an array {array.shape}" if are_numbers else repr(value)
        repair = f"is_scalar = False in the class {type(metric).__name__}, for an array" if are_numbers else None
        details = {"metric": name, "given": given, "allowed": "a number, as the result of eval()", **rows}
        raise TrainingError("the value of a metric is not a number", **details, repair=repair)
    return float(array) if is_scalar(metric) else array.tolist()


# Checks of the metrics of a run against its expectations (`expect`).


def check_expectations(expected: Mapping[str, Expectation], values: dict[str, float]) -> None:
    """Raise MismatchError with a row for every expected metric when one is out of its bounds."""
    rows, failed = {}, False
    for metric, bound in expected.items():
        value = values.get(metric)
        low = bound.min is not None and (value is None or value < bound.min)
        high = bound.max is not None and (value is None or value > bound.max)
        failed |= low or high
        limits = [f"{name} {limit}" for name, limit in vars(bound).items() if limit is not None]
        rows[metric] = f"{'FAILED' if low or high else 'ok'}: {value}, expected {', '.join(limits)}"
    if failed:
        raise MismatchError("the run does not meet its expectations", **rows)
