"""Runs and comparisons as Python objects: `runner.load_run`, `runner.compare_runs`. Notebooks show them as HTML."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runner import nn, rundir
from runner.errors import ConfigError, nearest
from runner.experiment.predict import trained_network
from runner.host import files
from runner.report.compare import MetricTolerance, compare_run_directories, tables, verdict
from runner.report.html.charts import ChartLine, chart, downsample, running_mean
from runner.report.html.page import Content, Markup, asset, collapsible, concat, table, tag
from runner.report.html.run import head
from runner.report.html.runs import pair_sections
from runner.report.list import EVALUATION, TEST_LOSS
from runner.report.record import RunRecord, array_of, format_value, is_number
from runner.rundir import directories_of, is_run

# HTML for the output of a notebook: the style of reports, which applies to nothing else on the page.

CLASS = "runner-output"
# Notebooks have rules of their own for what is in an output, which weigh less than three classes: floating lists,
# striped tables, colours of a theme that may be dark while the page is light.
_SELECTOR = 3 * f".{CLASS}"
_BOX = f"""\
{_SELECTOR}{{padding:14px 18px;border:1px solid var(--line);border-radius:10px;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
& figure,& .scroll{{margin-top:14px}}
& :is(table,tr,th,td){{background:none;color:inherit;table-layout:auto}}
& table{{margin:0;border:0}}
& :is(dt,dd){{float:none;width:auto;padding:0}}
& dt{{font-weight:400}}
& ul{{list-style-position:outside}}}}
"""


def fragment(*content: Content) -> str:
    """Content in a box with its style. There are no scripts: notebooks remove them, or run them on their own page."""
    return str(tag("div", tag("style", _style()), concat(*content), class_=CLASS))


@cache
def _style() -> Markup:
    """The style of reports as nested rules, which apply to what is in the box; its variables are those of the box."""
    rules = asset("page.css").replace(":root{", "&{")
    return Markup(f"{_SELECTOR}{{{rules}}}\n{_BOX}")


# Columns of numbers of a run as numpy arrays.

MOST_ROWS = 10  # that a notebook shows, half of them from each end


class MetricTable(Mapping[str, np.ndarray]):
    """Columns of equal lengths by name, as numpy arrays that cannot be changed; `table["loss"]` is one of them.

    `to_pandas()` makes a DataFrame of it.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns = dict(columns)
        for array in self._columns.values():
            array.flags.writeable = False

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            known = f"the columns are {', '.join(self._columns)}"
            close = nearest(str(name), self._columns)
            raise KeyError(f"{name}: {known}" + (f"; nearest: {close}" if close else ""))
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return next((len(array) for array in self._columns.values()), 0)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with these columns; arrays in a cell, such as a confusion matrix, are lists.

        Raises ConfigError where pandas is not installed.
        """
        try:
            import pandas  # late: it takes a third of a second, and is no dependency
        except ImportError:
            raise ConfigError("pandas is not installed", repair="pip install pandas") from None
        return pandas.DataFrame({name: x if x.ndim == 1 else x.tolist() for name, x in self._columns.items()})

    def __repr__(self) -> str:
        return f"MetricTable({self.rows} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        return fragment(self.markup())

    def markup(self) -> Markup:
        """The columns of numbers as a table, of a long one the first and the last rows."""
        numbers = {name: array for name, array in self._columns.items() if array.ndim == 1}
        every = range(self.rows)
        half = MOST_ROWS // 2
        shown = [*every] if self.rows <= MOST_ROWS else [*every[:half], None, *every[-half:]]
        rows = [["..." if k is None else array[k].item() for array in numbers.values()] for k in shown]
        return table([*numbers], rows)


# `runner.compare_runs`: the differences of two runs as an object.


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
        sections = [concat(tag("h2", one.title), one.content) for one in pair_sections(a, b, self._tolerance)]
        return fragment(*sections)

    def _repr_html_(self) -> str:
        return self._html

    @property
    def _tolerance(self) -> MetricTolerance:
        return MetricTolerance(self.values["rtol"], self.values["atol"])


# `runner.load_run`: a run directory as an object, of which nothing is executed or unpickled.

_CHECKPOINT = re.compile(r".+-([0-9]{1,18})_([0-9]{1,18})")
POINTS = 500  # of the curve in a notebook
PATHS = {
    "status": rundir.STATUS,
    "config": rundir.CONFIG,
    "manifest": rundir.MANIFEST,
    "summary": rundir.SUMMARY,
    "inputs": rundir.INPUTS,
    "metrics": rundir.METRICS,
    "report": rundir.REPORT,
    "checkpoints": rundir.CHECKPOINTS,
    "code": rundir.CODE,
    "network": rundir.NETWORK,
    "predict": rundir.PREDICT,
    "train_step": rundir.TRAIN_STEP,
    "dump": rundir.DUMP,
    "graphs": rundir.GRAPHS,
    "profiling": rundir.PROFILING,
    "tensorboard": rundir.TENSORBOARD,
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
        places = ((_CHECKPOINT.fullmatch(name), name) for name in files.names(self.folder / rundir.CHECKPOINTS))
        found = sorted((int(place[1]), int(place[2]), name) for place, name in places if place)
        return [self.folder / rundir.CHECKPOINTS / name for _, _, name in found]

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
        return fragment(head(self._record), *self._parts())

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
    if (place / rundir.SWEEP).is_file():
        raise ConfigError("a sweep has several runs", path=place, hint="the directory of a job, such as its folder 0")
    if not is_run(place):
        raise rundir.not_a_run(place)
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
