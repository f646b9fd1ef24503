"""`tracking=mlflow`: a run of MLflow that says what the files of the run say, as MLflow's own client reads it."""

import logging
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from tracking_runs import ROOT, killed, points, said, words

import runner
from runner.config.compose import CommandLine
from runner.errors import ConfigError, TrainingError
from runner.experiment.callbacks import MetricsJournal
from runner.experiment.resume import resume
from runner.experiment.sweep import sweep
from runner.host.json import flat

pytestmark = [
    pytest.mark.skipif(find_spec("mlflow") is None, reason="the extra mlflow is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of MLflow's parts to each other
]


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    """One database for all runs here: to make its tables takes seconds."""
    return tmp_path_factory.mktemp("mlflow") / "runs.db"


@pytest.fixture
def uri(database, tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNNER_WRITABLE", str(database))  # outside of the working directory, for resumed runs
    return f"sqlite:///{database}"


def client(uri: str):
    from mlflow import MlflowClient

    return MlflowClient(uri)


def found(folder: Path):
    """The run of MLflow that a run says is its own."""
    place = said(folder, "tracking")
    return client(place["uri"]).get_run(place["run_id"])


def scalars(folder: Path) -> Counter:
    """All that MLflow has of the rows of a run, how often."""
    place = said(folder, "tracking")
    asked, names = client(place["uri"]), found(folder).data.metrics
    rows = [(m.key, m.step, m.value) for name in names for m in asked.get_metric_history(place["run_id"], name)]
    return Counter(row for row in rows if not row[0].startswith("summary/"))


def test_mlflow_has_what_the_files_have(uri, tmp_path):
    folder = tmp_path / "run"
    runner.run(words(folder, "mlflow", f"tracking.uri={uri}", "mode=graph", "eval.every=epoch"))
    made = found(folder)
    assert scalars(folder) == Counter(points(folder))
    assert (made.info.status, made.info.run_name) == ("FINISHED", f"{tmp_path.name}/run")
    params = {key: value if isinstance(value, str) else None for key, value in flat(said(folder, "config")).items()}
    assert set(made.data.params) == set(params)
    assert {key: made.data.params[key] for key, value in params.items() if value} == {
        k: v for k, v in params.items() if v
    }
    assert made.data.params["optimizer.learning_rate"] == "0.05"
    assert made.data.tags["manifest.data_sha256.train"] == said(folder, "manifest")["data_sha256"]["train"]
    assert made.data.tags["runner.folder"] == str(folder)
    assert made.data.metrics["summary/metrics.accuracy"] == said(folder)["metrics"]["accuracy"]
    assert said(folder)["tracking"] == said(folder, "tracking")
    assert client(uri).get_experiment(made.info.experiment_id).name == "lenet5"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]  # no mlruns


def test_names_are_those_of_the_config(uri, tmp_path):
    lines = "tracking.experiment=first try", "tracking.run_name=a b"
    runner.run(words(tmp_path / "run", "mlflow", f"tracking.uri={uri}", *lines))
    made = found(tmp_path / "run")
    assert client(uri).get_experiment(made.info.experiment_id).name == "first try"
    assert made.info.run_name == "a b"


def test_the_usual_database_is_where_the_command_was_started(database, tmp_path, monkeypatch):
    monkeypatch.chdir(database.parent)
    monkeypatch.setattr("runner.config.groups.services.FILE", database.name)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    runner.run(words(tmp_path / "run", "mlflow"))
    place = said(tmp_path / "run", "tracking")
    assert place["uri"] == f"sqlite:///{database}"
    monkeypatch.chdir(tmp_path)  # resumed from elsewhere it stays there, if the one who resumes allows it
    with pytest.raises(ConfigError, match="outside of the working directory"):
        resume(tmp_path / "run", ["epochs=5"])
    monkeypatch.setenv("RUNNER_WRITABLE", str(database))
    resume(tmp_path / "run", ["epochs=5"])
    assert said(tmp_path / "run", "tracking") == place


def test_the_environment_names_a_database(uri, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    runner.run(words(tmp_path / "run", "mlflow"))
    assert said(tmp_path / "run", "tracking")["uri"] == uri


def test_a_killed_run_goes_on_as_the_same_run(uri, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    killed(folder, "mlflow", 13, f"tracking.uri={uri}")
    before, place = scalars(folder), said(folder, "tracking")
    assert before == Counter(points(folder)[:12])
    assert found(folder).info.status == "RUNNING"
    resume(folder, ["callbacks.time_monitor=true", "callbacks.epoch_monitor=true"])
    assert said(folder, "tracking")["run_id"] == place["run_id"]
    assert scalars(folder) == Counter(points(folder))
    made = found(folder)
    assert made.info.status == "FINISHED"
    assert made.data.params["callbacks.time_monitor"] == "true"
    assert made.data.params["callbacks.epoch_monitor"] == "false"
    assert made.data.tags["changed.callbacks.epoch_monitor"] == "true"


def test_a_database_that_is_gone_gets_the_whole_run_again(uri, tmp_path, caplog):
    folder = tmp_path / "run"
    runner.run(words(folder, "mlflow", f"tracking.uri={uri}"))
    first = said(folder, "tracking")["run_id"]
    client(uri).delete_run(first)
    resume(folder, ["epochs=5"])
    assert said(folder, "tracking")["run_id"] != first
    assert scalars(folder) == Counter(points(folder))
    assert f"MLflow no longer has run {first}" in caplog.text


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError("broken"), "FAILED")])
def test_a_run_that_ends_early(uri, tmp_path, monkeypatch, error, status):
    usual = MetricsJournal.step_end

    def step_end(self, run_context):
        usual(self, run_context)
        if run_context.original_args().cur_step_num == 7:
            raise error

    monkeypatch.setattr(MetricsJournal, "step_end", step_end)
    with pytest.raises((KeyboardInterrupt, TrainingError)):
        runner.run(words(tmp_path / "run", "mlflow", f"tracking.uri={uri}"))
    assert found(tmp_path / "run").info.status == status
    assert scalars(tmp_path / "run") == Counter(points(tmp_path / "run"))
    assert len(points(tmp_path / "run")) == 7


def test_a_locked_database_does_not_end_the_run(uri, database, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("runner.experiment.tracking.tracking.PAUSE", 0.0)
    usual, holding = MetricsJournal.step_end, []

    def step_end(self, run_context):
        usual(self, run_context)
        if run_context.original_args().cur_step_num == 7:
            holding.append(sqlite3.connect(database, check_same_thread=False))
            holding[0].execute("BEGIN EXCLUSIVE")

    monkeypatch.setattr(MetricsJournal, "step_end", step_end)
    monkeypatch.setattr("runner.experiment.tracking.tracking.LAST_SECONDS", 0.5)
    with caplog.at_level(logging.WARNING, "runner"):
        summary = runner.run(words(tmp_path / "run", "mlflow", f"tracking.uri={uri}"))
    holding[0].close()
    assert summary["tracking"]["status"] == "incomplete"
    assert "tracking=mlflow has failed" in caplog.text
    assert len(points(tmp_path / "run")) == 22
    assert said(tmp_path / "run", "status")["status"] == "ok"


def test_jobs_of_a_sweep_share_a_database_that_they_make_at_the_same_time(tmp_path):
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    lines = words(tmp_path, "mlflow", f"tracking.uri={uri}", "tracking.experiment=swept", "seed=1,2", "mode=pynative")
    pool = "hydra/launcher=pool", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={tmp_path / 'sweep'}"
    outcomes = sweep.start(CommandLine((*lines[:-1], *pool)))
    assert [one.status for one in outcomes] == ["ok", "ok"]
    experiment = client(uri).get_experiment_by_name("swept").experiment_id
    runs = client(uri).search_runs([experiment])
    tags = sorted((run.data.tags["runner.job"], run.data.params["seed"], run.info.run_name) for run in runs)
    assert tags == [("0", "1", "sweep/0"), ("1", "2", "sweep/1")]
    assert {run.data.tags["runner.sweep"] for run in runs} == {str(tmp_path / "sweep")}
    for number in ("0", "1"):
        assert scalars(tmp_path / "sweep" / number) == Counter(points(tmp_path / "sweep" / number))


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sqlite:///torn.db", "DatabaseError: file is not a database"),
        ("postgresql://127.0.0.1:9/x", "ConnectionRefusedError: [Errno 111] Connection refused"),
        ("http://127.0.0.1:9", "MlflowException: API request to http://127.0.0.1:9/api/"),
    ],
)
def test_what_cannot_be_reached_ends_the_run_before_it_trains(tmp_path, monkeypatch, uri, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / "torn.db").write_text("this was a database once" * 9)
    with pytest.raises(ConfigError) as caught:
        runner.run(words(tmp_path / "run", "mlflow", f"tracking.uri={uri}"))
    assert caught.value.what == "MLflow cannot start this run"
    assert caught.value.rows["key"] == "tracking.uri"
    assert caught.value.rows["reason"].startswith(reason)
    assert "tracking=none" in caught.value.rows["hint"]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert said(tmp_path / "run", "status")["exit_code"] == 2


def test_nobody_else_is_called(uri, tmp_path):
    """A database in a file needs no network, and MLflow's telemetry stays off: not even names are looked up."""
    code = f"""
import os, socket, runner
called = []
socket.socket.connect = lambda self, address: called.append(address)
socket.getaddrinfo = lambda *address, **more: called.append(address) or []
runner.run({words(tmp_path / "run", "mlflow", f"tracking.uri={uri}")!r})
print(called, os.environ["MLFLOW_DISABLE_TELEMETRY"])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert told.stdout.splitlines()[-1] == "[] true"
    assert told.stderr.splitlines() == []


def test_the_tables_are_mlflows(uri, database, tmp_path):
    """What is read above by MLflow, read once without it."""
    runner.run(words(tmp_path / "run", "mlflow", f"tracking.uri={uri}"))
    with closing(sqlite3.connect(database)) as opened:
        (count,) = opened.execute("SELECT count(*) FROM runs WHERE status = 'FINISHED'").fetchone()
    assert count > 0
