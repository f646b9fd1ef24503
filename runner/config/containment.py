"""Containment: a config file makes a run write only below the working directory, or where the user allows it.

`gate` checks texts before Hydra sees them; here paths are checked after interpolation, with symbolic links followed.
The user allows a place by typing it on the command line, by RUNNER_WRITABLE, or in `pyproject.toml` (`project`). The
keys are those whose rule has `writes`, and the folders of Hydra.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from runner.config import gate, project
from runner.config.schema import RunConfig
from runner.errors import ConfigError
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import rule_of, show

Typed = Mapping[str, object]  # the values of the keys that the command line sets

ANYWHERE = Path("/")

_OF_USER = re.compile(r"\$\{\s*(oc\.env|now|python_version)\s*:[^${}]*\}")  # no file has a part in their values


def typed_values(parsed: Iterable[Override], recorded: Collection[str] = ()) -> dict[str, object]:
    """The values that the command line sets, by dotted key, interpolations unresolved.

    `recorded` are keys whose overrides a file has: the journal of a resumed sweep, or `hydra.sweeper.params`.
    """
    typed: dict[str, object] = {}
    for one in parsed:
        key = one.key_or_group
        if one.is_delete():
            typed = {name: value for name, value in typed.items() if not f"{name}.".startswith(f"{key}.")}
        elif key not in recorded and not one.is_sweep_override():
            typed.update(gate.flatten(one.value(), key))
    return typed


def path_errors(config: RunConfig, folder: Path, typed: Typed) -> Iterator[ConfigError]:
    """An error for each key of a config whose path is not allowed; `folder` is the run directory."""
    for key, value, path, in_run_folder in _outputs(config, ""):
        yield from path_error(key, value, folder / path if in_run_folder else Path(path), typed, [folder])


def path_error(key: str, value: object, path: Path, typed: Typed, folders: Sequence[Path]) -> list[ConfigError]:
    """The error for one key whose value, perhaps from a file, makes the run write to `path`; none if it is allowed.

    `folders` are allowed: those that this run owns.
    """
    if problem := path_problem(str(path)):
        return [ConfigError(problem, key=key, value=show(value), allowed=ALLOWED)]
    inside = [Path.cwd(), *folders, *_typed_roots(key, path, value, typed)]
    # Some keys are used with `..` removed from the text, others as the system follows them: both must be inside.
    for place in (os.path.realpath(path), os.path.realpath(os.path.abspath(path))):
        if not _is_below(place, inside) and not _is_below(place, roots := project.writable()):
            return [_error(key, value, place, [Path.cwd(), *roots])]
    return []


def link_errors(folder: Path) -> list[ConfigError]:
    """An error for each symbolic link in the folder of a run or sweep to resume that leads to a place not allowed."""
    links = sorted(path for path in folder.iterdir() if path.is_symlink()) if folder.is_dir() else []
    errors = [error for link in links for error in path_error(link.name, str(link), link, {}, [folder])]
    for error in errors:
        error.rows["hint"] = error.rows["hint"].replace(f"{error.rows['key']}=... on the command line, ", "")
    return errors


def _outputs(record: Any, prefix: str) -> Iterator[tuple[str, object, str, bool]]:
    """Key, value, path and its beginning for each key of a record whose value is not the default."""
    for field in fields(record):
        key, value = f"{prefix}{field.name}", getattr(record, field.name)
        if is_dataclass(value):
            yield from _outputs(value, f"{key}.")
            continue
        rule = rule_of(type(record), field.name)
        if rule.writes is None or value == field.default:
            continue
        with suppress(ConfigError):  # of a text or a JSON file that is not valid, which is an error of its own
            if path := rule.writes(value, record):
                yield key, value, path, rule.in_run_folder


def _typed_roots(key: str, path: Path, value: object, typed: Typed) -> list[Path]:
    """Where the command line allows the path of a key to be: anywhere, if the whole value is typed.

    If the value refers to other keys, which a file may set: below the folder that is typed before the reference. If it
    is a group with some typed keys: below the paths among them.
    """
    text = typed.get(key)
    if not isinstance(text, str):
        texts = [one for name, one in typed.items() if name.startswith(f"{key}.") and isinstance(one, str)]
        return [Path(one) for one in texts if one.strip("/") and "${" not in _OF_USER.sub("", one)]
    if "${" not in _OF_USER.sub("", text):
        return [ANYWHERE]
    folder = os.path.dirname(text[: text.index("${")])
    return [Path(folder)] if folder.strip("/") and path == Path(str(value)) else []


def _is_below(place: str, roots: Sequence[Path]) -> bool:
    return any(Path(place).is_relative_to(os.path.realpath(root)) for root in roots)


def _error(key: str, value: object, place: str, roots: Sequence[Path]) -> ConfigError:
    allowed = "below " + ", ".join(map(str, roots))
    hint = (
        f"to allow it: {key}=... on the command line, {project.VARIABLE}={place},\n"
        f'or in {project.FILE}: [tool.runner] writable = ["{place}"]'
    )
    rows = {"key": key, "value": show(value), "path": place, "allowed": allowed, "hint": hint}
    return ConfigError("a config file may not make a run write outside of the working directory", **rows)
