"""What a command prints at the end of a run."""

from collections.abc import Mapping
from typing import Any

from runner.host.plain_text import visible


def summary_text(summary: Mapping[str, Any]) -> str:
    """The metrics, the speed and the directory of a run, as lines; "" for a sweep, which has no summary."""
    lines = []
    metrics = summary.get("metrics") or {}
    numbers = {name: value for name, value in metrics.items() if not isinstance(value, list)}
    if numbers:
        values = ", ".join(f"{visible(name)} {value:.4f}" for name, value in numbers.items())
        steps, speed = summary["steps"], summary["steps_per_second"]
        split = f"on the {summary.get('split', 'test')} split"
        lines.append(f"{values} {split}" + (f"; {steps} steps at {speed:.0f} steps/s" if speed else ""))
    if summary.get("run_dir"):
        lines += [f"run directory: {summary['run_dir']}", "next: runner ls"]
    return "".join(f"{line}\n" for line in lines)
