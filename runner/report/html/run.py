"""The page sections about one run: `head` and `sections`.

Before them stand the sections that need more: the worst predictions, the confusion matrix, pictures of graphs, epochs.
"""

import base64
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from runner import rundir
from runner.config.schema import RunConfig, plain
from runner.errors import DataError, StorageError
from runner.experiment.results import COUNT, FILE, image_name
from runner.host import files, json, png
from runner.host.console import visible
from runner.host.json import flat
from runner.report.html import profile
from runner.report.html.charts import ChartLine, chart, curve, downsample, running_mean
from runner.report.html.page import (
    Content,
    Markup,
    Section,
    badge,
    bar,
    breakable,
    collapsible,
    concat,
    legend,
    measured,
    metric_label,
    notes,
    number,
    table,
    tag,
    tiles,
)
from runner.report.record import RunRecord, array_of, format_value, is_number
from runner.rundir import directories_of

# The worst predictions of the last evaluation, from `eval/worst.json`: pictures of the samples, or a table.

WORST_FILE_BYTES = 1 << 20
MAX_CLASSES = 1 << 20


class Prediction(NamedTuple):
    """One sample: the row of the dataset, its file if it has one, names of classes, and their probabilities."""

    row: int
    file: str | None
    true: str
    predicted: str
    probability: float | None
    predicted_probability: float | None
    image: bytes | None


def worst_predictions(run: RunRecord) -> Markup | None:
    """The section; None for a run without valid predictions of its last evaluation."""
    content = json.read_optional(run.folder / rundir.EVAL / FILE, WORST_FILE_BYTES)
    last = (run.metrics.evaluations or [{}])[-1]
    classes, entries = content.get("classes"), content.get("predictions")
    is_last = content.get("global_step") == last.get("global_step")
    if not is_last or not isinstance(classes, int) or not 0 < classes <= MAX_CLASSES or not isinstance(entries, list):
        return None
    names = run.class_names(classes)
    found = [_read(run.folder / rundir.EVAL, k, entry, names) for k, entry in enumerate(entries[:COUNT])]
    predictions = [prediction for prediction in found if prediction is not None]
    if not predictions:
        return None
    samples = content.get("samples")
    of = f" of {samples}" if _is_count(samples, 1 << 62) else ""
    text = f"The {len(predictions)} samples{of} whose true class has the lowest probability, the softmax of the output."
    draw = _gallery if any(prediction.image for prediction in predictions) else _table
    return concat(tag("p", text, class_="sub"), draw(predictions))


def _is_count(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _read(folder: Path, position: int, entry: Any, names: list[str]) -> Prediction | None:
    if not isinstance(entry, dict) or not _is_count(entry.get("row"), 1 << 62):
        return None
    classes = [entry.get(key) for key in ("true", "predicted")]
    if not all(_is_count(number, len(names) - 1) for number in classes):
        return None
    true, predicted = (names[int(number)] for number in classes if number is not None)
    file, own, highest = (entry.get(key) for key in ("file", "probability", "predicted_probability"))
    return Prediction(
        row=entry["row"],
        file=visible(file) if isinstance(file, str) else None,
        true=true,
        predicted=predicted,
        probability=own if is_number(own) else None,
        predicted_probability=highest if is_number(highest) else None,
        image=_image(folder / image_name(position)) if "image" in entry else None,
    )


def _image(path: Path) -> bytes | None:
    """The content of an image that a run has written; None for anything else."""
    try:
        content = files.read_bytes(path, png.MAX_BYTES)
        png.decode(content)
    except (DataError, StorageError):
        return None
    return content


def _gallery(predictions: list[Prediction]) -> Markup:
    return tag("div", *map(_card, predictions), class_="gallery")


def _card(one: Prediction) -> Markup:
    name = one.file or f"row {one.row}"
    if one.image is None:
        picture = tag("div", "no picture", class_="none")
    else:
        source = f"data:image/png;base64,{base64.b64encode(one.image).decode()}"
        picture = tag("img", src=source, alt=f"sample of {one.true}", title=name)
    rows = [
        tag("div", "true ", tag("b", one.true), " ", _share(one.probability)),
        tag("div", "predicted ", tag("b", one.predicted), " ", _share(one.predicted_probability)),
    ]
    caption = tag("figcaption", *rows, tag("div", name.rpartition("/")[2], class_="sub", title=name))
    return tag("figure", picture, caption)


def _share(probability: float | None) -> str:
    return "(not finite)" if probability is None else number(float(f"{probability:.3g}"))


def _table(predictions: list[Prediction]) -> Markup:
    columns = ["row", "true", "predicted", "probability of the true class", "of the predicted class"]
    rows = [(one.row, one.true, one.predicted, one.probability, one.predicted_probability) for one in predictions]
    if all(one.file is None for one in predictions):
        return table(columns, rows)
    named = [(row[0], one.file or "", *row[1:]) for row, one in zip(rows, predictions, strict=True)]
    return table([columns[0], "file", *columns[1:]], named)


# The confusion matrix of the last evaluation as a heat map, its largest errors, and precision and recall by class.

METRIC = "confusion_matrix"
HEAT_MAP_CLASSES = 30  # of the heat map; more have the tables
NUMBERED = 12  # classes whose numbers a phone has room for; of more it shows the colours
MAX_ERRORS = 10
STRONGEST = 70  # percent of the colour in a cell, so that its number can be read


def confusion(run: RunRecord) -> Markup | None:
    """The confusion matrix (C, C) of a run, or those of several labels (L, 2, 2); None if it has none."""
    counts = array_of(run.arrays.get(METRIC))
    if counts is None or (counts < 0).any():
        return None
    if counts.ndim == 3 and counts.shape[1:] == (2, 2):
        return _labels(counts, run.class_names(len(counts)))
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        return None
    names = run.class_names(len(counts))
    heat = _heat_map(counts, names) if len(names) <= HEAT_MAP_CLASSES else None
    by_class = _by_class(counts, names)
    return concat(heat, _errors(counts, names), by_class if heat is None else collapsible("Each class", by_class))


def _heat_map(counts: np.ndarray, names: Sequence[str]) -> Markup:
    shares = _ratio(counts, counts.sum(1, keepdims=True))
    errors = np.where(np.eye(len(names), dtype=bool), 0, shares)
    strengths = np.where(np.eye(len(names), dtype=bool), shares, _ratio(errors, errors.max(initial=0)))
    head = [tag("th", "true \\ predicted", scope="col"), *(_heading(name, "col") for name in names)]
    rows = []
    for k, name in enumerate(names):
        cells = [
            _cell(int(counts[k, m]), f"{name} as {other}", float(shares[k, m]), float(strengths[k, m]), k == m)
            for m, other in enumerate(names)
        ]
        rows.append(tag("tr", _heading(name, "row"), *cells))
    kind = f"matrix{' many' if len(names) > NUMBERED else ''}"
    grid = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_=kind)
    right, total = int(np.trace(counts)), int(counts.sum())
    caption = f"{right} of {total} samples are right. A row has the samples of one class, a column a prediction."
    symbols = [("area c1", "right, as a share of the class"), ("area c2", "errors: the largest share is strongest")]
    return tag("figure", tag("div", grid, class_="scroll"), tag("p", caption, class_="sub"), legend(symbols))


def _heading(name: str, scope: str) -> Markup:
    return tag("th", name, scope=scope, title=name)


def _cell(count: int, pair: str, share: float, strength: float, is_right: bool) -> Markup:
    colour = f"var(--c{1 if is_right else 2})"
    style = f"background:color-mix(in srgb,{colour} {round(STRONGEST * strength)}%,transparent)" if strength else None
    title = f"{pair}: {count} ({100 * share:.3g}%)"
    return tag("td", count, class_="n" if count else "n zero", style=style, title=title)


def _errors(counts: np.ndarray, names: Sequence[str]) -> Markup | None:
    """A table of the most frequent pairs of a class and a wrong prediction."""
    errors = np.where(np.eye(len(names), dtype=bool), 0, counts)
    order = np.argsort(-errors, axis=None, kind="stable")[:MAX_ERRORS]
    pairs = [(int(place) // len(names), int(place) % len(names)) for place in order]
    totals = counts.sum(1)
    rows = [
        (names[k], names[m], int(errors[k, m]), f"{100 * errors[k, m] / totals[k]:.3g}%")
        for k, m in pairs
        if errors[k, m]
    ]
    if not rows or len(names) < 3:
        return None
    columns = ("true", "predicted", "samples", "of the class")
    return concat(tag("h3", "Most frequent errors"), table(columns, rows))


def _by_class(counts: np.ndarray, names: Sequence[str]) -> Markup:
    right, samples, predictions = np.diag(counts), counts.sum(1), counts.sum(0)
    rows = [
        (name, int(samples[k]), _quotient(right[k], predictions[k]), _quotient(right[k], samples[k]))
        for k, name in enumerate(names)
    ]
    return table(("class", "samples", "precision", "recall"), rows, sortable=True)


def _labels(counts: np.ndarray, names: Sequence[str]) -> Markup:
    rows: list[tuple[Content, ...]] = []
    for name, ((true_negative, false_positive), (false_negative, true_positive)) in zip(names, counts, strict=True):
        precision = _quotient(true_positive, true_positive + false_positive)
        recall = _quotient(true_positive, true_positive + false_negative)
        numbers = map(int, (true_positive, false_positive, false_negative, true_negative))
        rows.append((name, *numbers, precision, recall))
    columns = ("label", "true positive", "false positive", "false negative", "true negative", "precision", "recall")
    return table(columns, rows, sortable=True)


def _quotient(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The quotient; 0 where `whole` is 0."""
    quotient: np.ndarray = np.divide(part, whole, out=np.zeros_like(part, dtype=np.float64), where=whole != 0)
    return quotient


# Pictures of graphs, embedded as images and not as elements, so that files of a run cannot run scripts in the page.

PICTURE_BYTES = 90_000  # of one picture, in base64
PICTURES_BYTES = 130_000
_STAGES = ("_parse_", "_lower_", "_grad_")  # the network first: it is the smallest and the one that users know


def pictures(folder: Path) -> Iterator[tuple[str, Markup]]:
    """File name and image of the pictures in a folder that fit into the page."""
    remaining = PICTURES_BYTES
    for path in _select(folder):
        try:
            content = _minify(files.read_bytes(path, 4 * PICTURE_BYTES))
        except (DataError, StorageError):
            continue
        encoded = base64.b64encode(content).decode()
        if b"<svg" in content[:2000] and len(encoded) <= min(remaining, PICTURE_BYTES):
            remaining -= len(encoded)
            yield path.name, tag("img", src=f"data:image/svg+xml;base64,{encoded}", alt=f"graph {path.stem}")


def _select(folder: Path) -> list[Path]:
    """One picture of each stage in _STAGES; with several programs that of the first, which is the training step."""
    found = sorted(folder.glob("*.svg"), key=lambda path: (path.stem.rpartition("_")[2], path.name))
    firsts = (next((path for path in found if stage in path.name), None) for stage in _STAGES)
    return [path for path in firsts if path is not None]


def _minify(content: bytes) -> bytes:
    """Remove comments, titles (tooltips do not work in an image) and space between elements."""
    content = re.sub(rb"<!--.*?-->|<title>.*?</title>", b"", content, flags=re.DOTALL)
    content = re.sub(rb"<!DOCTYPE[^>]*>", b"", content)
    return re.sub(rb">\s+<", b"><", content)


# A table of the epochs of a run: the mean loss, as the console printed it, and the metrics of each evaluation.

MAX_EPOCHS = 200  # of a run with more, the last ones are shown
_PLACE = ("event", "epoch", "global_step")


def epoch_table(run: RunRecord) -> Markup | None:
    """The table, below a title that opens it; None if no step says of which epoch it is."""
    epochs = np.unique(run.metrics.epochs[run.metrics.epochs > 0])
    if not len(epochs):
        return None
    evaluations = {row.get("epoch"): row for row in run.metrics.evaluations}
    names = list(dict.fromkeys(name for row in evaluations.values() for name in row if name not in _PLACE))
    names = [name for name in names if any(is_number(row.get(name)) for row in evaluations.values())]
    rows = [_row(run, int(epoch), evaluations.get(int(epoch), {}), names) for epoch in epochs[-MAX_EPOCHS:]]
    labels = [metric_label("eval.loss" if name == "loss" else name) for name in names]
    rest = len(epochs) - len(rows)
    return collapsible(
        f"{len(epochs)} {'epoch' if len(epochs) == 1 else 'epochs'}",
        concat(
            tag("p", f"The last {len(rows)} of {len(epochs)}.", class_="sub") if rest else None,
            table(("epoch", "last step", "mean loss", *labels), rows),
        ),
    )


def _row(run: RunRecord, epoch: int, evaluation: dict[str, object], names: list[str]) -> tuple[Content, ...]:
    metrics = run.metrics
    inside = metrics.epochs == epoch
    mean = f"{metrics.losses[inside].mean():.4g}"  # as callbacks=epoch_monitor prints it
    found = (evaluation.get(name) for name in names)
    values = [measured(value) if is_number(value) and isinstance(value, int | float) else None for value in found]
    return (epoch, int(metrics.steps[inside][-1]), float(mean), *values)


# The sections.

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
    folder = run.folder / rundir.PROFILING
    if isinstance(path, str) and path:
        folder = Path(directories_of(run.folder).get(path, path))
    content, sources = profile.render(folder) if folder.is_dir() else (None, [])
    if content is None:
        return None
    links = [concat(" ", link(path, home)) for path in sources]
    return concat(content, tag("p", "From", *links, ".", class_="sub"))


def _graphs(run: RunRecord, home: Path) -> Markup | None:
    folder = run.folder / str(run.config.get("save_graphs_path") or rundir.GRAPHS)
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
    return parts[-1].startswith(".") or parts[0] in (rundir.DUMP, rundir.EXCEPTION_DUMP) or parts == (rundir.REPORT,)
