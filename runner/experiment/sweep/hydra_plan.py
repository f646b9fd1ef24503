"""`-m`: many runs through Hydra's sweepers and launchers, behind the same gate and checker as one run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runner.config import overrides
from runner.config.check import examine
from runner.config.command_line import Call
from runner.config.compose import Origins, container, request_for
from runner.config.groups import search
from runner.config.loader import SWEEP_DIR, Loader, as_config_error, as_typed
from runner.config.read import shown
from runner.config.schema import RunConfig, RunRequest
from runner.config.source import SEARCH
from runner.errors import ConfigError, RunnerError, attempted, raise_all
from runner.experiment.sweep.check import check_sweep
from runner.experiment.sweep.hydra_launchers import Jobs, PoolLauncher, Shares, Wanted, is_pool, shares, usual_launcher
from runner.experiment.sweep.pool import show_in
from runner.experiment.sweep.search import Searcher, prepared

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

    @property
    def trials(self) -> int:
        """How many jobs have been told to a search before."""

    def told(self, number: int, params: Mapping[str, str], metric: str) -> float | None:
        """What a job is worth to a search that proposed `params`; None when it failed."""


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
    searcher: Searcher | None = None  # of a sweep that decides by results what it tries next

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
            launcher = Wanted(inner, director.wanted, director.stopped)
            if self.searcher is not None:
                self.searcher.run(folder, launcher, director)
                return
            with as_config_error(), _given(launcher) as plugins:
                sweeper = plugins.instantiate_sweeper(config=self.master, hydra_context=context, task_function=task)
                if pool:  # a job that cannot be composed says so itself, and the others do not wait for its composing
                    vars(sweeper)["validate_batch_is_legal"] = lambda batch: None
                sweeper.sweep(arguments=as_typed(self.master.hydra.overrides.task))


def plan(call: Call) -> Plan:
    """What a sweep will be. Raises ConfigError, before anything is written, when a value is wrong."""
    loader = Loader(call.config_dir, call.config_path)
    made, errors = attempted(check_sweep, loader, call)
    master, broken = attempted(loader.load_configuration, call.config_name, list(call.overrides), RunMode.MULTIRUN)
    if master is None:
        raise_all(errors or broken)
        raise AssertionError("a config is there or it is wrong")
    params, wrong = attempted(_take_params, master)
    if params:
        made, errors = attempted(check_sweep, loader, call, params)
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(as_typed(master.hydra.overrides.task))
    origin = Origins(loader, call.config_name, list(call.overrides))
    searcher, unfit = attempted(_searcher, master, parsed, made.config if made else None, origin)
    raise_all([*errors, *wrong, *(one for one in unfit if not wrong or one.what != search.NOTHING)])
    assert made is not None
    given = OmegaConf.to_container(master.hydra.sweep, resolve=False)["dir"] != SWEEP_DIR  # type: ignore[index,call-overload]
    with _current(master), as_config_error():
        folder = Path(str(OmegaConf.select(master, "hydra.sweep.dir")))
        base = cast(dict[str, Any], OmegaConf.to_container(made.task, resolve=False))
        share = shares(master, made.config.device.threads, searcher.at_once if searcher else _count(master, parsed))
    if searcher:
        base["hydra"] = {"sweeper": searcher.told}
    return Plan(loader, master, base, made.config, folder, given, share, searcher)


def _take_params(master: DictConfig) -> list[str]:
    """Move `hydra.sweeper.params` in front of the overrides that were typed, and return them. Raises ConfigError."""
    settings = master.hydra.sweeper
    found = search.lines(OmegaConf.to_container(settings, resolve=True).get("params"))  # type: ignore[union-attr]
    with read_write(master.hydra), open_dict(master.hydra):
        if found:
            settings.params = None
            master.hydra.overrides.task = [*found, *as_typed(master.hydra.overrides.task)]
    return found


def _searcher(
    master: DictConfig, parsed: Sequence[Override], config: RunConfig | None, origin: Origins
) -> Searcher | None:
    """Who searches, if the config asks for it. Raises ConfigError, or ConfigErrors."""
    target = str(master.hydra.sweeper._target_)
    if target == SEARCH:
        values = OmegaConf.to_container(master.hydra.sweeper, resolve=True)
        return prepared(cast(dict[str, Any], values), parsed, config, origin)
    if target == BASIC_SWEEPER:
        raise_all(list(overrides.uncountable(parsed)))
    return None


def _count(master: DictConfig, parsed: Sequence[Override]) -> int | None:
    """How many jobs there will be, if it is known before."""
    if str(master.hydra.sweeper._target_) != BASIC_SWEEPER:
        return None
    return sum(map(len, BasicSweeper.split_arguments(list(parsed), None)))


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
