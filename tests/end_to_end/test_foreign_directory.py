"""The sentences of docs/how-to/strangers.md: a run directory that someone else prepared does nothing to its reader."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE

from runner.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/strangers.md"
OWN = """
import runner
from runner import nn


@runner.register.network("mine")
class Mine(nn.Cell):
    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.flatten, self.dense = nn.Flatten(), nn.Dense(1024, num_classes)

    def construct(self, x):
        return self.dense(self.flatten(x))
"""
WORDS = ("dataset=digits", "max_steps=2", "dump=sync", "dataset_sink_mode=false", "callbacks=quiet")
READERS = (["ls", "."], ["watch", "r"], ["report", "r"], ["compare", "r", "r"], ["golden", "--update", "g.json", "r"])
USERS = (["predict", "r", "x.npy"], ["eval", "r", "hydra.run.dir=e"], ["export", "r", "--to", "x"])
RESUME = ["resume", "r", "max_steps=3"]


class Marks:
    """Pickled, it creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of a network of runner."""
    folder = tmp_path_factory.mktemp("run") / "r"
    assert main(["network=mlp", *WORDS, f"hydra.run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def place(run, tmp_path, monkeypatch) -> Path:
    """A working directory with a copy of the run in `r`, beside a folder of the reader."""
    shutil.copytree(run, tmp_path / "here/r")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/kept").write_text("kept")
    monkeypatch.chdir(tmp_path / "here")
    np.save("x.npy", np.zeros((1, 1, 32, 32), np.float32))
    return tmp_path


def outside(place: Path) -> set[str]:
    """What is beside the working directory."""
    return {str(path.relative_to(place)) for path in place.rglob("*") if place / "here" not in (path, *path.parents)}


def test_code_in_the_directory_is_not_executed(place, capfd):
    Path("own.py").write_text(OWN)
    words = ["--code", "own.py", "network=mine", *WORDS, "hydra.run.dir=own"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "runner", *words], check=True, env=environment, timeout=PATIENCE)
    shutil.rmtree("r")
    Path("own").rename("r")
    Path("own.py").unlink()
    with Path("r/code/own.py").open("a") as file:
        file.write(f"\nimport os\nos.mkdir({str(place / 'marked')!r})\n")
    for words in (*READERS, *USERS, RESUME):
        code = main(words)
        said = capfd.readouterr().err
        assert code == (0 if words in READERS else 2), said
        assert (words in READERS) or 'value            "mine"' in said
    assert outside(place) == {"mine", "mine/kept"}


@pytest.mark.parametrize("pattern", ["checkpoints/*/*", "dump/**/*.bin", "metrics.jsonl", "status.json"])
def test_nothing_is_unpickled(place, capfd, pattern):
    found = [path for path in Path("r").glob(pattern) if path.is_file()]
    assert found
    for path in found:
        path.write_bytes(pickle.dumps(Marks(place / "marked")))
    for words in (*READERS, *USERS, RESUME):
        main(words)
        assert "InternalError" not in capfd.readouterr().err
    assert outside(place) == {"mine", "mine/kept"}


@pytest.mark.parametrize("value", [{"_target_": "os.mkdir", "path": "marked"}, "os:mkdir", "runner.nn.Dense"])
def test_a_config_names_only_what_runner_knows(place, capfd, value):
    path = Path("r/config.json")
    config = json.loads(path.read_text())
    config["network"] = value if isinstance(value, dict) else {**config["network"], "name": value}
    path.write_text(json.dumps(config))
    for words in (*USERS, RESUME):
        assert main(words) == 2
        assert "InternalError" not in capfd.readouterr().err
    assert not Path("marked").exists()
    assert outside(place) == {"mine", "mine/kept"}


def test_links_are_neither_followed_nor_removed_with_what_they_lead_to(place, capfd):
    for name in ("checkpoints/more", "dump/aside", "eval"):
        link = Path("r") / name
        if link.is_dir():
            shutil.rmtree(link)
        link.symlink_to(place / "mine")
    assert main(RESUME) == 2
    assert "a directory with symbolic links is not continued" in capfd.readouterr().err
    for words in READERS:
        main(words)
    assert main(["rm", "r", "--force"]) == 0
    assert not Path("r").exists()
    assert (place / "mine/kept").read_text() == "kept"
    assert outside(place) == {"mine", "mine/kept"}


def test_a_directory_does_not_choose_where_a_resumed_run_writes(place, capfd):
    path = Path("r/config.json")
    config = json.loads(path.read_text())
    config["print_file_path"] = str(place / "mine/print.pb")
    path.write_text(json.dumps(config))
    assert main([*RESUME, "--force"]) != 0
    assert "print_file_path" in capfd.readouterr().err
    assert outside(place) == {"mine", "mine/kept"}


def test_text_has_no_effect_in_a_terminal_or_a_page(place, capfd):
    evil = "<script>alert(1)</script>\x1b[2J"
    status = json.loads(Path("r/status.json").read_text())
    Path("r/status.json").write_text(json.dumps({**status, "status": "failed", "error": evil, "network": evil}))
    summary = json.loads(Path("r/summary.json").read_text())
    Path("r/summary.json").write_text(json.dumps({**summary, "metrics": {evil: 0.5}}))
    for words in (*READERS, *USERS):
        main(words)
        out, err = capfd.readouterr()
        assert "\x1b[2J" not in out + err
    assert "<script>alert" not in Path("r/report.html").read_text()


def test_sizes_are_checked_before_memory_is_taken(place, capfd):
    claimed = (1 << 40).to_bytes(
        8, "little"
    ) + b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    for path in Path("r/checkpoints").glob("*/*"):
        path.write_bytes(claimed)
    for words in (*USERS, RESUME):
        assert main(words) != 0
        said = capfd.readouterr().err
        assert "InternalError" not in said
        assert "MemoryError" not in said


def test_the_page_has_a_test_for_each_sentence():
    """Scripts that are started again: tests/experiment/test_script_processes.py."""
    tested = (
        "Code in",
        "Nothing is unpickled",
        "A config names",
        "Sizes are",
        "A directory with",
        "A directory does",
        "A script is",
        "Text of",
    )
    found = [line.removeprefix("- ") for line in PAGE.read_text().splitlines() if line.startswith("- ")]
    assert len(found) == len(tested)
    assert all(line.startswith(start) for line, start in zip(found, tested, strict=True))
