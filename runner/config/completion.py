"""Tab completion: commands, flags and their values, paths, run directories, overrides.

All candidates except overrides are derived from the parsers (`runner.commands`). A shell calls this on every
key press, so only the necessary modules are loaded; errors are ignored because the line is incomplete.
"""

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from runner import rundir
from runner.config.command_line import OVERRIDE
from runner.errors import RunnerError

# Shells split candidates at spaces, and bash expands them: a file named `$(rm x)` must not be a candidate.
_SAFE = re.compile(r"[+~]?[\w./=,+@%-]+")
_RUNS = ("outputs/*/*", "multirun/*/*", "multirun/*/*/*")

_PATHS = ("FILE", "PATH", "DIR")  # metavars

Parsers = Callable[[str | None], argparse.ArgumentParser]
Overrides = Callable[[Sequence[str], str], Iterable[str]]
_Flags = Mapping[str, argparse.Action]


def complete(line: str, commands: Collection[str], parser_of: Parsers, override_candidates: Overrides) -> list[str]:
    """The candidates for the last word of a line, which begins with the program's name; a space begins a new word.

    `parser_of` returns the parser of a command, or for None that of `runner` itself. `override_candidates` returns
    candidates for an override, given the flags and overrides before it and its beginning.
    """
    words = line.split()[1:]
    word = words.pop() if words and not line[-1].isspace() else ""
    is_first = not words
    command = words.pop(0) if words and words[0] in commands else None
    found: list[str] = [*commands] if is_first else []
    overrides = words if command is None else [one for one in words if "=" in one]
    with suppress(RunnerError):
        found += _candidates(words, word, parser_of(command), partial(override_candidates, overrides))
    return sorted({one for one in found if one.startswith(word) and _SAFE.fullmatch(one)})


def _candidates(
    words: Sequence[str],
    word: str,
    parser: argparse.ArgumentParser,
    override_candidates: Callable[[str], Iterable[str]],
) -> Iterable[str]:
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    action = flags.get(words[-1]) if words else None
    if action is not None and action.choices:
        return [str(choice) for choice in action.choices]
    if not _needs_value(action):
        if word.startswith("-"):
            return flags
        action = _positional(words, parser, flags)
    metavar = "" if action is None else str(action.metavar)
    if metavar == OVERRIDE:
        return override_candidates(word)
    if metavar.startswith("RUN"):
        return [*_run_folders(), *_paths(word)]
    return _paths(word) if metavar in _PATHS else ()


def _needs_value(action: argparse.Action | None) -> bool:
    return action is not None and action.nargs is None


def _positional(words: Sequence[str], parser: argparse.ArgumentParser, flags: _Flags) -> argparse.Action | None:
    """The positional argument that the word after `words` belongs to."""
    pairs = zip(["", *words], words, strict=False)
    count = sum(not word.startswith("-") and not _needs_value(flags.get(before)) for before, word in pairs)
    for action in parser._get_positional_actions():
        if count == 0 or action.nargs in ("*", "+"):
            return action
        count -= 1
    return None


def _run_folders() -> list[str]:
    """Runs and sweeps in the default folders."""
    folders = (folder for pattern in _RUNS for folder in Path().glob(pattern))
    return [
        str(folder)
        for folder in folders
        if any((folder / record).exists() for record in (rundir.STATUS, rundir.SWEEP, rundir.HYDRA))
    ]


def _paths(word: str) -> list[str]:
    """Files and folders that begin with a word, folders with a trailing slash."""
    start = word.rpartition("/")[2]
    parent = word[: len(word) - len(start)]
    with suppress(OSError), os.scandir(parent or ".") as entries:
        return [f"{parent}{one.name}{'/' * one.is_dir()}" for one in entries if start or not one.name.startswith(".")]
    return []
