"""Every key of a run with its default and its rule; YAML and JSON files only choose among them.

A field's annotation is the type of its key, `key(...)` adds what else must hold. `runner/config/check.py` turns
composed values into these frozen objects, so everything behind it can trust them.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any

from runner.config.groups.dump import Dump, NoDump
from runner.config.groups.loss import LossSettings, SoftmaxCrossEntropySettings
from runner.config.groups.optimizer import MomentumSettings, OptimizerSettings
from runner.config.groups.parallel import Parallel, StandAlone
from runner.config.groups.profiling import NoProfiling, Profiling
from runner.config.groups.session import SessionSettings
from runner.config.groups.tracking import NoTracking, Tracking
from runner.dataset.catalog import DatasetSettings
from runner.device import BACKENDS, MAX_ID
from runner.host.json_file import flat
from runner.nn.metrics import METRICS
from runner.validation.records import Frozen
from runner.validation.rules import FREE, key
from runner.validation.validate import Invalid, validate


class DeviceSettings(Frozen):
    """Where graph mode executes; PyNative mode uses `threads` only."""

    target: str = key("CPU", choices=tuple(BACKENDS), fold=True)  # what graph mode runs on
    id: int = key(0, low=0, high=MAX_ID)  # which card
    threads: int = key(0, low=0)  # of the CPU; 0: all cores
    allow_fallback: bool = False  # the CPU, with a warning, where the device does not work


class NetworkSettings(Frozen):
    """A name of `models.NETWORKS` and the keyword arguments of its constructor."""

    name: str = "lenet5"  # a class of models/
    num_classes: int = key(10, low=1)  # outputs
    num_channels: int | None = key(None, low=1)  # null: as the images of the dataset
    arguments: Mapping[str, object] = field(default_factory=dict)  # keys that the constructor knows besides these

    def keywords(self, channels: int) -> dict[str, object]:
        """All keyword arguments for the constructor, when the images of the dataset have so many channels."""
        return {"num_classes": self.num_classes, "num_channels": self.num_channels or channels, **self.arguments}


class Expectation(Frozen):
    """What a metric must reach for the run to succeed."""

    metric: str
    min: float | None = None
    max: float | None = None


_MODE: dict[str, Any] = {
    "choices": ("graph", "pynative"),
    "aliases": {"graph_mode": "graph", "pynative_mode": "pynative", 0: "graph", 1: "pynative"},
    "fold": True,
}


class EvalSettings(Frozen):
    """When and how the test split is evaluated; `mode` null means the mode of the run."""

    every: str = key("end", choices=("end", "epoch", "never"))  # when the test split is evaluated
    metrics: tuple[str, ...] = key(("accuracy", "loss"), choices=tuple(METRICS))  # what is measured on it
    mode: str | None = key(None, **_MODE)  # null: the mode of the run


class CallbackSettings(Frozen):
    """What is shown while training; `loss_monitor` is the number of steps between two lines, 0 for none."""

    loss_monitor: int = key(1, low=0)  # steps between two lines about the loss; 0: none
    time_monitor: bool = True  # a line about time after each epoch
    progress: bool = True  # a bar, on a terminal


def _weights(value: object) -> str:
    place: str = validate(str, FREE, value)
    if not os.path.exists(place):
        raise Invalid("no such file or folder", "a .ckpt file, the folder of a checkpoint, or a run directory")
    return os.path.abspath(place)


class CheckpointSettings(Frozen):
    """When the state of a run is saved: after so many steps or seconds (of whole sinks), and always at its end.

    `load` names the weights that the network begins with: a .ckpt file, the folder of a checkpoint, or a run directory,
    whose newest checkpoint it is; relative to where the command was started.
    """

    every_steps: int | None = key(None, low=1)  # steps between two checkpoints
    every_seconds: float | None = key(None, above=0)  # seconds between two checkpoints
    keep_max: int = key(5, low=1)  # how many are kept
    prefix: str = key("CKP", pattern="[A-Za-z0-9_]+")  # the names begin with it
    load: str | None = key(None, validate=_weights)  # weights to begin with: a .ckpt file, checkpoint or run directory


class SweepSettings(Frozen):
    """How a sweep goes on when one of its jobs has failed: with `fail_fast` the others are stopped."""

    fail_fast: bool = False  # a failed job stops the others


class RunnerSettings(Frozen):
    """How runner itself behaves; `debug` shows tracebacks."""

    debug: bool = False  # show tracebacks


class RunConfig(Frozen):
    """One whole run."""

    mode: str = key("pynative", **_MODE)  # one compiled graph, or operator by operator
    device: DeviceSettings = DeviceSettings()
    network: NetworkSettings = NetworkSettings()
    dataset: DatasetSettings = DatasetSettings()
    optimizer: OptimizerSettings = MomentumSettings()
    loss: LossSettings = SoftmaxCrossEntropySettings()
    epochs: int = key(1, low=1)  # passes over the training data
    max_steps: int | None = key(None, low=1)  # stop after so many steps in all
    dataset_sink_mode: bool = True  # graph mode: many steps in one call to the device
    sink_size: int = key(-1, low=1, also=(-1,))  # steps of a sink and of an epoch; -1: the whole dataset
    seed: int = key(1, low=0)  # of all random numbers
    reserve_class_name_in_scope: bool = True  # class names in the full names of operators
    print_file_path: str | None = None  # relative to where the command was started; null: the screen
    save_graphs: bool = False  # keep every stage of the compilation
    save_graphs_path: str = "graphs"  # relative to the run directory
    dump: Dump = field(default=NoDump())
    profiling: Profiling = field(default=NoProfiling())
    session: SessionSettings = field(default=SessionSettings())
    parallel: Parallel = field(default=StandAlone())
    tracking: Tracking = field(default=NoTracking())
    expect: tuple[Expectation, ...] = ()
    eval: EvalSettings = EvalSettings()
    callbacks: CallbackSettings = CallbackSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    sweep: SweepSettings = SweepSettings()
    runner: RunnerSettings = RunnerSettings()


class RunRequest(Frozen):
    """All that an experiment gets: a checked config, a folder that it owns, and where both came from.

    With `resume` it goes on from the newest checkpoint in the folder, with `force` even when what its numbers depend on
    has changed.
    """

    config: RunConfig
    folder: Path
    experiment: str | None
    resolved: dict[str, Any]
    overrides: tuple[str, ...]
    resume: bool = False
    force: bool = False


def defaults(owner: type) -> dict[str, Any]:
    """The defaults of a part of the schema as plain nested values.

    >>> defaults(CallbackSettings)
    {'loss_monitor': 1, 'time_monitor': True, 'progress': True}
    """
    return plain(owner())


def plain(config: Any) -> dict[str, Any]:
    """A checked config as nested dicts of JSON values, in the shape in which a file would write it."""
    made: dict[str, Any] = {}
    for name in (f.name for f in fields(config)):
        value = getattr(config, name)
        if name == "arguments":
            made.update(value)
        elif name == "expect":
            made[name] = {e.metric: _bounds(e) for e in value}
        else:
            made[name] = plain(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
    return made


def changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The dotted keys whose values differ; a key that another version of runner does not know has its default there.

    >>> list(changed({"seed": 1, "epochs": 8}, {"seed": 2, "epochs": 8, "dataset.verify": True}))
    ['seed']
    """
    known = flat(plain(RunConfig()))
    for name in {**was, **now}:
        if was.get(name, known.get(name)) != now.get(name, known.get(name)):
            yield name


def _bounds(expectation: Expectation) -> dict[str, float]:
    both = {"min": expectation.min, "max": expectation.max}
    return {side: bound for side, bound in both.items() if bound is not None}
