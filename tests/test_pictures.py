"""The pictures of the documents, and the check that pages fit their windows."""

import importlib
import re

import pytest
from shown import ROOT

IMAGES = ROOT / "docs" / "images"
LARGEST = 100_000


@pytest.fixture
def scripts(monkeypatch):
    """The modules of docs/."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("screenshots"), importlib.import_module("overflow")


def test_every_picture_is_made_by_the_script_and_small(scripts):
    screenshots, _ = scripts
    assert {file.stem for file in IMAGES.glob("*.webp")} == set(screenshots.PICTURES)
    assert [file.name for file in IMAGES.iterdir() if file.stat().st_size > LARGEST] == []


def test_every_picture_is_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"!\[[^\]]+\]\([^)]*images/([^)]+)\)", page.read_text())}
    assert shown == {file.name for file in IMAGES.iterdir()}


PAGE = "<!doctype html><meta name=viewport content=width=device-width><title>x</title>"


def test_pages_that_do_not_fit_are_named(scripts, tmp_path):
    screenshots, overflow = scripts
    if (program := screenshots.chromium()) is None:
        pytest.skip("no Chromium here")
    (tmp_path / "index.html").write_text(
        f"{PAGE}<pre><code style='display:block;overflow:auto;width:50px'>{'x' * 99}</code></pre>"
    )
    (tmp_path / "wide.html").write_text(f"{PAGE}<div style='width:1000px'>x</div>")
    (tmp_path / "fits.html").write_text(f"{PAGE}<p>x</p>")
    faults = overflow.faults(tmp_path, program)
    assert [re.sub(r": \d+ pixels", ": N pixels", fault) for fault in faults] == [
        "index.html at 1280 pixels: 1 blocks of code scroll",
        "wide.html at 390 pixels: N pixels wider than the window",
    ]
