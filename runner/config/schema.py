"""Every key of a run with its type, default and rule; YAML and JSON files only set values.

A field's annotation is the type of its key, `key(...)` adds its rule. `runner/config/check.py` converts composed values
into these frozen records, so other modules need no checks.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any

from runner import register
from runner.config import read
from runner.config.groups.entries import (
    DATASETS,
    LOSSES,
    NETWORKS,
    OPTIMIZERS,
    CallbackSettings,
    DatasetSettings,
    LossSettings,
    MetricSettings,
    NetworkSettings,
    OptimizerSettings,
    Records,
    default_callbacks,
)
from runner.config.groups.services import (
    Dump,
    NoDump,
    NoProfiling,
    NoTracking,
    Parallel,
    Profiling,
    SessionSettings,
    StandAlone,
    Tracking,
)
from runner.device import DeviceSettings
from runner.errors import ConfigError, nearest
from runner.host.json import flat
from runner.validation.rules import (
    FILE_PATH,
    LARGEST_FLOAT32,
    MAX_COUNT,
    MAX_SEED,
    Frozen,
    Invalid,
    Names,
    as_path,
    key,
    validate,
)

# The key `checkpoint.names`: how other programs name the weights that `checkpoint.load` reads.
#
# A naming is a table of patterns of our names and of theirs. `*` stands for any text, which is the same in both.

MOST_STARS = 4
# Layers of torch.nn: linear layers, convolutions and their biases have our names.
TORCH = {
    "*.gamma": "*.weight",
    "*.beta": "*.bias",
    "*.moving_mean": "*.running_mean",
    "*.moving_variance": "*.running_var",
    "*.embedding_table": "*.weight",
}
SCHEMES: Mapping[str, Mapping[str, str]] = {
    "torch": TORCH,
    "torchvision": {  # of its ResNets; names that no pattern matches are equal
        "*.down_sample_layer.0.weight": "*.downsample.0.weight",
        "*.down_sample_layer.1.gamma": "*.downsample.1.weight",
        "*.down_sample_layer.1.beta": "*.downsample.1.bias",
        "*.down_sample_layer.1.moving_mean": "*.downsample.1.running_mean",
        "*.down_sample_layer.1.moving_variance": "*.downsample.1.running_var",
        "linear.*": "fc.*",
        **TORCH,
    },
}
ALLOWED = f"{', '.join(SCHEMES)}, or a file {' or '.join(f'*{suffix}' for suffix in read.SUFFIXES)}"


def checked(value: object) -> str:
    """The name of a scheme, or the absolute path of a file with a table. Raises Invalid."""
    name: str = validate(str, FILE_PATH, value)
    if name in SCHEMES:
        return name
    path = Path(name).absolute()
    if path.suffix not in read.SUFFIXES:
        raise Invalid("no naming of weights", ALLOWED, nearest(name, SCHEMES))
    if not path.exists():
        raise Invalid("no such file", ALLOWED, nearest(path.name, [other.name for other in path.parent.glob("*")]))
    try:
        names_of(str(path))
    except ConfigError as error:
        rows = "; ".join(f"{label} {row}" for label, row in error.rows.items())
        allowed = "`our name: their name` in each line; null for what is not loaded"
        raise Invalid(error.what, allowed, hint=rows or None) from None
    return str(path)


def names_of(name: str) -> Names:
    """The naming that a valid value of the key selects. Raises ConfigError for the content of a file."""
    if name in SCHEMES:
        return Names(rules=tuple(SCHEMES[name].items()), is_scheme=True)
    values, _ = read.read(Path(name))
    if not isinstance(values, dict) or not values:
        raise ConfigError("the file has no table of names")
    for ours, theirs in values.items():
        _check_rule(ours, theirs)
    return Names(rules=tuple(values.items()))


def _check_rule(ours: Any, theirs: Any) -> None:
    rule = {"rule": f"{ours}: {theirs}"}
    if not isinstance(ours, str) or not isinstance(theirs, str | None):
        raise ConfigError("a name of a parameter is a text", **rule)
    if theirs is not None and theirs.count("*") != ours.count("*"):
        raise ConfigError("both patterns of a rule have equally many *", **rule)
    if ours.count("*") > MOST_STARS:
        raise ConfigError(f"a pattern has at most {MOST_STARS} *", **rule)


# The keys of a run.


def _default(records: Records[Any]) -> Any:
    return field(default_factory=lambda: records[records.default]())


class Expectation(Frozen):
    """Bounds of a metric; a run outside of them fails."""

    min: float | None = key(None, low=-LARGEST_FLOAT32, high=LARGEST_FLOAT32)
    max: float | None = key(None, low=-LARGEST_FLOAT32, high=LARGEST_FLOAT32)


_MODE: dict[str, Any] = {
    "choices": ("graph", "pynative"),
    "aliases": {"graph_mode": "graph", "pynative_mode": "pynative", 0: "graph", 1: "pynative"},
    "fold": True,
}


class EvalSettings(Frozen):
    """When, how and on what a run is evaluated; `mode` null means the mode of the run.

    `freeze` is for evaluations without training in graph mode: weights become constants, and BatchNorm is folded into
    convolutions, which is faster and rounds differently.
    """

    every: str = key("end", choices=("end", "epoch", "never"))  # when the run is evaluated
    split: str = key("test", choices=("test", "train"))  # the split that is evaluated, in whole
    metrics: tuple[str, ...] = key(("accuracy", "loss"), choices=register.metric)  # metrics of the evaluation
    mode: str | None = key(None, **_MODE)  # null: the mode of the run
    freeze: bool = True  # without training, graph mode: weights are constants, BatchNorm is folded


def _weights(value: object) -> str:
    path: str = validate(str, FILE_PATH, value)
    if not os.path.exists(path):
        allowed = "a .safetensors or .ckpt file, the folder of a checkpoint, or a run directory"
        raise Invalid("no such file or folder", allowed)
    return os.path.abspath(path)


class CheckpointSettings(Frozen):
    """When checkpoints are saved: at intervals of steps or seconds, and always at the end of a run.

    A sink is interrupted to save at the steps, and for the seconds between two calls to the device. `load` is the path
    of initial weights, relative to the working directory: a .safetensors or .ckpt file, the folder of a checkpoint, or
    a run directory, whose newest checkpoint is loaded. `names` are those of the weights of another program: `torch`,
    `torchvision` (its ResNets), or a YAML or JSON file with lines `our name: their name`, where `*` is any text.
    """

    every_steps: int | None = key(None, low=1, high=MAX_COUNT)  # steps between two checkpoints
    every_seconds: float | None = key(None, above=0, high=MAX_COUNT)  # seconds between two checkpoints
    keep_max: int = key(5, low=1, high=MAX_COUNT)  # number of checkpoints kept
    prefix: str = key("CKP", pattern="[A-Za-z0-9_]{1,100}")  # prefix of file names
    load: str | None = key(None, validate=_weights)  # initial weights: a .safetensors or .ckpt file, checkpoint or run
    names: str | None = key(None, validate=checked)  # names in `load`: torch, torchvision, or a file
    strict: bool | None = None  # `load` needs exactly the network's parameters; null: without training, or with names


class SweepSettings(Frozen):
    """Behaviour of a sweep."""

    fail_fast: bool = False  # stop all jobs when one fails


class RunnerSettings(Frozen):
    """Behaviour of runner itself."""

    debug: bool = False  # show tracebacks


class RunConfig(Frozen):
    """All keys of a run.

    `print_file_path` is relative to the working directory, `save_graphs_path` to the run directory.
    """

    mode: str = key("pynative", **_MODE)  # execute a compiled graph, or operator by operator
    device: DeviceSettings = DeviceSettings()
    network: NetworkSettings = _default(NETWORKS)
    dataset: DatasetSettings = _default(DATASETS)
    optimizer: OptimizerSettings = _default(OPTIMIZERS)
    loss: LossSettings = _default(LOSSES)
    epochs: int = key(1, low=1, high=MAX_COUNT)  # passes over the training data
    max_steps: int | None = key(None, low=1, high=MAX_COUNT)  # maximum number of steps; null: no limit
    dataset_sink_mode: bool = True  # graph mode: execute many steps in one call to the device
    sink_size: int = key(-1, low=1, high=MAX_COUNT, also=(-1,))  # steps per sink and epoch; -1: the whole dataset
    seed: int = key(1, low=0, high=MAX_SEED)  # seed of all random numbers
    exact: bool = True  # the same bits on every x86-64 processor with AVX2; false: this one's fastest kernels
    reserve_class_name_in_scope: bool = True  # include class names in the full names of operators
    print_file_path: str | None = key(None, path=True, writes=as_path)  # output of Print; null: the screen
    save_graphs: bool = False  # save the graph after every compilation stage
    save_graphs_path: str = key("graphs", path=True, writes=as_path, in_run_folder=True)  # folder in the run's
    dump: Dump = field(default=NoDump())
    profiling: Profiling = field(default=NoProfiling())
    session: SessionSettings = field(default=SessionSettings())
    parallel: Parallel = field(default=StandAlone())
    tracking: Tracking = field(default=NoTracking())
    expect: Mapping[str, Expectation] = field(default_factory=dict)  # by metric
    eval: EvalSettings = EvalSettings()
    metrics: Mapping[str, MetricSettings] = field(default_factory=dict)  # keys of metrics, by name
    callbacks: Mapping[str, CallbackSettings | None] = field(default_factory=default_callbacks)  # by name; null: off
    checkpoint: CheckpointSettings = CheckpointSettings()
    sweep: SweepSettings = SweepSettings()
    runner: RunnerSettings = RunnerSettings()


class RunRequest(Frozen):
    """All that an experiment gets: a checked config, a folder that it owns, and where both came from.

    With `resume` it continues from the newest checkpoint in the folder, with `force` despite changes that affect its
    results. `directories` are those outside of the folder that it has claimed, by the path in the config. `cores` are
    those of each of several ranks.
    """

    config: RunConfig
    folder: Path
    experiment: str | None
    resolved: dict[str, Any]
    overrides: tuple[str, ...]
    resume: bool = False
    force: bool = False
    directories: Mapping[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()


def defaults(owner: type) -> dict[str, Any]:
    """The defaults of a part of the schema as plain nested values.

    >>> defaults(SweepSettings)
    {'fail_fast': False}
    """
    return plain(owner())


def plain(config: Any) -> dict[str, Any]:
    """A checked config as nested dicts of JSON values, in the form of a config file."""
    values: dict[str, Any] = {}
    for name in (f.name for f in fields(config)):
        value = getattr(config, name)
        if name == "expect":
            values[name] = {metric: _bounds(expectation) for metric, expectation in value.items()}
        elif name == "callbacks":
            values[name] = {callback: one.written if one else False for callback, one in value.items()}
        elif name == "metrics" and isinstance(value, Mapping):
            values[name] = {metric: _keys(settings) for metric, settings in value.items()}
        else:
            values[name] = plain(value) if is_dataclass(value) else list(value) if isinstance(value, tuple) else value
    return values


FORMER_DEFAULTS = {"network.num_classes": 10}  # of keys whose null stands for the dataset's value now


def without_former_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat values of a config, null for the defaults of older versions of runner."""
    return {name: None if FORMER_DEFAULTS.get(name, ...) == value else value for name, value in values.items()}


def changed_keys(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The dotted keys whose values differ; keys unknown to the other version of runner count as their defaults.

    >>> list(changed_keys({"seed": 1, "epochs": 8}, {"seed": 2, "epochs": 8, "dataset.verify": True}))
    ['seed']
    """
    known = flat(plain(RunConfig()))
    was, now = without_former_defaults(was), without_former_defaults(now)
    for name in {**was, **now}:
        if was.get(name, known.get(name)) != now.get(name, known.get(name)):
            yield name


def _keys(settings: MetricSettings) -> dict[str, Any]:
    return {name: value for name, value in plain(settings).items() if name != "name"}


def _bounds(expectation: Expectation) -> dict[str, float]:
    return {side: bound for side, bound in vars(expectation).items() if bound is not None}
