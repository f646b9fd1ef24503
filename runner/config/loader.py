"""Hydra's config loader with checked sources and overrides; its exceptions become ConfigError."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import hydra
import hydra._internal.core_plugins.basic_launcher
import hydra._internal.core_plugins.basic_sweeper
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra._internal.defaults_list import DefaultsList
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobRuntime, setup_globals
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from runner.config import code, gate, name_cache
from runner.config.containment import typed_values
from runner.config.hydra_errors import as_config_error, not_an_option
from runner.config.interpolation import check_limits
from runner.config.job_folder import fix_folders
from runner.config.overrides import parse, parse_line, reject_sweeps, sweep_values, with_force
from runner.config.project import OUTPUTS, SWEEPS, project
from runner.config.repository import CountingRepository, SharedRepository
from runner.config.source import POOL, SEARCH, FolderSource, PluginSource, SchemaSource
from runner.errors import ConfigError, raise_all
from runner.host import files
from runner.validation.rules import show

NOW = "${now:%Y-%m-%d}/${now:%H-%M-%S}"
RECORDS = ".hydra"  # the folder in the run directory with Hydra's records
SUBDIR = "${hydra.job.num}"


class Loader(ConfigLoaderImpl):
    """Composes configs from the project's folder, `conf/`, and the folder of `--config-dir`; loads the user's code.

    It is copied to the workers of a sweep, where it loads the same code. Without `loads_code`, for completion, it knows
    the names that the last run has found.
    """

    def __init__(
        self,
        config_dir: Path | None = None,
        config_path: Path | None = None,
        given_code: Sequence[str] = (),
        loads_code: bool = True,
    ) -> None:
        here = project()
        self.code = code.sources(given_code) if loads_code else ()
        self.loads_code = loads_code
        self.run_dir, self.sweep_dir = default_folders(here.outputs)
        self._load_code()
        register()
        path = ConfigSearchPathImpl()
        path.append("hydra", "runner-plugins://")
        if config_path is None and (folder := here.conf_folder) is not None:
            path.append("project", f"runner://{folder}")
        path.append("main", f"runner://{_folder(config_path or files.folder('conf'))}")
        if config_dir is not None:
            path.append("command-line", f"runner://{_folder(config_dir)}")
        path.append("schema", "runner-schema://")
        path.append("schema", "structured://")  # Hydra expects it as the last
        super().__init__(path)
        self.repository = SharedRepository(path)
        self.recorded: frozenset[str] = frozenset()  # keys of overrides in a sweep that the user has not typed

    def _load_code(self) -> None:
        if self.loads_code:
            code.load(self.code)
        else:
            name_cache.declare()

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """The composed config; its records contain the overrides as typed. Raises ConfigError."""
        self._load_code()  # in the process of a launcher
        parsed = parse(overrides)
        _check_name(config_name)
        if run_mode == RunMode.RUN and validate_sweep_overrides:
            reject_sweeps(parsed)
        if run_mode == RunMode.MULTIRUN:
            raise_all([problem for one in parsed if (problem := self.unknown_option(one))])
        lines = [self.hydra_line(one) for one in parsed]
        with as_config_error(TypeError, LookupError), self._minimal_hydra():
            composed: DictConfig = super().load_configuration(
                config_name, lines, run_mode, from_shell, validate_sweep_overrides
            )
        _record(composed, parsed)
        _reject_code(composed)
        check_limits(cast(dict[str, Any], OmegaConf.to_container(composed, resolve=False)))
        return composed

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """A file of the defaults list, without Hydra 1.0's search for a schema of the same name."""
        found = repo.load_config(str(default.config_path))
        if found is None or "hydra" in found.config:
            return super()._load_single_config(default, repo)
        return self._embed_result_config(found, default.package) if found.config else found

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The config of one job of a sweep; Hydra 1.4 would bypass `load_configuration`. Raises ConfigError."""
        lines = [*as_typed(master_config.hydra.overrides.hydra), *sweep_overrides]
        composed = self.load_configuration(master_config.hydra.job.config_name, lines, RunMode.RUN)
        OmegaConf.copy_cache(from_config=master_config, to_config=composed)  # the same `${now:...}` in all jobs
        with current_config(composed), as_config_error():
            fix_folders(composed, typed_values(parse(lines), self.recorded))
        return composed

    def compute_defaults_list(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> DefaultsList:
        """The configs that are merged, in order. Raises ConfigError."""
        lines = [self.hydra_line(one) for one in parse(overrides)]
        with as_config_error(TypeError, LookupError), self._minimal_hydra():
            return super().compute_defaults_list(config_name, lines, run_mode)

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        return list(map(parse_line, overrides)), CountingRepository(self.repository)

    @contextmanager
    def _minimal_hydra(self) -> Iterator[None]:
        """Replace Hydra's settings by ones without help texts and logging, whose files take 10 ms.

        They are restored afterwards: a program that calls runner may use Hydra itself.
        """
        source = self.repository.get_schema_source()  # in the process of a launcher it has its own store
        group = getattr(source, "store", ConfigStore.instance()).repo["hydra"]
        before = group["config.yaml"]
        group["config.yaml"] = _minimal_node(self.run_dir, self.sweep_dir)
        try:
            yield
        finally:
            group["config.yaml"] = before

    def hydra_line(self, override: Override) -> str:
        """The override in the form that is passed to Hydra."""
        if self.is_option(override):
            return str(override.input_line)
        return with_force(override)

    def is_option(self, override: Override) -> bool:
        """Whether an override chooses an option of a group."""
        return not isinstance(override.value(), dict) and self.repository.group_exists(override.key_or_group)

    def unknown_option(self, override: Override) -> ConfigError | None:
        """The error for an override that chooses an unknown option; None for others."""
        group = override.key_or_group
        if override.is_delete() or not self.is_option(override):
            return None
        for option in _options(override):
            if not isinstance(option, str):
                return not_an_option(group, option, self.options(group))
            gate.scan_name(option, group)
            if not self.repository.config_exists(f"{group}/{option}"):
                return not_an_option(group, option, self.options(group))
        return None

    def options(self, group: str) -> list[str]:
        """The options of a group."""
        return list(self.repository.get_group_options(group, ObjectType.CONFIG))


def default_folders(outputs: str | None) -> tuple[str, str]:
    """`hydra.run.dir` and `hydra.sweep.dir` of a project, which may have a folder for all outputs."""
    sweeps = SWEEPS if outputs is None else f"{outputs}/{SWEEPS}"
    return f"{outputs or OUTPUTS}/{NOW}", f"{sweeps}/{NOW}"


@lru_cache(maxsize=1)
def _minimal_node(run_dir: str, sweep_dir: str) -> ConfigNode:
    original: ConfigNode = ConfigStore.instance().repo["hydra"]["config.yaml"]
    node = copy.deepcopy(original.node)
    node.defaults = [{"launcher": "basic"}, {"sweeper": "basic"}]
    node.run.dir, node.sweep.dir, node.sweep.subdir = run_dir, sweep_dir, SUBDIR
    node.job_logging = node.hydra_logging = {"version": 1, "root": None, "disable_existing_loggers": False}
    return replace(original, node=node)


def _check_name(config_name: str | None) -> None:
    if config_name is not None:
        gate.scan_name(config_name, "config")
        if config_name.split("/")[0] in ("hydra", "schema"):
            raise ConfigError("not a main config", value=show(config_name))


def _folder(path: Path) -> Path:
    folder = path.expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError("the config folder does not exist", path=path)
    return folder


def register() -> None:
    """Register runner's sources and defaults with Hydra, without its search for plugins, which imports all of them."""
    if hydra.__version__.startswith("1.3"):  # 1.4 does not need it and warns about it
        version.setbase("1.3")
    setup_globals()
    JobRuntime.instance().set("name", "runner")
    for source in (FolderSource, PluginSource, SchemaSource, StructuredConfigSource):
        SourcesRegistry.instance().register(source)
    ConfigStore.instance()  # Hydra's own configs


def _options(override: Override) -> list[Any]:
    if override.is_sweep_override():
        return [one for one in sweep_values(override) if one != "*"]
    value = override.value()
    return value if isinstance(value, list) else [value]


def _record(config: DictConfig, parsed: Sequence[Override]) -> None:
    typed = [one for one in parsed if not one.is_hydra_override()]
    job = config.hydra.job
    config.hydra.overrides.task = [str(one.input_line) for one in typed]
    style = job.config.override_dirname
    lines = sorted(str(one.input_line) for one in typed if one.key_or_group not in style.exclude_keys)
    job.override_dirname = style.item_sep.join(lines).replace("=", style.kv_sep)


def _reject_code(config: DictConfig) -> None:
    """Check the composed config again: no callbacks, no logging, and only launchers and sweepers of plugins."""
    settings = config.hydra
    for name, own in (("launcher", POOL), ("sweeper", SEARCH)):
        target = str(OmegaConf.select(settings, f"{name}._target_"))
        if target != own and not target.startswith(("hydra._internal.core_plugins.", "hydra_plugins.")):
            raise ConfigError("a config may not name code to run", key=f"hydra.{name}", value=show(target))
    changed = settings.callbacks or settings.searchpath or settings.job.env_set or settings.job.env_copy
    if changed or settings.job_logging.root is not None or settings.hydra_logging.root is not None:
        raise ConfigError("a config may not change this part of Hydra", key="hydra")


def as_typed(lines: Any) -> list[str]:
    """Recorded overrides with their interpolations unresolved."""
    return cast(list[str], OmegaConf.to_container(lines, resolve=False))


@contextmanager
def current_config(record: DictConfig | None) -> Iterator[None]:
    """Context: `HydraConfig`, which interpolations read, is this record; its former content is restored at the end."""
    holder: Any = HydraConfig.instance()
    before, holder.cfg = holder.cfg, record
    try:
        yield
    finally:
        holder.cfg = before


def set_output(config: Any, folder: Path) -> None:
    """Set the mode and the output folder of a run in Hydra's record."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.mode = RunMode.RUN
        config.hydra.runtime.output_dir = str(folder.absolute())
