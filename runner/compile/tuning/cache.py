"""What was found before on this machine, for the same operators: a small JSON file each, below the user's cache folder.

The name of a file is the sha256 of everything that the times depend on, which also stands in the file.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runner.compile.ort.session import SPINNING, version
from runner.compile.passes.layout import offered, site
from runner.core.graph import Graph
from runner.device import Device, Tuning
from runner.errors import ConfigError
from runner.host import json_file
from runner.host.machine import cpu_model, usable_cores

FIGURES = "usual_ms", "tuned_ms", "tried", "candidates", "seconds"
_LOG = logging.getLogger("runner")


def folder() -> Path:
    """`$XDG_CACHE_HOME/runner/tuning`, or `~/.cache/runner/tuning`."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "runner" / "tuning"


def facts(graph: Graph, device: Device, ways: Sequence[str]) -> dict[str, Any]:
    """Everything that the times of a graph's forms depend on: operators with shapes and forms, processor, threads."""
    operators = "\n".join(f"{site(node)}: {' '.join(map(str, offered(node)))}" for node in graph.nodes)
    return {
        "operators_sha256": hashlib.sha256(operators.encode()).hexdigest(),
        "ways": ",".join(ways),
        "threads": device.threads,
        "cores": usable_cores(),
        "cpu": cpu_model(),
        "onnxruntime": version(),
    }


def path_of(known: Mapping[str, Any]) -> Path:
    """The file for these facts."""
    return folder() / f"{hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]}.json"


def read(path: Path, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a file tells about these facts; None, with a warning when it is there, if it does not."""
    if not path.exists():
        return None
    try:
        found = json_file.parsed(json_file.text(json_file.content(path)), path.name)
        if not isinstance(found, dict) or found.get("facts") != known:
            raise ConfigError("it is about something else")
        tuning_of(found.get("tuning"))
        missing = [name for name in FIGURES if not isinstance(found.get(name), int | float)]
        if missing:
            raise ConfigError("figures are missing", figures=", ".join(missing))
    except ConfigError as error:
        _LOG.warning("%s: this file of an earlier search cannot be used (%s): searching again", path, error.what)
        return None
    return found


def tuning_of(values: object) -> Tuning:
    """A tuning as it is written. Raises ConfigError when it is not one."""
    kinds = {"forms": list, "placed": bool, "threads": int, "spins": str, "block_base": int}
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
        raise ConfigError("not a tuning", allowed=", ".join(kinds))
    forms = values["forms"]
    if values["spins"] not in SPINNING:
        raise ConfigError("not a tuning", spins=values["spins"], allowed=", ".join(SPINNING))
    if not all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in forms):
        raise ConfigError("not a tuning", forms=forms)
    return Tuning(**{**values, "forms": tuple((name, form) for name, form in forms)})


def written(tuning: Tuning) -> dict[str, Any]:
    """A tuning as JSON has it."""
    return {**asdict(tuning), "forms": [list(pair) for pair in tuning.forms]}
