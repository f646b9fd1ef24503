"""The HTML of runs on the page of a notebook: its style is that of its box in any theme, and nothing overflows."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from patience import PATIENCE
from run_folders import leave, varied

import runner

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

# As in JupyterLab: a theme with stripes in tables, whose colours are independent of those of the system.
THEME = """<style>
.page{background:rgb(255,255,255);color:rgb(1,2,3)} .page table{color:rgb(4,5,6)}
.page tbody tr:nth-child(odd){background:rgb(250,250,250)} .page td,.page th{text-align:right}
.page dl dt{float:left;width:20%;clear:left;font-weight:bold} .page dl dd{margin-left:10%} .page h1{color:rgb(7,8,9)}
</style>"""
PROBE = """<script>addEventListener("load", () => {
  const style = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
  const root = document.documentElement;
  const reported = {
    outside: [style("#before", "fontSize"), style("#before", "color"), style("#cell", "backgroundColor")],
    surplus: root.scrollWidth - root.clientWidth,
    box: style(".runner-output", "backgroundColor"), text: style(".runner-output td", "color"),
    stripe: style(".runner-output tbody tr", "backgroundColor"),
    tile: [style(".tiles dt", "float"), style(".tiles dd", "marginLeft"), style(".tiles dt", "fontWeight")],
    aligned: style(".runner-output details td", "textAlign"),
    curve: style(".runner-output path.c1", "fill"), height: document.querySelector(".plot").offsetHeight,
  };
  const out = document.body.appendChild(document.createElement("pre"));
  Object.assign(out, {id: "out", textContent: JSON.stringify(reported)});
});</script>"""


def reported(place: Path, content: str, dark: bool) -> dict:
    """What the page of a notebook with this output reports, in a window of 900 pixels."""
    before = '<h1 id="before">text</h1><table><tbody><tr><td id="cell">1</td></tr></tbody></table>'
    page = f'<!doctype html>{THEME}<div class="page">{before}{content}</div>{PROBE}'
    (place / "page.html").write_text(page)
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,900", "--virtual-time-budget=5000"]
    words += [f"--user-data-dir={place / 'profile'}", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    command = [str(BROWSER), *words, "--dump-dom", f"file://{place / 'page.html'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    found = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("dark", [False, True])
def test_style_is_that_of_the_box(tmp_path, dark):
    plain = leave(
        tmp_path / "a", [2.0 / k for k in range(1, 300)], [(150, {"accuracy": 0.5}), (299, {"accuracy": 0.75})]
    )
    other = leave(tmp_path / "b", [2.0, 1.0], config=varied(seed=2, dataset={"name": "x" * 300}))
    run = runner.load_run(plain)
    content = f"{run._repr_html_()}{run.metrics._repr_html_()}{runner.compare_runs(run, other)._repr_html_()}"
    found = reported(tmp_path, content, dark)
    assert (found["tile"], found["aligned"]) == (["none", "0px", "400"], "left")
    assert found["outside"] == ["32px", "rgb(7, 8, 9)", "rgba(0, 0, 0, 0)"]
    assert found["surplus"] <= 0
    light_box, dark_box = "rgb(249, 249, 247)", "rgb(19, 19, 18)"
    light_text, dark_text = "rgb(22, 22, 20)", "rgb(244, 243, 238)"
    assert (found["box"], found["text"]) == ((dark_box, dark_text) if dark else (light_box, light_text))
    assert found["stripe"] == "rgba(0, 0, 0, 0)"
    assert found["curve"] == "none"
    assert found["height"] > 100
