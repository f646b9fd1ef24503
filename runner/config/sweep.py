"""`-m`: many runs through Hydra's sweepers and launchers, behind the same gate and checker as one run."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra._internal.callbacks import Callbacks
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import overrides
from runner.config.check import examine
from runner.config.compose import Call, compose, container, request_for
from runner.config.loader import SWEEP_DIR, Loader, as_config_error, as_typed
from runner.config.read import shown
from runner.config.schema import RunRequest, plain
from runner.errors import ConfigError, raise_all

Job = Callable[[RunRequest, ConfigError | None], Any]


def sweep(call: Call, claim: Callable[[Path, bool], Path], job: Job) -> list[Any]:
    """Run every job of a sweep and return what `job` returned, in order.

    `claim` is given the sweep's folder and whether the user named it, and returns the folder that is ours. A job whose
    own config is wrong is handed its error. Raises ConfigError, before anything is written, when a value is wrong.
    """
    loader = Loader(call.config_dir, call.config_path)
    _check_values(loader, call)
    master = loader.load_configuration(call.config_name, list(call.overrides), RunMode.MULTIRUN)
    given = OmegaConf.to_container(master.hydra.sweep, resolve=False)["dir"] != SWEEP_DIR  # type: ignore[index,call-overload]
    holder = HydraConfig.instance()
    before = holder.cfg
    holder.set_config(master)
    try:
        with as_config_error():
            folder = claim(Path(str(OmegaConf.select(master, "hydra.sweep.dir"))), given)
        return _launch(loader, _settled(master, folder), job)
    finally:
        holder.cfg = before


def _settled(master: DictConfig, folder: Path) -> DictConfig:
    """The sweep's config with its claimed folder, also for the jobs, which compose anew."""
    OmegaConf.set_readonly(master.hydra, False)
    with open_dict(master.hydra):
        master.hydra.mode = RunMode.MULTIRUN
        master.hydra.sweep.dir = str(folder)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")
    return master


def _launch(loader: Loader, master: DictConfig, job: Job) -> list[Any]:
    task = partial(_run_one, job=job)
    with as_config_error():
        plugin = Plugins.instance().instantiate_sweeper(
            config=master, hydra_context=_context(loader), task_function=task
        )
        batches = plugin.sweep(arguments=as_typed(master.hydra.overrides.task))
    return [result.return_value for batch in batches or () for result in batch]


def _context(loader: Loader) -> HydraContext:
    """No callbacks; and Hydra 1.4 can be told which callables a config may name."""
    allowed: dict[str, Any] = {"execution_whitelist": ("hydra._internal.core_plugins.*", "hydra_plugins.*")}
    known = {name: value for name, value in allowed.items() if name in HydraContext.__dataclass_fields__}
    return HydraContext(config_loader=loader, callbacks=Callbacks(), **known)


def _run_one(task: DictConfig, job: Job) -> Any:
    """One job, called by a launcher in the folder that it made; maybe in another process."""
    record = cast(DictConfig, HydraConfig.instance().cfg)
    folder = Path(shown(Path(record.hydra.runtime.output_dir)))
    try:
        config, errors = examine(container(task), lambda key: None)
        raise_all(errors)
    except ConfigError as error:
        config, _ = examine({}, lambda key: None)
        return job(request_for(record, config, folder), error)
    return job(request_for(record, config, folder), None)


def _check_values(loader: Loader, call: Call) -> None:
    """Judge every value of the sweep once, in the config without the other values, before anything is written."""
    parsed = overrides.parse(call.overrides)
    problems = [problem for problem in map(loader.unknown_option, parsed) if problem]
    raise_all(problems)
    lines = [_single(loader, override) for override in parsed]
    made = compose(replace(call, overrides=tuple(line for line in lines if line)))
    errors: dict[str, ConfigError] = {}
    for key, value in _swept(loader, parsed):
        values = plain(made.config)
        _put(values, key.split("."), value)
        _, found = examine(values, lambda key: overrides.COMMAND_LINE)
        errors |= {str(error): error for error in found}
    raise_all(list(errors.values()))


def _single(loader: Loader, override: Override) -> str | None:
    """The override with the first of its options; None for values that are swept over."""
    if not override.is_sweep_override():
        return str(override.input_line)
    if not override.is_discrete_sweep() or not loader.is_option(override):
        return None
    options = overrides.sweep_values(override)
    first = loader.options(override.key_or_group)[0] if options == ["*"] else options[0]
    return f"{override.get_key_element()}={first}"


def _swept(loader: Loader, parsed: list[Override]) -> Iterator[tuple[str, Any]]:
    for override in parsed:
        if override.is_discrete_sweep() and not loader.is_option(override):
            lines = [f"x={value}" for value in overrides.sweep_values(override)]
            values = itertools.chain.from_iterable(overrides.parse([line]) for line in lines)
            yield from ((override.key_or_group, value.value()) for value in values)


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value
