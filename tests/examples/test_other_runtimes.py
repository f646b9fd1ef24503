"""The exported step trains in Node and in Chromium with the losses of Python, and runner evaluates what they trained."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from browser import Page, browser, served
from patience import wait_until
from safetensors.numpy import load_file, save_file

from runner.dataset.catalog import image_dataset

ROOT = Path(__file__).parents[2]
WEB, NODE = ROOT / "examples" / "web", ROOT / "examples" / "node"
STEPS, BATCH = 200, 32
TOLERANCE = 1e-4  # of losses, absolute
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The ten digits as strokes, in a square of 100.
DRAWN = {
    0: [[(50, 10), (25, 25), (20, 50), (28, 78), (50, 90), (72, 78), (80, 50), (74, 24), (50, 10)]],
    1: [[(35, 28), (52, 10), (52, 90)]],
    2: [[(25, 28), (38, 12), (60, 12), (72, 28), (62, 50), (28, 88), (76, 88)]],
    3: [[(28, 14), (66, 14), (46, 44), (68, 56), (68, 76), (50, 90), (28, 82)]],
    4: [[(55, 10), (25, 60), (78, 60)], [(60, 40), (60, 90)]],
    5: [[(70, 12), (34, 12), (30, 46), (56, 42), (72, 58), (68, 80), (48, 90), (28, 82)]],
    6: [[(62, 10), (38, 30), (28, 60), (34, 84), (54, 90), (70, 76), (64, 56), (46, 54), (32, 66)]],
    7: [[(25, 12), (74, 12), (44, 90)], [(34, 50), (68, 50)]],
    8: [[(50, 48), (30, 30), (50, 10), (70, 30), (50, 48), (28, 70), (50, 90), (72, 70), (50, 48)]],
    9: [[(68, 34), (48, 44), (32, 30), (46, 12), (66, 16), (68, 34), (64, 90)]],
}


def order(count: int) -> Iterator[np.ndarray]:
    """The rows of each batch: a shuffle per epoch with the numbers of a xorshift generator, without short batches."""
    state = 2463534242
    while True:
        rows = list(range(count))
        for k in range(count - 1, 0, -1):
            state ^= (state << 13) & 0xFFFFFFFF
            state ^= state >> 17
            state ^= (state << 5) & 0xFFFFFFFF
            rows[k], rows[state % (k + 1)] = rows[state % (k + 1)], rows[k]
        yield from np.array(rows)[: count // BATCH * BATCH].reshape(-1, BATCH)


def samples(split: str) -> tuple[np.ndarray, np.ndarray]:
    """All images of a split as the network of a run receives them, and their labels."""
    data = image_dataset("digits", split)
    (columns,) = data.batch(data.get_dataset_size()).create_dict_iterator(num_epochs=1, output_numpy=True)
    return columns["image"], columns["label"]


@pytest.fixture(scope="session")
def losses(exported) -> list[float]:
    """Of 200 steps with nothing but onnxruntime and numpy."""
    signature = json.loads((exported / "signature.json").read_text())
    step = signature["models"]["train_step"]
    session = ort.InferenceSession(exported / step["file"], providers=["CPUExecutionProvider"])
    arrays = load_file(exported / signature["initial"]["file"])
    names = {one["role"]: one["name"] for one in step["inputs"]}
    state = {one["feeds"]: arrays[one["feeds"]] for one in step["outputs"] if one["feeds"]}
    images, labels = samples("train")
    found = []
    for number, rows in enumerate(islice(order(len(labels)), STEPS)):
        feeds = state | {names["data"]: images[rows], names["target"]: labels[rows]}
        feeds |= {names["learning_rate"]: np.array(signature["learning_rate"], np.float32)} if "learning_rate" in names else {}
        feeds |= {names["step"]: np.array(number)} if "step" in names else {}
        results = dict(zip([one["name"] for one in step["outputs"]], session.run(None, feeds), strict=True))
        found.append(float(next(results[one["name"]] for one in step["outputs"] if one["role"] == "loss")))
        state = {one["feeds"]: results[one["name"]] for one in step["outputs"] if one["feeds"]}
    return found


def evaluated(run: Path, weights: Path, place: Path) -> float:
    """The accuracy that `runner eval` finds with these weights."""
    words = ["eval", run, f"checkpoint.load={weights}", f"hydra.run.dir={place}"]
    subprocess.run([sys.executable, "-m", "runner", *words], cwd=ROOT, check=True)
    return json.loads((place / "summary.json").read_text())["metrics"]["accuracy"]


def node(*words: str | Path, folder: Path) -> str:
    """What a script prints. Skips where Node is missing."""
    if shutil.which("node") is None:
        pytest.skip("no Node here")
    done = subprocess.run(["node", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def module(script: str, folder: Path) -> str:
    """What JavaScript prints that imports the modules of the page."""
    return node("--input-type=module", "-e", f"const web = {WEB.as_uri()!r};\n{script}", folder=folder)


# The modules of the page


def test_arrays_travel_both_ways(tmp_path):
    rng = np.random.default_rng(0)
    kinds = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
    arrays = {f"a.{kind}": rng.integers(0, 2, (3, k)).astype(kind) for k, kind in enumerate(kinds)}
    arrays |= {"ein Name mit ä": np.array(1.5, np.float32), "one": np.array([7], np.int8)}
    save_file(arrays, tmp_path / "from.safetensors", metadata={"format": "np"})
    module(
        """import { readFile, writeFile } from "node:fs/promises";
        const { read, write } = await import(web + "/safetensors.js");
        const content = new Uint8Array(await readFile("from.safetensors")).buffer;
        await writeFile("to.safetensors", write(read(content)));""",
        tmp_path,
    )
    found = load_file(tmp_path / "to.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_damaged_files_are_errors(tmp_path):
    """No cut file is read, and no array that is not inside of its file."""
    save_file({"weight": np.arange(6, dtype=np.float32)}, tmp_path / "whole.safetensors")
    whole = (tmp_path / "whole.safetensors").read_bytes()
    damaged = [whole[:size] for size in range(len(whole))]
    damaged += [whole.replace(b"[0,24]", b"[8,32]"), whole.replace(b"F32", b"F99"), whole.replace(b"[0,24]", b"[-8,4]")]
    (tmp_path / "damaged.json").write_text(json.dumps([list(content) for content in damaged]))
    printed = module(
        """import { readFile } from "node:fs/promises";
        const { read } = await import(web + "/safetensors.js");
        for (const bytes of JSON.parse(await readFile("damaged.json"))) {
          let text = "none";
          try { read(new Uint8Array(bytes).buffer); } catch (error) { text = error.message; }
          console.log(text);
        }""",
        tmp_path,
    )
    texts = printed.splitlines()
    assert len(texts) == len(damaged)
    assert "none" not in texts
    assert set(texts) <= {text for text in texts if re.match(r"this is not|weight (needs|has)", text)}


def test_preprocessing_has_the_numbers_of_the_training(site, tmp_path):
    printed = module(
        f"""import {{ readFile }} from "node:fs/promises";
        const {{ Digits }} = await import(web + "/digits.js");
        const signature = JSON.parse(await readFile({str(site / "model" / "signature.json")!r}));
        const content = new Uint8Array(await readFile({str(site / "digits.safetensors")!r})).buffer;
        for (const split of ["train", "test"]) {{
          const digits = new Digits(content, split, signature.preprocessing[0].steps);
          const [images, labels] = digits.batch(Array.from({{ length: digits.length }}, (_, k) => k));
          console.log(JSON.stringify([images.shape, [...images.data], [...labels.data]]));
        }}""",
        tmp_path,
    )
    for split, line in zip(("train", "test"), printed.splitlines(), strict=True):
        shape, data, labels = json.loads(line)
        images, numbers = samples(split)
        np.testing.assert_allclose(np.reshape(data, shape), images, atol=1e-6)
        assert labels == numbers.tolist()


def test_drawn_digits_look_like_those_of_the_data(tmp_path):
    """As high as the image, with as much ink, whatever their size and place on the paper."""
    strokes = [DRAWN[digit] for digit in range(10)]
    moved = [[[(0.2 * x + 300, 0.2 * y - 50) for x, y in line] for line in lines] for lines in strokes]
    printed = module(
        f"""const {{ digitOf }} = await import(web + "/strokes.js");
        for (const strokes of {json.dumps([*strokes, *moved, [], [[]], [[(5, 5)]]])})
          console.log(JSON.stringify([...digitOf(strokes)]));""",
        tmp_path,
    )
    images = np.array([json.loads(line) for line in printed.splitlines()]).reshape(-1, 8, 8)
    digits, small, empty, dot = images[:10], images[10:20], images[20:22], images[22]
    assert np.abs(digits - small).max() <= 16  # a level of ink
    assert (empty == 0).all()
    assert dot.max() == 255
    ink = digits.sum((1, 2)) / 255
    np.testing.assert_allclose(ink, 19.6, atol=1.5)
    assert (digits[:, [0, -1]].max(2) > 60).all()
    assert set(np.unique(digits)) <= {(255 * level + 8) // 16 for level in range(17)}


# Training


def test_node_trains_as_python(run, site, losses, tmp_path):
    if not (NODE / "node_modules" / "onnxruntime-node").is_dir():
        pytest.skip("onnxruntime-node is not installed: make web")
    printed = node(NODE / "train.js", site / "model", site / "digits.safetensors", folder=tmp_path)
    found = [float(loss) for loss in re.findall(r"^step \d+ loss (.*)$", printed, re.MULTILINE)]
    np.testing.assert_allclose(found, losses, rtol=0, atol=TOLERANCE)
    assert evaluated(run, tmp_path / "weights.safetensors", tmp_path / "evaluated") > 0.8


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
    found = page.run(LOSSES)
    assert len(found) < steps + 44  # it has paused
    return found


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
    page.wait("document.querySelector('#answer').innerText !== '–'")
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
    saved = page.downloads / "weights.safetensors"
    page.click("#save")
    wait_until(saved.exists)
    assert evaluated(run, saved, tmp_path / "evaluated") == pytest.approx(correct / of, abs=1e-6)
    page.click("#reset")
    page.wait("document.querySelector('#accuracy').innerText === '–'")
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
    page.wait("document.querySelector('#answer').innerText !== '–'")
    page.press("Delete")
    page.wait("document.querySelector('#answer').innerText === '–'")


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


@pytest.mark.parametrize(("missing", "named"), [("vendor", "npm run copy"), ("model", "runner export"), ("digits.safetensors", "digits.py")])
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
    listed = subprocess.run(["git", "ls-files", "-z", WEB, NODE], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if name}
    assert sizes
    assert sum(sizes.values()) < 100_000
    assert not [name for name in sizes if os.path.splitext(name)[1] in {".wasm", ".onnx", ".safetensors"}]
