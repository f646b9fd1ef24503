"""Restriction of configs to data from their own folder: nothing that Hydra would execute.

Hydra 1.3 runs callables named in an experiment file (`hydra.callbacks`, the `()` of a logging config, `_target_`) and
reads files outside of the config folder before the program starts. So files and overrides are checked here first, with
lists of allowed names; runner itself instantiates nothing that a config names.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from runner.config import code
from runner.config.schema import RunConfig
from runner.errors import ConfigError, nearest
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import rule_of, show

ENVIRONMENT = ("HOME", "USER", "PWD")  # and everything that starts with RUNNER_
RESOLVERS = ("oc.env", "oc.select", "oc.dict.keys", "oc.dict.values", "now", "hydra", "python_version")

_LAUNCHER = """
    n_jobs verbose timeout_min cpus_per_task gpus_per_node tasks_per_node mem_gb nodes name partition qos account
    array_parallelism max_num_timeout signal_delay_s ray.init.num_cpus"""
_SWEEPER = "max_batch_size metric direction n_trials n_jobs sampler seed study_name storage params"
# Keys below `hydra` that a user may set; what they name is data. Launchers have more keys, some of them shell commands.
HYDRA_KEYS = (
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.job.name",
    "hydra.job.chdir",
    "hydra.verbose",
    "hydra.output_subdir",
    *(f"hydra.launcher.{name}" for name in _LAUNCHER.split()),
    *(f"hydra.sweeper.{name}" for name in _SWEEPER.split()),
)
HYDRA_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")
HYDRA_GROUPS = ("hydra/launcher", "hydra/sweeper")

MAX_INTERPOLATED = 4096  # characters; OmegaConf parses such a text in 30 us for each

_SPECIAL = re.compile(r"_[a-z][a-z_]*_|\(\)|class|\.")
_REFERENCE = re.compile(r"\s*\.*[\w$-]+(\.[\w-]+|\[[\w.-]+\])*\s*\}")
_RESOLVER = re.compile(r"\s*([a-z_.]+)\s*:")
_VARIABLE = re.compile(r"\s*(\w+)\s*[,}]")
_OF_KEYS = ("oc.select", "oc.dict.keys", "oc.dict.values", "hydra")
_KEY = re.compile(r"\s*[\w.\[\]-]+\s*[,}]")  # without interpolations and quotes
_UNUSABLE = re.compile("[\0\ud800-\udfff]")  # no UTF-8 text has the latter
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*/?")
_PACKAGE = re.compile(r"_global_|(_here_|_group_|[A-Za-z_]\w*)(\.[A-Za-z_]\w*)*")


def scan_file(values: object, package: object = None) -> None:
    """Check the content of a config file. Raises ConfigError without the file's name."""
    if package is not None:
        _scan_package(package)
    if values is None:
        return
    if not isinstance(values, dict):
        raise ConfigError("a config file is a group of keys", value=show(values))
    for name, value in values.items():
        if name == "defaults":
            _scan_defaults(value)
        elif name == "hydra":
            if not isinstance(value, Mapping):  # Hydra's whole config would be replaced
                raise ConfigError("not a group of keys", key="hydra", value=show(value), hint="remove the key")
            for key, leaf in flatten(value, "hydra"):
                if key != "hydra":
                    scan_hydra_key(key, leaf, in_file=True)
        else:
            scan_values({name: value})


def scan_values(values: object, path: str = "") -> None:
    """Reject names of callables and unsafe interpolations anywhere in plain values."""
    if isinstance(values, str):
        scan_text(values, path)
    elif isinstance(values, Mapping):
        for name, value in values.items():
            scan_key(name, path)
            scan_values(value, f"{path}.{name}" if path else str(name))
    elif isinstance(values, list | tuple):
        for value in values:
            scan_values(value, path)


def scan_key(name: object, path: str = "") -> None:
    """Reject keys that cause calls by Hydra or logging."""
    full_key = f"{path}.{name}" if path else str(name)
    if not isinstance(name, str):
        raise ConfigError("a key must be text", key=full_key)
    if _SPECIAL.fullmatch(name):
        raise ConfigError("a config may not name code to run", key=full_key)
    scan_text(name, full_key)


def scan_text(text: str, path: str) -> None:
    """Reject references to Python objects, interpolations other than those listed above, unusable characters."""
    if "ext://" in text or "cfg://" in text:
        raise ConfigError("a config may not name code to run", key=path, value=show(text))
    if unusable := _UNUSABLE.search(text):
        rows = {"value": show(text), "at": f"character {unusable.start() + 1}"}
        raise ConfigError("a text with a character that is not allowed", key=path, **rows)
    starts = [found.end() for found in re.finditer(r"\$\{", text)]
    if starts and len(text) > MAX_INTERPOLATED:
        allowed = f"{MAX_INTERPOLATED} characters"
        raise ConfigError("a text with interpolations is too long", key=path, value=show(text), allowed=allowed)
    for start in starts:
        _scan_interpolation(text, start, path)


def scan_name(name: str, group: str) -> None:
    """Reject names that could refer to files outside of the config folder."""
    if not _NAME.fullmatch(name) or ".." in name or path_problem(name):
        raise ConfigError("not a name inside the config folder", key=group, value=show(name))


def scan_hydra_key(key: str, value: object, *, in_file: bool) -> None:
    """Accept only keys of Hydra that are data; files may only name folders below the current one."""
    if key.startswith("hydra.sweeper.params."):  # overrides, which are checked as such
        scan_values(value, key)
        return
    if key not in HYDRA_KEYS:
        allowed = ", ".join(name for name in HYDRA_KEYS if not name.startswith(("hydra.launcher", "hydra.sweeper")))
        raise ConfigError(
            "a config may not change this part of Hydra", key=key, allowed=allowed, nearest=nearest(key, HYDRA_KEYS)
        )
    scan_values(value, key)
    parts = re.split(r"[/\\]", value) if isinstance(value, str) else []
    outside = bool(parts) and (".." in parts or parts[0] in ("", "~"))
    if outside and (in_file or not key.endswith(".dir")):
        raise ConfigError("not a folder below the current one", key=key, value=show(value))
    problem = path_problem(value) if isinstance(value, str) and key in HYDRA_FOLDERS else None
    if problem:
        raise ConfigError(problem, key=key, value=show(value), allowed=ALLOWED)
    if key == "hydra.job.chdir" and value not in (False, None):
        raise ConfigError("runner does not change the working directory", key=key, value=show(value), allowed="false")


def flatten(values: object, path: str) -> Iterator[tuple[str, object]]:
    """The leaves of nested groups with their dotted keys."""
    if isinstance(values, Mapping) and values:
        for name, value in values.items():
            yield from flatten(value, f"{path}.{name}")
    else:
        yield path, values


def _scan_interpolation(text: str, start: int, path: str) -> None:
    resolver = _RESOLVER.match(text, start)
    if resolver is None:
        if not _REFERENCE.match(text, start):
            raise ConfigError("not a plain interpolation", key=path, value=show(text))
        return
    if resolver[1] not in RESOLVERS:
        raise ConfigError("an unknown interpolation", key=path, value=show(text), allowed=", ".join(RESOLVERS))
    if resolver[1] == "oc.env":
        variable = _VARIABLE.match(text, resolver.end())
        if variable is None or not (variable[1] in ENVIRONMENT or variable[1].startswith("RUNNER_")):
            allowed = ", ".join([*ENVIRONMENT, "RUNNER_..."])
            raise ConfigError(
                "a config may not read this environment variable", key=path, value=show(text), allowed=allowed
            )

    if resolver[1] in _OF_KEYS and not _KEY.match(text, resolver.end()):
        raise ConfigError("an interpolation may not compute the name of a key", key=path, value=show(text))


def _scan_defaults(entries: object) -> None:
    if not isinstance(entries, list):
        raise ConfigError("a defaults list is a list", key="defaults", value=show(entries))
    for entry in entries:
        if isinstance(entry, str):
            _scan_default(entry, None)
        elif isinstance(entry, dict) and len(entry) == 1 and all(isinstance(name, str) for name in entry):
            _scan_default(*next(iter(entry.items())))
        else:
            raise ConfigError("not an entry of a defaults list", key="defaults", value=show(entry))


def _scan_default(name: str, option: Any) -> None:
    group, at, package = (
        name.removeprefix("optional ").removeprefix("override ").removeprefix("optional ").partition("@")
    )
    plain = group.removeprefix("/")
    if plain != "_self_":
        scan_name(plain, "defaults")
    if plain.split("/")[0] == "hydra" and plain not in HYDRA_GROUPS:
        raise ConfigError("a config may not change this part of Hydra", key=plain, allowed=", ".join(HYDRA_GROUPS))
    for part in package.split(":") if at else ():
        _scan_package(part)
    for one in option if isinstance(option, list) else [option]:
        if one is not None and not isinstance(one, str):
            raise ConfigError("not an entry of a defaults list", key="defaults", value=show({name: option}))
        if one is not None and one != "???":
            scan_text(one, plain)
            scan_name(re.sub(r"\$\{[^{}]*\}", "x", one), plain)


def _scan_package(package: object) -> None:
    if not isinstance(package, str) or not _PACKAGE.fullmatch(package) or "hydra" in package.split("."):
        raise ConfigError("not a package in the config of a run", key="@package", value=show(package))


# Containment: a config file makes a run write only below the working directory, or where the user allows it.
#
# `gate` checks texts before Hydra sees them; here paths are checked after interpolation, with symbolic links followed.
# The user allows a place by typing it on the command line, by RUNNER_WRITABLE, or in `pyproject.toml` (`project`). The
# keys are those whose rule has `writes`, and the folders of Hydra.

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
            typed.update(flatten(one.value(), key))
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
        if not _is_below(place, inside) and not _is_below(place, roots := code.writable()):
            return [_error(key, value, place, [Path.cwd(), *roots])]
    return []


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
        f"to allow it: {key}=... on the command line, {code.VARIABLE}={place},\n"
        f'or in {code.FILE}: [tool.runner] writable = ["{place}"]'
    )
    rows = {"key": key, "value": show(value), "path": place, "allowed": allowed, "hint": hint}
    return ConfigError("a config file may not make a run write outside of the working directory", **rows)


# Limits of the interpolations of a config, checked before OmegaConf resolves any of them.
#
# OmegaConf keeps no results: thirty lines that each name the line before twice are 2^30 values. The number of values
# that it would visit is computed here, each key once.

MAX_VALUES = 5000  # the values that all interpolations of a config stand for
TEXT_UNIT = 20  # so many characters count as one value: that is what parsing them takes
MAX_CHAIN = 40  # interpolations that name each other; OmegaConf's own recursion ends at about 70

KeyPath = tuple[str, ...]

_REFERENCE_TO_KEY = re.compile(
    r"\$\{\s*(?:(?:oc\.select|oc\.dict\.keys|oc\.dict\.values)\s*:\s*)?(\.*)([\w$-][^\s,:{}]*)(?=\s*[,}])"
)
_OF_HYDRA = re.compile(r"\$\{\s*hydra\s*:\s*([^\s,{}]*)")
_ONLY = re.compile(r"\s*\$\{\s*\.*[\w$-][^\s,:{}]*\s*\}\s*")


def check_limits(values: dict[str, Any]) -> None:
    """Check the interpolations in composed values that are not resolved. Raises ConfigError with the limit."""
    walk, total = _Walk(values), 0
    for path, text in _texts(values, ()):
        total += walk.cost(path, text, 0).values
        if total > MAX_VALUES:
            allowed = f"{MAX_VALUES} values; {TEXT_UNIT} characters count as one"
            raise ConfigError("the interpolations stand for too many values", key=".".join(path), allowed=allowed)


class _Cost(NamedTuple):
    values: int  # that OmegaConf visits
    chain: int = 0  # the most interpolations that name each other


class _Walk:
    """Counts values, with the result for each interpolated text stored."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._costs: dict[KeyPath, _Cost] = {}

    def cost(self, path: KeyPath, text: str, depth: int) -> _Cost:
        """What resolving the text at `path` takes, `depth` interpolations away from the first one.

        Raises ConfigError for a long chain.
        """
        if path not in self._costs and depth <= MAX_CHAIN:
            nodes = [self._node(target, depth) for target in _targets(path, text)]
            found = [self._size(*node, depth + 1) for node in nodes if node]
            count = 1 + len(text) // TEXT_UNIT + sum(one.values for one in found)
            self._costs[path] = _Cost(min(count, MAX_VALUES + 1), 1 + max((one.chain for one in found), default=0))
        cost = self._costs.get(path)
        if cost is None or cost.chain > MAX_CHAIN:
            allowed = f"chains of {MAX_CHAIN}"
            raise ConfigError("a cycle or a long chain of interpolations", key=".".join(path), allowed=allowed)
        return cost

    def _size(self, path: KeyPath, value: Any, depth: int) -> _Cost:
        if _is_interpolated(value):
            return self.cost(path, value, depth)
        if not isinstance(value, dict | list):
            return _Cost(1 + len(value) // TEXT_UNIT if isinstance(value, str) else 1)
        count, chain = 1, 0
        for name, child in _children(value):
            found = self._size((*path, name), child, depth)
            count, chain = count + found.values, max(chain, found.chain)
            if count > MAX_VALUES:
                break
        return _Cost(count, chain)

    def _node(self, path: KeyPath, depth: int) -> tuple[KeyPath, Any] | None:
        """The path and value that a reference means, through groups that are interpolations themselves."""
        value: Any = self._values
        for place, name in enumerate(path):
            value = dict(_children(value)).get(name) if isinstance(value, dict | list) else None
            rest = path[place + 1 :]
            if rest and _is_interpolated(value):
                here = path[: place + 1]
                if depth >= MAX_CHAIN or not _ONLY.fullmatch(value):
                    return here, value
                return self._node((*next(_targets(here, value)), *rest), depth + 1)
        return None if value is None else (path, value)


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The interpolated texts in a value, with their paths."""
    if _is_interpolated(value):
        yield path, value
    for name, child in _children(value):
        yield from _texts(child, (*path, name))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ((str(name), child) for name, child in pairs)


def _is_interpolated(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _targets(path: KeyPath, text: str) -> Iterator[KeyPath]:
    """The keys that a text at `path` refers to."""
    for found in _OF_HYDRA.finditer(text):
        yield ("hydra", *_names(found[1]))
    for found in _REFERENCE_TO_KEY.finditer(text):
        dots, names = len(found[1]), _names(found[2])
        yield (*path[: max(0, len(path) - dots)], *names) if dots else names


def _names(reference: str) -> KeyPath:
    return tuple(name for name in re.split(r"[.\[\]]+", reference) if name)
