"""Every command that writes is killed (-9) before each of its operations on files, and then done again as its error
says: the same files as if nothing had happened, nothing else touched, nothing left over."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from deaths import kill_before
from soak import thinned

from runner import cli, commands
from runner.host import files
from runner.ops.effects import PrintFile
from runner.rundir import OWNER

TINY = (
    *("dataset=synthetic", "dataset.num_samples=64", "epochs=2", "callbacks=quiet", "device.threads=1"),
    *("optimizer.learning_rate=0.05", "checkpoint.every_steps=2", "eval.every=end"),
)
GRAPH = (*TINY, "mode=graph", "sink_size=2")
PYNATIVE = (*TINY, "mode=pynative", "dataset_sink_mode=false")
DUMPED = ("dump=async", "dump.path={here}/dumped", "dump.dump_mode=1", "dump.kernels=[ReLU]", "dump.iteration=1")
SEARCH = ("hydra/sweeper=search", "hydra.sweeper.n_trials=2", "seed=1,2")


class Killed(NamedTuple):
    """A command; `prepared` are commands before it, of which the last may be killed at an operation, too."""

    words: tuple[str, ...]
    prepared: tuple[tuple[str, ...], ...] = ()
    killed_before: int = 0  # where the last one of `prepared` is killed


BASE = ((*GRAPH, "hydra.run.dir=base"),)
COMMANDS = {
    "run": Killed((*GRAPH, "hydra.run.dir=r")),
    "run with IR": Killed((*PYNATIVE, "save_graphs=true", "hydra.run.dir=r")),
    "run with a dump": Killed((*PYNATIVE, *DUMPED, "hydra.run.dir=r")),
    "sweep": Killed(("-m", *PYNATIVE, "seed=1,2", "hydra.sweep.dir=s")),
    "search": Killed(("-m", *PYNATIVE, *SEARCH, "hydra.sweep.dir=s")),
    "resume": Killed(("resume", "r"), ((*GRAPH, "hydra.run.dir=r"),), 50),
    "resume of a sweep": Killed(("resume", "s"), (("-m", *PYNATIVE, "seed=1,2", "hydra.sweep.dir=s"),), 80),
    "eval": Killed(("eval", "base", "hydra.run.dir=e"), BASE),
    "report": Killed(("report", "base"), BASE),
    "report of a sweep": Killed(("report", "s"), (("-m", *PYNATIVE, "seed=1,2", "hydra.sweep.dir=s"),)),
    "golden": Killed(("golden", "--update", "golden.json", "base"), BASE),
    "export": Killed(("export", "base", "--to", "x"), BASE),
    "export again": Killed(("export", "base", "--to", "x", "--steps", "2"), (*BASE, ("export", "base", "--to", "x"))),
    "export mindir": Killed(("export", "base", "--to", "x.mindir", "--format", "mindir"), BASE),
    "new": Killed(("new", "pears")),
    "convert": Killed(("convert", "-d", "dumped", "-out", "c"), ((*PYNATIVE, *DUMPED, "hydra.run.dir=r"),)),
    "predict npy": Killed(("predict", "base", "rows.npy", "--npy", "p.npy"), BASE),
    "predict npz": Killed(("predict", "base", "rows.npy", "--npz", "p.npz"), BASE),
    "rm": Killed(("rm", "base"), BASE),
    "rm of a sweep": Killed(("rm", "s"), (("-m", *PYNATIVE, "seed=1,2", "hydra.sweep.dir=s"),)),
}
READERS = {
    "ls": ("ls",),
    "watch": ("watch", "base"),
    "compare": ("compare", "base", "base"),
    "inspect": ("inspect", "base/model/network.onnx"),
    "doctor": ("doctor",),
    "parse-print": ("parse-print", "printed"),
    "predict": ("predict", "base", "rows.npy", "--csv"),
    "golden": ("golden", "--check", "golden.json", "base"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def furnish(here: Path) -> None:
    """A place with files of the user, which no command may change."""
    here.mkdir()
    (here / "thesis.tex").write_text("mine")
    np.save(here / "rows.npy", np.linspace(-1, 1, 2 * 32 * 32, dtype=np.float32).reshape(2, 1, 32, 32))


def done(here: Path, *words: str, killed_before: int = 0) -> int:
    """The number of operations of a command in a process of its own; -1 if it was killed, before one of this number."""
    process = os.fork()
    if not process:
        code, operations = 99, kill_before(killed_before)
        os.chdir(here)
        with open("../output.txt", "w", buffering=1) as output:
            sys.stdout = sys.stderr = output
            try:
                code = cli.main([word.format(here=here) if "{here}" in word else word for word in words])
            finally:
                Path("../count.txt").write_text(f"{code} {len(operations)}")
                os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return -1
    code, count = map(int, (here / "../count.txt").read_text().split())
    said = (here / "../output.txt").read_text()
    if code == 4 and (owner := re.search(r"owner +run (\S+) \(killed; it can be resumed\)", said)):
        return done(here, "resume", owner[1])
    if "the run is finished" in said or (code == 4 and "to continue" not in said):  # killed behind its end
        return count
    if code == 4 and (repair := re.search(r"to continue: runner (resume .+?);", said)):
        return done(here, *shlex.split(repair[1]))
    assert code == 0, said
    return count


def tree(here: Path) -> dict[str, str]:
    """What must not depend on kills: every file, without times, and what a process says of itself.

    A resumed run replaces the graphs of the run by those of the steps that it makes: after the last step, none.
    """
    found = {}
    for path in sorted(here.rglob("*")):
        name = path.relative_to(here).as_posix()
        assert not files.is_temporary(path.name), name
        if path.is_file() and path.name not in OF_THE_PROCESS and path.parent.name not in ("graphs", "execution_order"):
            found[STAMP.sub("T", name)] = sha256(without_times(path)).hexdigest() if is_exact(path) else ""
    return found


def is_exact(path: Path) -> bool:
    """Whether the bytes of a file depend on nothing but what was done."""
    return (
        {".hydra", "dumped"}.isdisjoint(path.parts)
        and path.suffix not in (".db", ".html")
        and path.name != "sweep.jsonl"
    )


STAMP = re.compile(r"\d{14,20}")
OF_THE_PROCESS = (".lock", OWNER, "status.json", "manifest.json", "multirun.yaml")
TIMES = re.compile(r"seconds|_rss_|run_dir|host_interactions|per_second|created|date|path|recorded")


def without_times(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".json":
        return content
    values = json.loads(content)
    if isinstance(values, dict):
        values = {key: value for key, value in values.items() if not TIMES.search(key)}
    return json.dumps(values, sort_keys=True).encode()


def prepare(here: Path, command: Killed) -> None:
    furnish(here)
    for words in command.prepared:
        last = words is command.prepared[-1]
        assert (done(here, *words, killed_before=command.killed_before * last) == -1) == bool(command.killed_before)


def places(operations: int) -> Iterator[int]:
    return thinned(range(1, operations + 1), every=max(1, operations // 4))


@pytest.mark.parametrize("name", [*thinned(COMMANDS, every=3)])
def test_killed_before_each_operation_and_done_again(place, name):
    command = COMMANDS[name]
    prepare(place / "before", command)
    here = place / "here"

    def fresh() -> Path:
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(place / "before", here, symlinks=True)
        return here

    operations = done(fresh(), *command.words)
    assert operations > 1
    whole = tree(here)
    assert whole.keys() != tree(place / "before").keys()
    for number in places(operations):
        assert done(fresh(), *command.words, killed_before=number) == -1, number
        done(here, *command.words)
        assert tree(here) == whole, f"killed before operation {number} of {operations}"


def test_each_command_writes_here_or_never(place):
    """Commands that read leave no trace; together with the table above these are all that there are."""
    everything = {words[0] for words in (*READERS.values(), *(one.words for one in COMMANDS.values()))}
    assert set(commands.COMMANDS) <= everything
    here = place / "here"
    furnish(here)
    with closing(PrintFile(here / "printed")) as printed:
        printed.append(["one"])
    done(here, *GRAPH, "hydra.run.dir=base")
    done(here, "golden", "--update", "golden.json", "base")
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    for words in READERS.values():
        assert done(here, *words) == 0, words
        assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before, words
