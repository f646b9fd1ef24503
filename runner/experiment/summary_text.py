"""What a command prints at the end of a run."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import rundir
from runner.host.console import visible

FILES = (rundir.NETWORK, rundir.METRICS, rundir.CHECKPOINTS)


def summary_text(summary: Mapping[str, Any]) -> str:
    """The metrics, the speed and the files of a run, and commands for it, as lines; "" for a sweep, which has no
    summary."""
    lines = []
    metrics = summary.get("metrics") or {}
    numbers = {name: value for name, value in metrics.items() if not isinstance(value, list)}
    if numbers:
        values = ", ".join(f"{visible(name)} {value:.4f}" for name, value in numbers.items())
        steps, speed = summary["steps"], summary["steps_per_second"]
        split = f"on the {summary.get('split', 'test')} split"
        lines.append(f"{values} {split}" + (f"; {steps} steps at {speed:.0f} steps/s" if speed else ""))
    if summary.get("run_dir"):
        lines += _locations(Path(summary["run_dir"]))
    return "".join(f"{line}\n" for line in lines)


def _locations(folder: Path) -> list[str]:
    files = [name for name in FILES if (folder / name).exists()]
    name = shlex.quote(visible(str(folder)))
    return [
        f"run directory: {visible(str(folder))}",
        *([f"files: {', '.join(files)}"] if files else []),
        f"next: runner report {name}",
        f"      runner predict {name} FILE",
        "      runner ls",
    ]
