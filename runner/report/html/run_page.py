"""The page sections about one run."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.config.schema import RunConfig, plain
from runner.host.json import flat
from runner.host.ownership import directories_of
from runner.report.format import format_value
from runner.report.html import profile_section
from runner.report.html.chart import ChartLine, chart
from runner.report.html.confusion import confusion
from runner.report.html.epochs import epoch_table
from runner.report.html.layout import Section, badge, bar, collapsible, notes, tiles
from runner.report.html.markup import Markup, breakable, concat, measured, metric_label, number, table, tag
from runner.report.html.picture import pictures
from runner.report.html.series import curve, downsample, running_mean
from runner.report.html.worst import worst_predictions
from runner.report.record import RunRecord
from runner.report.values import is_number

LONG, MEANS = 100, 250  # steps of a run that has a running mean, and columns of this line
MAX_FILES = 200
_SPEEDS = {
    "steps/s": ("steps_per_second", ".0f"),
    "train seconds": ("train_seconds", ".4g"),
    "peak MB": ("peak_rss_mb", ".4g"),
}
_TIMES = {"init": "init_seconds", "compile": "compile_seconds", "train": "train_seconds"}


def head(run: RunRecord) -> Markup:
    """Name, status, start and duration, network and device, folder, main figures, and the error of a failed run."""
    details = [_when(run), *(str(run.status.get(name, "")) for name in ("network", "dataset", "mode", "device"))]
    error = run.status.get("error")
    return concat(
        tag("h1", run.name, badge(run.state)),
        tag("p", " \N{MIDDLE DOT} ".join(filter(None, details)), class_="sub"),
        tag("p", str(run.folder), class_="sub mono"),
        notes(run.notes),
        tag("pre", str(error), class_="error") if error else None,
        tiles(_tiles(run)),
    )


def sections(run: RunRecord, home: Path) -> list[Section]:
    """The sections; links are relative to the folder `home`."""
    return [
        Section("Training", training(run)),
        Section("Confusion matrix", confusion(run)),
        Section("Worst predictions", worst_predictions(run)),
        Section("Time per phase", _times(run)),
        Section("Profile", _profile(run, home)),
        Section("Graph", _graphs(run, home)),
        Section("Config", _config(run) if run.config or run.command else None),
        Section("What the numbers depend on", _manifest(run) if run.manifest else None),
        Section("Files", _files(run, home)),
    ]


def training(run: RunRecord) -> Markup | None:
    """The curves of one run: every loss, its running mean, the loss on the test split, and the metrics if there are two
    evaluations or more; and a table of the epochs."""
    steps, losses = run.metrics.steps, run.metrics.losses
    charts = []
    if len(steps) > 1:
        is_long = len(steps) >= LONG
        lines = [ChartLine("loss", curve(steps, losses), 1, "thin" if is_long else "line")]
        if is_long:
            window = max(10, len(steps) // 100)
            mean = downsample(steps, running_mean(losses, window), MEANS)
            lines.append(ChartLine(f"mean of {window} steps", mean, 1))
        test_losses = evaluations(run, "loss")
        lines += [ChartLine("loss on the test split", test_losses, 2, "dots")] if test_losses else []
        charts.append(tag("div", chart("Loss of each step", lines, may_be_log=True, zero=True), class_="wide"))
    for name in run.results:
        points = evaluations(run, name)
        if len(points) > 1 and not name.endswith("loss"):
            lines = [ChartLine(name, points, 3), ChartLine("", points, 3, "dots")]
            charts.append(chart(f"{name.capitalize()} on the test split", lines))
    return concat(tag("div", *charts, class_="charts"), epoch_table(run)) if charts else None


def evaluations(run: RunRecord, name: str) -> list[tuple[float, float]]:
    """The points (global step, value) of a metric."""
    rows = [row for row in run.metrics.evaluations if is_number(row.get(name))]
    return [(float(row["global_step"]), float(row[name])) for row in rows]


def link(path: Path, home: Path, text: str | None = None) -> Markup:
    """A link to a file, relative to the folder of the page, so that the folder can be moved."""
    return tag("a", text or path.name, href=quote(os.path.relpath(path, home)))


def _when(run: RunRecord) -> str:
    started, finished = (run.time(name) for name in ("started", "finished"))
    if started is None:
        return ""
    duration = f", {(finished - started).total_seconds():.0f} s" if finished else ""
    return f"{started:%Y-%m-%d %H:%M:%S}{duration}"


def _tiles(run: RunRecord) -> dict[str, str]:
    order = sorted(run.results, key=lambda name: name == "loss")  # the evaluation first, as on the console
    names = {"loss": "loss of the last step"}
    values = {names.get(name, metric_label(name)): number(measured(run.results[name])) for name in order}
    values["steps"] = str(run.step)
    for name, (key, form) in _SPEEDS.items():
        if is_number(value := run.summary.get(key)):
            values[name] = format(value, form)
    count, trained = (run.summary.get(key) for key in ("parameters", "trainable"))
    if is_number(count) and is_number(trained):
        values["parameters"] = f"{count:,}" if count == trained else f"{trained:,} of {count:,} trained"
    return values


def _times(run: RunRecord) -> Markup | None:
    seconds = {name: run.summary.get(key) for name, key in _TIMES.items()}
    if not all(map(is_number, seconds.values())):
        return None
    compile_seconds = float(seconds["compile"] or 0)
    parts = {"start": float(seconds["init"] or 0), "compile": compile_seconds}
    parts["steps"] = max(0.0, float(seconds["train"] or 0) - compile_seconds)
    first = run.summary.get("first_loss_seconds")
    text = tag("p", f"Time to the first loss: {first:.3g} s.") if is_number(first) else None
    return concat(bar(parts, "s"), text)


def _profile(run: RunRecord, home: Path) -> Markup | None:
    path = run.config.get("profiling.result_path")
    folder = run.folder / "profiling"
    if isinstance(path, str) and path:
        folder = Path(directories_of(run.folder).get(path, path))
    content, sources = profile_section.render(folder) if folder.is_dir() else (None, [])
    if content is None:
        return None
    links = [concat(" ", link(path, home)) for path in sources]
    return concat(content, tag("p", "From", *links, ".", class_="sub"))


def _graphs(run: RunRecord, home: Path) -> Markup | None:
    folder = run.folder / str(run.config.get("save_graphs_path") or "graphs")
    if not folder.is_dir():
        return None
    images = [
        collapsible(name, tag("div", image, class_="graph"), is_open=k == 0)
        for k, (name, image) in enumerate(pictures(folder))
    ]
    texts = sorted(folder.glob("*.ir"))
    if not texts:
        return None
    rows = [(link(path, home), _picture_link(path, home)) for path in texts[:MAX_FILES]]
    text = None if images else tag("p", "There is no picture that is small enough for this page.")
    return concat(*images, text, collapsible(f"{len(texts)} stages and graphs", table(("text", "picture"), rows)))


def _picture_link(path: Path, home: Path) -> Markup | str:
    picture = path.with_suffix(".svg")
    return link(picture, home) if picture.is_file() else ""


def _config(run: RunRecord) -> Markup:
    if run.command:
        return concat(tag("pre", run.command), _values(run.config))
    defaults = flat(plain(RunConfig()))
    changed = {key: value for key, value in run.config.items() if defaults.get(key) != value}
    typed = tag("pre", " ".join(["runner", *run.overrides])) if run.overrides else None
    rows = [(breakable(key), format_value(x), format_value(defaults.get(key))) for key, x in changed.items()]
    return concat(
        typed,
        tag("h3", "Changed from the defaults"),
        table(("key", "value", "default"), rows) if rows else tag("p", "None: all keys have their defaults."),
        collapsible(f"All {len(run.config)} keys", _values(run.config)),
    )


def _manifest(run: RunRecord) -> Markup:
    return collapsible(f"{len(run.manifest)} facts, from the seed to the versions of packages", _values(run.manifest))


def _values(values: dict[str, Any]) -> Markup:
    return table(("key", "value"), [(breakable(key), format_value(value)) for key, value in values.items()])


def _files(run: RunRecord, home: Path) -> Markup:
    found = [path for path in sorted(run.folder.rglob("*")) if path.is_file() and not _is_excluded(path, run.folder)]
    rows = [(link(path, home, str(path.relative_to(run.folder))), _size(path)) for path in found[:MAX_FILES]]
    rest = len(found) - len(rows)
    return concat(
        collapsible(f"{len(found)} files", table(("file", "bytes"), rows), is_open=len(found) < 30),
        tag("p", f"and {rest} more", class_="sub") if rest > 0 else None,
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:  # deleted in the meantime by a run that continues
        return None


def _is_excluded(path: Path, folder: Path) -> bool:
    """Whether a file is not listed: locks, temporary files, thousands of dumped tensors, and the page itself."""
    parts = path.relative_to(folder).parts
    return parts[-1].startswith(".") or parts[0] in ("dump", "exception_dump") or parts == ("report.html",)
