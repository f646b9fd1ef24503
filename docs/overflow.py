"""Whether the pages of the built site fit their windows: `python docs/overflow.py build/site`, with Chromium.

No page may be wider than a window of 1280 pixels or a phone of 390. What is too long for its box, a line
of code or a table, scrolls inside of it; on the pages of READ_FIRST no line of code does at 1280 pixels.
"""

import json
import sys
import tempfile
from pathlib import Path

from browser import browser, served  # tests/support
from screenshots import chromium

WIDTHS = (1280, 390)
READ_FIRST = ("index.html", "tutorial/", "project/", "concepts/")
# A frame is a window of its own: its width decides which rules of the style hold.
MEASURE = """(async () => {
  const frame = document.createElement('iframe');
  frame.style.cssText = 'width: %dpx; height: 900px; border: 0';
  frame.sandbox = 'allow-same-origin';  // no scripts: the layout does not need them, and pages load faster
  document.body.replaceChildren(frame);
  const found = {};
  for (const name of %s) {
    await new Promise(done => { frame.onload = done; frame.src = '/' + name; });
    const inside = frame.contentDocument;
    const code = [...inside.querySelectorAll('pre code')].filter(e => e.scrollWidth > e.clientWidth);
    found[name] = [inside.documentElement.scrollWidth - %d, code.length];
  }
  return found;
})()"""


def faults(site: Path, program: str) -> list[str]:
    """What does not fit, a line each."""
    found = []
    names = sorted(file.relative_to(site).as_posix() for file in site.rglob("*.html"))
    with (
        served(site) as address,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(program, Path(profile)) as page,
    ):
        page.look(max(WIDTHS) + 40, dark=False)
        page.open(address + names[0])
        for width in WIDTHS:
            for name, (wider, scrolling) in page.run(MEASURE % (width, json.dumps(names), width)).items():
                if wider > 0:
                    found.append(f"{name} at {width} pixels: {wider} pixels wider than the window")
                if scrolling and width == max(WIDTHS) and name.startswith(READ_FIRST):
                    found.append(f"{name} at {width} pixels: {scrolling} blocks of code scroll")
    return found


if __name__ == "__main__":
    if (program := chromium()) is None:
        sys.stderr.write("no Chromium here: the width of pages is not checked\n")
        sys.exit(0)
    wrong = faults(Path(sys.argv[1]), program)
    sys.stdout.write("".join(f"{fault}\n" for fault in wrong) or "all pages fit their windows\n")
    sys.exit(bool(wrong))
