"""What can stand next on the command line: commands, their flags, folders of runs. Keys and groups are Hydra's answer.

A shell asks at every press of the key, so nothing is loaded that the answer does not need, and nothing is said about
a line that is wrong: it is half typed.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from runner.errors import RunnerError
from runner.validation.records import Frozen

# Shells split what they are told at spaces, and bash expands it: a file named `$(rm x)` must not get there.
_SAFE = re.compile(r"[+~]?[\w./=,+@%-]+")
_RUNS = ("outputs/*/*", "multirun/*/*", "multirun/*/*/*")
_RECORDS = ("status.json", "sweep.jsonl", ".hydra")

Keys = Callable[[argparse.Namespace, str], list[str]]


class After(Frozen):
    """What follows a command: flags, and whether its words are folders of runs, other paths, and then overrides."""

    flags: tuple[str, ...] = ()
    runs: bool = False
    paths: bool = False
    overrides: bool = False


# As the commands themselves read their words; tests/config/test_completion.py compares.
AFTER = {
    "ls": After(paths=True),
    "resume": After(("--force",), runs=True, overrides=True),
    "doctor": After(),
    "parse-print": After(paths=True),
    "compare": After(
        ("--rtol", "--atol", "--all", "--dumps", "--metrics", "--json", "--md", "--csv", "-h", "--help"), runs=True
    ),
    "report": After(("-o", "--output", "-h", "--help"), runs=True),
    "golden": After(("--update", "--check", "-h", "--help"), runs=True, paths=True),
    "convert": After(("-d", "-out", "-f", "-s", "-t", "-i", "-o", "-v", "-c"), paths=True),
}


def answer(line: str, parser: argparse.ArgumentParser, keys: Keys) -> list[str]:
    """The candidates for the last word of a line, which begins with the program's name; a space begins a new word.

    `keys` answers for overrides: it gets the flags and overrides before the word, and the word.
    """
    words = line.split()[1:]
    word = words.pop() if words and not line[-1].isspace() else ""
    found: Iterable[str] = ()
    with suppress(RunnerError):
        of = _of_command if words and words[0] in AFTER else _of_run
        found = of(words, word, parser, keys)
    return sorted({one for one in found if one.startswith(word) and _SAFE.fullmatch(one)})


def _of_command(words: Sequence[str], word: str, parser: argparse.ArgumentParser, keys: Keys) -> list[str]:
    after = AFTER[words[0]]
    if word.startswith("-"):
        return list(after.flags)
    if after.overrides and any(not one.startswith("-") for one in words[1:]):
        overrides = [one for one in words[1:] if "=" in one]
        return keys(parser.parse_args(overrides), word)
    return (_run_folders() if after.runs else []) + (_paths(word) if after.runs or after.paths else [])


def _of_run(words: Sequence[str], word: str, parser: argparse.ArgumentParser, keys: Keys) -> list[str]:
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    last = flags.get(words[-1]) if words else None
    if last is not None and last.choices:
        return [str(choice) for choice in last.choices]
    if last is not None and last.nargs is None:
        return _paths(word)
    if word.startswith("-"):
        return list(flags)
    return ([] if words else list(AFTER)) + keys(parser.parse_intermixed_args(words), word)


def _run_folders() -> list[str]:
    """Runs and sweeps where `runner` puts them."""
    places = (place for pattern in _RUNS for place in Path().glob(pattern))
    return [str(place) for place in places if any((place / record).exists() for record in _RECORDS)]


def _paths(word: str) -> list[str]:
    """Files and folders that begin like a word, folders with a slash."""
    start = word.rpartition("/")[2]
    before = word[: len(word) - len(start)]
    with suppress(OSError), os.scandir(before or ".") as entries:
        return [f"{before}{one.name}{'/' * one.is_dir()}" for one in entries if start or not one.name.startswith(".")]
    return []
