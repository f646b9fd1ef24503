"""Reports in a real browser: nothing sticks out on a desk or a phone, in both themes; sorting, pointing and zoom."""

import random
import re
import shutil
from pathlib import Path

import pytest
from browser import Page, browser
from run_folders import leave, varied

from runner.cli import run_command

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
LOOKS = [(width, dark) for width in (1280, 390) for dark in (False, True)]

# How far the page and each table, picture or text goes beyond its place, of what does.
SURPLUS = """(() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width) found.push(["page", document.documentElement.scrollWidth - width]);
  for (const one of document.querySelectorAll("table, .scroll, pre, dl, figure, .plot span, p")) {
    const box = one.getBoundingClientRect(), inside = one.scrollWidth - one.clientWidth;
    const name = `${one.closest("section")?.id} ${one.tagName} ${one.className} ${one.textContent.slice(0, 30)}`;
    if (box.width && box.right > width + 0.5) found.push([name, box.right - width]);
    if (box.width && !one.matches("span, figure") && inside > 1) found.push([name, inside]);
  }
  return found;
})()"""


def shown(page: Page, *folders: Path, output: Path) -> None:
    assert run_command("report", [*map(str, folders), "-o", str(output)]) == 0
    page.open(output.as_uri())
    page.run("document.documentElement.style.scrollBehavior = 'auto'")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(str(BROWSER), tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(page):
    """A page writes nothing to its console."""
    page.messages.clear()
    yield
    assert page.messages == []


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with everything: classes, long names, an error, a profile's tables and a graph."""
    matrix = [[40 if k == m else (k * m) % 3 for m in range(10)] for k in range(10)]
    evaluations = [(k, {"accuracy": k / 400, "loss": 30 / k, "confusion_matrix": matrix}) for k in (200, 400)]
    config = varied() | {"a_long_name_of_a_group": {"with_a_key_of_many_parts": "and_a_value_of_even_more_parts" * 3}}
    place = leave(tmp_path_factory.mktemp("run") / "one", [9 / k for k in range(1, 401)], evaluations, config=config)
    (place / "graphs").mkdir()
    (place / "graphs" / f"00_{'long_' * 20}0000.ir").write_text("")
    (place / "profiling").mkdir()
    rows = [f"Device,Conv2D,Conv2D-op{k},{'Default/network-' * 8}Conv2D-op{k},4,{9 - k}.0,0.75" for k in range(8)]
    head = "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms)"
    (place / "profiling" / "cpu_op_detail_info_0.csv").write_text("\n".join([head, *rows]) + "\n")
    return place


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("sweep")
    rng = random.Random(1)
    for number in range(8):
        config = varied(optimizer__learning_rate=(0.01, 0.1)[number % 2], network__name=("cnn", "mlp")[number // 2 % 2])
        losses = [2.0 / k + 0.1 * rng.random() for k in range(1, 200)]
        leave(place / str(number), losses, [(199, {"accuracy": rng.random()})], config=config | {"seed": number // 4})
    leave(place / "8", [], state="failed", error="TrainingError: not finite", config=varied(seed=9))
    return place


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """A random search over 20 keys with long values."""
    place = tmp_path_factory.mktemp("wide")
    rng = random.Random(2)
    for number in range(12):
        config = varied() | {f"group_{k}": {f"a_key_with_a_name_{k}": rng.random() / 997} for k in range(20)}
        metrics = {f"metric_{k}": rng.random() * 1e-4 for k in range(4)}
        leave(place / str(number), [2.0 + rng.random(), 1e-5 * rng.random()], [(2, metrics)], config=config)
    return place


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_nothing_sticks_out(page, run, sweep, wide, tmp_path, width, dark):
    page.look(width, dark)
    for folders in ([run], [sweep], [wide], [sweep / "0", run]):
        shown(page, *folders, output=tmp_path / "page.html")
        assert page.run(SURPLUS) == []
        smallest = "[...document.querySelectorAll('.plot span')].map(e => parseFloat(getComputedStyle(e).fontSize))"
        assert min(page.run(smallest)) >= 11
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 150) == dark


def test_many_classes_on_a_phone(page, tmp_path):
    matrix = [[9 if k == m else (k + m) % 2 for m in range(30)] for k in range(30)]
    place = leave(tmp_path / "a", evaluations=[(2, {"accuracy": 0.9, "confusion_matrix": matrix})])
    page.look(390, dark=False)
    shown(page, place, output=tmp_path / "page.html")
    assert page.run(SURPLUS) == []
    assert page.run("document.querySelectorAll('.matrix td').length") == 900


@pytest.mark.parametrize("width", [1280, 390])
def test_a_table_is_sorted_by_its_heads(page, sweep, tmp_path, width):
    page.look(width, dark=False)
    shown(page, sweep, output=tmp_path / "page.html")
    column = page.run("[...document.querySelectorAll('.sortable th')].findIndex(e => e.textContent === 'accuracy')")
    head = f".sortable th:nth-child({column + 1})"
    cells = f"[...document.querySelectorAll('.sortable tbody td:nth-child({column + 1})')].map(e => e.textContent)"
    *first, last = page.run(cells)
    assert (first, last) == (sorted(first, key=float, reverse=True), "-")  # the best one first, at the beginning
    page.click(head)
    *up, last = page.run(cells)
    assert (up, last) == (sorted(first, key=float), "-")  # what is missing stays at the end
    page.run(f"document.querySelector({head!r}).focus()")
    page.press("Enter")
    assert page.run(cells) == [*first, "-"]


def middle(page: Page, selector: str, parts: list[float]) -> list[tuple[float, float]]:
    """Places in the middle of an element's height, at parts of its width."""
    find = f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
    left, width, y = page.run(
        f"{find} const b = e.getBoundingClientRect(); return [b.x, b.width, b.y + b.height / 2]; }})()"
    )
    return [(left + part * width, y) for part in parts]


def test_the_pointer_reads_exact_losses_and_drags_a_zoom(page, tmp_path):
    losses = [2.0 / k for k in range(1, 51)]
    run = leave(tmp_path / "a", losses, [(50, {"accuracy": 0.9})])
    page.look(1280, dark=False)
    shown(page, run, output=tmp_path / "page.html")
    forms = page.run("[...document.querySelectorAll('.switched > div')].map(e => getComputedStyle(e).display)")
    assert sorted(forms) == ["block", "none"]
    plot = ".if-log .plot"
    tip = "document.querySelector('.tip').textContent"
    ticks = "[...document.querySelectorAll('.if-log .x')].map(e => e.textContent)"
    whole, drawn = page.run(ticks), page.run("document.querySelector('.if-log [data-line]').getAttribute('d')")
    for part, step in ((0.0, 1), (20 / 49, 21), (0.999, 50)):
        ((x, y),) = middle(page, plot, [part])
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        assert page.run(tip) == f"step {step}\nloss: {float(f'{losses[step - 1]:.5g}'):.12g}"
    page.drag(middle(page, plot, [9 / 49, 19 / 49]))
    assert [int(text) for text in page.run(ticks)] in ([10, 12, 14, 16, 18], [10, 12, 14, 16, 18, 20])
    assert page.run("document.querySelector('.if-log [data-line]').getAttribute('d')") != drawn
    page.click("button.all")
    assert page.run("document.querySelector('button.all').hidden")
    assert set(whole) <= set(page.run(ticks))


def test_keys_read_values_and_zoom(page, tmp_path):
    run = leave(tmp_path / "a", [2.0 / k for k in range(1, 51)])
    page.look(1280, dark=False)
    shown(page, run, output=tmp_path / "page.html")
    page.run("document.querySelector('.if-log .plot').focus()")
    page.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.run("document.querySelector('.tip').textContent") == "step 2\nloss: 1"
    page.press("+")
    assert not page.run("document.querySelector('button.all').hidden")
    page.press("Escape")
    assert page.run("document.querySelector('button.all').hidden")


def test_a_finger_reads_the_runs_of_a_key(page, sweep, tmp_path):
    page.look(390, dark=False)
    shown(page, sweep, output=tmp_path / "page.html")
    values = page.run("JSON.parse(document.querySelector('#effect-of-each-key figure').dataset.lines)[0]")
    assert len(values[2]) == 8
    x, y = page.run(
        "(() => { const e = document.querySelector('#effect-of-each-key .plot'); e.scrollIntoView({block: 'center'});"
        "const b = e.getBoundingClientRect(), s = e.querySelector('svg').dataset.y.split(' ').map(Number);"
        f"return [b.x + b.width / 4, b.y + b.height * (1 - ({values[2][0]} - s[0]) / (s[1] - s[0]))]; }})()"
    )
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    assert page.run("document.querySelector('.tip').textContent") in values[3]


def test_pictures_have_texts(page, run, sweep, tmp_path):
    for folder in (run, sweep):
        shown(page, folder, output=tmp_path / "page.html")
        texts = page.run("[...document.querySelectorAll('svg, img')].map(e => e.getAttribute('aria-label') ?? e.alt)")
        assert texts
        assert all(texts)


def test_the_probes_see_what_is_wrong(page, tmp_path):
    """A page that loads something, writes to the console and has a broad table is caught by the same means."""
    run = leave(tmp_path / "a")
    page.look(390, dark=False)
    shown(page, run, output=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    bad = '<img src="https://example.invalid/x.png"><script>thrown("seen")</script>'
    broad = '<div class="scroll"><table><tr><td class="n">' + 99 * "x" + "</td></tr></table></div></main>"
    (tmp_path / "page.html").write_text(text.replace("</main>", bad + broad))
    page.open((tmp_path / "page.html").as_uri())
    assert len(page.run(SURPLUS)) >= 2
    messages, page.messages[:] = "".join(page.messages), []
    assert "example.invalid" in messages
    assert "thrown is not defined" in messages
