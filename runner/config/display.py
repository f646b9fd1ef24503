"""What Hydra can show without running: `--cfg`, `--info`, `--hydra-help` and shell completion, behind the gate."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager

from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import RunMode

from runner.config import overrides, schema
from runner.config.command_line import CommandLine
from runner.config.compose import compose
from runner.config.loader import Loader, as_config_error
from runner.errors import ConfigError


def show_config(call: CommandLine, part: str, package: str | None, resolve: bool) -> None:
    """Print the composed config: `part` is job, hydra or all. Raises ConfigError, after printing, when it is wrong."""
    with as_config_error(), _hydra(call) as hydra:
        try:
            hydra.show_cfg(call.config_name, list(call.overrides), part, package, resolve)
        except SystemExit:  # Hydra has printed which package does not exist
            raise ConfigError("the config has no such part", key=package) from None
    compose(call)


def show_info(call: CommandLine, topic: str) -> None:
    """Print how the config comes about: defaults, search path, plugins, or all."""
    overrides.parse(call.overrides)
    Plugins.instance()
    with as_config_error(), _hydra(call) as hydra:
        hydra.show_info(topic, call.config_name, list(call.overrides), RunMode.RUN)


def show_hydra_help(call: CommandLine) -> None:
    """Print Hydra's own help."""
    overrides.parse(call.overrides)
    Plugins.instance()
    loader = Loader(call.config_dir, call.config_path)
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")  # here, and only here, Hydra reads its own files: the help text is in one
    path.append("schema", "structured://")
    plain = type(loader).__mro__[1](path)
    with as_config_error():
        arguments = argparse.Namespace(overrides=list(call.overrides))
        Hydra("runner", plain).hydra_help(call.config_name, get_args_parser(), arguments)


def complete(call: CommandLine) -> None:
    """Install or remove shell completion: `install=bash`, `uninstall=bash`."""
    Plugins.instance()
    with as_config_error(), _hydra(call) as hydra:
        hydra.shell_completion(call.config_name, list(call.overrides))


def candidates(call: CommandLine, word: str, multirun: bool) -> list[str]:
    """What Hydra knows that can stand in place of a word after the overrides of a call: groups, options, keys.

    Raises ConfigError when these overrides are wrong.
    """
    if word.startswith("hydra/"):
        Plugins.instance()  # launchers and sweepers of other packages
    shell = BashCompletion(Loader(call.config_dir, call.config_path))
    line = " ".join(["-m"] * multirun + [*call.overrides, word])
    with as_config_error():
        found = shell._query(call.config_name, line)
    return [named for one in found if (named := _written(one)) is not None]


def _written(candidate: str) -> str | None:
    """A candidate of Hydra's as it has to be written: `+` in front of groups that no run has by itself, only there."""
    match = re.fullmatch(r"([+~]?)(\w+)=?", candidate)
    if match is None:
        return candidate
    sign, name = match.groups()
    if name in schema.RunConfig.__dataclass_fields__:
        return None if sign == "+" else candidate
    return None if name in ("hydra", "schema") else candidate if sign else f"+{name}="


@contextmanager
def _hydra(call: CommandLine) -> Iterator[Hydra]:
    """Hydra's own showing; it leaves its config behind, which belongs to a run only."""
    holder = HydraConfig.instance()
    before = holder.cfg
    try:
        yield Hydra("runner", Loader(call.config_dir, call.config_path))
    finally:
        holder.cfg = before
