"""The colours of a page against its backgrounds: WCAG 2.1 demands 4.5 of texts and 3 of lines that have a meaning."""

import re
from pathlib import Path

import pytest

from runner.report import html

TEXTS = ("ink", "soft", "faint", "link", "good", "bad", "warn")
LINES = tuple(f"c{number}" for number in range(1, 10))
LIGHT, DARK = re.findall(r":root\{(.*?)\}", (Path(html.__file__).parent / "page.css").read_text(), re.DOTALL)
COLOURS = [dict(re.findall(r"--(\w+):(#\w+)", block)) for block in (LIGHT, DARK)]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


def test_the_rule():
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the example of many guides


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_can_be_told_from_the_background(theme):
    assert COLOURS[theme].keys() == COLOURS[0].keys()  # a dark page has every colour of its own
    for background in ("card", "page"):
        found = {name: contrast(COLOURS[theme][name], COLOURS[theme][background]) for name in (*TEXTS, *LINES)}
        assert {name: ratio for name, ratio in found.items() if ratio < (4.5 if name in TEXTS else 3)} == {}
