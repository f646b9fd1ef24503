"""The diagrams of the concepts are what the code draws today, and say what is so."""

import importlib.util
import re
from xml.etree import ElementTree

import pytest
from shown import ROOT

spec = importlib.util.spec_from_file_location("diagrams_of_the_site", ROOT / "docs" / "diagrams.py")
drawn = importlib.util.module_from_spec(spec)
spec.loader.exec_module(drawn)
FOLDER = ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def diagrams() -> dict[str, str]:
    return drawn.diagrams()


def texts(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def test_those_in_the_repository_are_new(diagrams):
    """`make pictures` draws them."""
    assert {file.name for file in FOLDER.glob("*.svg")} == set(diagrams)
    assert [name for name, svg in diagrams.items() if (FOLDER / name).read_text() != svg] == []


def test_each_is_on_the_page_of_its_name(diagrams):
    for name in diagrams:
        page = ROOT / "docs" / "concepts" / f"{name.removesuffix('.svg')}.md"
        assert f"](../images/{name})" in page.read_text()


def test_what_they_say(diagrams):
    assert texts(diagrams["modes.svg"]).count("MatMul-op0") == 2
    assert texts(diagrams["dumps.svg"]).count("=") == 2
    assert "dataset_sink_mode=false: 8 calls for 8 steps" in texts(diagrams["sinking.svg"])
    assert "sink_size=4: 2 calls for 8 steps" in texts(diagrams["sinking.svg"])
    assert [text for text in texts(diagrams["ranks.svg"]) if text.isdigit()] == ["13", "13", "12", "12"]


def test_nothing_leaves_the_drawing(diagrams):
    """Letters are on average about half of their size wide."""
    for name, svg in diagrams.items():
        for element in ElementTree.fromstring(svg).iter():
            at = {key: float(value) for key, value in element.items() if re.fullmatch(r"[\d.]+", value)}
            if element.tag.endswith("rect"):
                assert at.get("x", 0) + at["width"] <= drawn.WIDTH, name
            elif element.tag.endswith("text"):
                long = 0.5 * at["font-size"] * len(element.text)
                shift = {"start": 0.0, "middle": 0.5}[element.get("text-anchor")]
                assert at["x"] - shift * long >= 0, (name, element.text)
                assert at["x"] + (1 - shift) * long <= drawn.WIDTH, (name, element.text)
