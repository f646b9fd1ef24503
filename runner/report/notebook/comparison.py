"""`runner.compare_runs`: the differences of two runs as an object."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.report.compare import compare_run_directories
from runner.report.diff_metrics import MetricTolerance
from runner.report.format import tables, verdict
from runner.report.html import pair_page
from runner.report.html.markup import concat, tag
from runner.report.notebook.html import fragment
from runner.report.record import RunRecord


class RunComparison:
    """Two runs compared by every loss, metrics, config, manifest and speed; B is the reference.

    A notebook shows it as tables, with the first operator that differs if both runs have dumps.
    """

    def __init__(self, folders: Sequence[Path], tolerance: MetricTolerance) -> None:
        self.folders = tuple(folders)
        self.values: dict[str, Any] = compare_run_directories(folders, tolerance)

    @property
    def same(self) -> bool:
        """Whether all losses and metrics agree: |a - b| <= atol + rtol * |b|."""
        return bool(self.values["same"])

    @property
    def verdict(self) -> str:
        """The result in one line, beginning with `same: ` or `different: `."""
        return verdict(self.values)

    def __repr__(self) -> str:
        lines = [self.verdict]
        for one in tables(self.values):
            lines += ["", one.title, *("  ".join(row) for row in (one.columns, *one.rows))]
        return "\n".join(lines)

    @cached_property
    def _html(self) -> str:
        a, b = map(RunRecord, self.folders)
        sections = [concat(tag("h2", one.title), one.content) for one in pair_page.sections(a, b, self._tolerance)]
        return fragment(*sections)

    def _repr_html_(self) -> str:
        return self._html

    @property
    def _tolerance(self) -> MetricTolerance:
        return MetricTolerance(self.values["rtol"], self.values["atol"])
