"""The page in a headless Chromium: it trains as Python does, reads what is drawn, and runner evaluates its weights."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import Page, browser, served
from drawn_digits import DRAWN
from exported_steps import STEPS, TOLERANCE, evaluated
from javascript import WEB
from patience import wait_until

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def page(site, tmp_path_factory) -> Iterator[Page]:
    """The page in a headless Chromium, from a server of static files, ready to train."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    if not (WEB / "vendor").is_dir():
        pytest.skip("onnxruntime-web is not installed: make web")
    with served(site) as address, browser(CHROMIUM, tmp_path_factory.mktemp("browser")) as page:
        page.look(1280, dark=False)
        page.open(address)
        page.wait("!document.querySelector('#notice').innerText.startsWith('Loading')")
        assert page.text("#notice") == ""  # hidden
        yield page
        assert page.messages == []


LOSSES = "import(new URL('page.js', location)).then((page) => [...page.losses])"


def trained(page: Page, steps: int) -> list[float]:
    """Train from the start for at least so many steps; all losses."""
    page.click("#reset")
    page.click("#train")  # at once: the page follows what the worker does
    page.wait("document.querySelector('#train').innerText === 'Pause'")
    page.wait(f"{LOSSES}.then((losses) => losses.length >= {steps})")
    page.click("#train")
    page.wait("document.querySelector('#train').innerText === 'Train on'")
    return page.run(LOSSES)


def draw(page: Page, digit: int, finger: bool = False) -> str:
    """Draw a digit on empty paper; what the network reads."""
    page.click("#clear")
    page.run("document.querySelector('#drawing').scrollIntoView({block: 'center'})")
    left, top, side = page.run(
        "(({ x, y, width }) => [x, y, width])(document.querySelector('#drawing').getBoundingClientRect())"
    )
    for line in DRAWN[digit]:
        points = [(left + side * x / 100, top + side * y / 100) for x, y in line]
        (page.swipe if finger else page.drag)(points)
    page.wait("document.querySelector('#answer').innerText !== '\\u2013'")
    return page.text("#answer")


def test_chromium_trains_as_python(page, losses):
    found = trained(page, STEPS)
    np.testing.assert_allclose(found[:STEPS], losses, rtol=0, atol=TOLERANCE)
    assert trained(page, STEPS)[:STEPS] == found[:STEPS]  # every visitor sees the same


def test_runner_evaluates_what_the_page_trained(page, run, tmp_path):
    """And the page opens the file again."""
    trained(page, 5 * 44)
    shown = page.run("document.querySelector('#accuracy').title")
    correct, of = map(int, re.findall(r"\d+", shown))
    assert page.text("#status").endswith(f"{page.text('#accuracy')} of the test digits are read correctly.")
    saved = page.downloads / "weights.safetensors"
    page.click("#save")
    wait_until(saved.exists)
    assert evaluated(run, saved, tmp_path / "evaluated") == pytest.approx(correct / of, abs=1e-6)
    page.click("#reset")
    page.wait("document.querySelector('#accuracy').innerText === '\\u2013'")
    page.choose("#file", saved)
    page.wait(f"document.querySelector('#accuracy').title === {shown!r}")
    (tmp_path / "wrong.safetensors").write_bytes(saved.read_bytes()[:1000])
    page.choose("#file", tmp_path / "wrong.safetensors")
    page.wait("!document.querySelector('#notice').hidden")
    assert "not a" in page.text("#notice") or "needs" in page.text("#notice")


def test_it_reads_what_is_drawn(page):
    trained(page, 15 * 44)
    assert float(page.text("#accuracy").split()[0]) > 93
    assert sum(draw(page, digit) == str(digit) for digit in DRAWN) >= 8
    page.look(390, dark=False)
    assert sum(draw(page, digit, finger=True) == str(digit) for digit in DRAWN) >= 8
    page.look(1280, dark=False)


def test_the_keyboard_is_enough(page):
    """Every control can be reached, and a digit can be drawn."""
    page.run("document.activeElement.blur()")
    reached = []
    for _ in range(12):
        page.press("Tab")
        reached.append(page.run("document.activeElement.id"))
    assert {"train", "reset", "rate", "drawing", "clear", "sample", "save", "open"} <= set(reached)
    page.click("#clear")
    page.run("document.querySelector('#drawing').focus()")
    page.press(" ", *["ArrowDown"] * 8, " ")
    page.wait("document.querySelector('#answer').innerText !== '\\u2013'")
    page.press("Delete")
    page.wait("document.querySelector('#answer').innerText === '\\u2013'")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_every_part_fits_and_can_be_read(page, width, dark):
    """Nothing is wider than the window, and text has a contrast of at least 4.5 (WCAG AA)."""
    page.look(width, dark)
    assert page.run("document.documentElement.scrollWidth") <= width
    colours = page.run(
        """[...document.querySelectorAll('p, h1, h2, dt, dd, button, figcaption, li, small, code')].map((e) => {
          let behind = e;
          while (getComputedStyle(behind).backgroundColor === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
          return [e.tagName, getComputedStyle(e).color, getComputedStyle(behind).backgroundColor];
        })"""
    )
    low = {(tag, text, behind) for tag, text, behind in colours if contrast(text, behind) < 4.5}
    assert low == set()
    page.look(1280, dark=False)


def contrast(*colours: str) -> float:
    """The contrast ratio of two colours `rgb(r, g, b)`, as WCAG 2 defines it."""
    shares = np.array([re.findall(r"\d+", colour)[:3] for colour in colours], float) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    dark, light = sorted(linear @ [0.2126, 0.7152, 0.0722])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("missing", "named"),
    [("vendor", "npm run copy"), ("model", "runner export"), ("digits.safetensors", "digits.py")],
)
def test_missing_parts_are_named(page, site, tmp_path, missing, named):
    home = page.run("location.href")
    shutil.copytree(site, tmp_path / "site", symlinks=True, ignore=shutil.ignore_patterns(missing))
    with served(tmp_path / "site") as address:
        page.open(address)
        page.wait(f"document.querySelector('#notice').innerText.includes({named!r})")
    page.messages.clear()
    page.open(home)
    page.wait("!document.querySelector('#train').disabled")


def test_a_page_that_was_opened_as_a_file_says_what_it_needs(page):
    home = page.run("location.href")
    page.open((WEB / "index.html").as_uri())
    assert "python -m http.server" in page.text("#notice")
    page.messages.clear()
    page.open(home)
    page.wait("!document.querySelector('#train').disabled")


def test_what_is_committed_is_small():
    listed = subprocess.run(
        ["git", "ls-files", "-z", WEB, WEB.with_name("node")], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name}
    assert sizes
    assert sum(sizes.values()) < 100_000
    assert not [name for name in sizes if Path(name).suffix in {".wasm", ".onnx", ".safetensors"}]
