"""From overrides to a checked run: compose with Hydra, validate everything, report all errors at once.

`compose` takes a command line and returns a `Composition`, or raises all errors of the config. Before it stand the
parts that keep Hydra inside of our rules: folders of jobs, exceptions, the store of configs, and the loader.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import hydra
import hydra._internal.core_plugins.basic_launcher
import hydra._internal.core_plugins.basic_sweeper
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra._internal.defaults_list import DefaultsList
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobRuntime, configure_log, setup_globals
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from runner import rundir
from runner.config import code, gate, overrides as lines_of, read
from runner.config.check import examine
from runner.config.code import OUTPUTS, SWEEPS, project
from runner.config.command_line import CommandLine
from runner.config.gate import Typed, check_limits, path_error, path_errors, typed_values
from runner.config.groups import GROUPS, REGISTERED
from runner.config.groups.entries import KEPT_KEYS
from runner.config.groups.services import HINT, UNSUPPORTED
from runner.config.overrides import COMMAND_LINE, parse, parse_line, reject_sweeps, sweep_values, with_force
from runner.config.schema import RunConfig, RunRequest, plain
from runner.config.source import POOL, SEARCH, FolderSource, PluginSource, SchemaSource
from runner.errors import ConfigError, ConfigErrors, RunnerError, nearest, raise_all
from runner.host import files
from runner.host.json import delete_dotted, set_dotted
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import Frozen, show

# The folders of a sweep's job, checked before a launcher creates them.
#
# A launcher sets number and id of a job after its config is composed, and Hydra evaluates the folders after that. So
# they are replaced by their values here: in what remains, only the number is open.

_NUMBER = re.compile(r"(\$\{\s*hydra[.:]job\.(?:num|id)\s*\})")
_SUBDIR = "hydra.sweep.subdir"


def fix_folders(config: DictConfig, typed: Typed) -> None:
    """Replace `hydra.sweep.subdir` and `hydra.output_subdir` of a job by their values, and check them.

    To be called while `HydraConfig` is this config. Raises ConfigError, ConfigErrors and the errors of OmegaConf.
    """
    settings = config.hydra
    with read_write(settings), open_dict(settings):
        name = settings.job.name = _constant(config, "hydra.job.name")
        if Path(name).name != name:  # joblib makes the id of a job from it
            raise ConfigError("not a name", key="hydra.job.name", value=show(name), allowed="text without /")
        subdir = settings.sweep.subdir = _with_number(config)
        if settings.output_subdir is not None:
            settings.output_subdir = _constant(config, "hydra.output_subdir")
    sweep = Path(str(settings.sweep.dir))
    folder = sweep / _NUMBER.sub("0", subdir)
    errors = path_error(_SUBDIR, subdir, folder, typed, [sweep])
    if (records := settings.output_subdir) is not None:
        errors += path_error("hydra.output_subdir", records, folder / records, typed, [sweep])
    raise_all(errors)


def has_number(subdir: str) -> bool:
    """Whether the folder of a job has its number, so that no other job has it."""
    return _NUMBER.search(subdir) is not None


def _with_number(config: DictConfig) -> str:
    """The folder of a job with all parts replaced by their values, except for its number and id."""
    sweep = config.hydra.sweep
    parts = _NUMBER.split(str(sweep._get_node("subdir")._value()))
    for place in range(0, len(parts), 2):  # between the numbers
        sweep.subdir = parts[place]
        parts[place] = _constant(config, _SUBDIR)
    return "".join(parts)


def _constant(config: DictConfig, key: str) -> str:
    """The value of a key as it is before the job has a number. Raises ConfigError when it depends on the number."""
    text: object = OmegaConf.select(config, key.rpartition(".")[0])._get_node(key.rpartition(".")[2])._value()
    try:
        value = OmegaConf.select(config, key, throw_on_missing=True)
    except OmegaConfBaseException:
        value = None
    if not isinstance(value, str | int | float) or "${" in str(value):
        hint = f"{_SUBDIR} may have ${{hydra.job.num}} in its own text, and nothing else depends on the job's number"
        raise ConfigError("not a name that is known before the job starts", key=key, value=show(text), hint=hint)
    return str(value)


# Exceptions of Hydra and OmegaConf as ConfigError.


@contextmanager
def as_config_error(*more: type[Exception]) -> Iterator[None]:
    """Convert exceptions of Hydra and OmegaConf to ConfigError, and those of the types `more`, where only they run."""
    foreign: tuple[type[Exception], ...]
    foreign = (HydraException, OmegaConfBaseException, ValueError, AssertionError, RecursionError, *more)
    try:
        yield
    except MissingConfigException as reason:
        raise _missing(reason) from None
    except foreign as reason:
        if isinstance(reason, RunnerError):
            raise
        key = getattr(reason, "full_key", None) or None
        raise ConfigError("the configuration cannot be composed", key=key, reason=_first_cause(reason)) from None


def not_an_option(group: str, option: object, options: list[str], origin: str = COMMAND_LINE) -> ConfigError:
    """The error for an unknown option of a group."""
    close = nearest(str(option), options)
    rows = {"key": group, "value": show(option), "allowed": ", ".join(options), "nearest": close}
    hint = HINT if group == "parallel" and option in UNSUPPORTED else None
    if group in REGISTERED and close is None and project().file is None:
        hint = "the code of a project is loaded in the folder of its pyproject.toml, other code with --code FILE"
    return ConfigError("unknown option", **rows).add(**{"from": origin, "hint": hint})


def _missing(reason: MissingConfigException) -> ConfigError:
    group, _, option = str(reason.missing_cfg_file).rpartition("/")
    text = str(reason)
    origin = text[4 : text.index("':")] if text.startswith("In '") and "':" in text else None
    if reason.options:
        return not_an_option(group, option, list(reason.options), origin or COMMAND_LINE)
    return ConfigError("a config does not exist", value=reason.missing_cfg_file).add(**{"from": origin})


def _first_cause(reason: BaseException) -> str:
    while reason.__cause__ is not None:
        reason = reason.__cause__
    lines = [line.strip() for line in str(reason).splitlines() if line.strip() and "hydra.cc" not in line]
    if isinstance(reason, OmegaConfBaseException):
        lines = lines[:1]
    return "\n".join(lines[:3]) or type(reason).__name__


# The configs that Hydra reads, with a limit of their number in one composition.

MAX_CONFIGS = 300  # of one composition; merging one takes some milliseconds


class CountingRepository(CachingConfigRepository):
    """The configs of one composition: defaults lists that name each other would be a tree without end."""

    def __init__(self, delegate: IConfigRepository) -> None:
        super().__init__(delegate)
        self._count = 0

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A config, which Hydra requests twice for every entry of a defaults list and once to merge it."""
        self._count += 1
        if self._count > 3 * MAX_CONFIGS:
            raise ConfigError(
                "too many configs in the defaults lists", value=config_path, allowed=f"{MAX_CONFIGS} in all"
            )
        return super().load_config(config_path)


class SharedRepository(ConfigRepository):
    """A repository without copies: Hydra copies it and the ConfigStore for added search paths, which are rejected."""

    def __deepcopy__(self, memo: object) -> "SharedRepository":
        return self


# Hydra's config loader with checked sources and overrides; its exceptions become ConfigError.

NOW = "${now:%Y-%m-%d}/${now:%H-%M-%S}"
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
            code.declare()

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


# The composition.


class Composition(Frozen):
    """A valid config with its records: the run may start."""

    config: RunConfig
    task: DictConfig  # the config without Hydra's part, as Hydra passes it to a program
    record: DictConfig  # Hydra's part: the content of `HydraConfig` during the run
    folder: Path
    folder_given: bool
    typed: Typed  # the values that the command line sets

    @property
    def folder_text(self) -> str:
        """`hydra.run.dir` as it is written, which may have the time."""
        return str(OmegaConf.to_container(self.record.hydra.run, resolve=False)["dir"])  # type: ignore[index,call-overload]

    @contextmanager
    def activate(self, folder: Path) -> Iterator[RunRequest]:
        """The request for a run in a folder; inside the context, `HydraConfig` is that of this run.

        Raises ConfigError, or ConfigErrors, when a path that depends on the folder is not allowed.
        """
        config = self.config
        with current_config(self.record):
            if folder != self.folder:  # `${hydra:runtime.output_dir}` has changed
                set_output(self.record, folder)
                config, _ = examine(container(self.task), lambda key: None)
                raise_all(list(_path_errors(self.record, config, folder, self.typed)))
            yield run_request(self.record, config, folder)

    def records(self) -> Iterator[tuple[str, str]]:
        """Names and contents of the files that Hydra keeps in `.hydra/`; to be called inside `activate`."""
        folder = self.record.hydra.output_subdir
        if folder is not None:
            yield f"{folder}/config.yaml", OmegaConf.to_yaml(self.task)
            yield f"{folder}/hydra.yaml", OmegaConf.to_yaml(self.record)
            yield f"{folder}/overrides.yaml", OmegaConf.to_yaml(self.record.hydra.overrides.task)

    def configure_logging(self) -> None:
        """Log to the screen if `hydra.verbose` is set."""
        verbose = self.record.hydra.verbose
        if verbose:
            configure_log(None, verbose)  # type: ignore[arg-type]


def compose(command: CommandLine) -> Composition:
    """Compose and check one run; nothing is written.

    Raises ConfigError, or ConfigErrors with every error of the config.
    """
    loader = Loader(command.config_dir, command.config_path, command.code)
    usable, problems, failed = _valid_overrides(loader, lines_of.parse(command.overrides))
    try:
        composed = loader.load_configuration(command.config_name, usable, RunMode.RUN)
        origins = Origins(loader, command.config_name, usable)
        typed = typed_values(lines_of.parse(usable), command.recorded)
        return _checked(composed, typed, origins, problems, failed, loader.run_dir)
    except ConfigErrors:
        raise
    except ConfigError as error:
        raise_all([*problems, *([] if error in problems else [error])])
        raise


def with_overrides(values: dict[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """The resolved config of a run with further overrides: `~key` is back to its default, `${...}` is resolved.

    `group=option` selects an option from the tables, whose own keys have their defaults then. Raises ConfigError.
    """
    parsed = lines_of.parse(lines)
    lines_of.reject_sweeps(parsed)
    for override in parsed:
        if override.is_delete():
            delete_dotted(values, override.key_or_group)
        elif override.key_or_group in GROUPS and isinstance(option := override.value(), str):
            values[override.key_or_group] = _selected(values, override.key_or_group, option)
        else:
            set_dotted(values, override.key_or_group, override.value())
    if not any("${" in line for line in lines):
        return values
    gate.scan_values(values)  # also those of the file, which are resolved again
    register()
    with current_config(None):
        return container(OmegaConf.create(values))


def _selected(values: dict[str, Any], group: str, option: str) -> dict[str, Any]:
    """The section of a group with another option; the keys that all datasets have keep their values."""
    kept = KEPT_KEYS if group == "dataset" else ()
    before = values.get(group)
    return {name: before[name] for name in kept if isinstance(before, dict) and name in before} | {"name": option}


def _checked(
    composed: DictConfig,
    typed: Typed,
    origins: "Origins",
    problems: list[ConfigError],
    failed: set[str],
    run_dir: str,
) -> Composition:
    with current_config(composed), as_config_error():
        given = OmegaConf.to_container(composed.hydra.run, resolve=False) != {"dir": run_dir}
        folder = folder_of(composed, "hydra.run.dir") if given else _default_folder(run_dir)
        _resolve_settings(composed)
    task, record = _split(composed)
    with current_config(record), as_config_error():
        OmegaConf.set_readonly(record.hydra, True)
        set_output(record, folder)
        config, errors = examine(container(task), origins)
        misplaced = path_error("hydra.run.dir", str(folder), folder, typed, []) if given else []
        misplaced += _path_errors(record, config, folder, typed)
    errors += [error.add(**{"from": origins(error.rows["key"])}) for error in misplaced]
    raise_all([*problems, *(error for error in errors if error.rows["key"].split(".")[0] not in failed)])
    return Composition(config, task, record, folder, given, typed)


def _path_errors(record: DictConfig, config: RunConfig, folder: Path, typed: Typed) -> Iterator[ConfigError]:
    """Errors of the paths of a config, in the run directory `folder` and outside of it."""
    name = record.hydra.output_subdir
    if name not in (None, rundir.HYDRA):
        yield from path_error("hydra.output_subdir", name, folder / name, typed, [folder])
    yield from path_errors(config, folder, typed)


def _split(composed: DictConfig) -> tuple[DictConfig, DictConfig]:
    """The config without Hydra's part, and that part, moved rather than copied for speed."""
    record = OmegaConf.create(flags={"no_deepcopy_set_nodes": True})
    record.hydra = composed.hydra
    with open_dict(composed):
        del composed["hydra"]
    return composed, record


def folder_of(composed: DictConfig, key: str) -> Path:
    """The folder that a key of Hydra names. Raises ConfigError."""
    text = str(OmegaConf.select(composed, key))
    if problem := path_problem(text):
        raise ConfigError(problem, key=key, value=show(text), allowed=ALLOWED)
    return Path(text)


def _resolve_settings(composed: DictConfig) -> None:
    """Resolve and check what is used without the config of the run: `hydra.output_subdir` and `hydra.verbose`.

    Raises ConfigError.
    """
    found = {name: OmegaConf.select(composed, f"hydra.{name}") for name in ("output_subdir", "verbose")}
    values = {k: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v for k, v in found.items()}
    _check_verbose(values["verbose"])
    if values["output_subdir"] is not None:
        folder_of(composed, "hydra.output_subdir")
    with open_dict(composed):
        OmegaConf.update(composed, "hydra", values)


def _check_verbose(verbose: object) -> None:
    """Raise ConfigError for a `hydra.verbose` that Hydra cannot use: it checks no type."""
    names = verbose if isinstance(verbose, list) else [verbose]
    if verbose is not None and not isinstance(verbose, bool) and not all(isinstance(name, str) for name in names):
        allowed = "true, false, the name of a logger or a list of names"
        raise ConfigError("not a level of output", key="hydra.verbose", value=show(verbose), allowed=allowed)


def default_folder() -> Path:
    """The directory of a run that begins now without `hydra.run.dir`. Raises ConfigError for a bad project file."""
    return _default_folder(default_folders(project().outputs)[0])


def _default_folder(run_dir: str) -> Path:
    """The value of the default `hydra.run.dir`, without the 4 ms that OmegaConf needs to load its grammar."""
    return Path(run_dir.removesuffix(NOW), datetime.now().strftime("%Y-%m-%d/%H-%M-%S"))


def run_request(record: DictConfig, config: RunConfig, folder: Path) -> RunRequest:
    """The request for a run of a composed config in a folder."""
    experiment = record.hydra.runtime.choices.get("experiment")
    return RunRequest(config, folder, experiment, plain(config), tuple(as_typed(record.hydra.overrides.task)))


def container(task: DictConfig) -> dict[str, Any]:
    """The composed config of the run as plain values, with interpolations resolved. Raises ConfigError."""
    with as_config_error():
        return cast(dict[str, Any], OmegaConf.to_container(task, resolve=True))


def _valid_overrides(loader: Loader, parsed: Sequence[Override]) -> tuple[list[str], list[ConfigError], set[str]]:
    """The overrides except those that choose unknown options, the errors of these, and their groups.

    Errors inside of such a group are not reported: they would be consequences.
    """
    usable, problems, failed = [], [], set()
    for override in parsed:
        problem = loader.unknown_option(override)
        if problem is None:
            usable.append(str(override.input_line))
        else:
            problems.append(problem)
            failed.add(override.key_or_group)
    return usable, problems, failed


class Origins:
    """Where a key was set: only needed for error messages, so it may compose the config again."""

    def __init__(self, loader: Loader, config_name: str, lines: list[str]) -> None:
        self._loader, self._name, self._lines = loader, config_name, lines

    def __call__(self, key: str) -> str | None:
        """`command line`, or file and line, or None for a default."""
        parsed = [one for one in lines_of.parse(self._lines) if not self._loader.is_option(one)]
        pairs = [(f"{key}.", f"{one.key_or_group}.") for one in parsed]
        if any(inner.startswith(outer) or outer.startswith(inner) for inner, outer in pairs):
            return lines_of.COMMAND_LINE
        return self._file(key)

    def _file(self, key: str) -> str | None:
        for file, lines, package in reversed(self._files):
            inside = f"{key}.".removeprefix(f"{package}." if package else "").rstrip(".").split(".")
            if not (package and inside == key.split(".")):
                line = lines.of(inside)
                if line is not None:
                    return f"{read.display_path(file)}:{line}"
        return None

    @cached_property
    def _files(self) -> list[tuple[Path, read.Lines, str]]:
        """The files of the config in the order of merging, with their packages."""
        found = self._loader.compute_defaults_list(self._name, self._lines, RunMode.RUN).defaults
        files = {path: self._find(path) for path in {str(one.config_path) for one in found}}
        lines = {file: read.Lines(file) for file in files.values() if file is not None}
        pairs = ((files[str(one.config_path)], one.package or "") for one in found)
        return [(file, lines[file], package) for file, package in pairs if file is not None]

    def _find(self, config_path: str) -> Path | None:
        sources = [one for one in self._loader.get_sources() if isinstance(one, FolderSource)]
        return next((file for file in (source.find(config_path) for source in sources) if file), None)
