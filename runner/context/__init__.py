"""`runner.context`: global settings of scripts that use the Python API, with the names of MindSpore (spec 1.1)."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from runner import rundir
from runner.communication.settings import (
    ParallelMode as ParallelMode,
    get_auto_parallel_context as get_auto_parallel_context,
    reset_auto_parallel_context as reset_auto_parallel_context,
    set_auto_parallel_context as set_auto_parallel_context,
)
from runner.communication.world import process_number, world
from runner.core.current import Current
from runner.core.dependence import NOTE_LOWERINGS
from runner.core.graph import NO_VALUES, GraphObserver, GraphObservers, ValueObserver
from runner.core.precision import DEFAULT, Policy, policy
from runner.device import MAX_ID, Device, idle_card
from runner.errors import ConfigError, nearest
from runner.host.console import LOG, note_once
from runner.host.files import remove, storage_errors
from runner.host.lazy import reference_attribute
from runner.observe import dump, graph, profile
from runner.observe.dump.settings import FILES as DUMP_FILES, PATH_KEY
from runner.observe.graph.folder import FILES as GRAPH_FILES, writable_folder
from runner.observe.profile.settings import FILES as PROFILE_FILES
from runner.ops import effects
from runner.rundir import OutputDirectory
from runner.validation.arguments import flag
from runner.validation.rules import FREE, Invalid, Rule, invalid_value_error, validate

__all__ = [
    "GRAPH_MODE",
    "PYNATIVE_MODE",
    "ParallelMode",
    "get_auto_parallel_context",
    "get_context",
    "reset_auto_parallel_context",
    "reset_context",
    "set_auto_parallel_context",
    "set_context",
]


# Settings of MindSpore's context that scripts set and that have no effect here.
#
# They are checked, kept and returned; a setting that differs from its default is reported once, with what to use.


class Setting(NamedTuple):
    """The default, why it has no effect, or what has this effect here, and the rule of its values."""

    default: Any
    remark: str
    rule: Rule = FREE


_DUMPS = "dumps: MINDSPORE_DUMP_CONFIG or runner.dump"
_PRECISION = "precision: precision_mode, or amp_level of Model"
_KERNELS = "onnxruntime combines operators itself"
_MEMORY = "memory is taken when it is needed"
_RUNTIME = "it is a choice of MindSpore's own runtime"
_SIZE = Rule(pattern=r"0|([1-9][0-9]*(\.[0-9]*)?|0\.[0-9]+)GB")
SETTINGS: dict[str, Setting] = {
    "enable_dump": Setting(False, _DUMPS),
    "save_dump_path": Setting(".", _DUMPS),
    "enable_reduce_precision": Setting(True, _PRECISION),
    "enable_auto_mixed_precision": Setting(False, _PRECISION),
    "enable_graph_kernel": Setting(False, _KERNELS),
    "graph_kernel_flags": Setting("", _KERNELS),
    "enable_sparse": Setting(False, "gradients are dense"),
    "check_bprop": Setting(False, "gradients of your own operators are always checked"),
    "max_call_depth": Setting(1000, "Python's recursion limit holds", Rule(low=1)),
    "variable_memory_max_size": Setting("0", _MEMORY, _SIZE),
    "max_device_memory": Setting("1024GB", _MEMORY, _SIZE),
    "auto_tune_mode": Setting(
        "NO_TUNE", "runs are tuned: session.auto_tune_mode", Rule(choices=("NO_TUNE", "RL", "GA", "RL,GA", "GA,RL"))
    ),
    "env_config_path": Setting("", _RUNTIME, Rule(path=True)),
    "precompile_only": Setting(False, "graphs are compiled when a cell is called"),
    "grad_for_scalar": Setting(False, "gradients of Python numbers are not computed"),
    "enable_parallel_split": Setting(False, "runner trains data-parallel"),
    "enable_task_sink": Setting(True, "dataset_sink_mode of Model.train chooses it"),
    "enable_loop_sink": Setting(True, "dataset_sink_mode of Model.train chooses it"),
    "enable_mem_reuse": Setting(True, _MEMORY),
    "save_compile_cache": Setting(False, _RUNTIME),
    "load_compile_cache": Setting(False, _RUNTIME),
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items()}
OF_SESSIONS = (  # options of Ascend's sessions, which are keys of runs
    *("bp_point", "enable_exception_dump", "fp_point", "graph_run_mode", "initialize_system"),
    *("op_debug_level", "op_select_implmode", "optypelist_for_implmode", "profiling_mode"),
)


def checked(name: str, value: object) -> Any:
    """The value of a setting, reported if it differs from the default. Raises ConfigError for an invalid one."""
    setting = SETTINGS[name]
    try:
        valid = validate(type(setting.default), setting.rule, value)
    except Invalid as invalid:
        raise invalid_value_error(name, value, invalid) from None
    if valid != setting.default:
        note_once(f"context setting {name} has no effect: {setting.remark}")
    return valid


# The settings that have an effect.

__getattr__ = partial(reference_attribute, __name__)

GRAPH_MODE = 0
PYNATIVE_MODE = 1
_IDS = f"0 to {MAX_ID}"

_DEFAULTS: dict[str, Any] = {
    "mode": PYNATIVE_MODE,
    "device_target": "CPU",
    "device_id": 0,
    "reserve_class_name_in_scope": True,
    "print_file_path": "",
    "save_graphs": False,
    "save_graphs_path": ".",
    "precision_mode": DEFAULT,
    "enable_profiling": False,
    "profiling_options": "training_trace",
    **DEFAULTS,
}
_SETTINGS: Current[dict[str, Any]] = Current("settings of the context", dict(_DEFAULTS))
_observers: dict[str, GraphObserver] = {}  # by folder: each numbers its files for the lifetime of the process
_OBSERVER: Current[ValueObserver | None] = Current("observer of values", None)
_dumpers: dict[str, ValueObserver] = {}  # by the value of MINDSPORE_DUMP_CONFIG


def set_context(**settings: Any) -> None:
    """Change settings; nothing is changed when one of them is invalid.

    `mode` GRAPH_MODE (0) or PYNATIVE_MODE (1, default) · `device_target` CPU, GPU or Ascend, cards in graph mode only ·
    `device_id` 0 to 4095, without effect on the CPU · `reserve_class_name_in_scope` bool · `print_file_path` the file
    of the operator Print ("": the screen); an existing one gets the time as a suffix · `save_graphs` bool, whether
    graphs of models and cells are written, and `save_graphs_path` their folder (default: the working directory) ·
    `precision_mode` the element types in which networks compute: allow_fp32_to_fp16 (default), force_fp16, force_fp32,
    must_keep_origin_dtype or allow_mix_precision · `enable_profiling` bool, whether trainings are profiled, and
    `profiling_options` what is measured: words such as "training_trace:task_trace", or JSON such as
    '{"result_path": "/home/data/output", "training_trace": "on"}'. The other settings of MindSpore are kept and have no
    effect (`runner.context`). Raises ConfigError (a ValueError; ConfigErrors for
    several errors in JSON), and StorageError for a folder that cannot be written.
    """
    _change({name: _validate(name, value) for name, value in settings.items()})


def get_context(attr_key: str) -> Any:
    """A setting. Raises ConfigError for an unknown name."""
    if attr_key not in _SETTINGS.get():
        raise _unknown(attr_key)
    return _SETTINGS.get()[attr_key]


@contextmanager
def preserved() -> Iterator[None]:
    """Context: all settings are restored at its end."""
    before = dict(_SETTINGS.get())
    try:
        yield
    finally:
        _change(before)


def reset_context() -> None:
    """Restore the settings of the start of the process."""
    _change(_DEFAULTS)


def _change(settings: dict[str, Any]) -> None:
    _SETTINGS.get().update(settings)
    effects.print_to(_SETTINGS.get()["print_file_path"])


@contextmanager
def printing_to(file: effects.PrintFile) -> Iterator[effects.PrintFile]:
    """Context in which Print writes to this file, which is created; at its end one without prints is removed."""
    try:
        with preserved():
            _change({"print_file_path": effects.added(file)})
            yield file
    finally:
        if file.is_empty:
            with storage_errors("cannot remove an empty print file", file.path):
                remove(file.path)


def reserves_class_names() -> bool:
    """Whether scopes contain class names."""
    return bool(_SETTINGS.get()["reserve_class_name_in_scope"])


def precision() -> Policy | None:
    """The precision policy of networks; None casts nothing."""
    return policy(_SETTINGS.get()["precision_mode"])


def device(mode: int = GRAPH_MODE) -> Device:
    """The device of graph mode; for PyNative mode, raises DeviceError for a card."""
    if mode == PYNATIVE_MODE:
        check_pynative_device()
    return Device(target=_SETTINGS.get()["device_target"], id=_SETTINGS.get()["device_id"])


def check_pynative_device() -> None:
    """Raise DeviceError for a card, which models and cells in PyNative mode would not use."""
    if _SETTINGS.get()["device_target"] != "CPU":
        raise idle_card(device(), "context.set_context(mode=context.GRAPH_MODE), or device_target='CPU'")


def graph_observer() -> GraphObserver:
    """The graph observer of new models and cells; of several ranks the first one writes.

    Raises as `set_context`, and BusyError when the folder belongs to another run.
    """
    if not _SETTINGS.get()["save_graphs"] or world().rank:
        return NOTE_LOWERINGS
    path = os.path.abspath(_SETTINGS.get()["save_graphs_path"])
    if path not in _observers:
        _claim(OutputDirectory(Path(path), "save_graphs_path", GRAPH_FILES))
        _observers[path] = GraphObservers(graph.GraphFolder(Path(path)), NOTE_LOWERINGS)
    return _observers[path]


def value_observer() -> ValueObserver:
    """The value observer of training steps and of calls of cells.

    It is the current `runner.dump`, or else the dump that the environment variable MINDSPORE_DUMP_CONFIG configures.
    Raises ConfigError when its file is invalid, BusyError when its folder belongs to another run, and StorageError when
    that cannot be written.
    """
    if (inside := _OBSERVER.get()) is not None:
        return inside
    config = os.environ.get(dump.VARIABLE)
    if not config:
        return NO_VALUES
    if config not in _dumpers:
        settings = dump.settings.from_environment(dump.VARIABLE)
        _dumpers[config] = NO_VALUES if settings is None else dumper(settings, PATH_KEY, config)
        atexit.register(_dumpers[config].close)
    return _dumpers[config]


def dumper(settings: dump.DumpSettings, key: str, file: str | None = None) -> ValueObserver:
    """The dumper of this process to a folder that `key` (of a `file`) selects; `NO_VALUES` when nothing is dumped.

    It replaces an earlier dump of this process. Raises BusyError when the folder belongs to another run, StorageError
    when it cannot be written.
    """
    if (found := settings.on(device().card)) is None:
        return NO_VALUES
    belonged = _claim(OutputDirectory(settings.path, key, DUMP_FILES, file))
    made = dump.Dumper(found, process_number(device().card))
    if belonged and any(made.writer.step_folders()):
        LOG.warning("the earlier dump of this process in %s is replaced", settings.path)
        made.rewind(0)
    return made


def _claim(directory: OutputDirectory) -> bool:
    """Claim a folder for this process, or all ranks of this script. Returns and raises as `rundir.claim`.

    What a script has written that has ended is replaced, with a line, since scripts for MindSpore write again.
    """
    owner = rundir.process_owner(world().id)
    if world().size == 1 and (earlier := rundir.remove_of_ended_script(directory, owner)):  # ranks would have to agree
        LOG.warning("the files of %s in %s are replaced", earlier, directory.path)
    return rundir.claim(directory, owner)


def profiling_settings() -> profile.ProfileSettings | None:
    """The settings for profiles of trainings; None when they are not profiled.

    Files are written to `result_path` of the options, or else to the folder `profiling` of the working directory, which
    is created. Raises ConfigError for a folder that no longer exists, BusyError for one that belongs to another run,
    StorageError for one that cannot be created.
    """
    if not _SETTINGS.get()["enable_profiling"]:
        if _SETTINGS.get()["profiling_options"] != _DEFAULTS["profiling_options"]:
            note_once("profiling_options has no effect without enable_profiling=True: nothing is profiled")
        return None
    settings = _profile(_SETTINGS.get()["profiling_options"])
    _claim(OutputDirectory(settings.result_path, "profiling_options.result_path", PROFILE_FILES))
    return settings


def _profile(options: str) -> profile.ProfileSettings:
    sources = {"profiling_options.": profile.options(options, "profiling_options")}
    return profile.ProfileSettings.from_values(sources, Path.cwd(), process_number(device().card))


@contextmanager
def observing(observer: ValueObserver) -> Iterator[None]:
    """Context: training steps and calls of cells are observed by this observer."""
    with _OBSERVER.using(observer):
        yield


def _validate(name: str, value: Any) -> Any:
    if name == "mode" and (type(value) is not int or value not in (GRAPH_MODE, PYNATIVE_MODE)):
        raise ConfigError(
            "unknown mode", given=repr(value), allowed="context.GRAPH_MODE (0), context.PYNATIVE_MODE (1)"
        )
    if name == "device_target":
        targets = {t.lower(): t for t in ("CPU", "GPU", "Ascend")} | {"davinci": "Ascend"}
        if str(value).lower() not in targets:
            close = targets.get(nearest(str(value).lower(), targets) or "")
            raise ConfigError("unknown device target", given=value, allowed="CPU, GPU, Ascend", nearest=close)
        return targets[str(value).lower()]
    if name == "device_id" and type(value) is not int:
        raise ConfigError("device_id is no whole number", given=repr(value), allowed=_IDS)
    if name == "device_id" and not 0 <= value <= MAX_ID:
        raise ConfigError("device_id out of range", given=value, allowed=_IDS)
    if name in ("reserve_class_name_in_scope", "save_graphs", "enable_profiling"):
        flag({}, **{name: value})
    if name == "save_graphs_path":
        if not isinstance(value, str | os.PathLike):
            raise ConfigError("save_graphs_path must be a path", given=type(value).__name__)
        return str(writable_folder(Path(os.path.abspath(value))))
    if name == "print_file_path":
        return _print_file(value)
    if name == "precision_mode":
        policy(value)
    if name == "profiling_options":
        return _profiling_options(value)
    if name in SETTINGS:
        return checked(name, value)
    if name not in _DEFAULTS:
        raise _unknown(name)
    return value


def _print_file(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError("print_file_path must be a string", given=type(value).__name__)
    if not value:
        return ""
    return str(effects.new_path(value))


def _profiling_options(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError("profiling_options must be a string", given=type(value).__name__, allowed="words or JSON")
    _profile(value)
    return value


def _unknown(name: str) -> ConfigError:
    if name in OF_SESSIONS:
        hint = f"runs have this key, those of scripts too: runner.run(['session.{name}=...'])"
        return ConfigError("scripts have no such setting", given=name, key=f"session.{name}", hint=hint)
    effective = [name for name in _DEFAULTS if name not in SETTINGS]
    return ConfigError(
        "unknown context setting", given=name, allowed=", ".join(effective), nearest=nearest(name, _DEFAULTS)
    )
