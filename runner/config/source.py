"""The config sources of Hydra: folders of YAML and JSON files, checked by `gate`, and tables.

They replace Hydra's own sources, so that Hydra reads no unchecked file.
"""

from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from runner.config import gate, read
from runner.config.groups import GROUPS, search
from runner.config.options import TABLES, defaults_of_all_runs, option_names, table_option
from runner.config.schema import defaults
from runner.errors import ConfigError
from runner.host.files import real_path
from runner.validation.paths import path_problem

SEARCH = "runner.optuna"  # the `_target_` of our sweeper; nothing is instantiated from it
POOL = "runner.pool"  # and that of our launcher
RUN = "schema/run"
SWEEPER, LAUNCHER = "hydra/sweeper/optuna", "hydra/launcher/pool"


class FolderSource(ConfigSource):
    """A folder with `group/option.yaml` and `group/option.json` files; options that it lacks come from tables."""

    @staticmethod
    def scheme() -> str:
        """The part of a search path before `://`."""
        return "runner"

    def find(self, config_path: str) -> Path | None:
        """The file of a config, with or without its suffix. Raises ConfigError when there are two."""
        path = self._inside(config_path)
        if path.suffix in read.SUFFIXES:
            return path if path.is_file() else None
        files = [file for file in (path.with_name(path.name + suffix) for suffix in read.SUFFIXES) if file.exists()]
        if len(files) > 1:
            raise ConfigError(
                "two files for one config", value=" and ".join(file.name for file in files), folder=path.parent
            )
        return files[0] if files else None

    def load_config(self, config_path: str) -> ConfigResult:
        """The checked content of one file, or the values of an option from a table."""
        file = self.find(config_path)
        if file is None:
            option = _from_table(config_path)
            if option is None:
                raise ConfigLoadError(f"Config not found: {config_path}")
            return _result(self, option, None)
        try:
            self._reject_links(file)
            values, package = read.read(file)
            gate.scan_file(values, package)
        except ConfigError as error:
            raise error.add(**{"from": read.display_path(file)}) from None
        return _result(self, values, package)

    def is_group(self, config_path: str) -> bool:
        """Whether a folder or a table of this name exists."""
        if path_problem(config_path):
            return False
        return self._inside(config_path).is_dir() or config_path.rstrip("/") in TABLES

    def is_config(self, config_path: str) -> bool:
        """Whether a file or a table entry for this config exists."""
        return self.find(config_path) is not None or _from_table(config_path) is not None

    def available(self) -> bool:
        """Whether the folder exists."""
        return Path(self.path).is_dir()

    def list(self, config_path: str, results_filter: ObjectType | None) -> Any:
        """The names of groups, of options, or of both in a group."""
        path = self._inside(config_path)
        entries = [entry for entry in path.iterdir() if entry.name[0] not in "._"] if path.is_dir() else []
        groups = {entry.name for entry in entries if entry.is_dir()} | {*(() if config_path.strip("/") else TABLES)}
        options = {entry.stem for entry in entries if entry.suffix in read.SUFFIXES and entry.is_file()}
        options |= {*option_names(config_path.strip("/"))}
        names = {ObjectType.GROUP: groups, ObjectType.CONFIG: options}
        return sorted(names[results_filter] if results_filter is not None else groups | options)

    def _inside(self, config_path: str) -> Path:
        if config_path.rstrip("/"):
            gate.scan_name(config_path, config_path.rpartition("/")[0] or "config")
        if config_path.split("/")[0] == "hydra":  # such files would configure Hydra itself
            return Path(self.path, "no configs of Hydra here")
        return Path(self.path, config_path)

    def _reject_links(self, file: Path) -> None:
        root = real_path(Path(self.path))
        if not real_path(file).is_relative_to(root):
            raise ConfigError(
                "a link that leaves the config folder", value=real_path(file), allowed=f"files below {root}"
            )


class PluginSource(ConfigSource):
    """Our sweeper and launcher. Hydra searches for others when they are chosen: that imports all plugins."""

    @staticmethod
    def scheme() -> str:
        """The part of a search path before `://`."""
        return "runner-plugins"

    def load_config(self, config_path: str) -> ConfigResult:
        """The keys of our sweeper or launcher."""
        if config_path == SWEEPER:
            return _result(self, {"_target_": SEARCH, **search.node()}, None)
        if config_path == LAUNCHER:
            return _result(self, {"_target_": POOL, "n_jobs": None}, None)
        raise ConfigLoadError(f"Config not found: {config_path}")

    def is_config(self, config_path: str) -> bool:
        """Whether it is ours; Hydra's next source knows the configs of the plugins that were found."""
        if config_path in (SWEEPER, LAUNCHER):
            return True
        if config_path.startswith(gate.HYDRA_GROUPS) and not config_path.endswith("/basic"):
            Plugins.instance()
        return False

    def is_group(self, config_path: str) -> bool:
        """Whether options are known here."""
        return config_path in gate.HYDRA_GROUPS

    def available(self) -> bool:
        """Always."""
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> Any:
        """Our sweeper or launcher."""
        if results_filter is ObjectType.GROUP:
            return []
        return [name for group, _, name in (SWEEPER.rpartition("/"), LAUNCHER.rpartition("/")) if group == config_path]


class SchemaSource(ConfigSource):
    """The defaults of all runs, `schema/run`, and of an option, `schema/<group>/<option>`, for a user's own configs."""

    @staticmethod
    def scheme() -> str:
        """The part of a search path before `://`."""
        return "runner-schema"

    def load_config(self, config_path: str) -> ConfigResult:
        """The keys and defaults."""
        if config_path == RUN:
            return _result(self, defaults_of_all_runs(), "_global_")
        if not self.is_config(config_path):
            raise ConfigLoadError(f"Config not found: {config_path}")
        _, group, name = config_path.split("/")
        return _result(self, defaults(GROUPS[group][name]), group)

    def is_config(self, config_path: str) -> bool:
        """Whether it is the schema of all runs or of an option."""
        folder, _, name = config_path.rpartition("/")
        return config_path == RUN or (self.is_group(folder) and name in self.list(folder, ObjectType.CONFIG))

    def is_group(self, config_path: str) -> bool:
        """Whether it is `schema` or one of its groups."""
        root, _, group = config_path.rstrip("/").partition("/")
        return root == "schema" and (not group or group in GROUPS)

    def available(self) -> bool:
        """Always."""
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> Any:
        """The groups, or the options of one."""
        root, _, group = config_path.strip("/").partition("/")
        if root != "schema":
            return ["schema"] if not root and results_filter is not ObjectType.CONFIG else []
        groups, options = ([], [*GROUPS.get(group, ())]) if group else ([*GROUPS], ["run"])
        names = {ObjectType.GROUP: groups, ObjectType.CONFIG: options}
        return sorted(names[results_filter] if results_filter is not None else groups + options)


def _from_table(config_path: str) -> dict[str, Any] | None:
    """The values of an option that comes from a table; as a file's, its name may end with a suffix."""
    group, _, name = config_path.rpartition("/")
    for suffix in read.SUFFIXES:
        name = name.removesuffix(suffix)
    return table_option(group, name)


def _result(source: ConfigSource, values: Any, package: str | None) -> ConfigResult:
    config = OmegaConf.create(values or {})
    return ConfigResult(source.provider, source.full_path(), config, {"package": package})
