"""Pictures of pages that real runs write: `python docs/screenshots.py FOLDER`, with Chromium.

`make docs` makes them anew for the site; `make pictures` replaces those in docs/images, which the README shows and
which the site has where there is no Chromium.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from browser import Page, browser  # tests/support

ROOT = Path(__file__).parents[1]
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SWEEP = "-m +experiment=lenet callbacks=quiet epochs=6 optimizer.learning_rate=0.005,0.01,0.02 dataset.batch_size=16,32"
COMMANDS = (
    f"{SWEEP} hydra.sweep.dir=sweep",
    "report sweep",
    "report sweep/0",
)


@dataclass(frozen=True)
class Picture:
    """A page in a window of this size, from its top."""

    page: str
    width: int
    height: int
    dark: bool = False


PICTURES = {
    "sweep": Picture("sweep/report.html", 1280, 1150),
    "sweep-dark": Picture("sweep/report.html", 1280, 1150, dark=True),
    "run": Picture("sweep/0/report.html", 1280, 1000),
    "run-phone": Picture("sweep/0/report.html", 390, 780),
}


def make(folder: Path, program: str) -> None:
    """Train, write the pages, and take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Chromium may still write into its profile when it has been ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        place = Path(name)
        for command in COMMANDS:
            words = [sys.executable, "-m", "runner", *command.split()]
            subprocess.run(words, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)
        with browser(program, place / "profile") as page:
            for name, picture in PICTURES.items():
                take(page, place, picture, folder / f"{name}.webp")


def take(page: Page, place: Path, picture: Picture, file: Path) -> None:
    page.call("Emulation.setScrollbarsHidden", hidden=True)
    page.look(picture.width, picture.dark, picture.height)
    page.open((place / picture.page).as_uri())
    found = page.call("Page.captureScreenshot", format="webp", quality=80)
    file.write_bytes(base64.b64decode(found["data"]))


def chromium() -> str | None:
    """The program, if it is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


if __name__ == "__main__":
    if (found := chromium()) is None:
        sys.stderr.write("no Chromium here: the site has the pictures of docs/images\n")
    else:
        make(Path(sys.argv[1]), found)
