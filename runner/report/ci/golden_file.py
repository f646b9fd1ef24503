"""Golden files: results of a run, the inputs that determine them, and the tolerance on other machines.

| key | meaning |
|---|---|
| `format`, `version` | "runner golden", 1 |
| `key` | what determines the results, by dotted name: config, data, seed, and machine (threads, processor, versions) |
| `may_differ` | patterns of names in `key` that may differ; `tolerance` then applies instead of the hashes |
| `exact` | whether a run with an equal key must have equal bits; if false, `tolerance` always applies |
| `tolerance` | `rtol` and `atol` of metrics (`*`: of all others), of `losses` up to `steps`, of norms of `tensors` |
| `steps`, `metrics` | number of steps, the loss of the last step and metrics of the last evaluation, arrays as lists |
| `losses` | `sha256` of all losses, and the values at some steps |
| `tensors` | parameters and state after the last step: shape, dtype, `sha256` of their bytes, Euclidean `norm` |

Users edit the file: an update keeps `may_differ`, `exact` and `tolerance`.
"""

import hashlib
import math
import re
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import ConfigError, DataError
from runner.host import files, json
from runner.report.record import Metrics, RunRecord
from runner.report.values import array_of, is_number
from runner.train.checkpoint import state

FORMAT, VERSION = "runner golden", 1
MAX_BYTES = 16 << 20
MAY_DIFFER = ("cpu", "threads", "providers", "optimization_level", "packages.*")
# Machines round differently, and training amplifies that: after a hundred steps only the trend of the loss agrees.
TOLERANCE = {
    "losses": {"rtol": 1e-3, "atol": 1e-6, "steps": 100},
    "loss": {"rtol": 0.2, "atol": 0.02},
    "accuracy": {"rtol": 0.0, "atol": 0.02},
    "confusion_matrix": {"rtol": 0.2, "atol": 10.0},
    "*": {"rtol": 0.2, "atol": 0.02},
    "tensors": {"rtol": 0.02, "atol": 1e-6},
}
_MACHINE = ("cpu", "threads", "providers", "optimization_level")
# Without runner itself, whose changes the check must find.
_COMPUTING = ("packages.numpy", "packages.onnx", "packages.onnxruntime")
_STEP = re.compile("[0-9]{1,18}")
_DENSE, _PER_DECADE = 10, 8  # steps whose losses are listed: the first ten, then eight per power of ten


@dataclass(frozen=True)
class Golden:
    """The content of a golden file."""

    key: dict[str, Any]
    steps: int
    metrics: dict[str, Any]
    losses: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    may_differ: tuple[str, ...] = MAY_DIFFER
    exact: bool = True
    tolerance: dict[str, dict[str, float]] = field(default_factory=lambda: {**TOLERANCE})

    def allows_difference(self, name: str) -> bool:
        """Whether this name in the key may differ."""
        return any(fnmatchcase(name, pattern) for pattern in self.may_differ)

    def bound(self, name: str) -> dict[str, float]:
        """The tolerance of a metric, of `losses` or of `tensors`."""
        return self.tolerance.get(name) or self.tolerance.get("*") or {"rtol": 0.0, "atol": 0.0}


def from_run(folder: Path) -> Golden:
    """The results of a finished run. Raises ConfigError if it is not finished, DataError without a valid checkpoint."""
    run = RunRecord(folder)
    if not folder.is_dir() or not run.status:
        raise ConfigError("not a run directory", path=folder, missing="status.json", hint="runner ls lists runs")
    if run.state != "ok" and run.status.get("exit_code") != 6:  # a run that does not meet `expect` is finished too
        raise ConfigError("the run is not finished", path=folder, status=run.state, hint=f"runner resume {folder}")
    found, damaged = state.newest(folder / "checkpoints", run.checkpoint_prefix)
    if found is None:
        raise DataError("no valid checkpoint", path=folder, found="; ".join(damaged) or "none")
    # The manifest has the actual number of threads. The check is for changes of the code, also that of the user.
    excluded = ("version.", "device.threads", "code.")
    key = {name: value for name, value in found.identity.items() if not name.startswith(excluded)}
    key |= {name: run.manifest.get(name) for name in (*_MACHINE, *_COMPUTING)}
    tensors = {name: _tensor(array) for name, array in sorted(found.arrays.items())}
    return Golden(key, run.step, {**run.results, **run.arrays}, _losses(run.metrics), tensors)


def read(path: Path) -> Golden:
    """Read and validate a golden file. Raises DataError if it is missing or invalid."""
    try:
        content = files.read_bytes(path, MAX_BYTES)
    except DataError as error:
        raise error.add(hint="runner golden --update FILE RUN_DIR writes one") from None
    try:
        values = json.parse_data(content)
    except DataError as error:
        raise DataError("a golden file is not JSON", file=path, **error.rows) from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError("not a golden file", file=path, expected=f'"format": "{FORMAT}"')
    if (version := values.pop("version", None)) != VERSION:
        raise DataError("unknown version of golden files", file=path, expected=VERSION, found=version)
    try:
        may_differ = values.get("may_differ", list(MAY_DIFFER))
        golden = Golden(**{**values, "may_differ": tuple(may_differ) if isinstance(may_differ, list) else may_differ})
        problem = _problem(golden)
    except TypeError:
        problem = f"keys {', '.join(values)}"
    if problem:
        raise DataError("a golden file is invalid", file=path, found=problem)
    return golden


def write(path: Path, golden: Golden) -> None:
    """Write a golden file. Raises StorageError."""
    files.write_json(path, {"format": FORMAT, "version": VERSION, **asdict(golden)})


def _problem(golden: Golden) -> str | None:
    """What is invalid in a file, which users may have edited; None if nothing is."""
    groups = (golden.key, golden.metrics, golden.losses, golden.tensors, golden.tolerance)
    if not all(isinstance(group, dict) for group in groups) or not isinstance(golden.losses.get("at"), dict):
        return "a part that is not a group of keys"
    if not all(is_number(value) or array_of(value) is not None for value in golden.metrics.values()):
        return "a metric that is neither a number nor nested lists of numbers"
    if not all(map(is_number, golden.losses["at"].values())):
        return "a loss that is not a number"
    if not all(_STEP.fullmatch(step) for step in golden.losses["at"]) or type(golden.steps) is not int:
        return "a step that is not an integer"
    if not isinstance(golden.losses.get("sha256"), str):
        return "losses without their sha256"
    patterns = golden.may_differ if isinstance(golden.may_differ, tuple) else (None,)
    if not all(isinstance(name, str) for name in patterns) or not isinstance(golden.exact, bool):
        return "may_differ must be a list of names, and exact true or false"
    for name, bound in golden.tolerance.items():
        if not isinstance(bound, dict) or not all(is_number(value) and value >= 0 for value in bound.values()):
            return f"tolerance.{name}: {bound}"
    return None if all(map(_is_tensor, golden.tensors.values())) else "a tensor without shape, dtype, sha256 or norm"


def _is_tensor(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("shape"), list):
        return False
    texts = value.get("dtype"), value.get("sha256")
    return all(isinstance(text, str) for text in texts) and is_number(value.get("norm"))


def _losses(metrics: Metrics) -> dict[str, Any]:
    rows = list(zip(metrics.steps.tolist(), metrics.losses.tolist(), strict=True))
    content = "".join(f"{step} {loss!r}\n" for step, loss in rows)
    listed = {_bucket(step): (step, loss) for step, loss in reversed(rows)}  # the first step of each bucket
    at = {str(step): loss for step, loss in sorted(listed.values())}
    return {"sha256": hashlib.sha256(content.encode()).hexdigest(), "at": at}


def _bucket(step: int) -> float:
    return step if step <= _DENSE else _DENSE + math.floor(_PER_DECADE * math.log10(step / _DENSE)) + 1


def _tensor(array: np.ndarray) -> dict[str, Any]:
    content = np.ascontiguousarray(array).tobytes()
    norm = float(np.linalg.norm(array.astype(np.float64).ravel()))
    digest = hashlib.sha256(content).hexdigest()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest, "norm": norm}
