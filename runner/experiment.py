"""From a checked config to a trained network and a folder that describes itself."""

import logging
import math
import resource
import sys
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from runner import context, nn, registry
from runner.compile.program import saved_step
from runner.compile.session import unusable
from runner.config.schema import Expectation, RunConfig, RunRequest
from runner.dataset.catalog import DatasetSettings, open_dataset
from runner.dataset.pipeline import Dataset
from runner.device import Device
from runner.errors import DeviceError, MismatchError, TrainingError
from runner.files import Journal, make_directory, write_atomically, write_json
from runner.machine import thread_limit
from runner.observe.clock import Clock
from runner.observe.journal import MetricsJournal, number
from runner.observe.manifest import ManifestWriter, config_hash, threads_used
from runner.observe.progress import ProgressBar
from runner.seed import set_seed
from runner.train.callback import Callback, LossMonitor, RunContext, TimeMonitor, check_losses
from runner.train.model import Model

_LOG = logging.getLogger("runner")
MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
OPTIMIZERS: dict[str, type[nn.Optimizer]] = {"momentum": nn.Momentum, "sgd": nn.SGD, "adam": nn.Adam}


@dataclass
class Experiment:
    """What a config was built into."""

    model: Model
    train_data: Dataset
    test_data: Dataset
    total_steps: int


def run(request: RunRequest) -> dict[str, Any]:
    """Train, evaluate, write the run folder, and return the summary.

    Raises the RunnerError of whatever fails, and MismatchError (after everything is written) when `expect` is not met.
    """
    config, folder, clock = request.config, request.folder, Clock()
    set_seed(config.seed)
    context.set_context(mode=MODES[config.mode], reserve_class_name_in_scope=config.reserve_class_name_in_scope)
    with thread_limit(config.device.threads):
        built = build(config)
        with Journal(folder / "metrics.jsonl") as journal:
            metrics = MetricsJournal(journal)
            seen = _train(request, built, clock, metrics)
            values = {} if config.eval.every == "never" else _evaluate(built, metrics, seen)
        _write_network(built, folder)
    summary = _summary(request, built, clock, seen, values)
    try:
        check_expectations(config.expect, {**values, "loss": summary["loss"]})
    except MismatchError:
        summary["status"] = "failed"  # as in status.json
        raise
    finally:
        write_json(folder / "summary.json", summary)
    return summary


def build(config: RunConfig) -> Experiment:
    """Network, data, optimizer and model. Raises ConfigError, DataError and DeviceError."""
    device = Device(**asdict(config.device))
    for note in device.notes:
        _LOG.warning("%s", note)
    if config.mode == "pynative":
        _check_pynative_device(device)
    train_data, test_data = (open_dataset(_dataset_settings(config, train), train) for train in (True, False))
    network = registry.network(config.network.name)(**config.network.keywords)
    loss = nn.SoftmaxCrossEntropyWithLogits(config.loss.sparse, config.loss.reduction)
    settings = {f.name: getattr(config.optimizer, f.name) for f in fields(config.optimizer) if f.name != "name"}
    optimizer = OPTIMIZERS[config.optimizer.name](network.trainable_params(), **settings)
    modes = {"mode": MODES[config.mode], "eval_mode": MODES[config.eval.mode or config.mode]}
    model = Model(network, loss, optimizer, config.eval.metrics, device=device, **modes)
    sunk = config.dataset_sink_mode and config.sink_size > 0
    total = config.epochs * (config.sink_size if sunk else train_data.get_dataset_size())
    return Experiment(model, train_data, test_data, min(total, config.max_steps or total))


def check_expectations(expected: tuple[Expectation, ...], values: dict[str, float]) -> None:
    """Raise MismatchError with a row for every metric when one of them is outside of its bounds."""
    rows, failed = {}, False
    for bound in expected:
        value = values.get(bound.metric)
        low = bound.min is not None and (value is None or value < bound.min)
        high = bound.max is not None and (value is None or value > bound.max)
        failed |= low or high
        limits = [f"{name} {limit}" for name, limit in (("min", bound.min), ("max", bound.max)) if limit is not None]
        rows[bound.metric] = f"{'FAILED' if low or high else 'ok'}: {value}, expected {', '.join(limits)}"
    if failed:
        raise MismatchError("the run does not meet its expectations", **rows)


class Evaluation(Callback):
    """Evaluates after every epoch."""

    def __init__(self, built: Experiment, metrics: MetricsJournal) -> None:
        self.built, self.metrics = built, metrics

    def epoch_end(self, run_context: RunContext) -> None:
        seen = run_context.original_args()
        if seen.cur_step_num < self.built.total_steps:  # the last epoch is followed by the evaluation at the end
            _evaluate(self.built, self.metrics, seen)


class Watch(Callback):
    """Stops at losses that are not finite, keeps the start values of the step graph, and remembers where the run is."""

    def __init__(self, built: Experiment, folder: Path) -> None:
        self.built, self.folder = built, folder
        self.start = {p.name: p.data for p in built.model.train_network.get_parameters()}
        self.seen: Any = None

    def step_end(self, run_context: RunContext) -> None:
        check_losses(run_context.original_args())
        if self.seen is None and self.built.model.programs:
            graph = self.built.model.programs[0].graph
            content = saved_step(graph, ("image", "label"), ("loss",), self.start)
            write_atomically(make_directory(self.folder / "model") / "train_step.onnx", content)
        self.seen = run_context.original_args()
        self.start = {}


def _train(request: RunRequest, built: Experiment, clock: Clock, metrics: MetricsJournal) -> Any:
    config, shown = request.config, request.config.callbacks
    watch = Watch(built, request.folder)
    callbacks: list[Callback] = [clock, watch, metrics]
    if sys.stdout.isatty() and shown.progress:
        callbacks.append(ProgressBar(built.total_steps))
    if shown.loss_monitor:
        callbacks.append(LossMonitor(shown.loss_monitor))
    if shown.time_monitor:
        callbacks.append(TimeMonitor())
    callbacks.append(ManifestWriter(request.folder / "manifest.json", lambda: _facts(request, built)))
    if config.eval.every == "epoch":
        callbacks.append(Evaluation(built, metrics))
    sinking = (config.dataset_sink_mode, config.sink_size)
    built.model.train(config.epochs, built.train_data, callbacks, *sinking, max_steps=config.max_steps)
    return watch.seen


def _evaluate(built: Experiment, metrics: MetricsJournal, seen: Any) -> dict[str, float]:
    if not built.model.metrics:
        return {}
    values = built.model.eval(built.test_data)
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


def _write_network(built: Experiment, folder: Path) -> None:
    sample = built.train_data.column_types()[:1]
    write_atomically(make_directory(folder / "model") / "network.onnx", built.model.export(sample))


def _dataset_settings(config: RunConfig, train: bool) -> DatasetSettings:
    settings = DatasetSettings(**asdict(config.dataset))
    return settings if train else replace(settings, drop_remainder=False)  # every test sample counts


def _check_pynative_device(device: Device) -> None:
    """PyNative mode computes in numpy: a card that was asked for would stay idle, and nobody would know."""
    if device.target == "CPU":
        return
    trouble = unusable(device.target, device.id)
    error = DeviceError(
        "PyNative mode computes in numpy, on the CPU", device=device, repair="mode=graph, or device=cpu"
    )
    if device.allow_fallback:
        _LOG.warning("%s", error.what)
    elif isinstance(trouble, DeviceError):
        raise trouble.add(also=error.what)
    else:
        raise error


def _facts(request: RunRequest, built: Experiment) -> dict[str, Any]:
    config, programs = request.config, built.model.programs
    session = programs[0].session if programs else None
    return {
        "experiment": request.experiment,
        "seed": config.seed,
        "config_sha256": config_hash(request.resolved),
        "data_sha256": {"train": built.train_data.fingerprint(), "test": built.test_data.fingerprint()},
        "mode": config.mode,
        "device": str(built.model.device),
        "providers": list(session.providers) if session else ["numpy"],
        "optimization_level": session.optimization_level if session else None,
        "threads": threads_used(config.device.threads),
    }


def _summary(
    request: RunRequest, built: Experiment, clock: Clock, seen: Any, values: dict[str, float]
) -> dict[str, Any]:
    config, programs = request.config, built.model.programs
    assert built.model.steps is not None
    return {
        "status": "ok",
        "experiment": request.experiment,
        "network": config.network.name,
        "dataset": config.dataset.name,
        "mode": config.mode,
        "device": config.device.target,
        "providers": list(programs[0].session.providers) if programs else ["numpy"],
        "epochs": seen.cur_epoch_num,
        "steps": seen.cur_step_num,
        "host_interactions": built.model.steps.interactions,
        "loss": number(seen.net_outputs),
        "metrics": values,
        "init_seconds": clock.init_seconds,
        "compile_seconds": sum(program.compile_seconds for program in programs),
        "first_loss_seconds": clock.first_loss_seconds,
        "train_seconds": clock.train_seconds,
        "steps_per_second": seen.cur_step_num / clock.train_seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "run_dir": str(request.folder),
    }
