"""The displays of Hydra that do not run anything: `--cfg`, `--info`, `--hydra-help` and shell completion."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.bash_completion import BashCompletion
from hydra._internal.hydra import Hydra
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode

from runner.config import overrides, schema
from runner.config.command_line import CommandLine, Parser, run
from runner.config.compose import Loader, as_config_error, compose, current_config
from runner.errors import ConfigError, known_names
from runner.validation.rules import show


def show_requested(args: argparse.Namespace) -> None:
    """What one of the flags `--cfg`, `--info`, `--hydra-help` and `--shell-completion` requests."""
    command = CommandLine.of(args)
    if args.cfg:
        show_config(command, args.cfg, args.package, args.resolve)
    elif args.info:
        show_info(command, args.info)
    elif args.hydra_help:
        show_hydra_help(command)
    else:
        complete(command)


def show_config(command: CommandLine, part: str, package: str | None, resolve: bool) -> None:
    """Print the composed config: `part` is job, hydra or all. Raises ConfigError, after printing, if it is invalid."""
    with _hydra(command) as hydra:
        try:
            hydra.show_cfg(command.config_name, list(command.overrides), part, package, resolve)
        except SystemExit:  # Hydra has printed which package does not exist
            raise ConfigError("the config has no such part", key=package) from None
    compose(command)


def show_info(command: CommandLine, topic: str) -> None:
    """Print how the config is composed: defaults, search path, plugins, or all."""
    overrides.parse(command.overrides)
    Plugins.instance()
    with _hydra(command) as hydra:
        hydra.show_info(topic, command.config_name, list(command.overrides), RunMode.RUN)


def show_hydra_help(command: CommandLine) -> None:
    """Print Hydra's own help."""
    overrides.parse(command.overrides)
    Plugins.instance()
    loader = Loader(command.config_dir, command.config_path, command.code)
    path = ConfigSearchPathImpl()
    path.append("hydra", "runner-plugins://")
    path.append("hydra", "pkg://hydra.conf")  # only here does Hydra read its own files: the help text is in one
    path.append("schema", "structured://")
    plain = type(loader).__mro__[1](path)
    flags = Parser("runner", run)  # Hydra's own parser cannot be made in Python 3.14
    for action in flags._get_positional_actions():  # Hydra shows also what is suppressed
        action.help = "key=value, group=option, +group=option, ~key"
    with as_config_error():
        arguments = argparse.Namespace(overrides=list(command.overrides))
        Hydra("runner", plain).hydra_help(command.config_name, flags, arguments)


def complete(command: CommandLine) -> None:
    """Install or remove shell completion: `install=bash`, `uninstall=bash`. Raises ConfigError for anything else."""
    allowed = [f"{action}={shell}" for action in ("install", "uninstall") for shell in ("bash", "zsh", "fish")]
    given = " ".join(command.overrides)
    if given not in allowed:
        rows = {"value": show(given), **known_names(given, allowed), "hint": "runner --help"}
        raise ConfigError("wrong usage of --shell-completion", **rows)
    Plugins.instance()
    with _hydra(command) as hydra:
        hydra.shell_completion(command.config_name, list(command.overrides))


def candidates(command: CommandLine, word: str, multirun: bool) -> list[str]:
    """Hydra's completions of a word after the overrides of a command line: groups, options, keys.

    Raises ConfigError when these overrides are invalid.
    """
    if word.startswith("hydra/"):
        Plugins.instance()  # launchers and sweepers of other packages
    loader = Loader(command.config_dir, command.config_path, loads_code=False)
    with as_config_error():
        found = _matches(loader, command, word, RunMode.MULTIRUN if multirun else RunMode.RUN)
    return sorted({named for one in found if (named := _override_syntax(one)) is not None})


def _matches(loader: Loader, command: CommandLine, word: str, mode: RunMode) -> list[str]:
    """What Hydra knows that begins with a word; its own query makes its own parser, which Python 3.14 refuses."""
    shell = BashCompletion(loader)
    key, file = shell._get_filename(word)
    if key is not None and file is not None:
        return [key + path for path in shell.complete_files(file)]
    known = list(command.overrides)
    groups, is_option = shell._query_config_groups(word, config_name=command.config_name, words=known)
    keys: list[str] = []
    if not is_option:
        with suppress(ConfigCompositionException):  # the line is not complete
            keys = shell._get_matches(loader.load_configuration(command.config_name, known, run_mode=mode), word)
    return [*groups, *keys]


def _override_syntax(candidate: str) -> str | None:
    """A candidate of Hydra in the syntax of overrides: with `+` only before groups that are not part of every run."""
    match = re.fullmatch(r"([+~]?)(\w+)=?", candidate)
    if match is None:
        return candidate
    sign, name = match.groups()
    if name in schema.RunConfig.__dataclass_fields__:
        return None if sign == "+" else candidate
    return None if name in ("hydra", "schema") else candidate if sign else f"+{name}="


@contextmanager
def _hydra(command: CommandLine) -> Iterator[Hydra]:
    """Hydra's application, with its exceptions as ConfigError; restores the config that it replaces, that of a run."""
    with as_config_error(), current_config(None):
        yield Hydra("runner", Loader(command.config_dir, command.config_path, command.code))
