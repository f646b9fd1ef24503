"""Several runs: what was varied, and which of them differ in nothing but the seed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runner.nn.metrics import METRICS, Metric
from runner.report.format import shown
from runner.report.record import Record, differing

SEED = "seed"
MOST_KEYS = 8
_PLACES = {"print_file_path", "save_graphs_path", "dump.path", "dump.dump_path", "profiling.result_path"}


@dataclass(frozen=True)
class Group:
    """Runs with equal configs but for the seed; `name` says what makes them different from other groups."""

    name: str
    runs: list[Record]

    def values(self, metric: str) -> np.ndarray:
        """The results of those runs that have one, (n,) float64."""
        return np.array([run.results[metric] for run in self.runs if metric in run.results], np.float64)


class Several:
    """Runs that stand in one report, in the order of their folders, numbers as numbers."""

    def __init__(self, runs: Sequence[Record]) -> None:
        self.runs = list(runs)

    @cached_property
    def home(self) -> Path:
        """The folder above all of them."""
        parents = [run.folder.resolve().parts for run in self.runs]
        shared = [part for part, *others in zip(*parents, strict=False) if all(other == part for other in others)]
        return Path(*shared)

    @cached_property
    def keys(self) -> list[str]:
        """What was varied: keys of the configs that are not the same in all runs, the seed last."""
        known = [run.config for run in self.runs if run.config]
        found = [key for key in differing(known) if key not in _PLACES] if known else []
        return sorted(found, key=lambda key: key == SEED)

    @cached_property
    def results(self) -> list[str]:
        """The metrics that at least one run has, the loss first."""
        names = dict.fromkeys(name for run in self.runs for name in run.results)
        return [name for name in names if name != "eval.loss"] + [name for name in names if name == "eval.loss"]

    @cached_property
    def groups(self) -> list[Group]:
        """In the order of their first runs."""
        keys = [key for key in self.keys if key != SEED]
        found: dict[str, list[Record]] = defaultdict(list)
        for run in self.runs:
            found[", ".join(f"{self.label(key)}={shown(run.config.get(key))}" for key in keys)].append(run)
        return [Group(name or "all runs", runs) for name, runs in found.items()]

    @cached_property
    def has_seeds(self) -> bool:
        """Whether there are runs that differ in nothing but the seed."""
        return SEED in self.keys and any(len(group.runs) > 1 for group in self.groups)

    @property
    def target(self) -> str | None:
        """The result by which runs are judged: the accuracy where there is one, or else the loss."""
        return next((name for name in ("accuracy", *self.results) if name in self.results), None)

    def ranked(self) -> list[Record]:
        """Those with a result, the best first."""
        target = self.target
        if target is None:
            return []
        found = [run for run in self.runs if target in run.results]
        metric = METRICS.get(target, Metric)
        return sorted(found, key=lambda run: run.results[target], reverse=metric.direction == "maximize")

    def label(self, key: str) -> str:
        """The last part of a key where that tells it from the others."""
        return short(key) if [short(other) for other in self.keys].count(short(key)) == 1 else key

    def name(self, run: Record) -> str:
        """Its folder, as far as folders differ."""
        return str(run.folder.resolve().relative_to(self.home)) if len(self.runs) > 1 else run.folder.name


def short(key: str) -> str:
    """The last part of a key.

    >>> short("optimizer.learning_rate")
    'learning_rate'
    """
    return key.rpartition(".")[2]


def natural(path: Path) -> list[tuple[int, Any]]:
    """For sorting: 10 comes after 9.

    >>> sorted([Path("a/10"), Path("a/9"), Path("a/b")], key=natural)
    [PosixPath('a/9'), PosixPath('a/10'), PosixPath('a/b')]
    """
    return [(0, int(part)) if part.isdigit() else (1, part) for part in path.parts]
