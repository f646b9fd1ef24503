"""The worst predictions of the last evaluation, from `eval/worst.json`: pictures of the samples, or a table."""

import base64
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import DataError, StorageError
from runner.experiment.results.results import COUNT, FILE, FOLDER, image_name
from runner.host import files, json, png
from runner.host.console import visible
from runner.report.html.markup import Markup, concat, number, table, tag
from runner.report.record import RunRecord
from runner.report.values import is_number

MAX_BYTES = 1 << 20  # of the file
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
    content = json.read_optional(run.folder / FOLDER / FILE, MAX_BYTES)
    last = (run.metrics.evaluations or [{}])[-1]
    classes, entries = content.get("classes"), content.get("predictions")
    is_last = content.get("global_step") == last.get("global_step")
    if not is_last or not isinstance(classes, int) or not 0 < classes <= MAX_CLASSES or not isinstance(entries, list):
        return None
    names = run.class_names(classes)
    found = [_read(run.folder / FOLDER, k, entry, names) for k, entry in enumerate(entries[:COUNT])]
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
