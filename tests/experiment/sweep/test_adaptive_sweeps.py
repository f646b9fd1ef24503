"""Searches with Optuna: what is proposed, what it is told, and that a search goes on as if nothing had happened.

The runs do nothing: their accuracy is a function of what was proposed.
"""

import json
import os
import warnings
from pathlib import Path

import pytest
from soak import SOAK
from sweep_runs import killed, rows, sweep_state, swept, table

from runner.config.compose import CommandLine
from runner.errors import ConfigError, StorageError, TrainingError
from runner.experiment import run as experiment
from runner.experiment.sweep import sweep
from runner.host import files
from runner.report.html import command

optuna = pytest.importorskip("optuna", minversion="4")

SPACE = ("optimizer.learning_rate=tag(log,interval(1e-3,1))", "dataset.batch_size=16,32", "epochs=range(1,9,2)")
SEARCH = ("hydra/sweeper=optuna", "hydra.sweeper.seed=7", "hydra.sweeper.n_trials=14", "hydra.sweeper.n_jobs=3", *SPACE)
POOL = ("hydra/launcher=pool", "hydra.launcher.n_jobs=3")


@pytest.fixture(scope="module", autouse=True)
def runs():
    """The jobs named in the file `bad` of the current folder fail."""

    def run(request):
        if not request.resume:
            files.write_json(request.folder / "config.json", request.resolved)
        if Path("bad").exists() and int(request.folder.name) in json.loads(Path("bad").read_text()):
            raise TrainingError("the loss is not finite", step=3)
        summary = {"loss": 1.0 - worth(request.config), "metrics": {"accuracy": worth(request.config), "loss": 0.5}}
        files.write_json(request.folder / "summary.json", summary)
        return summary

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "run", run)
        yield


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory) -> Path:
    """A search that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "sweep"
    swept(folder, *SEARCH)
    return folder


def worth(config) -> float:
    return 0.9 - abs(config.optimizer.learning_rate - 0.1) / 2 - config.epochs / 100 - config.dataset.batch_size / 1000


def trials(folder: Path) -> list[dict]:
    """What the journal says that the study was told, without times."""
    return [{key: row[key] for key in ("job", "params", "state", "value")} for row in rows(folder, "trial")]


def test_it_proposes_what_optuna_does(whole):
    """Asked and told by hand: three trials, then their values."""
    kinds = optuna.distributions
    space = {
        "optimizer.learning_rate": kinds.FloatDistribution(1e-3, 1, log=True),
        "dataset.batch_size": kinds.CategoricalDistribution(("16", "32")),
        "epochs": kinds.IntDistribution(1, 7, step=2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna 4 calls it experimental
        sampler = optuna.samplers.TPESampler(seed=7, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    told = trials(whole)
    for first in range(0, 14, 3):
        asked = [study.ask(space) for _ in range(min(3, 14 - first))]
        for trial in asked:
            params = told[trial.number]["params"]
            assert {name: str(value) for name, value in trial.params.items()} == params
            assert sweep_state(whole).jobs[trial.number] == tuple(f"{name}={text}" for name, text in params.items())
            study.tell(trial, told[trial.number]["value"])
    assert [(row["job"], row["state"]) for row in told] == [(number, "complete") for number in range(14)]
    answer = json.loads((whole / "best.json").read_text())
    assert (answer["job"], answer["value"]) == (study.best_trial.number, study.best_value)
    assert (
        json.loads((whole / answer["folder"] / "summary.json").read_text())["metrics"]["accuracy"] == study.best_value
    )


@pytest.mark.parametrize("words", [(), POOL])
def test_the_same_search_gives_the_same_table(place, whole, words):
    swept(place / "again", *SEARCH, *words)
    assert table(place / "again") == table(whole)
    assert trials(place / "again") == trials(whole)
    swept(place / "other", *SEARCH, *words, "hydra.sweeper.seed=8")
    assert table(place / "other") != table(whole)


@pytest.mark.parametrize("number", [2, 9, 12, 30, 43])  # of 48 rows, from the first jobs to the last trials
def test_killed_at_a_row_and_resumed_it_is_the_same_search(place, whole, monkeypatch, number):
    folder = place / "killed"
    assert killed(monkeypatch, folder, (*SEARCH, *(POOL if number % 2 else ())), number, only="sweep.jsonl")
    before = trials(folder)
    done = sweep_state(folder).done()
    started = len(rows(folder, "start"))
    assert len(before) < 14
    sweep.resume(folder)
    assert table(folder) == table(whole)
    assert trials(folder) == trials(whole)
    assert trials(folder)[: len(before)] == before
    assert not done & {row["job"] for row in rows(folder, "start")[started:]}
    assert (folder / "best.json").read_bytes() == (whole / "best.json").read_bytes()


@pytest.mark.parametrize("words", [(), POOL])
def test_what_fails_is_told_and_stops_nobody(place, capfd, words):
    (place / "bad").write_text("[1, 5]")
    with pytest.raises(sweep.SweepError, match="2 of 14 jobs failed"):
        swept(Path("mine"), *SEARCH, *words)
    first = trials(place / "mine")
    assert [row["job"] for row in first if row["state"] == "failed"] == [1, 5]
    assert [row["value"] for row in first if row["state"] == "failed"] == [None, None]
    assert "best: job" in capfd.readouterr().out
    (place / "bad").unlink()
    sweep.resume(Path("mine"))  # now they are well; what came of their failure stays as it was
    assert [one.status for one in sweep_state(place / "mine").outcomes()] == ["ok"] * 14
    assert trials(place / "mine") == first


def test_the_first_failure_ends_it_when_that_is_asked_for(place, whole):
    (place / "bad").write_text("[4]")
    with pytest.raises(sweep.SweepError, match="1 of 6 jobs failed, 1 did not end"):
        swept(Path("mine"), *SEARCH, "sweep.fail_fast=true")
    assert len(trials(place / "mine")) == 3
    (place / "bad").unlink()
    sweep.resume(Path("mine"))
    assert trials(place / "mine") == trials(whole)


def test_more_trials_go_on_with_the_same_search(place, whole):
    swept(place / "short", *SEARCH, "hydra.sweeper.n_trials=5")
    assert len(trials(place / "short")) == 5
    sweep.resume(place / "short", ["hydra.sweeper.n_trials=14"])
    assert trials(place / "short") == trials(whole)
    with pytest.raises(ConfigError, match="a resumed sweep cannot change this key"):
        sweep.resume(place / "short", ["hydra.sweeper.metric=loss"])


def test_the_smallest_loss(place):
    swept(place / "mine", *SEARCH, "hydra.sweeper.metric=loss")
    values = [row["value"] for row in trials(place / "mine")]
    answer = json.loads((place / "mine/best.json").read_text())
    assert (answer["direction"], answer["value"]) == ("minimize", min(values))


def test_a_grid_has_the_jobs_of_a_sweep_over_all_values(place):
    """Ranges end as they do without a search."""
    words = ("seed=range(1,3)", "optimizer.learning_rate=range(0.1,0.4,0.1)", "dataset.batch_size=choice(16,32)")
    swept(place / "all", *words)
    swept(place / "grid", *words, "hydra/sweeper=optuna", "hydra.sweeper.sampler=grid", "hydra.sweeper.n_trials=99")
    expected, found = (list(sweep_state(place / name).jobs.values()) for name in ("all", "grid"))
    assert len(expected) == 16  # Hydra adds up 0.1 four times before it is 0.4
    assert sorted(found) == sorted(expected)
    assert found != expected  # at random, by the seed


def test_a_proposal_in_the_folder_of_another_job_is_refused(place, capfd):
    """The proposals are not known in advance, so each job looks whether its folder has the run of another one."""
    words = ("hydra/sweeper=optuna", "hydra.sweeper.sampler=random", "hydra.sweeper.n_trials=3", "seed=range(0,99)")
    with pytest.raises(sweep.SweepError, match="2 of 3 jobs failed"):
        swept(place / "mine", *words, "hydra.sweep.subdir=${optimizer.name}")
    assert [one.status for one in sweep_state(place / "mine").outcomes()] == ["ok", "failed", "failed"]
    said = capfd.readouterr().err
    assert "ConfigError: two jobs of the sweep have one folder\n" in said
    assert "  jobs    #0, #2\n  repair  ${hydra.job.num} in hydra.sweep.subdir\n" in said


def test_a_range_never_reaches_its_end(place):
    words = ("hydra/sweeper=optuna", "hydra.sweeper.sampler=random", "hydra.sweeper.n_trials=12", "seed=range(0,3)")
    swept(place / "mine", *words)
    assert set(sweep_state(place / "mine").jobs.values()) == {("seed=0",), ("seed=1",), ("seed=2",)}


def stored(file: Path, name: str) -> list:
    journal = optuna.storages.journal.JournalFileBackend(str(file))
    return optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(journal)).trials


def test_a_copy_for_tools_of_optuna(place, monkeypatch):
    words = (*SEARCH, "hydra.sweeper.storage=kept/study.log", "hydra.sweeper.study_name=mine")
    (place / "bad").write_text("[3]")
    assert killed(monkeypatch, place / "mine", words, 20, only="sweep.jsonl")
    (place / "bad").unlink()
    sweep.resume(place / "mine")
    found, told = stored(place / "mine/kept/study.log", "mine"), trials(place / "mine")
    assert [trial.value for trial in found] == [row["value"] for row in told]
    assert [trial.state.name == "FAIL" for trial in found] == [row["state"] == "failed" for row in told]


COPIED = (*SEARCH, "hydra.sweeper.storage=study.log", "hydra.sweeper.study_name=mine")


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("nonsense\n" * 3),
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(bytes(999)),
        lambda file: file.unlink(),
        lambda file: Path(f"{file}.lock").symlink_to(file),  # as a tool of Optuna that was killed leaves it
        lambda file: Path(f"{file}.lock").symlink_to("mine/study.log"),  # the same in a relative directory
    ],
)
def test_a_damaged_copy_stops_no_search(place, whole, monkeypatch, damage):
    assert killed(monkeypatch, Path("mine"), COPIED, 20, only="sweep.jsonl")
    damage(place / "mine/study.log")
    sweep.resume(Path("mine"))
    assert table(place / "mine") == table(whole)
    assert [trial.value for trial in stored(place / "mine/study.log", "mine")] == [r["value"] for r in trials(whole)]
    assert not os.path.lexists(place / "mine/study.log.lock")


@pytest.mark.parametrize("number", range(1, 16, 1 if SOAK else 7))
def test_a_search_that_is_killed_while_it_writes_its_copy(place, whole, monkeypatch, number):
    assert killed(monkeypatch, Path("mine"), COPIED, number, only="study.log")
    sweep.resume(Path("mine"))
    assert table(place / "mine") == table(whole)
    assert len(stored(place / "mine/study.log", "mine")) == 14


def test_a_copy_is_a_file(place, monkeypatch):
    assert killed(monkeypatch, Path("mine"), COPIED, 20, only="sweep.jsonl")
    (place / "mine/study.log").unlink()
    os.mkfifo(place / "mine/study.log")
    with pytest.raises(StorageError, match="cannot open a file for writing"):
        sweep.resume(Path("mine"))


def test_another_search_is_refused(place):
    (place / "configs/experiment").mkdir(parents=True)
    file = place / "configs/experiment/own.yaml"
    text = "# @package _global_\ndefaults: [{override /hydra/sweeper: optuna}]\n"
    text += "hydra: {sweeper: {metric: accuracy, n_trials: 3}}\n"
    file.write_text(text)
    sweep.start(CommandLine(("+experiment=own", "seed=range(9)", "hydra.sweep.dir=mine"), config_dir=place / "configs"))
    file.write_text(text.replace("accuracy", "loss"))
    with pytest.raises(ConfigError, match="the config of the sweep has changed") as caught:
        sweep.resume(place / "mine")
    assert caught.value.rows["hydra.sweeper.metric"] == "was accuracy, is loss"
    assert caught.value.rows["hydra.sweeper.direction"] == "was maximize, is minimize"


def test_another_optuna_is_refused(whole, monkeypatch):
    monkeypatch.setattr(sweep.search_space, "version", lambda: "9.0")
    with pytest.raises(ConfigError, match="the config of the sweep has changed") as caught:
        sweep.resume(whole)
    assert caught.value.rows["version.optuna"] == f"was {optuna.__version__}, is 9.0"


def test_the_report_says_what_was_found(whole):
    answer = json.loads((whole / "best.json").read_text())
    found = command.read_journal(whole)
    assert (found.search, found.remarks) == (("accuracy", "maximize"), ())
    assert found.result is not None
    assert found.result.startswith(
        f"A search to maximize accuracy; best: job {answer['job']}, accuracy {answer['value']:.4f}"
    )


def test_in_processes_of_joblib(tmp_path):
    """With real runs: nothing of this process reaches theirs."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", exc_type=ImportError)
    small = ("dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet", "max_steps=1", "mode=graph")
    words = (*small, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=2", "seed=range(5)")
    swept(tmp_path / "mine", *words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert [row["state"] for row in trials(tmp_path / "mine")] == ["complete"] * 3
