"""Sweeps with the user's own code: every launcher's workers load it, and all jobs run the same version of it."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from own_code import CODE, WORDS, failing, ran, write_project
from processes import ROOT, called
from soak import thinned
from sweep_runs import rows

from runner.config.command_line import CommandLine
from runner.config.compose import compose
from runner.experiment.sweep import journal
from runner.experiment.sweep.controller import Job

NAMES = {
    "pool": "",
    "basic": "",
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "ray": "hydra_plugins.hydra_ray_launcher",
    "submitit_local": "submitit",
}
SUBMITIT, OPTUNA = (
    pytest.mark.skipif(find_spec(name) is None, reason=f"needs {name}") for name in ("submitit", "optuna")
)
SEARCH = ("hydra/sweeper=optuna", "hydra.sweeper.metric=mine", "hydra.sweeper.n_trials=2")


def is_missing(module: str) -> bool:
    try:
        return bool(module) and find_spec(module) is None
    except ModuleNotFoundError:
        return True


launchers = pytest.mark.parametrize(
    "launcher",
    [pytest.param(name, marks=pytest.mark.skipif(is_missing(of), reason=f"needs {of}")) for name, of in NAMES.items()],
)


@pytest.fixture
def file(tmp_path) -> Path:
    """The file of a project's code."""
    return write_project(tmp_path / "here")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(job: Path) -> dict:
    return json.loads((job / "manifest.json").read_text())


@launchers
@pytest.mark.parametrize("way", [*thinned(["project", "flag"], every=2)])
def test_workers_load_the_same_code(launcher, way, tmp_path):
    """Network, dataset, loss, metric, callback, optimizer and schedule; the journal and each job have the hashes."""
    file = write_project(tmp_path / "here", 'code = ["own"]\n' if way == "project" else "")
    own = () if way == "project" else ("--code", "own")
    ran(("-m", *WORDS, "seed=1,2", f"hydra/launcher={launcher}", "hydra.sweep.dir=s", *own), tmp_path / "here")
    (header,) = rows(tmp_path / "here/s", "sweep")
    assert header["code_sha256"] == {"own/parts.py": digest(file.read_bytes())}
    assert header["code_given"] == list(own[1:])
    for job in (tmp_path / "here/s/0", tmp_path / "here/s/1"):
        assert (job / "marked").read_text() == "done"
        assert (job / "code/own/parts.py").read_bytes() == file.read_bytes()
        assert manifest(job)["code_sha256"] == header["code_sha256"]
    ends = [row["metrics"]["mine"] for row in rows(tmp_path / "here/s", "end")]
    assert len(set(ends)) == 2


@SUBMITIT  # which needs cloudpickle
def test_a_worker_that_has_not_composed_the_config_loads_the_code(tmp_path):
    """Ray composes in the process of the sweep; there each job is composed here and run by a new process."""
    write_project(tmp_path / "here", "")
    words = ("-m", *WORDS, "seed=1,2", f"hydra.sweep.dir={tmp_path / 's'}", "--code", "own")
    command = [sys.executable, str(ROOT / "tests/support/composed_elsewhere.py"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"cwd": tmp_path / "here", "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **options, check=False)
    assert done.returncode == 0, done.stderr
    assert [(job, (tmp_path / f"s/{job}/marked").exists()) for job in (0, 1)] == [(0, True), (1, True)]


@OPTUNA
def test_a_search_optimizes_a_metric_of_the_user(file):
    place = file.parents[1]
    ran(("-m", *WORDS, *SEARCH, "optimizer.learning_rate=interval(0.001,0.1)", "hydra.sweep.dir=s"), place)
    best = json.loads((place / "s/best.json").read_text())
    values = [row["metrics"]["mine"] for row in rows(place / "s", "end")]
    assert (best["metric"], best["direction"], best["value"]) == ("mine", "minimize", min(values))


def test_jobs_that_are_forked_run_what_was_loaded(file):
    """The first job edits the file: the second one still has the code in memory, and records that."""
    words = ("-m", *WORDS, "seed=1,2", "hydra.launcher.n_jobs=1", "hydra/launcher=pool", "hydra.sweep.dir=s")
    code, _, err = failing("edit", words, file.parents[1])
    assert code == 0, err
    assert file.read_text() != CODE
    for job in ("s/0", "s/1"):
        folder = file.parents[1] / job
        assert (folder / "code/own/parts.py").read_text() == CODE
        assert manifest(folder)["code_sha256"] == {"own/parts.py": digest(CODE.encode())}


@SUBMITIT
@OPTUNA
def test_a_worker_that_finds_edited_code_refuses_the_job(file):
    """The first job edits the file before the second one is submitted."""
    words = ("-m", *WORDS, *SEARCH, "optimizer.learning_rate=interval(0.001,0.1)", "hydra.sweep.dir=s")
    code, _, err = failing("edit", (*words, "hydra/launcher=submitit_local"), file.parents[1])
    assert code == 8, err
    first, second = rows(file.parents[1] / "s", "end")
    assert (first["status"], second["status"], second["exit_code"]) == ("ok", "failed", 2)
    assert "the code of the job is not that of its sweep" in second["error"]
    assert str(file) in second["error"]


def test_a_job_names_the_file_that_its_host_lacks(tmp_path):
    journal.append(tmp_path, "sweep", version=1, call={}, config={}, config_sha256="", threads=1)
    composition = compose(CommandLine(("dataset=synthetic", "max_steps=1")))
    with composition.activate(tmp_path / "0") as request:
        (tmp_path / "0").mkdir()
        assert Job(tmp_path, code={"gone.py": "0" * 64})(0, request, None) == 2
    (end,) = rows(tmp_path, "end")
    assert "gone.py (not loaded)" in end["error"]
    assert platform.node() in end["error"]
    assert not (tmp_path / "0/config.json").exists()


def test_a_resumed_sweep_refuses_changed_code(file):
    place = file.parents[1]
    code, _, _ = failing("construct", ("-m", *WORDS, "seed=1,2", "hydra.sweep.dir=s"), place)
    assert code == 8
    before = (place / "s/sweep.jsonl").read_bytes()
    file.write_text(CODE + "# changed\n")
    code, _, err = called(("resume", "s"), place)
    assert code == 2
    assert "ConfigError: the code of the sweep has changed\n  code.own/parts.py  was " in err
    assert (place / "s/sweep.jsonl").read_bytes() == before
    ran(("resume", "s", "--force"), place)
    (row,) = rows(place / "s", "resume")
    assert row["code_sha256"] == {"own/parts.py": digest(file.read_bytes())}
    file.write_text(CODE)
    assert called(("resume", "s"), place)[0] == 2  # the jobs are those of the changed code now


def test_a_journal_of_an_older_version_has_no_hashes(file):
    place = file.parents[1]
    failing("construct", ("-m", *WORDS, "seed=1,2", "hydra.sweep.dir=s"), place)
    path = place / "s/sweep.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    kept = {name: value for name, value in json.loads(first).items() if not name.startswith("code_")}
    path.write_text(json.dumps(kept) + "\n" + "".join(others))
    ran(("resume", "s"), place)
    assert [row["status"] for row in rows(place / "s", "end")] == ["failed", "failed", "ok", "ok"]


def test_a_sweep_that_is_resumed_without_its_code_says_how(tmp_path):
    write_project(tmp_path / "here", "")
    failing("construct", ("-m", *WORDS, "seed=1,2", "hydra.sweep.dir=s", "--code", "own"), tmp_path / "here")
    code, _, err = called(("resume", "s"), tmp_path / "here")
    assert code == 2
    assert "own/parts.py: not loaded here" in err
    assert "load it with     runner resume s --code own\n" in err
    ran(("resume", "s", "--code", "own"), tmp_path / "here")
