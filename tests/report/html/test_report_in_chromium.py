"""A report in a real browser: nothing on the console, both themes, a phone; sorting and pointing work."""

import json
import random
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from patience import PATIENCE
from run_folders import leave, varied

from runner.cli import run_command

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

# Runs in the page itself and writes its results into the text: real clicks, a real pointer, real sizes.
PROBE = """<script>
const reported = {};
addEventListener("error", event => { reported.error = String(event.message); });
addEventListener("securitypolicyviolation", event => { reported.violation = event.blockedURI; });
addEventListener("load", () => {
  reported.width = innerWidth;
  reported.surplus = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  reported.background = getComputedStyle(document.body).backgroundColor;
  reported.switched = [...document.querySelectorAll(".switched > div")].map(one => getComputedStyle(one).display);
  const table = document.querySelector("table.sortable");
  if (table) {
    const heads = [...table.tHead.rows[0].cells], column = heads.findIndex(head => head.textContent === "accuracy");
    const values = () => [...table.tBodies[0].rows].map(row => row.cells[column].textContent);
    heads[column].click(); reported.up = values();
    heads[column].click(); reported.down = values();
  }
  const plot = document.querySelector(".chart .plot"), box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right - 1, clientY: box.bottom, bubbles: true}));
  reported.tip = document.querySelector(".tip").textContent;
  const texts = [...document.querySelectorAll(".plot span")];
  reported.texts = Math.min(...texts.map(one => parseFloat(getComputedStyle(one).fontSize)));
  const pre = document.body.appendChild(document.createElement("pre"));
  pre.id = "reported";
  pre.textContent = JSON.stringify(reported);
});
</script>"""


def opened(report: Path, place: Path, width: int, dark: bool = False) -> tuple[dict, str]:
    """What the page reports, and the browser's console. The page is in a frame: windows have a minimum width, frames do
    not."""
    text = report.read_text()
    (place / "probed.html").write_text(text.replace("<main>", f"{PROBE}<main>"))
    frame = f'<iframe src="probed.html" style="border:0;width:{width}px;height:900px"></iframe>'
    after = "addEventListener('load',()=>{const d=document.querySelector('iframe').contentDocument;"
    after += "document.body.append(Object.assign(document.createElement('pre'),{id:'out',"
    after += "textContent:d.getElementById('reported').textContent}))})"
    (place / "framed.html").write_text(f"<!doctype html>{frame}<script>{after}</script>")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr"]
    words += [f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=5000", "--dump-dom"]
    words += ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [str(BROWSER), *words, f"file://{place / 'framed.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(unescape(found[1])), console


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("sweep")
    rng = random.Random(1)
    for number in range(6):
        config = varied(optimizer__learning_rate=(0.01, 0.1)[number % 2], seed=number // 2)
        losses = [2.0 / k + 0.1 * rng.random() for k in range(1, 200)]
        leave(place / str(number), losses, [(199, {"accuracy": rng.random()})], config=config)
    leave(place / "6", [], state="failed", error="TrainingError: not finite", config=varied(seed=9))
    return place


def test_a_sweep_on_a_phone_in_the_dark(sweep, tmp_path):
    assert run_command("report", [str(sweep), "-o", str(tmp_path / "page.html")]) == 0
    reported, console = opened(tmp_path / "page.html", tmp_path, 390, dark=True)
    assert console == ""
    assert not {"error", "violation"} & set(reported)
    assert (reported["width"], reported["surplus"]) == (390, 0)  # nothing sticks out to the right
    assert sum(map(int, re.findall(r"\d+", reported["background"])[:3])) < 150
    *up, last = reported["up"]
    assert (up, last) == (sorted(up, key=float), "-")  # what is missing stays at the end
    assert reported["down"] == [*sorted(up, key=float, reverse=True), "-"]
    assert reported["texts"] >= 11


def test_a_run_on_a_desk_in_the_light(tmp_path):
    run = leave(tmp_path / "a", [2.0 / k for k in range(1, 51)], [(50, {"accuracy": 0.9})])
    assert run_command("report", [str(run)]) == 0
    reported, console = opened(run / "report.html", tmp_path, 1100)
    assert console == ""
    assert not {"error", "violation"} & set(reported)
    assert (reported["width"], reported["surplus"]) == (1100, 0)
    assert sum(map(int, re.findall(r"\d+", reported["background"])[:3])) > 700
    assert sorted(reported["switched"]) == ["block", "none"]
    found = re.fullmatch(r"at 50\nloss: (\S+)", reported["tip"])
    assert float(found[1]) == pytest.approx(2 / 50, rel=0.01)


def test_the_probe_sees_what_is_wrong(tmp_path):
    """A page that loads something and writes to the console is caught by the same means."""
    run = leave(tmp_path / "a")
    assert run_command("report", [str(run)]) == 0
    text = (run / "report.html").read_text()
    bad = '<img src="https://example.invalid/x.png"><script>console.error("seen")</script></main>'
    (run / "report.html").write_text(text.replace("</main>", bad))
    reported, console = opened(run / "report.html", tmp_path, 800)
    assert reported["violation"].startswith("https://example.invalid")
    assert "seen" in console
