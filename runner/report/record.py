"""The record of a run: the files of its directory as values, for every command that reads runs, and texts of them.

`RunRecord` reads the files when they are accessed: missing or damaged files read as empty, and `notes` lists them;
nothing of it raises. `MetricsTail` follows `metrics.jsonl` of a run that is writing it. Before them stand numbers of
runs as text, after them lines and tables on the terminal and texts in Markdown, in which no name has a meaning.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from runner import rundir
from runner.errors import DataError, StorageError
from runner.host import files, json
from runner.host.console import visible
from runner.host.files import open_regular
from runner.host.json import flat
from runner.validation.rules import LARGEST_FLOAT32

if TYPE_CHECKING:
    from rich.console import Console


# Numbers in the files of a run, and metrics that are arrays, such as a confusion matrix: nested lists of numbers.

MAX_AXES = 8
SMALL = 1e-3  # of losses and metrics: what is less has no four digits behind the point


class ArrayElement(NamedTuple):
    """An element of two arrays: its place, such as `[2, 0]`, and its two values."""

    place: str
    a: float
    b: float


def is_number(value: object) -> bool:
    """Whether it is a number in the range of Float32, in which runner computes, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_FLOAT32


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 on that fits into an int64, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def metric_text(value: float) -> str:
    """A loss or metric as every table of runs shows it.

    >>> metric_text(0.98333), metric_text(4.2e-05), metric_text(0.0), metric_text(12)
    ('0.9833', '4.2e-05', '0.0000', '12')
    """
    if isinstance(value, int):
        return str(value)
    return f"{value:.1e}" if 0 < abs(value) < SMALL else f"{value:.4f}"


def format_value(value: object) -> str:
    """A value as the text of a table cell.

    >>> format_value(None), format_value(0.1), format_value(1e-7 / 3), format_value([1, 2])
    ('-', '0.1', '3.33333e-08', '1, 2')
    """
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def array_of(value: object) -> np.ndarray | None:
    """Nested lists of equal lengths as a Float64 array; None for anything else, also for a single number.

    >>> array_of([[3, 0], [1, 2]]).shape, array_of([[3, 0], [1]]), array_of(0.5), array_of([])
    ((2, 2), None, None, None)
    """
    shape: list[int] = []
    inner = value
    while isinstance(inner, list) and inner and len(shape) < MAX_AXES:
        shape.append(len(inner))
        inner = inner[0]
    if not shape or not _has_shape(value, tuple(shape)):
        return None
    return np.asarray(value, np.float64)


def size_text(value: Any) -> str:
    """The size of an array in words.

    >>> size_text([[3, 0, 1], [1, 2, 0]])
    '2x3 numbers'
    """
    return f"{'x'.join(map(str, np.shape(value)))} numbers"


def cells(a: np.ndarray, b: np.ndarray, differs: np.ndarray) -> Iterator[ArrayElement]:
    """The elements of two arrays of equal shape where `differs` holds, in order."""
    for index in np.argwhere(differs).tolist():
        place = tuple(index)
        yield ArrayElement(str(index), a[place].item(), b[place].item())


def _has_shape(value: object, shape: tuple[int, ...]) -> bool:
    if not shape:
        return is_number(value)
    return isinstance(value, list) and len(value) == shape[0] and all(_has_shape(one, shape[1:]) for one in value)


# The files of a run directory.

MAX_LINE_BYTES = 4 << 20  # of one event; the largest confusion matrix has 2 MB


@dataclass(frozen=True)
class Metrics:
    """`metrics.jsonl`: global steps (n,) int64 ascending, their losses (n,) float64 and epochs (n,) int64 (0 for a
    step that says none), and the `eval` events unchanged.

    `damaged` counts the lines that are not events, `zeros` those of them with NUL bytes. `torn`: the last line is
    incomplete, because the run was killed or is still writing.
    """

    steps: np.ndarray
    losses: np.ndarray
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    zeros: int = 0
    torn: bool = False
    epochs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class RunRecord:
    """The content of one run directory; each file is read when first accessed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def status(self) -> dict[str, Any]:
        """`status.json`."""
        return self._object(rundir.STATUS)

    @cached_property
    def state(self) -> str:
        """One of `rundir.STATES`."""
        return rundir.state_of(self.status)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config by dotted keys; for a job that never began, the values of its overrides."""
        return self._dotted(rundir.CONFIG) or self._override_values()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json` by dotted keys."""
        return self._dotted(rundir.MANIFEST)

    @cached_property
    def command(self) -> str | None:
        """The command of the script that records the run; None for a run with a config."""
        words = self._object(rundir.SCRIPT).get("words")
        if not json.fits(words, [str]):
            return None
        return shlex.join(["python", *words])

    @property
    def checkpoint_prefix(self) -> str:
        """The prefix of the names of checkpoints."""
        settings = {} if self.command else self.config
        return str(settings.get("checkpoint.prefix", "CKP"))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return self._object(rundir.SUMMARY)

    @cached_property
    def overrides(self) -> list[str]:
        """The overrides of the command line, from Hydra's `overrides.yaml`: a YAML list, one override per line."""
        text = self._bytes(f"{rundir.HYDRA}/overrides.yaml").decode(errors="replace")
        return [_unquoted(line[2:].strip()) for line in text.splitlines() if line.startswith("- ")]

    @cached_property
    def metrics(self) -> Metrics:
        """`metrics.jsonl`."""
        steps: list[int] = []
        losses: list[float] = []
        epochs: list[int] = []
        evaluations: list[dict[str, Any]] = []
        damaged, zeros, torn = 0, 0, False
        for line in self._lines(rundir.METRICS):
            row = event_of(line)
            zeros += b"\0" in line
            torn = not line.endswith(b"\n")
            if row is None:
                damaged += not torn
            elif row["event"] == "eval":
                evaluations.append(row)
            else:
                steps.append(row["global_step"])
                losses.append(row["loss"])
                epochs.append(epoch if is_count(epoch := row.get("epoch")) else 0)
        order = np.argsort(np.asarray(steps, np.int64), kind="stable")
        return Metrics(
            steps=np.asarray(steps, np.int64)[order],
            losses=np.asarray(losses, np.float64)[order],
            epochs=np.asarray(epochs, np.int64)[order],
            evaluations=evaluations,
            damaged=damaged,
            zeros=zeros,
            torn=torn,
        )

    def refuse_zeros(self) -> None:
        """Raise DataError for a journal that has NUL bytes in place of rows: a copy or a file system has lost them."""
        if self.metrics.zeros:
            repair = f"restore {rundir.METRICS} from a copy, or run it again"
            raise DataError("the journal of the run has NUL bytes", file=self.folder / rundir.METRICS, repair=repair)

    @cached_property
    def results(self) -> dict[str, float]:
        """The loss of the last step and the metrics of the last evaluation, by name.

        `eval.loss` is the loss on the test split.
        """
        results: dict[str, float] = {}
        if len(self.metrics.losses):
            results["loss"] = float(self.metrics.losses[-1])
        for name, value in (self.metrics.evaluations or [{}])[-1].items():
            if name not in ("event", "epoch", "global_step") and is_number(value):
                results["eval.loss" if name == "loss" else name] = value
        return results

    @cached_property
    def maximized(self) -> frozenset[str] | None:
        """The names in `results` for which larger is better; None if the summary has no such list, or there is none."""
        names = self.summary.get("maximized")
        if not isinstance(names, list):
            return None
        return frozenset("eval.loss" if name == "loss" else name for name in names if isinstance(name, str))

    def class_names(self, count: int) -> list[str]:
        """The names of `count` classes, from the summary; their numbers if it has not so many."""
        names = self.summary.get("class_names")
        if json.fits(names, [str]) and len(names) == count:
            return list(names)
        return [str(number) for number in range(count)]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The metrics of the last evaluation that are nested lists of numbers, by name."""
        last = (self.metrics.evaluations or [{}])[-1]
        return {name: value for name, value in last.items() if array_of(value) is not None}

    @cached_property
    def step(self) -> int:
        """The last recorded global step; 0 if there is none."""
        return int(self.metrics.steps[-1]) if len(self.metrics.steps) else 0

    @property
    def name(self) -> str:
        """The name of the experiment, or else of the network."""
        return str(self.status.get("experiment") or self.status.get("network") or "run")

    def time(self, name: str) -> datetime | None:
        """The time `started` or `finished` of `status.json`, None where it is not valid."""
        try:
            return datetime.fromisoformat(str(self.status.get(name)))
        except ValueError:
            return None

    @property
    def notes(self) -> list[str]:
        """Reasons why the data may be incomplete."""
        by_state = {
            "running": f"the run is still running; data up to step {self.step}",
            "killed": f"the process of the run no longer exists; data up to step {self.step}",
            "interrupted": f"the run was interrupted after step {self.step}"
            + ("; runner resume continues it" if rundir.can_be_resumed(self.folder) else ""),
            "broken": "status.json is missing or damaged; the other files were read",
        }
        notes = [by_state[self.state]] if self.state in by_state else []
        if self.metrics.damaged:
            notes.append(f"{self.metrics.damaged} damaged lines of metrics.jsonl are skipped")
        if self.metrics.torn and self.state != "running":
            notes.append("the last line of metrics.jsonl is torn")
        return notes

    def _override_values(self) -> dict[str, Any]:
        items = (line.lstrip("+").partition("=") for line in self.overrides)
        return {key: _value(value) for key, equals, value in items if equals}

    def _dotted(self, name: str) -> dict[str, Any]:
        return flat(self._object(name))

    def _object(self, name: str) -> dict[str, Any]:
        return json.read_optional(self.folder / name, rundir.MAX_FILE_BYTES)

    def _bytes(self, name: str) -> bytes:
        try:
            return files.read_bytes(self.folder / name, rundir.MAX_FILE_BYTES)
        except (DataError, StorageError):
            return b""

    def _lines(self, name: str) -> Iterator[bytes]:
        path = self.folder / name
        try:
            if not path.is_file():  # opening a pipe would block
                return
            with open(path, "rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    yield line
        except OSError:
            return


def differing_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The keys whose values are not equal in all flat configs, in order of first appearance."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]


def event_of(line: bytes) -> dict[str, Any] | None:
    """A valid event of `metrics.jsonl`; None for anything else."""
    try:
        row = json.parse_data(line)
    except DataError:
        return None
    if not isinstance(row, dict) or row.get("event") not in ("step", "eval"):
        return None
    has_place = is_count(row.get("global_step")) and (row.get("epoch") is None or is_count(row["epoch"]))
    return row if has_place and (row["event"] == "eval" or is_number(row.get("loss"))) else None


def _value(text: str) -> Any:
    try:
        return json.parse_data(text.encode())
    except DataError:
        return text


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


# The end of `metrics.jsonl`, also of a run that is writing it: new events, or the last ones of a long file.

LAST_BYTES = 64 << 10  # hundreds of events


class MetricsTail:
    """The events at the end of a file of a run, at most `most` bytes, and then those that are appended.

    A file that became shorter, since a resumed run has cut it, is read from its new end on.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self._offset = 0

    def new_events(self) -> list[dict[str, Any]]:
        """The events of whole lines that were appended since the last call; of more than `most` bytes, the last ones.

        [] for a file that is missing or cannot be read.
        """
        try:
            with open_regular(self.path, 1 << 62) as file:
                content = self._read(file, os.fstat(file.fileno()).st_size)
        except (DataError, StorageError):
            return []
        return list(_events(content))

    def _read(self, file: IO[bytes], size: int) -> bytes:
        """The new whole lines."""
        start = min(size, self._offset)
        skipped = max(0, size - start - self.most)
        file.seek(start + skipped)
        content = file.read(size - start - skipped)
        end = content.rfind(b"\n") + 1
        self._offset = start + skipped + end
        return content[:end].partition(b"\n")[2] if skipped else content[:end]


def last_events(path: Path) -> list[dict[str, Any]]:
    """The events of the last LAST_BYTES of a file; [] for a file that is missing or cannot be read."""
    return MetricsTail(path, LAST_BYTES).new_events()


def _events(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        if line and (event := event_of(line)) is not None:
            yield event


# Lines and tables on the terminal. rich is imported at the first use: it takes 60 ms, and JSON does not need it.

PIPED_WIDTH = 400  # columns; wider than any line, so that piped output is not wrapped


def open_console(piped_width: int = PIPED_WIDTH) -> "Console":
    """The console of the process; `piped_width` columns if the output is not a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=piped_width, soft_wrap=True, highlight=False)


def print_line(console: "Console", text: str, style: str = "") -> None:
    """Print a text as one line, whatever characters it has."""
    from rich.text import Text

    console.print(Text(visible(text), style=style))


def print_table(
    console: "Console",
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[str], str]],
    title: str | None = None,
    whole: Collection[str] = (),
) -> None:
    """Print a table: columns are (title, colour), rows are (cells, colour). Those in `whole` are not cut."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE)
    for place, (name, colour) in enumerate(columns):
        width = max((len(cells[place]) for cells, _ in rows), default=0) if name in whole else None
        table.add_column(name, style=colour, no_wrap=name in whole, min_width=width)
    for cells, colour in rows:
        table.add_row(*(Text(visible(cell)) for cell in cells), style=colour)
    console.print(table)


# Texts of users and files in Markdown: names of metrics, values of keys, paths.

# Texts that mean themselves in Markdown and to GitHub. The others have elements, emphasis, links, images, entities,
# addresses, mentions or references to issues.
_PLAIN = re.compile(r"[\w .,:;%+=/()'\"?$^{}|-]*")
_NOT_PLAIN = re.compile(r"://|www\.|\bGH-\d|(?<!\w)_|_(?!\w)|^ | $", re.IGNORECASE)


def inline(text: str) -> str:
    """The text as itself: unchanged if it is plain, otherwise in a code span, which nothing is interpreted in.

    >>> inline("network.name: lenet5"), inline("<b>*now*</b>")
    ('network.name: lenet5', '`<b>*now*</b>`')
    """
    shown = visible(text)
    return shown if _PLAIN.fullmatch(shown) and not _NOT_PLAIN.search(shown) else code(shown)


def code(text: str) -> str:
    """The text in a code span, whatever backticks it has."""
    shown = visible(text)
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(count for count in range(1, len(runs) + 2) if count not in runs)
    # One space at both ends is removed; it separates backticks, and keeps spaces that belong to the text.
    margin = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{margin}{shown}{margin}{fence}" if shown else ""


def table_row(cells: list[str]) -> str:
    """A row of a table; a pipe in a cell is escaped, in code spans as well."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
