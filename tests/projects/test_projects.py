"""Three projects of users, each a repository of its own that uses `runner` only: from data to a report, by the command.

Here each is trained to its stated quality, in both modes and sunk; `make soak` adds kills, sweeps, ranks and dumps.
"""

import csv
import json
import random
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from patience import wait_until
from processes import INSTALLED, called, kill_group, started
from random_kills import MPIRUN, check_kills
from safetensors.numpy import load_file
from soak import SOAK, thinned

HERE = Path(__file__).parent
PLAIN = ("eval.every=never", "~expect")


class Project(NamedTuple):
    """A project, its experiment, and what its tests need to know about it."""

    folder: str
    experiment: str
    quality: str  # the metric that the experiment expects
    steps: int  # in an epoch
    line: tuple[str, str, str]  # a file of its code, a piece of a line, and what it is changed to
    code: tuple[str, ...]  # the files that a run loads
    certain: tuple[str, ...] = ()  # without dropout, of which each rank drops other elements
    rtol: float = 1e-4  # of dumps: Adam divides gradients by their size, also those that are nearly zero

    @property
    def words(self) -> tuple[str, ...]:
        return (f"+experiment={self.experiment}", "callbacks=quiet")


PROJECTS = (
    Project(
        folder="housing",
        experiment="prices",
        quality="r2",
        steps=40,
        line=("housing/network.py", "x + self.fc2", "x - self.fc2"),
        code=("housing/__init__.py", "housing/metric.py", "housing/network.py"),
    ),
    Project(
        folder="shapes",
        experiment="shapes",
        quality="accuracy",
        steps=50,
        line=("shapes/loss.py", "-float(classes)", "-2.0 * classes"),
        code=("shapes/__init__.py", "shapes/callback.py", "shapes/loss.py", "shapes/network.py"),
        certain=("network.keep=1.0",),
        rtol=1e-2,
    ),
    Project(
        folder="sentences",
        experiment="brackets",
        quality="accuracy",
        steps=60,
        line=("sentences/operator.py", "-1e9", "-1e8"),
        code=tuple(f"sentences/{name}.py" for name in ("__init__", "data", "network", "operator", "schedule")),
    ),
)
each = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.folder)
"""The tests of `soak`: here only the first project."""
some = pytest.mark.parametrize("project", list(thinned(PROJECTS, 3)), ids=lambda project: project.folder)


@pytest.fixture
def place(project: Project, tmp_path: Path) -> Path:
    """The project's own repository, outside of any checkout, with its data."""
    pytest.importorskip("PIL", reason="the extra images")
    copy = tmp_path / project.folder
    shutil.copytree(HERE / project.folder, copy, ignore=shutil.ignore_patterns("__pycache__", "data"))
    make_data(copy)
    return copy


def make_data(place: Path) -> None:
    if (place / "make_data.py").exists():
        runpy.run_path(str(place / "make_data.py"), run_name="__main__")


def runner(place: Path, *words: str, launcher: Sequence[str] = ()) -> str:
    """What the command prints; it succeeds."""
    code, out, err = called(words, place, launcher)
    assert code == 0, err
    return out


def losses(run: Path) -> dict[int, float]:
    """By step; a sink writes its last one."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {row["global_step"]: row["loss"] for row in rows if row["event"] == "step"}


def distance(one: Path, other: Path) -> float:
    """The largest relative difference of the losses of two runs."""
    pairs = zip(losses(one).values(), losses(other).values(), strict=True)
    return max(abs(a / b - 1) for a, b in pairs)


def weights(run: Path) -> dict[str, np.ndarray]:
    """The parameters of the last checkpoint."""
    (last,) = sorted(run.glob("checkpoints/*/state.safetensors"))[-1:]
    return load_file(last)


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


# The data


@each
def test_the_data_are_the_same_each_time(project, place):
    before = {path: path.read_bytes() for path in (place / "data").rglob("*.*")}
    assert len(before) == {"housing": 1, "shapes": 1200, "sentences": 0}[project.folder]
    make_data(place)
    assert {path: path.read_bytes() for path in (place / "data").rglob("*.*")} == before


@pytest.mark.parametrize("project", PROJECTS[:1], ids=["housing"])
def test_the_houses_have_what_tables_have(place):
    rows = list(csv.DictReader((place / "data/houses.csv").read_text().splitlines()))
    assert len(rows) == 2000
    assert {row["district"] for row in rows} == {"centre", "hill", "harbour", "suburb"}
    assert [sum(not row[name] for row in rows) > 20 for name in ("area", "age", "rooms")] == [True, True, False]


# One project


@each
def test_a_project_reaches_its_quality(project, place):
    """The experiment's `expect` ends the run with exit code 6 otherwise."""
    runner(place, *project.words, "mode=graph", "hydra.run.dir=outputs/whole")
    whole = place / "outputs/whole"
    known = summary(whole)
    assert known["status"] == "ok"
    assert project.quality in known["metrics"]
    stored = sorted(path.relative_to(whole / "code").as_posix() for path in (whole / "code").rglob("*.py"))
    assert stored == sorted(project.code)
    if project.folder == "shapes":
        epochs = [path.name for path in sorted((whole / "filters").iterdir())]
        assert epochs == [f"epoch_{number:03d}.png" for number in range(1, 15)]
    reported(place, whole, project)
    held_to_its_numbers(place)
    evaluated_again(place, known["metrics"])
    PREDICTED[project.folder](place, known["metrics"])


def reported(place: Path, whole: Path, project: Project) -> None:
    """The report has the curves of the metrics, and for classes a confusion matrix."""
    runner(place, "report", "outputs/whole")
    page = (whole / "report.html").read_text()
    assert project.quality in page
    assert ("confusion" in page) == (project.quality == "accuracy")


def held_to_its_numbers(place: Path) -> None:
    runner(place, "golden", "--update", "golden.json", "outputs/whole")
    runner(place, "golden", "--check", "golden.json", "outputs/whole")


def evaluated_again(place: Path, metrics: dict[str, float]) -> None:
    runner(place, "eval", "outputs/whole", "hydra.run.dir=outputs/again")
    assert summary(place / "outputs/again")["metrics"] == metrics


def predictions(place: Path, *files: str) -> list[dict]:
    found: list[dict] = json.loads(runner(place, "predict", "outputs/whole", *files, "--json"))
    return found


def images_are_predicted(place: Path, metrics: dict[str, float]) -> None:
    """The images of the test split give the accuracy of the evaluation."""
    files = sorted(path.relative_to(place).as_posix() for path in (place / "data" / "test").rglob("*.png"))
    right = [Path(one["file"]).parent.name == one["classes"][0]["class"] for one in predictions(place, *files)]
    assert np.mean(right) == pytest.approx(metrics["accuracy"])


def rows_are_predicted(place: Path, metrics: dict[str, float]) -> None:
    """All rows of the table have the squared error of both splits; a row without the target has a price, too."""
    errors = []
    for split in ("train", "test"):
        runner(place, "eval", "outputs/whole", f"eval.split={split}", "eval.metrics=[mse]", f"hydra.run.dir={split}")
        errors.append(summary(place / split)["metrics"]["mse"])
    rows = list(csv.DictReader((place / "data/houses.csv").read_text().splitlines()))
    found = [one["values"]["price"] for one in predictions(place, "data/houses.csv")]
    error = np.mean((np.array(found) - [float(row["price"]) for row in rows]) ** 2)
    assert error == pytest.approx(0.8 * errors[0] + 0.2 * errors[1], rel=1e-3)
    names = [name for name in rows[0] if name != "price"]
    lines = [",".join(names), ",".join(rows[0][name] for name in names)]
    (place / "new.csv").write_text("\n".join(lines) + "\n")
    assert predictions(place, "new.csv")[0]["values"]["price"] == pytest.approx(found[0], rel=1e-4)


def tokens_are_predicted(place: Path, metrics: dict[str, float]) -> None:
    """The rows of the test split as an array give the accuracy of the evaluation."""
    code = "import numpy as np; from sentences.data import brackets; x, y = zip(*brackets('test'));"
    code += "np.save('x.npy', np.stack(x)); np.save('y.npy', np.stack(y))"
    subprocess.run([INSTALLED or sys.executable, "-c", code], cwd=place, check=True)
    classes = [one["classes"][0]["class"] for one in predictions(place, "x.npy")]
    right = np.array(classes) == np.array(["mixed", "balanced"])[np.load(place / "y.npy")]
    assert right.mean() == pytest.approx(metrics["accuracy"])


PREDICTED = {"shapes": images_are_predicted, "housing": rows_are_predicted, "sentences": tokens_are_predicted}


@each
def test_both_modes_and_a_sink_take_the_same_hundred_steps(project, place):
    words = ("mode=graph,pynative", "dataset_sink_mode=true,false", "max_steps=100", *PLAIN)
    runner(place, "-m", *project.words, *words, "hydra.sweep.dir=multirun/modes")
    runs = [place / "multirun/modes" / str(job) for job in range(4)]
    sunk, unsunk, eager, again = map(losses, runs)
    assert list(unsunk) == list(eager) == list(range(1, 101))
    assert sunk == {step: unsunk[step] for step in sunk}
    assert max(sunk) == 100
    assert eager == again
    assert distance(runs[1], runs[3]) < 1e-5
    sunk, unsunk, eager, again = map(weights, runs)
    for name, value in eager.items():
        assert np.array_equal(sunk[name], unsunk[name]), name
        assert np.array_equal(value, again[name]), name
    runner(place, "compare", "multirun/modes/1", "multirun/modes/3", "--metrics")


@pytest.mark.parametrize("project", PROJECTS[2:], ids=["sentences"])
def test_brackets_cannot_be_classified_without_their_order(place):
    """In each pair of rows the brackets are the same and the classes differ: nothing that counts can be better."""
    runner(place, "+experiment=bag", "epochs=4", "callbacks=quiet", "mode=graph", "hydra.run.dir=bag")
    assert summary(place / "bag")["metrics"]["accuracy"] == pytest.approx(0.5, abs=0.05)


@some
def test_a_changed_line_is_found_by_resume(project, place):
    words = (*project.words, "mode=pynative", "epochs=100000", "hydra.run.dir=outputs/half")
    process = started(words, place)
    metrics = place / "outputs/half/metrics.jsonl"
    try:
        wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 5, lambda: process.poll() is None)
        process.send_signal(signal.SIGTERM)
        process.wait()
    finally:
        kill_group(process)
    name, old, new = project.line
    text = (place / name).read_text()
    assert text.count(old) == 1
    (place / name).write_text(text.replace(old, new))
    code, _, err = called(("resume", "outputs/half"), place)
    assert code == 2, err
    assert name in err
    assert "--force" in err


# What takes minutes


def last_checkpoint(project: Project, epochs: int) -> str:
    return f"CKP-{epochs}_{project.steps}"


@some
def test_kills_at_random_moments(project, place, record_property):
    words = (*project.words, "mode=graph", "epochs=6", "checkpoint.every_steps=20", "~expect", "device.threads=1")
    effective = check_kills(
        lambda folder: (*words, f"hydra.run.dir={folder}"),
        place,
        random.Random(project.folder),
        10 if SOAK else 1,
        last_checkpoint(project, 6),
    )
    record_property("kills", effective)


if SOAK:

    @each
    def test_a_sweep_of_eight_jobs_that_is_killed(project, place):
        words = ("mode=graph", "epochs=2", "checkpoint.every_steps=20", "~expect", "device.threads=1")
        sweep = ("-m", *project.words, *words, "seed=1,2,3,4", "optimizer.learning_rate=0.001,0.002")
        check_kills(
            lambda folder: (*sweep, "hydra/launcher=pool", f"hydra.sweep.dir={folder}"),
            place,
            random.Random(project.folder),
            2,
            last_checkpoint(project, 2),
        )

    @each
    def test_two_ranks_train_as_one_process(project, place):
        pytest.importorskip("mpi4py")
        words = (*project.words, *project.certain, "mode=graph", "dataset_sink_mode=false", "max_steps=20", *PLAIN)
        ranks = ("parallel=data_parallel", "parallel.gradients_mean=true", "parallel.sync_batch_norm=true")
        runner(place, *words, "hydra.run.dir=one")
        runner(place, *words, *ranks, "hydra.run.dir=two", launcher=MPIRUN)
        assert len(losses(place / "two")) == 20
        assert distance(place / "two", place / "one") < 1e-5

    @each
    def test_dumps_of_both_modes_are_equal(project, place):
        dump = ("dump=sync", "dump.iteration='0|3'", "dataset_sink_mode=false", "max_steps=4", *PLAIN)
        for mode in ("graph", "pynative"):
            runner(place, *project.words, *dump, f"mode={mode}", f"hydra.run.dir={mode}")
        assert runner(place, "compare", "graph", "pynative", "--rtol", str(project.rtol)).startswith("same: ")
