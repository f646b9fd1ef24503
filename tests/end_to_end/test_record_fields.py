"""Every field of every record of a run and a sweep with wrong values: errors of ours, or harmless; never a defect."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from patience import not_for_ever
from soak import thinned
from tables import check_rows

from runner.cli import main

DATA = ("network=mlp", "dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "callbacks=quiet")
OF_A_RUN = "*.json", ".runner_owner.json", "eval/*.json", "checkpoints/*/MANIFEST.json", "metrics.jsonl"
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 63, 10**400, 1e308, "", "x\x1b[2J\0", "9" * 5000, [], {}, [[[]]], {"a": {"b": [None]}}),
    *("../../outside", "/etc/passwd"),
)
COMMANDS = (
    *(["ls", "."], ["watch", "r"], ["report", "r"], ["compare", "r", "other"], ["golden", "--check", "g.json", "r"]),
    *(["predict", "r", "x.npy"], ["eval", "r", "hydra.run.dir=e"], ["export", "r", "--to", "x"]),
    ["resume", "r", "max_steps=3"],
)
OF_A_SWEEP = ["ls", "."], ["watch", "s"], ["report", "s"], ["resume", "s"], ["rm", "s"]


class Attack(NamedTuple):
    """A value in place of a field, which is a path of keys in a line of a file; `line` is None for a whole file."""

    file: str
    line: int | None
    field: tuple[str | int, ...]
    value: Any

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {'.'.join(map(str, self.field))}={self.value!r:.40}"

    def apply(self, place: Path) -> None:
        path = place / self.file
        lines = path.read_text().splitlines() if self.line is not None else [path.read_text()]
        record = json.loads(lines[self.line or 0])
        inner = record
        for key in self.field[:-1]:
            inner = inner[key]
        inner[self.field[-1]] = self.value
        lines[self.line or 0] = json.dumps(record)
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that has been evaluated, another one, a golden file and a sweep."""
    place = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for words in (
            [*DATA, "max_steps=2", "hydra.run.dir=r"],
            [*DATA, "max_steps=2", "seed=2", "hydra.run.dir=other"],
            ["golden", "--update", "g.json", "r"],
            ["-m", *DATA, "max_steps=1", "seed=1,2", "hydra.sweep.dir=s"],
        ):
            assert main(words) == 0
        shape = np.load("r/x.npy").shape if Path("r/x.npy").exists() else (1, 1, 32, 32)
        np.save("x.npy", np.zeros(shape, np.float32))
    return place


def attacks(place: Path) -> Iterator[Attack]:
    """Each value in each field of each record, the first and the last line of journals."""
    files = [path for pattern in OF_A_RUN for path in sorted((place / "r").glob(pattern))]
    for path in (*files, place / "g.json", place / "s/sweep.jsonl"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else None
        chosen = [None] if lines is None else sorted({*range(min(4, len(lines))), len(lines) - 1})
        for line in chosen:
            record = json.loads(path.read_text() if line is None else lines[line])  # type: ignore[index]
            for field in fields(record):
                for value in VALUES:
                    yield Attack(str(path.relative_to(place)), line, field, copy.deepcopy(value))


def fields(record: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all fields, groups too; of a long list the first and the last element."""
    if isinstance(record, dict):
        items: list[tuple[Any, Any]] = [*record.items()]
    else:
        items = [*enumerate(record)] if isinstance(record, list) else []
        items = items if len(items) < 3 else [items[0], items[-1]]
    for key, value in items:
        yield (*before, key)
        yield from fields(value, (*before, key))


def test_wrong_values_of_every_field(whole, tmp_path, monkeypatch, capfd):
    def check(attack: Attack) -> None:
        place = tmp_path / "above/here"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(place.parent, ignore_errors=True)
        shutil.copytree(whole, place)
        attack.apply(place)
        monkeypatch.chdir(place)
        for words in OF_A_SWEEP if attack.file.startswith("s/") else COMMANDS:
            with not_for_ever((attack, words)):
                code = main(words)
            out, err = capfd.readouterr()
            assert 0 <= code <= 8, (words, err)
            assert "InternalError" not in err, (words, err)
            assert "\x1b[2J" not in out + err, words
        assert [path.name for path in place.parent.iterdir()] == ["here"]

    check_rows(list(thinned(attacks(whole), 397)), check, name=str)
