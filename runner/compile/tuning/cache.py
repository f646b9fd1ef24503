"""The cache of tunings: one small JSON file for each step and machine, below the user's cache folder.

The name of a file is the sha256 of everything that the times depend on; the file contains that too.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.compile.ort.session import SPINNING, version
from runner.compile.passes.layout import forms_of, signature
from runner.core.graph import Graph
from runner.device import Device, Tuning
from runner.errors import ConfigError
from runner.host import json as json_file
from runner.host.console import LOG
from runner.host.machine import cpu_model, usable_cores

FIGURES = "usual_ms", "tuned_ms", "tried", "candidates", "seconds"


def folder() -> Path:
    """`$XDG_CACHE_HOME/runner/tuning`, or `~/.cache/runner/tuning`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "runner" / "tuning"


def cache_key(graph: Graph, device: Device, modes: Sequence[str]) -> dict[str, Any]:
    """Everything that the times depend on: operators with shapes and forms, CPU, threads, onnxruntime."""
    operators = "\n".join(f"{signature(node)}: {' '.join(map(str, forms_of(node, device)))}" for node in graph.nodes)
    return {
        "operators_sha256": hashlib.sha256(operators.encode()).hexdigest(),
        "ways": ",".join(modes),
        "threads": device.threads,
        "cores": usable_cores(),
        "cpu": cpu_model(),
        "onnxruntime": version(),
    }


def path_for(key: Mapping[str, Any]) -> Path:
    """The file of a key."""
    return folder() / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"


def read(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a file; None if it does not exist or, with a warning, if it is damaged or has another key."""
    if not path.exists():
        return None
    try:
        found = json_file.parse(json_file.text(json_file.content(path)), path.name)
        if not isinstance(found, dict) or found.get("facts") != key:
            raise ConfigError("it belongs to another step or machine")
        parse_tuning(found.get("tuning"))
        missing = [name for name in FIGURES if not isinstance(found.get(name), int | float)]
        if missing:
            raise ConfigError("figures are missing", figures=", ".join(missing))
    except ConfigError as error:
        LOG.warning("%s: this file of an earlier search cannot be used (%s): searching again", path, error.what)
        return None
    return found


def parse_tuning(values: object) -> Tuning:
    """The tuning in the JSON value of `as_json`. Raises ConfigError when it is not one."""
    types = {"forms": list, "placed": bool, "threads": int, "spins": str, "block_base": int, "images": int}
    values = {"images": 0, **values} if isinstance(values, dict) else values  # older searches have no parts
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != types:
        raise ConfigError("not a tuning", allowed=", ".join(types))
    forms = values["forms"]
    if values["spins"] not in SPINNING:
        raise ConfigError("not a tuning", spins=values["spins"], allowed=", ".join(SPINNING))
    if not all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in forms):
        raise ConfigError("not a tuning", forms=forms)
    return Tuning(**{**values, "forms": tuple((name, form) for name, form in forms)})


def as_json(tuning: Tuning) -> dict[str, Any]:
    """A tuning as a JSON value."""
    return {**asdict(tuning), "forms": [list(pair) for pair in tuning.forms]}
