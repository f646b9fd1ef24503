"""`-m`: many runs through Hydra's sweepers and launchers, behind the same gate and checker as one run."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import overrides
from runner.config.check import examine
from runner.config.compose import Call, Composition, compose, container, request_for
from runner.config.launchers import Jobs, PoolLauncher, Shares, Wanted, is_pool, shares, usual_launcher
from runner.config.loader import SWEEP_DIR, Loader, as_config_error, as_typed
from runner.config.read import shown
from runner.config.schema import RunConfig, RunRequest, plain
from runner.errors import ConfigError, RunnerError, raise_all
from runner.sweeping.pool import show_in

CONSOLE = "console.log"
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


class Director(Protocol):
    """Who decides what is run of a sweep, and hears of it."""

    def job(self, number: int, request: RunRequest, wrong: ConfigError | None) -> int:
        """Run one job, maybe in another process, and return its exit code; `wrong` is what is wrong with its config."""

    def refused(self, number: int, error: RunnerError) -> int:
        """Hear that a job could not be composed, and return its exit code."""

    def wanted(self, batch: Jobs) -> Jobs:
        """What is to run of a batch that the sweeper has made."""

    def stopped(self) -> bool:
        """Whether no further job may begin."""

    def ended(self, number: int, code: int) -> bool:
        """Hear that the process of a job has ended; whether the others shall be stopped."""


@dataclass(frozen=True)
class Plan:
    """A sweep whose every value is in range; nothing of it is written."""

    loader: Loader
    master: DictConfig
    base: dict[str, Any]  # the config without what is swept over, and without resolving interpolations
    config: RunConfig  # the same, checked, with the first of the options that are swept over
    folder: Path
    folder_given: bool
    shares: Shares

    def run(self, folder: Path, threads: int, director: Director) -> None:
        """Run in a folder; jobs that do not say how many threads they want get `threads`. Raises RunnerError."""
        with _current(self.master):
            _settle(self.master, folder)
            pool = is_pool(self.master)
            task = partial(_run_one, job=director.job, threads=threads, console=pool)
            context = _context(self.loader)
            if pool:
                inner: Any = PoolLauncher(
                    context, self.master, task, self.shares.at_once, director.refused, director.ended
                )
            else:
                inner = usual_launcher(context, self.master, task)
            with as_config_error(), _given(Wanted(inner, director.wanted, director.stopped)) as plugins:
                sweeper = plugins.instantiate_sweeper(config=self.master, hydra_context=context, task_function=task)
                if pool:  # a job that cannot be composed says so itself, and the others do not wait for its composing
                    vars(sweeper)["validate_batch_is_legal"] = lambda batch: None
                sweeper.sweep(arguments=as_typed(self.master.hydra.overrides.task))


def plan(call: Call) -> Plan:
    """What a sweep will be. Raises ConfigError, before anything is written, when a value is wrong."""
    loader = Loader(call.config_dir, call.config_path)
    made = _check_values(loader, call)
    master = loader.load_configuration(call.config_name, list(call.overrides), RunMode.MULTIRUN)
    given = OmegaConf.to_container(master.hydra.sweep, resolve=False)["dir"] != SWEEP_DIR  # type: ignore[index,call-overload]
    with _current(master), as_config_error():
        folder = Path(str(OmegaConf.select(master, "hydra.sweep.dir")))
        base = cast(dict[str, Any], OmegaConf.to_container(made.task, resolve=False))
        share = shares(master, made.config.device.threads, _count(loader, master))
    return Plan(loader, master, base, made.config, folder, given, share)


def _count(loader: Loader, master: DictConfig) -> int | None:
    """How many jobs there will be, if it is known before."""
    if str(master.hydra.sweeper._target_) != BASIC_SWEEPER:
        return None
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(as_typed(master.hydra.overrides.task))
    return sum(map(len, BasicSweeper.split_arguments(parsed, None)))


@contextmanager
def _current(master: DictConfig) -> Iterator[None]:
    holder = HydraConfig.instance()
    before = holder.cfg
    holder.set_config(master)
    try:
        yield
    finally:
        holder.cfg = before


@contextmanager
def _given(launcher: Wanted) -> Iterator[Plugins]:
    """Sweepers ask Hydra for their launcher, each in its own way: meanwhile the answer is ours."""
    plugins = Plugins.instance()
    vars(plugins)["instantiate_launcher"] = lambda **_: launcher
    try:
        yield plugins
    finally:
        del vars(plugins)["instantiate_launcher"]


def _settle(master: DictConfig, folder: Path) -> None:
    """Put the claimed folder into the sweep's config, also for the jobs, which compose anew."""
    OmegaConf.set_readonly(master.hydra, False)
    with open_dict(master.hydra):
        master.hydra.mode = RunMode.MULTIRUN
        master.hydra.sweep.dir = str(folder)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _context(loader: Loader) -> HydraContext:
    """No callbacks; and Hydra 1.4 can be told which callables a config may name."""
    allowed: dict[str, Any] = {"execution_whitelist": ("hydra._internal.core_plugins.*", "hydra_plugins.*")}
    known = {name: value for name, value in allowed.items() if name in HydraContext.__dataclass_fields__}
    return HydraContext(config_loader=loader, callbacks=Callbacks(), **known)


def _run_one(
    task: DictConfig, job: Callable[[int, RunRequest, ConfigError | None], int], threads: int, console: bool
) -> int:
    """One job, called by a launcher in the folder that it made; maybe in another process."""
    record = cast(DictConfig, HydraConfig.instance().cfg)
    folder = Path(shown(Path(record.hydra.runtime.output_dir)))
    if console:
        show_in(folder / CONSOLE)
    wrong = None
    try:
        config, errors = examine(container(task), lambda key: None)
        raise_all(errors)
    except ConfigError as error:
        config, wrong = examine({}, lambda key: None)[0], error
    if not config.device.threads:
        config = replace(config, device=replace(config.device, threads=threads))
    return job(int(record.hydra.job.num), request_for(record, config, folder), wrong)


def _check_values(loader: Loader, call: Call) -> Composition:
    """Judge every value of the sweep once, in the config without the other values, which is returned."""
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
    return made


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
