"""Several runs in one report: the config keys that vary, their ranking, and groups of runs that differ in the seed."""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner.config.groups.entries import BUILT_IN
from runner.host.files import real_path
from runner.nn.metrics.base import direction_of
from runner.report.record import RunRecord, differing_keys, format_value

SEED = "seed"
MAX_KEYS = 8
NAME = ".name"  # a key that ends so is the option of a group, and determines other keys of the group
_OBSERVERS = ("dump.", "print_file_path", "profiling.", "save_graphs", "tracking.")  # results do not depend on them


class Search(NamedTuple):
    """What a search optimized: the result, and `minimize` or `maximize`."""

    metric: str
    direction: str


@dataclass(frozen=True)
class SeedGroup:
    """Runs whose configs differ only in the seed; `name` has the values in which they differ from other groups."""

    name: str
    runs: list[RunRecord]

    def values(self, metric: str) -> np.ndarray:
        """The values of a metric in the runs that have it, (n,) float64."""
        return np.array([run.results[metric] for run in self.runs if metric in run.results], np.float64)


class RunSet:
    """The runs of one report, and what they were searched for if a search has made them."""

    def __init__(self, runs: Sequence[RunRecord], search: Search | None = None) -> None:
        self.runs = list(runs)
        self.search = search

    @cached_property
    def home(self) -> Path:
        """The common parent folder."""
        return Path(os.path.commonpath([real_path(run.folder) for run in self.runs]))

    @cached_property
    def keys(self) -> list[str]:
        """The varied keys: those whose values are not equal in all configs, the seed last.

        Left out are observers, and keys that only follow from the option of their group: `optimizer.beta1` exists
        because the optimizer is Adam.
        """
        configs = [run.config for run in self.runs if run.config]
        varied = [key for key in differing_keys(configs) if not key.startswith(_OBSERVERS)]
        given = {line.lstrip("+").partition("=")[0] for run in self.runs for line in run.overrides}
        names = [key for key in varied if key.endswith(NAME)]
        keys = [key for key in varied if key in given or not any(_follows(key, name, configs) for name in names)]
        return sorted(keys, key=lambda key: key == SEED)

    def has_effect(self, key: str, result: str) -> bool:
        """Whether runs that differ only in this key have other results; True if there are no such runs."""
        others = [other for other in self.keys if other != key]
        found: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        for run in self.runs:
            if result in run.results:
                same = tuple(format_value(run.config.get(other)) for other in others)
                found[same][format_value(run.config.get(key))] = run.results[result]
        compared = [list(values.values()) for values in found.values() if len(values) > 1]
        return not compared or any(value != values[0] for values in compared for value in values)

    @cached_property
    def results(self) -> list[str]:
        """The metrics that at least one run has, the loss first."""
        names = dict.fromkeys(name for run in self.runs for name in run.results)
        return [name for name in names if name != "eval.loss"] + [name for name in names if name == "eval.loss"]

    @cached_property
    def groups(self) -> list[SeedGroup]:
        """The groups, in the order of their first runs."""
        keys = [key for key in self.keys if key != SEED]
        found: dict[str, list[RunRecord]] = defaultdict(list)
        for run in self.runs:
            found[", ".join(f"{self.label(key)}={format_value(run.config.get(key))}" for key in keys)].append(run)
        return [SeedGroup(name or "all runs", runs) for name, runs in found.items()]

    @cached_property
    def has_seeds(self) -> bool:
        """Whether any runs differ only in the seed."""
        return SEED in self.keys and any(len(group.runs) > 1 for group in self.groups)

    @cached_property
    def maximized(self) -> frozenset[str]:
        """The results for which larger is better, as the runs state it; the built-in ones for runs that do not."""
        stating = [run for run in self.runs if run.maximized is not None]
        stated = frozenset[str]().union(*(run.maximized or () for run in stating))
        known = {name for run in stating for name in run.results}
        return stated | {name for name in BUILT_IN if name not in known and direction_of(BUILT_IN[name]) == "maximize"}

    @cached_property
    def target(self) -> str | None:
        """The result by which runs are ranked: the one that was searched; otherwise the accuracy if there is one, the
        first one for which larger is better, or the loss."""
        if self.search and self.search.metric in self.results:
            return self.search.metric
        maximized = [name for name in self.results if name in self.maximized]
        order = ("accuracy", *maximized, "loss", "eval.loss", *self.results)
        return next((name for name in order if name in self.results), None)

    def ranked(self) -> list[RunRecord]:
        """The runs with the target result, best first."""
        target = self.target
        if target is None:
            return []
        found = [run for run in self.runs if target in run.results]
        return sorted(found, key=lambda run: run.results[target], reverse=self.is_maximized(target))

    def is_maximized(self, result: str) -> bool:
        """Whether larger is better; a search states this of its metric."""
        if self.search and self.search.metric == result:
            return self.search.direction == "maximize"
        return result in self.maximized

    def label(self, key: str) -> str:
        """The last part of a key if it is unique among the varied keys, otherwise the key."""
        return last_part(key) if [last_part(other) for other in self.keys].count(last_part(key)) == 1 else key

    def name(self, run: RunRecord) -> str:
        """The path of a run relative to the common parent folder."""
        return str(real_path(run.folder).relative_to(self.home)) if len(self.runs) > 1 else run.folder.name


def last_part(key: str) -> str:
    """The last part of a dotted key, or the name of the group whose option it is.

    >>> last_part("optimizer.learning_rate"), last_part("optimizer.schedule.name")
    ('learning_rate', 'schedule')
    """
    return key.removesuffix(NAME).rpartition(".")[2]


def _follows(key: str, name: str, configs: Sequence[dict[str, Any]]) -> bool:
    """Whether the value of a key follows from the option of its group, in all configs."""
    if key == name or not key.startswith(name.removesuffix("name")):
        return False
    found: dict[str, Any] = {}
    return all(found.setdefault(str(config.get(name)), config.get(key)) == config.get(key) for config in configs)


def natural_key(path: Path) -> list[tuple[int, Any]]:
    """A sort key in which numbers have their natural order: 10 comes after 9.

    >>> sorted([Path("a/10"), Path("a/9"), Path("a/b")], key=natural_key)
    [PosixPath('a/9'), PosixPath('a/10'), PosixPath('a/b')]
    """
    return [(0, int(part)) if part.isdigit() else (1, part) for part in path.parts]
