"""`runner ls networks` and the other kinds: what can be named in a config, where it comes from, and its keys."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from runner.config import code, groups, options  # noqa: F401  register what runner has
from runner.errors import ConfigError
from runner.host.console import visible
from runner.register import PLURALS, Entry, Key
from runner.validation.rules import show

OF_RUNS = ("status", "where", "sort", "limit", "best", "json")  # flags


def main(args: Namespace) -> int:
    """Print the entries of a kind, such as `networks`, with those of the project.

    Raises ConfigError, also for a flag that selects runs.
    """
    plural = args.folder
    if given := [f"--{name}" for name in OF_RUNS if getattr(args, name)]:
        rows = {"reason": f"{given[0]} is for lists of runs, and {plural} are none", "hint": "runner ls --help"}
        raise ConfigError("wrong usage", **rows)
    code.load(code.sources(args.code))
    names = max(16, *(len(name) + 2 for name in PLURALS[plural]))
    for name, entry in PLURALS[plural].items():
        print("\n".join(map(visible, _lines(f"{name:<{names}}", entry))))  # noqa: T201
    return 0


def _lines(name: str, entry: Entry) -> Iterator[str]:
    yield f"{name}{_origin(entry)}"
    if entry.summary:
        yield f"    {entry.summary}"
    width = max(map(len, entry.keys), default=0)
    for key_name, key in entry.keys.items():
        yield f"    {key_name:<{width}}  {_type(key)} = {_default(entry, key_name, key)}{_help(key)}"


def _origin(entry: Entry) -> str:
    """The place of an entry: relative to the current directory if it is inside, or the package that has it."""
    if entry.is_own:
        return "runner"
    place = Path(entry.place)
    return str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else entry.place


def _type(key: Key) -> str:
    bounds = key.rule
    low = [f">= {bounds.low}"] * (bounds.low is not None) + [f"> {bounds.above}"] * (bounds.above is not None)
    high = [f"<= {bounds.high}"] * (bounds.high is not None) + [f"< {bounds.below}"] * (bounds.below is not None)
    limits = ", ".join([*low, *high])
    return f"{key.type_name} ({limits})" if limits else key.type_name


def _default(entry: Entry, name: str, key: Key) -> str:
    if name in entry.kind.open_facts:
        return "null (the dataset's)"
    return "(required)" if key.required else show(key.default)


def _help(key: Key) -> str:
    return f"  # {key.help}" if key.help else ""
