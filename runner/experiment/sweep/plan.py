"""`-m`: many runs through Hydra's sweepers and launchers, with the same config checks as one run."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runner import rundir
from runner.config import overrides
from runner.config.check import examine
from runner.config.code import Source, load
from runner.config.command_line import CommandLine
from runner.config.compose import (
    SUBDIR,
    Loader,
    Origins,
    as_config_error,
    as_typed,
    container,
    current_config,
    folder_of,
    has_number,
    run_request,
)
from runner.config.gate import path_error, path_errors, typed_values
from runner.config.groups import search
from runner.config.read import display_path
from runner.config.schema import RunConfig, RunRequest
from runner.config.source import SEARCH
from runner.errors import ConfigError, collect_errors, raise_all
from runner.experiment.sweep import launchers
from runner.experiment.sweep.controller import SweepController, check_sweep, one_exactness, one_folder, recorded_keys
from runner.experiment.sweep.pool import show_in
from runner.experiment.sweep.search import Searcher, prepared

BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass(frozen=True)
class SweepPlan:
    """A checked sweep, of which nothing is written yet."""

    loader: Loader
    master: DictConfig
    base: dict[str, Any]  # the config without the swept values, interpolations unresolved
    config: RunConfig  # the same, checked, with the first option of each swept group
    folder: Path
    folder_given: bool
    shares: launchers.CoreShares
    searcher: Searcher | None = None  # of an adaptive sweep, whose proposals depend on results

    def run(self, folder: Path, threads: int, controller: SweepController) -> None:
        """Run in `folder`; jobs without `device.threads` get `threads` threads. Raises RunnerError."""
        with current_config(self.master):
            _set_folder(self.master, folder)
            pool = launchers.is_pool(self.master)
            one = partial(_run_one, job=controller.job, threads=threads, console=pool)
            task = partial(one, code=self.loader.code, recorded=self.loader.recorded, exact=self.config.exact)
            context = _context(self.loader)
            if pool:
                inner: Any = launchers.PoolLauncher(context, self.master, task, self.shares.at_once, controller)
            else:
                inner = launchers.usual_launcher(context, self.master, task)
            launcher = launchers.FilteringLauncher(inner, controller)
            if self.searcher is not None:
                self.searcher.run(folder, launcher, controller)
                return
            with as_config_error(), _use_launcher(launcher) as plugins:
                sweeper = plugins.instantiate_sweeper(config=self.master, hydra_context=context, task_function=task)
                if pool:  # each job reports its own composition error, so the batch need not be composed first
                    vars(sweeper)["validate_batch_is_legal"] = lambda batch: None
                sweeper.sweep(arguments=as_typed(self.master.hydra.overrides.task))


def plan(call: CommandLine, resumed: bool = False) -> SweepPlan:
    """Compose and check a sweep. Raises ConfigError, before anything is written, for an invalid value.

    The folder of a resumed sweep is that which the user names, whatever the config says.
    """
    loader = Loader(call.config_dir, call.config_path, call.code)
    composition, errors = collect_errors(check_sweep, loader, call)
    master, broken = collect_errors(loader.load_configuration, call.config_name, list(call.overrides), RunMode.MULTIRUN)
    if master is None:
        raise_all(errors or broken)
        raise AssertionError("composition returned neither a config nor an error")
    params, wrong = collect_errors(_take_params, master)
    if params:
        composition, errors = collect_errors(check_sweep, loader, call, params)
    loader.recorded = recorded_keys(call, params or ())
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(as_typed(master.hydra.overrides.task))
    origin = Origins(loader, call.config_name, list(call.overrides))
    searcher, unfit = collect_errors(_searcher, master, parsed, composition.config if composition else None, origin)
    raise_all([*errors, *wrong, *(one for one in unfit if not wrong or one.what != search.NO_SEARCH_SPACE)])
    assert composition is not None
    folder_given = OmegaConf.to_container(master.hydra.sweep, resolve=False)["dir"] != loader.sweep_dir  # type: ignore[index,call-overload]
    with current_config(master), as_config_error():
        launchers.reject_lines(master)
        folder = folder_of(master, "hydra.sweep.dir")
        if folder_given and not resumed:
            raise_all([error.add(**{"from": origin("hydra.sweep.dir")}) for error in _folder_errors(folder, call)])
        base = cast(dict[str, Any], OmegaConf.to_container(composition.task, resolve=False))
        core_share = launchers.core_shares(
            master, composition.config.device.threads, searcher.at_once if searcher else _count(master, parsed)
        )
    if _names_folders(master):  # checked for each job, but an error of all jobs is one before the sweep exists
        loader.load_sweep_config(master, as_typed(composition.record.hydra.overrides.task))
        _require_own_folders(loader, master, parsed)
    if searcher:
        base["hydra"] = {"sweeper": searcher.identity}
    return SweepPlan(loader, master, base, composition.config, folder, folder_given, core_share, searcher)


def _names_folders(master: DictConfig) -> bool:
    """Whether the config sets the folders inside of a sweep."""
    values: Any = OmegaConf.to_container(master.hydra, resolve=False)
    return (values["sweep"]["subdir"], values["output_subdir"], values["job"]["name"]) != (
        SUBDIR,
        rundir.HYDRA,
        "runner",
    )


def _require_own_folders(loader: Loader, master: DictConfig, parsed: Sequence[Override]) -> None:
    """Raise ConfigError when two jobs that are known in advance have one folder. Other errors are those of the jobs."""
    subdir = OmegaConf.to_container(master.hydra, resolve=False)["sweep"]["subdir"]  # type: ignore[index,call-overload]
    if str(master.hydra.sweeper._target_) != BASIC_SWEEPER or has_number(subdir):
        return
    first: dict[str, int] = {}
    for number, lines in enumerate(itertools.chain(*BasicSweeper.split_arguments(list(parsed), None))):
        job, _ = collect_errors(loader.load_sweep_config, master, list(lines))
        if job is not None and (other := first.setdefault(job.hydra.sweep.subdir, number)) != number:
            raise one_folder(job.hydra.sweep.subdir, other, number)


def _folder_errors(folder: Path, call: CommandLine) -> list[ConfigError]:
    typed = typed_values(overrides.parse(call.overrides), call.recorded)
    return path_error("hydra.sweep.dir", str(folder), folder, typed, [])


@as_config_error()
def _take_params(master: DictConfig) -> list[str]:
    """Move `hydra.sweeper.params` in front of the overrides that were typed, and return them. Raises ConfigError."""
    settings = master.hydra.sweeper
    found = search.parameter_overrides(OmegaConf.to_container(settings, resolve=True).get("params"))  # type: ignore[union-attr]
    with read_write(master.hydra), open_dict(master.hydra):
        if found:
            settings.params = None
            master.hydra.overrides.task = [*found, *as_typed(master.hydra.overrides.task)]
    return found


@as_config_error()
def _searcher(
    master: DictConfig, parsed: Sequence[Override], config: RunConfig | None, origin: Origins
) -> Searcher | None:
    """The search that the config requests, if any. Raises ConfigError, or ConfigErrors."""
    target = str(master.hydra.sweeper._target_)
    if target == SEARCH:
        values = OmegaConf.to_container(master.hydra.sweeper, resolve=True)
        return prepared(cast(dict[str, Any], values), parsed, config, origin)
    if target == BASIC_SWEEPER:
        raise_all(list(overrides.grid_errors(parsed)))
    return None


def _count(master: DictConfig, parsed: Sequence[Override]) -> int | None:
    """The number of jobs, if it is known in advance."""
    if str(master.hydra.sweeper._target_) != BASIC_SWEEPER:
        return None
    return sum(map(len, BasicSweeper.split_arguments(list(parsed), None)))


@contextmanager
def _use_launcher(launcher: launchers.FilteringLauncher) -> Iterator[Plugins]:
    """Inside, every launcher that a sweeper requests from Hydra is `launcher`."""
    plugins = Plugins.instance()
    vars(plugins)["instantiate_launcher"] = lambda **_: launcher
    try:
        yield plugins
    finally:
        del vars(plugins)["instantiate_launcher"]


def _set_folder(master: DictConfig, folder: Path) -> None:
    """Set the claimed folder in the sweep's config, also for the jobs, which compose their configs again."""
    OmegaConf.set_readonly(master.hydra, False)
    with open_dict(master.hydra):
        master.hydra.mode = RunMode.MULTIRUN
        master.hydra.sweep.dir = str(folder)
        quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
        master.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _context(loader: Loader) -> HydraContext:
    """A context without callbacks; Hydra 1.4 also accepts a list of the callables that a config may name."""
    allowed: dict[str, Any] = {"execution_whitelist": ("hydra._internal.core_plugins.*", "hydra_plugins.*")}
    known = {name: value for name, value in allowed.items() if name in HydraContext.__dataclass_fields__}
    return HydraContext(config_loader=loader, callbacks=Callbacks(), **known)


def _run_one(
    task: DictConfig,
    job: Callable[[int, RunRequest, ConfigError | None], int],
    threads: int,
    console: bool,
    code: tuple[Source, ...],
    recorded: frozenset[str],
    exact: bool,
) -> int:
    """Run one job in the folder made by the launcher, possibly in another process that has not composed its config.

    `exact` is the key of the sweep, for which its processes were started.
    """
    record = cast(DictConfig, HydraConfig.instance().cfg)
    folder = Path(display_path(Path(record.hydra.runtime.output_dir)))
    if console:
        show_in(folder / rundir.CONSOLE)
    wrong = None
    try:
        load(code)
        config, errors = examine(container(task), lambda key: None)
        raise_all(errors)
        typed = typed_values(overrides.parse(as_typed(record.hydra.overrides.task)), recorded)
        raise_all(list(path_errors(config, folder, typed)))
        if config.exact is not exact:
            raise one_exactness(str(config.exact).lower())
    except ConfigError as error:
        config, wrong = examine({}, lambda key: None)[0], error
    if not config.device.threads:
        config = replace(config, device=replace(config.device, threads=threads))
    return job(int(record.hydra.job.num), run_request(record, config, folder), wrong)
