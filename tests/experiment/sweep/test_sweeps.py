"""What a sweep runs, what it shares out, what it tells, and what of it is run again; the runs themselves do little."""

import json
import os
import signal
from pathlib import Path

import pytest
from sweep_runs import rows, sweep_state, swept, table

from runner import cli
from runner.config.compose import CommandLine
from runner.errors import ConfigError, TrainingError
from runner.experiment import run as experiment
from runner.experiment.resume import resume
from runner.experiment.sweep import launchers, sweep
from runner.experiment.sweep.plan import plan
from runner.host import files
from runner.host.machine import usable_cores

POOL = "hydra/launcher=pool"
BOTH = pytest.mark.parametrize("launcher", ["basic", "pool"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ran(place, monkeypatch):
    """The seeds of the runs that began, and how: as it says in a file, since runs may be in other processes.

    The seeds in the file `bad` fail, those in `stop` are interrupted, those in `kill` kill their process.
    """

    def listed(name: str) -> list[int]:
        return json.loads((place / name).read_text()) if (place / name).exists() else []

    def run(request):
        seed = request.config.seed
        if not request.resume:
            files.write_json(request.folder / "config.json", request.resolved)
        with (place / "ran").open("a") as file:
            file.write(f"{seed}{'+' if request.resume else ''} ")
        print(f"seed {seed}")
        if seed in listed("bad"):
            raise TrainingError("the loss is not finite", step=3)
        if seed in listed("stop"):
            raise KeyboardInterrupt
        if seed in listed("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        summary = {"loss": seed / 4, "metrics": {"accuracy": seed / 8, "loss": 0.0}}
        files.write_json(request.folder / "summary.json", summary)
        return summary

    monkeypatch.setattr(experiment, "run", run)

    def said() -> list[str]:
        path = place / "ran"
        words = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(words)

    return said


@BOTH
def test_a_sweep_and_its_table(ran, place, capfd, launcher):
    outcomes = swept(Path("mine"), "seed=1,2,3", "epochs=2", f"hydra/launcher={launcher}")
    assert ran() == ["1", "2", "3"]
    assert [(one.number, one.status, one.loss, one.folder) for one in outcomes] == [
        (number, "ok", (number + 1) / 4, Path("mine") / str(number)) for number in range(3)
    ]
    out, err = capfd.readouterr()
    assert err == ""
    assert out.endswith("""\
job  status  exit  overrides  loss    accuracy
0    ok      0     seed=1     0.2500  0.1250
1    ok      0     seed=2     0.5000  0.2500
2    ok      0     seed=3     0.7500  0.3750
3 jobs finished in mine
""")
    if launcher == "pool":  # what jobs say at the same time goes into files
        assert "seed 1\n" not in out
        assert "job 1 ok: seed=2 epochs=2  accuracy 0.2500 loss 0.5000\n" in out
        assert (place / "mine/1/console.log").read_text() == "seed 2\n"
    else:
        assert out.startswith("seed 1\nseed 2\nseed 3\n")
    with pytest.raises(ConfigError, match="not a sweep directory"):
        sweep.resume(place / "mine/1")


@BOTH
def test_only_what_failed_is_run_again(ran, place, capfd, launcher):
    (place / "bad").write_text("[2, 4]")
    words = (
        "seed=1,2,3,4",
        f"hydra/launcher={launcher}",
        "hydra.sweep.subdir=s${hydra.job.num}",
        "hydra.sweep.dir=mine",
    )
    assert cli.main(["-m", *words]) == 8
    assert ran() == ["1", "2", "3", "4"]
    block = "\n        TrainingError: the loss is not finite\n          step  3\n"
    assert capfd.readouterr().err.endswith(f"""\
SweepError: 2 of 4 jobs failed
  #1    failed, exit 1  seed=2  mine/s1{block}  #3    failed, exit 1  seed=4  mine/s3{block}  hint  runner resume mine
""")
    assert [row.split()[1] for row in table(place / "mine")[1:]] == ["ok", "failed", "ok", "failed"]
    (place / "bad").write_text("[4]")
    assert cli.main(["resume", "mine"]) == 8
    assert ran() == ["2+", "4+"]
    assert "1 of 4 jobs failed" in capfd.readouterr().err
    (place / "bad").unlink()
    assert cli.main(["resume", "mine"]) == 0
    assert ran() == ["4+"]
    assert capfd.readouterr().out.endswith("4 jobs finished in mine\n")
    assert cli.main(["resume", "mine"]) == 0
    assert ran() == []
    assert {path.name for path in (place / "mine").glob("s*/")} == {"s0", "s1", "s2", "s3"}


def test_a_job_that_was_gone_on_with_alone_is_done(ran, place, capfd):
    (place / "bad").write_text("[2]")
    assert cli.main(["-m", "seed=1,2", "hydra.sweep.dir=mine"]) == 8
    (place / "bad").unlink()
    resume(place / "mine/1")
    assert ran() == ["1", "2", "2+"]
    assert cli.main(["resume", "mine"]) == 0
    assert table(place / "mine")[2].split() == ["1", "ok", "0", "seed=2", "0.5000", "0.2500"]


@BOTH
def test_the_first_failure_ends_the_sweep_when_that_is_asked_for(ran, place, launcher):
    (place / "bad").write_text("[2]")
    words = ("seed=1,2,3,4", f"hydra/launcher={launcher}", "hydra.sweep.dir=mine", "sweep.fail_fast=true")
    if launcher == "pool":
        words += ("hydra.launcher.n_jobs=1",)
    with pytest.raises(sweep.SweepError, match="1 of 4 jobs failed, 2 did not end"):
        sweep.start(CommandLine(words))
    assert ran() == ["1", "2"]
    with pytest.raises(sweep.SweepError, match="1 of 4 jobs failed, 2 did not end"):
        sweep.resume(place / "mine")
    assert ran() == ["2+"]
    with pytest.raises(sweep.SweepError, match=r"1 of 4 jobs failed\n"):
        sweep.resume(place / "mine", ["sweep.fail_fast=false"])
    assert ran() == ["2+", "3", "4"]


def test_a_process_that_dies_is_one_job_that_failed(ran, place, capfd):
    (place / "kill").write_text("[2]")
    with pytest.raises(sweep.SweepError) as caught:
        swept(Path("mine"), "seed=1,2,3", POOL)
    assert "the process of the job ended unexpectedly (signal 9)" in caught.value.rows["#1"]
    assert ran() == ["1", "2", "3"]
    assert "job 1 killed: seed=2" in capfd.readouterr().out
    (place / "kill").unlink()
    sweep.resume(Path("mine"))
    assert ran() == ["2+"]


@BOTH
def test_an_interruption(ran, place, capfd, launcher):
    (place / "stop").write_text("[2]")
    words = ["-m", "seed=1,2,3", f"hydra/launcher={launcher}", "hydra.sweep.dir=mine", "runner.debug=true"]
    assert cli.main(words) == (130 if launcher == "basic" else 8)  # a signal to one process of a pool stops no other
    assert rows(place / "mine", "end")[1 if launcher == "basic" else -2]["status"] in ("interrupted", "ok")
    assert [one.status for one in sweep_state(place / "mine").outcomes()][:2] == ["ok", "interrupted"]
    assert "runner resume mine" in capfd.readouterr().err
    ran()
    (place / "stop").unlink()
    sweep.resume(Path("mine"))
    assert ran() == ["2+", "3"] if launcher == "basic" else ["2+"]


def configs(place: Path, text: str) -> Path:
    folder = place / "configs"
    (folder / "experiment").mkdir(parents=True, exist_ok=True)
    (folder / "experiment/own.yaml").write_text("# @package _global_\n" + text)
    return folder


def without_a_key(journal: Path) -> None:
    """The journal as a version of runner wrote it that did not have the key `dataset.verify`."""
    first, *others = journal.read_text().splitlines(keepends=True)
    assert '"verify": true' in first
    header = json.loads(first)
    del header["config"]["dataset"]["verify"]
    journal.write_text("".join([json.dumps(header) + "\n", *others]))


@BOTH
def test_a_sweep_of_a_version_without_a_key_goes_on(ran, place, launcher):
    (place / "bad").write_text("[2]")
    with pytest.raises(sweep.SweepError):
        sweep.start(CommandLine(("seed=1,2", "hydra.sweep.dir=mine", f"hydra/launcher={launcher}")))
    without_a_key(place / "mine/sweep.jsonl")
    config = place / "mine/1/config.json"
    if config.exists():
        values = json.loads(config.read_text())
        del values["dataset"]["verify"]
        config.write_text(json.dumps(values))
    (place / "bad").unlink()
    assert [outcome.status for outcome in sweep.resume(place / "mine")] == ["ok", "ok"]
    assert ran()[-1].startswith("2")


def test_a_sweep_of_another_config_is_refused(ran, place):
    folder = configs(place, "epochs: 3\noptimizer: {learning_rate: 0.5}\n")
    (place / "bad").write_text("[2]")
    with pytest.raises(sweep.SweepError):
        sweep.start(CommandLine(("+experiment=own", "seed=1,2", "hydra.sweep.dir=mine"), config_dir=Path("configs")))
    configs(place, "epochs: 4\noptimizer: {learning_rate: 0.5, momentum: 0.25}\n")
    before = (place / "mine/sweep.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="the config of the sweep has changed") as caught:
        sweep.resume(place / "mine")
    assert caught.value.rows == {
        "epochs": "was 3, is 4",
        "optimizer.momentum": "was 0.9, is 0.25",
        "hint": "--force resumes anyway",
    }
    assert (place / "mine/sweep.jsonl").read_bytes() == before
    assert ran() == ["1", "2"]
    (place / "bad").unlink()
    sweep.resume(place / "mine", force=True)
    assert ran() == ["2+"]
    assert folder.is_dir()


def test_other_versions_are_another_config(ran, place, monkeypatch):
    swept(Path("mine"), "seed=1,2")
    usual = sweep.packages()
    monkeypatch.setattr(sweep, "packages", lambda: {**usual, "numpy": "9.0"})
    with pytest.raises(ConfigError) as caught:
        sweep.resume(Path("mine"))
    assert caught.value.rows["version.numpy"] == f"was {usual['numpy']}, is 9.0"


@pytest.mark.parametrize("line", ["seed=5", "epochs=3", "+experiment=lenet", "hydra.sweep.dir=other", "mode=graph"])
def test_a_sweep_goes_on_with_the_overrides_that_it_had(ran, place, line):
    swept(Path("mine"), "seed=1,2")
    with pytest.raises(ConfigError, match="a resumed sweep cannot change this key") as caught:
        sweep.resume(Path("mine"), [line])
    assert caught.value.rows["value"] == line


def test_another_launcher_may_go_on(ran, place):
    (place / "bad").write_text("[2]")
    with pytest.raises(sweep.SweepError):
        swept(Path("mine"), "seed=1,2", POOL, "hydra.launcher.n_jobs=1")
    (place / "bad").unlink()
    sweep.resume(Path("mine"), ["hydra/launcher=basic"])
    assert ran() == ["1", "2", "2+"]
    threads = [json.loads((place / f"mine/{number}/config.json").read_text())["device"]["threads"] for number in (0, 1)]
    assert threads == [usable_cores()] * 2


@BOTH
def test_a_job_that_cannot_be_composed(ran, place, launcher, capfd):
    folder = configs(place, "defaults:\n  - override /optimizer: sgd\n")
    (folder / "experiment/wrong.yaml").write_text("# @package _global_\ndefaults:\n  - override /optimizer: nothing\n")
    words = ("+experiment=own,wrong", "hydra.sweep.dir=mine", f"hydra/launcher={launcher}")
    if launcher == "basic":  # Hydra composes all of them before the first one runs
        with pytest.raises(ConfigError, match="unknown option"):
            sweep.start(CommandLine(words, config_dir=folder))
        return
    with pytest.raises(sweep.SweepError) as caught:
        sweep.start(CommandLine(words, config_dir=folder))
    assert "unknown option" in caught.value.rows["#1"]
    assert "failed, exit 2" in caught.value.rows["#1"]
    assert ran() == ["1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("seed=1,2,3", POOL), (3, 2)),
        (("seed=range(20)", POOL), (8, 1)),
        (("seed=1,2", "dataset=glob(*)", POOL), (8, 1)),
        (("seed=range(20)", POOL, "hydra.launcher.n_jobs=2"), (2, 4)),
        (("seed=range(20)", POOL, "hydra.launcher.n_jobs=3"), (3, 2)),
        (("seed=range(20)", POOL, "hydra.launcher.n_jobs=20"), (20, 1)),
        (("seed=range(20)", POOL, "device.threads=4"), (2, 4)),
        (("seed=range(20)", POOL, "device.threads=3", "hydra.launcher.n_jobs=8"), (8, 3)),
        (("seed=1,2,3",), (1, 0)),
    ],
)
def test_cores_are_divided(place, monkeypatch, words, expected):
    monkeypatch.setattr(launchers, "usable_cores", lambda: 8)
    made = plan(CommandLine(words)).shares
    assert (made.at_once, made.threads) == expected


def test_jobs_get_their_threads_unless_they_say_how_many(ran, place, monkeypatch):
    monkeypatch.setattr(launchers, "usable_cores", lambda: 8)
    swept(Path("mine"), "device.threads=0,3", "seed=1,2", POOL)
    threads = [json.loads((place / f"mine/{job}/config.json").read_text())["device"]["threads"] for job in range(4)]
    assert threads == [2, 2, 3, 3]


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "true", "[1]"])
def test_a_number_of_processes_that_makes_no_sense(ran, place, value):
    with pytest.raises(ConfigError, match="not a number of processes") as caught:
        swept(Path("mine"), "seed=1,2", POOL, f"hydra.launcher.n_jobs={value}")
    assert caught.value.rows["key"] == "hydra.launcher.n_jobs"
    assert not list(place.iterdir())


def test_on_a_terminal_the_table_has_colours(ran, place, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    swept(Path("mine"), "seed=1,2")
    out = capsys.readouterr().out
    assert "\x1b[32mok" in out
    assert "seed=2" in out


def test_bad_words_for_resume(ran, place, capsys):
    swept(Path("mine"), "seed=1,2")
    assert cli.main(["resume", "mine", "--all"]) == 2
    assert cli.main(["resume", "mine", "nothing=1"]) == 2
    assert cli.main(["resume", "nowhere"]) == 2
    journal = place / "mine/sweep.jsonl"
    journal.write_text(journal.read_text().replace('"seed=1,2"', "7", 1))
    capsys.readouterr()
    assert cli.main(["resume", "mine"]) == 2
    assert "the journal has no command line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launcher", "words"),
    [("joblib", ("hydra.launcher.n_jobs=2",)), ("submitit_local", ("hydra.launcher.cpus_per_task=1",)), ("ray", ())],
)
def test_launchers_for_many_machines(tmp_path, monkeypatch, launcher, words):
    """With real runs: nothing of this process reaches theirs."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher", exc_type=ImportError)
    small = ("dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet", "max_steps=1", "mode=graph")
    swept(tmp_path / "sweep", *small, "seed=1,2", f"hydra/launcher={launcher}", *words)
    assert [one.status for one in sweep_state(tmp_path / "sweep").outcomes()] == ["ok", "ok"]
    threads = json.loads((tmp_path / "sweep/0/config.json").read_text())["device"]["threads"]
    assert threads == (0 if launcher == "ray" else max(1, usable_cores() // 2) if launcher == "joblib" else 1)
    assert sweep.resume(tmp_path / "sweep")[1].status == "ok"
    assert len(rows(tmp_path / "sweep", "start")) == 2


REPEATED = (
    "seed=1,2 seed=3,4",
    "seed=1 seed=2,3",
    "seed=2,3 seed=1",
    "++seed=1,2 seed=3",
    "optimizer=sgd,adam optimizer=adam",
)
SCHEDULES = ("optimizer.schedule={name:cosine}", "optimizer.schedule={warmup_steps:1},{warmup_steps:2}")


@pytest.mark.parametrize("words", [*map(str.split, REPEATED), SCHEDULES])
def test_a_key_that_is_given_twice_is_not_lost(ran, place, capfd, words):
    assert cli.main(["-m", *words, "hydra.sweep.dir=mine"]) == 2
    key = words[0].lstrip("+").partition("=")[0]
    said = capfd.readouterr().err
    assert said.startswith(f"ConfigError: one key of a sweep is given twice\n  key     {key}\n")
    assert f"  also    {words[1]}\n" in said
    assert ran() == []
    assert not (place / "mine").exists()


def test_a_key_and_keys_below_it_may_be_swept(ran, place):
    assert cli.main(["-m", "seed=1", "seed=2", "optimizer=adam,sgd", "optimizer.learning_rate=0.1,0.2"]) == 0
    assert ran() == ["2"] * 4


@BOTH
@pytest.mark.parametrize("subdir", ["fixed", "${mode}", "a/${epochs}"])
def test_jobs_of_one_folder_are_refused_before_one_runs(ran, place, capfd, launcher, subdir):
    words = ("seed=1,2", "epochs=2,3", f"hydra.sweep.subdir={subdir}", "hydra.sweep.dir=mine")
    assert cli.main(["-m", *words, f"hydra/launcher={launcher}"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("ConfigError: two jobs of the sweep have one folder\n  key     hydra.sweep.subdir\n")
    assert said.endswith("  repair  ${hydra.job.num} in hydra.sweep.subdir\n")
    assert ran() == []
    assert not (place / "mine").exists()


@BOTH
def test_folders_named_by_values(ran, place, launcher):
    words = ("seed=1,2", "epochs=1,2", "hydra.sweep.subdir=${epochs}/${seed}", "hydra.sweep.dir=mine")
    assert cli.main(["-m", *words, f"hydra/launcher={launcher}"]) == 0
    assert sorted(ran()) == ["1", "1", "2", "2"]
    assert sorted(path.parent.relative_to("mine").as_posix() for path in Path("mine").glob("*/*/status.json")) == [
        "1/1",
        "1/2",
        "2/1",
        "2/2",
    ]
