"""Restriction of configs to data from their own folder: nothing that Hydra would execute.

Hydra 1.3 runs callables named in an experiment file (`hydra.callbacks`, the `()` of a logging config, `_target_`) and
reads files outside of the config folder before the program starts. So files and overrides are checked here first, with
lists of allowed names; runner itself instantiates nothing that a config names.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.errors import ConfigError, nearest
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import show

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
