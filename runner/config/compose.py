"""From overrides to a checked run: compose with Hydra, validate everything, report all errors at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.types import Override
from hydra.core.utils import configure_log
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import gate, overrides as lines_of, read
from runner.config.check import examine
from runner.config.command_line import CommandLine
from runner.config.containment import Typed, path_error, path_errors, typed_values
from runner.config.groups import GROUPS
from runner.config.groups.dataset import KEPT_KEYS
from runner.config.hydra_errors import as_config_error
from runner.config.loader import (
    NOW,
    RECORDS,
    Loader,
    as_typed,
    current_config,
    default_folders,
    register,
    set_output,
)
from runner.config.project import project
from runner.config.schema import RunConfig, RunRequest, plain
from runner.config.source import FolderSource
from runner.errors import ConfigError, ConfigErrors, raise_all
from runner.host.json import delete_dotted, set_dotted
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import Frozen, show


class Composition(Frozen):
    """A valid config with its records: the run may start."""

    config: RunConfig
    task: DictConfig  # the config without Hydra's part, as Hydra passes it to a program
    record: DictConfig  # Hydra's part: the content of `HydraConfig` during the run
    folder: Path
    folder_given: bool
    typed: Typed  # the values that the command line sets

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
    if name not in (None, RECORDS):
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
