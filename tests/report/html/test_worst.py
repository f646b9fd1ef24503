"""The worst predictions on the page of a run, against files by hand; files of others cannot put anything else there."""

import base64
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pages import cells, page, section
from run_folders import leave
from tables import table

from runner.cli import run_command
from runner.host import png
from runner.rundir import REPORT

main = partial(run_command, "report")
RNG = np.random.default_rng(2)
TITLE = "Worst predictions"
ENTRY = {"row": 5, "true": 2, "predicted": 0, "probability": 0.00123456, "predicted_probability": 0.9}
PIXELS = [RNG.integers(0, 256, (8, 8, channels), np.uint8) for channels in (1, 3)]


def left(folder: Path, predictions, names=("ant", "bee", "cow"), step=2, **more) -> Path:
    place = leave(folder, [2.0, 1.0], [(2, {"accuracy": 0.5})])
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps(summary | {"class_names": list(names)}))
    (place / "eval/worst").mkdir(parents=True)
    content = {"global_step": step, "samples": 60, "classes": 3, "predictions": predictions, **more}
    (place / "eval/worst.json").write_text(json.dumps(content))
    for number, pixels in enumerate(PIXELS):
        (place / f"eval/worst/{number:02d}.png").write_bytes(png.encode(pixels))
    return place


def shown(place: Path):
    assert main([str(place)]) == 0
    return page((place / REPORT).read_text())


def titles(root) -> list[str]:
    return [one.all("h2")[0].text for one in root.all("section")]


def test_pictures_with_their_classes(tmp_path):
    others = {"row": 1, "true": 1, "predicted": 1, "probability": 1, "predicted_probability": 1, "image": "x"}
    place = left(tmp_path / "a", [ENTRY | {"image": "worst/00.png", "file": "data/cow/7.png"}, others])
    part = section(shown(place), TITLE)
    assert "2 samples of 60" in part.text
    first, second = part.all("figure")
    assert [one.text for one in first.all("div")] == ["true cow 0.00123", "predicted ant 0.9", "7.png"]
    assert [one.text for one in second.all("div")] == ["true bee 1", "predicted bee 1", "row 1"]
    for figure, pixels in zip((first, second), PIXELS, strict=True):
        (image,) = figure.all("img")
        kind, _, content = image.attributes["src"].partition(",")
        assert kind == "data:image/png;base64"
        np.testing.assert_array_equal(png.decode(base64.b64decode(content)), pixels)
    assert first.all("img")[0].attributes["title"] == "data/cow/7.png"


def test_samples_without_pictures_are_a_table(tmp_path):
    part = section(shown(left(tmp_path / "a", [ENTRY, ENTRY | {"row": 9, "probability": None}])), TITLE)
    assert cells(part.all("table")[0]) == [
        ["5", "cow", "ant", "0.0012346", "0.9"],
        ["9", "cow", "ant", "-", "0.9"],
    ]
    part = section(shown(left(tmp_path / "b", [ENTRY | {"file": "t.csv:7"}, ENTRY])), TITLE)
    assert [row[:2] for row in cells(part.all("table")[0])] == [["5", "t.csv:7"], ["5", ""]]


def test_names_are_text(tmp_path):
    evil = '"><img src=x onerror=alert(1)>'
    place = left(tmp_path / "a", [ENTRY | {"image": evil, "file": evil + "\u202e"}], [evil, "b", evil])
    root = shown(place)
    assert len(root.all("script")) == 1
    assert [one.attributes["src"][:15] for one in root.all("img")] == ["data:image/png;"]
    part = section(root, TITLE)
    assert f"true {evil}" in part.text
    assert f"{evil}\\u202e" in part.text


def test_of_another_evaluation_nothing_is_shown(tmp_path):
    assert TITLE not in titles(shown(left(tmp_path / "a", [ENTRY], step=1)))


@table(
    "changes",
    [
        {"predictions": []},
        {"predictions": {"a": 1}},
        {"predictions": [None, 3, "x", []]},
        {"predictions": [{}]},
        {"classes": None},
        {"classes": 0},
        {"classes": 1 << 40},
        {"classes": "3"},
        {"global_step": None},
        *({"predictions": [ENTRY | {"row": row}]} for row in (None, -1, "5", 1.5, True)),
        *({"predictions": [ENTRY | {"true": true}]} for true in (None, -1, 3, "ant", [0], True)),
        *({"predictions": [ENTRY | {"predicted": number}]} for number in (None, -1, 3, 0.5)),
    ],
    ids=str,
)
def test_a_damaged_file_has_no_section(changes, tmp_path_factory):
    place = left(tmp_path_factory.mktemp("t") / "a", **{"predictions": [ENTRY], **changes})
    assert TITLE not in titles(shown(place))


@table(
    "changes",
    [
        {"file": None},
        {"file": ["x"]},
        {"probability": "high"},
        {"probability": [1]},
        {"probability": 10**15},
        {"predicted_probability": {}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_damaged_entry_is_shown_as_far_as_it_is_valid(changes, tmp_path_factory):
    part = section(shown(left(tmp_path_factory.mktemp("t") / "a", [ENTRY | changes])), TITLE)
    assert cells(part.all("table")[0])[0][:3] == ["5", "cow", "ant"]


@table("content", [b"[" * 100_000, b'{"predictions": NaN}', b"\xff", b"", b"x" * (2 << 20)], ids=len)
def test_a_file_that_is_no_json_has_no_section(content, tmp_path_factory):
    place = left(tmp_path_factory.mktemp("t") / "a", [ENTRY])
    (place / "eval/worst.json").write_bytes(content)
    assert TITLE not in titles(shown(place))


def test_no_more_predictions_than_a_run_writes(tmp_path):
    part = section(shown(left(tmp_path / "a", [ENTRY] * 500)), TITLE)
    assert len(cells(part.all("table")[0])) == 16


REPLACED = {
    "a script": lambda path: path.write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop": lambda path: path.symlink_to(path),
    "a text of others": lambda path: path.symlink_to("/etc/passwd"),
    "a long file": lambda path: path.write_bytes(png.encode(PIXELS[0]) + bytes(1 << 20)),
    "half": lambda path: path.write_bytes(png.encode(PIXELS[0])[:-20]),
    "nothing": lambda path: None,
}


@table("kind", REPLACED)
def test_only_pictures_of_runner_are_embedded(kind, tmp_path_factory):
    place = left(tmp_path_factory.mktemp("t") / "a", [ENTRY | {"image": "worst/00.png"}] * 2)
    (place / "eval/worst/00.png").unlink()
    REPLACED[kind](place / "eval/worst/00.png")
    first, second = section(shown(place), TITLE).all("figure")
    assert (len(first.all("img")), len(second.all("img"))) == (0, 1)
    assert "no picture" in first.text


@pytest.mark.parametrize("outside", ["../../secret.png", "/etc/passwd", "worst/01.png"])
def test_the_file_names_no_path(tmp_path, outside):
    (tmp_path / "secret.png").write_bytes(png.encode(PIXELS[1]))
    place = left(tmp_path / "a", [ENTRY | {"image": outside}])
    (image,) = section(shown(place), TITLE).all("img")
    content = base64.b64decode(image.attributes["src"].partition(",")[2])
    assert content == png.encode(PIXELS[0])  # that of the position
