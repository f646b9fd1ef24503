"""`runner.load_run`: a run directory as an object, of which nothing is executed or unpickled."""

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runner import nn
from runner.errors import ConfigError
from runner.experiment.predict import trained_network
from runner.experiment.sweep import journal
from runner.host import files
from runner.host.ownership import directories_of
from runner.report.diff_metrics import MetricTolerance
from runner.report.format import format_value
from runner.report.html import run_page
from runner.report.html.chart import ChartLine, chart
from runner.report.html.layout import collapsible
from runner.report.html.markup import Markup, table, tag
from runner.report.html.series import downsample, running_mean
from runner.report.notebook.comparison import RunComparison
from runner.report.notebook.html import fragment
from runner.report.notebook.metric_table import MetricTable
from runner.report.record import RunRecord
from runner.report.runs.figures import EVALUATION, TEST_LOSS
from runner.report.runs.run_folder import is_run
from runner.report.values import array_of, is_number

_CHECKPOINT = re.compile(r".+-([0-9]{1,18})_([0-9]{1,18})")
POINTS = 500  # of the curve in a notebook
PATHS = {
    **{name: f"{name}.json" for name in ("status", "config", "manifest", "summary", "inputs")},
    "metrics": "metrics.jsonl",
    "report": "report.html",
    "checkpoints": "checkpoints",
    "code": "code",
    "network": "model/network.onnx",
    "predict": "model/predict.onnx",
    "train_step": "model/train_step.onnx",
    **{name: name for name in ("dump", "graphs", "profiling", "tensorboard")},
}


class SavedRun:
    """What the directory of a run has. Its files are read when first used, and not again: `load_run` reads anew.

    What is missing or damaged reads as empty, and `notes` lists it; nothing is executed or unpickled.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = RunRecord(folder)

    @property
    def status(self) -> str:
        """`ok`, `running`, `interrupted`, `failed`, `killed` or `broken`, as in `runner ls`."""
        return self._record.state

    @property
    def error(self) -> str | None:
        """The error of a failed run."""
        error = self._record.status.get("error")
        return None if error is None else str(error)

    @property
    def name(self) -> str:
        """The name of the experiment, or else of the network."""
        return self._record.name

    @property
    def notes(self) -> list[str]:
        """Reasons why the data may be incomplete."""
        return self._record.notes

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config by dotted keys: `run.config["optimizer.learning_rate"]`."""
        return self._record.config

    @property
    def manifest(self) -> dict[str, Any]:
        """What the numbers depend on, by dotted keys."""
        return self._record.manifest

    @property
    def summary(self) -> dict[str, Any]:
        """`summary.json`: loss, metrics, seconds, steps per second, memory; {} for an unfinished run."""
        return self._record.summary

    @property
    def results(self) -> dict[str, float]:
        """The loss of the last step and the metrics of the last evaluation; `eval.loss` is its loss."""
        return self._record.results

    @cached_property
    def metrics(self) -> MetricTable:
        """The training: `step` int64 [n], ascending, and `loss` float64 [n]."""
        found = self._record.metrics
        return MetricTable({"step": found.steps.copy(), "loss": found.losses.copy()})

    @cached_property
    def evaluations(self) -> MetricTable:
        """The evaluations: `step` int64 [m], and each metric, float64 [m, ...]; NaN where one does not have it.

        A metric whose shapes differ is left out.
        """
        events = self._record.metrics.evaluations
        names = dict.fromkeys(name for event in events for name in event if name not in EVALUATION)
        columns = {"step": np.array([event["global_step"] for event in events], np.int64)}
        for name in names:
            if (column := _column([event.get(name) for event in events])) is not None:
                columns[TEST_LOSS if name == "loss" else name] = column
        return MetricTable(columns)

    @property
    def checkpoints(self) -> list[Path]:
        """The directories of the checkpoints, by epoch and step."""
        places = ((_CHECKPOINT.fullmatch(name), name) for name in files.names(self.folder / "checkpoints"))
        found = sorted((int(place[1]), int(place[2]), name) for place, name in places if place)
        return [self.folder / "checkpoints" / name for _, _, name in found]

    @property
    def paths(self) -> dict[str, Path]:
        """The files and folders of the run that exist, by name: `run.paths["network"]` is `model/network.onnx`."""
        found = {name: self.folder / path for name, path in PATHS.items()}
        outside = {os.path.basename(path): Path(place) for path, place in directories_of(self.folder).items()}
        return {name: path for name, path in (outside | found).items() if path.exists()}

    def network(self, code: Sequence[str] = ()) -> nn.Cell:
        """The network with the parameters of the newest checkpoint, built on the CPU for inference.

        Its inputs are those of the training after preprocessing; it computes in the mode of the context. The code of
        the project in the working directory is loaded, and `code`, as `runner predict --code` does. Raises ConfigError
        for a run without a network of its own or other code, DataError without a good checkpoint.
        """
        return trained_network(self.folder, code)

    def __repr__(self) -> str:
        results = ", ".join(f"{name} {value:.4g}" for name, value in self.results.items())
        return f"<run {self.folder}: {self.status}, {self._record.step} steps{', ' if results else ''}{results}>"

    def _repr_html_(self) -> str:
        return fragment(run_page.head(self._record), *self._parts())

    def _parts(self) -> Iterator[Markup]:
        steps, losses = self._record.metrics.steps, self._record.metrics.losses
        if len(steps) > 1:
            window = max(1, len(steps) // 100)
            lines = [ChartLine("loss", downsample(steps, losses, POINTS), 1, "thin" if window > 1 else "line")]
            if window > 1:
                mean = downsample(steps, running_mean(losses, window), POINTS // 2)
                lines.append(ChartLine(f"mean of {window} steps", mean, 1))
            yield tag("div", chart("Loss of each step", lines, zero=True, has_script=False))
        if self.evaluations.rows > 1:
            yield self.evaluations.markup()
        if self.config:
            rows = [(key, format_value(value)) for key, value in self.config.items()]
            yield collapsible(f"{len(rows)} keys of the config", table(("key", "value"), rows))


def load_run(folder: str | os.PathLike[str] | SavedRun) -> SavedRun:
    """The run in a directory: `runner.load_run("outputs/2026-11-20/21-30-12")`.

    Raises ConfigError when there is none.
    """
    place = _folder(folder)
    if not place.is_dir():
        raise ConfigError("the run does not exist", path=place, hint="runner ls lists runs")
    if (place / journal.NAME).is_file():
        raise ConfigError("a sweep has several runs", path=place, hint="the directory of a job, such as its folder 0")
    if not is_run(place):
        raise ConfigError("not a run directory", path=place, missing="status.json", hint="runner ls lists runs")
    return SavedRun(place)


def compare_runs(
    a: str | os.PathLike[str] | SavedRun,
    b: str | os.PathLike[str] | SavedRun,
    rtol: float = MetricTolerance.rtol,
    atol: float = MetricTolerance.atol,
) -> RunComparison:
    """Compare the losses and metrics of two runs, given as directories or as loaded runs; B is the reference.

    Raises ConfigError if one is not the directory of a run.
    """
    return RunComparison([_folder(a), _folder(b)], MetricTolerance(rtol, atol))


def _folder(run: str | os.PathLike[str] | SavedRun) -> Path:
    return run.folder if isinstance(run, SavedRun) else Path(run)


def _column(values: Sequence[object]) -> np.ndarray | None:
    """The values of a metric as an array; None unless all that exist are numbers, or arrays of one shape."""
    arrays = [np.float64(x) if is_number(x) else array_of(x) for x in values]  # type: ignore[arg-type]
    shapes = {np.shape(x) for x in arrays if x is not None}
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    return np.array([np.full(shape, np.nan) if x is None else x for x in arrays], np.float64)
