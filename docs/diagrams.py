"""The diagrams of the concepts, drawn from real runs: `python docs/diagrams.py FOLDER`.

Operators and their order, where two dumps part, how often a sink calls its callbacks and how a batch is divided are
results of the code. The files are the same on every machine, and a test compares them with those of docs/images.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from runner import Model, context, nn
from runner.dataset import NumpySlicesDataset
from runner.train.callback import Callback

ROOT = Path(__file__).parents[1]
WIDTH = 440  # of the drawing: on a phone its text is still legible
FONT = 'font-family="system-ui, sans-serif"'
INK, FAINT = "#263238", "#78909c"
FORWARD, BACKWARD, UPDATE, WRONG = "#cfe8fc", "#ffe3b3", "#cdeccf", "#f8bbc6"
STEP = "network=attention dataset=rings dump=sync dataset_sink_mode=false max_steps=1 callbacks=quiet"
RUNS = (
    f"--code rings.py {STEP} mode=graph hydra.run.dir=graph",
    f"--code rings.py {STEP} mode=pynative hydra.run.dir=pynative",
    f"--code typo.py {STEP} mode=graph hydra.run.dir=typo",
)


def box(x: float, y: float, width: float, height: float, text: str = "", fill: str = "none", line: str = INK) -> str:
    """A rectangle with a text in its middle."""
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{line}"/>'
    return shape + (label(x + width / 2, y + height / 2 + 4, text, "middle") if text else "")


def label(x: float, y: float, text: str, anchor: str = "start", size: int = 12, colour: str = INK) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def drawing(title: str, height: float, parts: list[str]) -> str:
    """A picture on a light card, which dark pages show as well."""
    view = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {FONT}>'
    card = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
    return "\n".join([view, f"<title>{escape(title)}</title>", card, *parts, "</svg>\n"])


def rings(place: Path) -> None:
    """Dump one step of the README's network in both modes, and of a version with a wrong axis."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (place / "rings.py").write_text(code)
    (place / "typo.py").write_text(code.replace("Softmax(axis=1)", "Softmax(axis=0)"))
    for words in RUNS:
        run(words, place, check=True)


def run(words: str, place: Path, check: bool = False) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "runner", *words.split()]
    return subprocess.run(command, cwd=place, env=environment, check=check, stdout=subprocess.PIPE, text=True).stdout


def compared(place: Path, a: str, b: str) -> list[tuple[str, str, str]]:
    """Name, colour of its part of the step, and status of every operator, in the order of execution."""
    found = json.loads(run(f"compare {a} {b} --all --json", place))["all"]
    return [
        (row["name"].rsplit("/", 1)[1], _colour(row["name"]), row["status"])
        for row in found
        if row["kind"] == "operator"
    ]


def _colour(name: str) -> str:
    if name.startswith("Gradients/"):
        return BACKWARD
    return UPDATE if "Apply" in name else FORWARD


def legend(y: float, *rows: tuple[str, str]) -> list[str]:
    parts, x = [], 16.0
    for colour, text in rows:
        parts += [box(x, y, 14, 14, fill=colour, line=FAINT), label(x + 20, y + 12, text)]
        x += 34 + 6.6 * len(text)
    return parts


def modes(place: Path) -> str:
    """The same operators, one by one or as one model."""
    rows = compared(place, "graph", "pynative")
    assert all(status == "same" for _, _, status in rows)
    top, pitch = 64, 20
    parts = [label(110, 24, "PyNative mode", "middle", 15), label(330, 24, "Graph mode", "middle", 15)]
    below = f"{len(rows)} operators, one by one in numpy", "1 call of onnxruntime"
    parts += [label(x, 44, text, "middle") for x, text in zip((110, 330), below, strict=True)]
    parts.append(box(226, top - 8, 208, pitch * len(rows) + 12, fill="#eceff1"))
    for number, (name, colour, _) in enumerate(rows):
        y = top + pitch * number
        text = name if len(name) < 29 else name[:14] + "…" + name[-10:]
        parts += [box(10, y, 200, 16, text, colour, FAINT), box(232, y, 196, 16, text, colour, FAINT)]
    bottom = top + pitch * len(rows) + 16
    parts += legend(bottom, (FORWARD, "forward"), (BACKWARD, "gradients"), (UPDATE, "update"))
    return drawing("One training step in both modes", bottom + 30, parts)


def dumps(place: Path) -> str:
    """Two dumps side by side, and the first operator that differs."""
    rows = compared(place, "graph", "typo")
    first = next(number for number, row in enumerate(rows) if row[2] == "differs")
    shown, top, pitch = rows[: first + 4], 44, 34
    parts = [label(90, 24, "dump A", "middle", 15), label(350, 24, "dump B", "middle", 15)]
    for number, (name, _, status) in enumerate(shown):
        y, same = top + pitch * number, status == "same"
        parts += [box(10, y, 160, 24, name, FORWARD, FAINT)]
        parts += [box(270, y, 160, 24, name, FORWARD if same else WRONG, FAINT)]
        parts.append(label(220, y + 16, "=" if same else "≠", "middle", 18))
    y = top + pitch * first
    parts.append(box(4, y - 5, WIDTH - 8, 34, line="#c62828"))
    end = top + pitch * len(shown) + 14
    parts.append(label(220, end, "the first one that differs: its inputs agree, its output does not", "middle", 13))
    rest = f"the other {len(rows) - first - 1} differ because of it, and are not reported"
    parts.append(label(220, end + 20, rest, "middle", 12, FAINT))
    return drawing("runner compare walks two dumps in the order of execution", end + 34, parts)


class Calls(Callback):
    """At which steps Python was called."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def step_end(self, run_context: object) -> None:
        self.steps.append(run_context.original_args().cur_step_num)  # type: ignore[attr-defined]


def calls(sink: bool) -> list[int]:
    """The steps after which a training of eight steps calls its callbacks."""
    context.set_context(mode=context.GRAPH_MODE)
    data = NumpySlicesDataset({"x": np.ones((16, 2), np.float32), "y": np.ones((16, 1), np.float32)}).batch(2)
    network, seen = nn.Dense(2, 1), Calls()
    model = Model(network, nn.MSELoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9))
    model.train(2 if sink else 1, data, [seen], dataset_sink_mode=sink, **({"sink_size": 4} if sink else {}))
    return seen.steps


def sinking() -> str:
    """Who works when: Python between the calls, the device inside of them."""
    parts, y = [], 20
    for title, ends in (("dataset_sink_mode=false", calls(False)), ("sink_size=4", calls(True))):
        parts.append(label(10, y + 4, f"{title}: {len(ends)} calls for {ends[-1]} steps", size=14))
        parts += [label(10, y + 32, "Python", colour=FAINT), label(10, y + 60, "device", colour=FAINT)]
        x, begin = 64.0, 0
        for end in ends:
            width = 28 * (end - begin)
            parts += [box(x, y + 18, 12, 20, fill=BACKWARD, line=FAINT), box(x + 14, y + 46, width, 20, fill=FORWARD)]
            for step in range(begin, end):
                middle = x + 14 + 28 * (step - begin + 0.5)
                parts.append(label(middle, y + 60, str(step + 1), "middle"))
            x, begin = x + 16 + width, end
        y += 96
    parts.append(label(10, y, "The losses are equal bit for bit. The device waits less for Python.", size=12))
    return drawing("Eight steps without and with sinks", y + 16, parts)


def ranks(batch: int = 50, processes: int = 4) -> str:
    """A batch, its parts, and the exchange of gradients."""
    data = NumpySlicesDataset({"x": np.arange(batch)}).batch(batch)
    sizes = [len(next(data.divided(processes, k).create_tuple_iterator())[0]) for k in range(processes)]
    unit, x = (WIDTH - 20) / batch, 10.0
    parts = [label(220, 20, f"one batch of {batch} rows", "middle", 14)]
    for rank, size in enumerate(sizes):
        middle = x + unit * size / 2
        parts += [box(x, 30, unit * size, 26, str(size), FORWARD), box(middle - 46, 84, 92, 30, f"process {rank}")]
        parts += [arrow(middle, 56, middle, 82), arrow(middle, 114, middle, 146)]
        parts.append(label(middle + 6, 136, "gradients", size=11, colour=FAINT))
        parts += [arrow(middle, 178, middle, 206), box(middle - 46, 208, 92, 30, "same weights", UPDATE)]
        x += unit * size
    parts.append(box(10, 148, WIDTH - 20, 30, "sum, in a fixed order, weighted by rows", BACKWARD))
    return drawing("A data-parallel step", 252, parts)


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    head = f'<path d="M{x2 - 4} {y2 - 6} L{x2} {y2} L{x2 + 4} {y2 - 6}" fill="none" stroke="{INK}"/>'
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}"/>{head}'


def diagrams() -> dict[str, str]:
    """The text of each file, by its name."""
    with tempfile.TemporaryDirectory() as name:
        rings(Path(name))
        return {
            "modes.svg": modes(Path(name)),
            "dumps.svg": dumps(Path(name)),
            "sinking.svg": sinking(),
            "ranks.svg": ranks(),
        }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in diagrams().items():
        (folder / file).write_text(text)
