"""Commands and outputs that a document shows, and whether an output is the one that is shown."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# Threads would only stand in each other's way.
CALM = {"OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"}
NUMBER = r"-?\d[\d,.]*(?:e[-+]?\d+)?"
# What another machine, or another day, prints otherwise although every bit is the same.
MEASURED = rf"{NUMBER}(?= steps/s)|\d{{4}}-\d\d-\d\d/[\d-]+"
LIKE = {"measured": rf"(?:{NUMBER}|\d{{4}}-\d\d-\d\d/[\d-]+)", "number": NUMBER, "rule": "─+", "space": r"\s+"}
FOLDER = re.compile(r"(?<![\w.])(?:/[\w.-]+)+/")


@dataclass
class Shown:
    """A command, and the lines of its output that are shown: all of them, but for those where `...` stands."""

    command: str
    output: list[str] | None = None


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Language, words behind it, and code of each block."""
    found = [match.groups() for match in BLOCK.finditer(text)]
    return [(language, words, re.sub(f"^{indent}", "", code, flags=re.M)) for indent, language, words, code in found]


def commands(text: str) -> Iterator[Shown]:
    """The commands of all blocks `sh` and `console`; a block `text` is the output of the command before it."""
    last = Shown("")
    for language, _, code in blocks(text):
        if language == "text":
            last.output = code.splitlines()
        elif language in ("sh", "console"):
            prompt = "$ " if language == "console" else ""
            for line in code.splitlines():
                if line.startswith(prompt):
                    if last.command:
                        yield last
                    last = Shown(line.removeprefix(prompt))
                else:
                    last.output = [*(last.output or []), line]
    yield last


def is_shown(shown: list[str], output: str, numbers: bool = False) -> bool:
    """Whether the lines are the output, whatever its folders of absolute paths, widths of columns, rates and dates;
    and, unless `numbers`, whatever its numbers."""
    masked = _masked(numbers)
    pattern = "".join(".*" if line == "..." else _pattern(FOLDER.sub("", line), masked) + r"[ \t]*\n" for line in shown)
    return re.fullmatch(pattern, FOLDER.sub("", output), re.DOTALL) is not None


def _masked(numbers: bool) -> re.Pattern[str]:
    others = "" if numbers else rf"|(?P<number>{NUMBER})"
    return re.compile(rf"(?P<measured>{MEASURED}){others}|(?P<rule>─+)|(?P<space>\s+)")


def _pattern(line: str, masked: re.Pattern[str]) -> str:
    parts, end = [], 0
    for found in masked.finditer(line):
        parts += [re.escape(line[end : found.start()]), LIKE[str(found.lastgroup)]]
        end = found.end()
    return "".join([*parts, re.escape(line[end:])])


def environment(place: Path) -> dict[str, str]:
    """Where `runner` and `python` are this checkout's and this interpreter; `place` receives the two commands."""
    for name, words in (("runner", "-m runner"), ("python", "")):
        (place / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (place / name).chmod(0o755)
    cache = place / "cache"
    cache.mkdir()
    paths = {"PYTHONPATH": str(ROOT), "PATH": f"{place}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache)}
    return {**os.environ, **CALM, **paths}
