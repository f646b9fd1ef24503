"""The command line: exit codes, blocks on stderr, folders on the disk; a few times with real processes."""

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from patience import PATIENCE

import runner
from runner import cli, register, rundir
from runner.config.command_line import CommandLine
from runner.errors import BusyError, ConfigError, DeviceError, MismatchError, StorageError, TrainingError, unexpected
from runner.experiment import launch, run as experiment
from runner.report import list as list_runs

ROOT = Path(__file__).parents[1]

COMMANDS = ", ".join(cli.COMMANDS)

STAND_IN = """
import sys, time
from runner import cli, register
from runner.experiment import run as experiment
def run(request):
    (request.folder / "config.json").write_text("{{}}")
    print("started", flush=True)
    time.sleep({seconds})
    return {{"loss": 0.5, "run_dir": str(request.folder)}}
experiment.run = run
sys.exit(cli.main())
"""


def process(*words: str, seconds: float = 0.0, cwd: Path, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STAND_IN.format(seconds=seconds), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=environment, **pipes, **options)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ran(monkeypatch):
    """Requests that reached the experiment; it fails as the learning rate says."""
    seen = []
    failures = {2.0: TrainingError("the loss is not finite", step=3), 3.0: MismatchError("not met")}

    def run(request):
        seen.append(request)
        if request.config.optimizer.learning_rate == 4.0:
            raise KeyError("surprise")
        if request.config.optimizer.learning_rate in failures:
            raise failures[request.config.optimizer.learning_rate]
        return {"loss": 0.25, "run_dir": str(request.folder)}

    monkeypatch.setattr(experiment, "run", run)
    return seen


def status(folder: Path) -> dict:
    return json.loads((folder / "status.json").read_text())


def test_a_run_leaves_its_records(ran, place, capsys):
    assert cli.main(["+experiment=lenet", "epochs=2", "mode=graph"]) == 0
    (request,) = ran
    folder = place / request.folder
    assert folder.parent.parent == place / "outputs"
    assert {entry.name for entry in (folder / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    found = status(folder)
    assert {name: found[name] for name in ("status", "exit_code", "error", "experiment", "mode", "device")} == {
        "status": "ok",
        "exit_code": 0,
        "error": None,
        "experiment": "lenet",
        "mode": "graph",
        "device": "CPU",
    }
    assert found["pid"] == os.getpid()
    assert f"run directory: {request.folder}" in capsys.readouterr().out


def test_nothing_is_created_for_a_wrong_config(ran, place, capsys):
    assert cli.main(["epochs=0", "datset=mnist"]) == 2
    assert not ran
    assert not list(place.iterdir())
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("ConfigError:") == 2


@pytest.mark.parametrize(("rate", "code", "name"), [("2.0", 1, "TrainingError"), ("3.0", 6, "MismatchError")])
def test_a_failed_run_says_so(ran, capsys, rate, code, name):
    assert cli.main([f"optimizer.learning_rate={rate}"]) == code
    found = status(ran[0].folder)
    assert (found["status"], found["exit_code"]) == ("failed", code)
    assert found["error"] == capsys.readouterr().err.strip()
    assert found["error"].startswith(name)


def test_a_surprise_is_one_short_block(ran, capsys):
    assert cli.main(["optimizer.learning_rate=4.0"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("TrainingError: KeyError: 'surprise'\n  at  ")
    assert "test_cli.py" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 2


def test_debug_shows_the_traceback(ran, capsys):
    assert cli.main(["optimizer.learning_rate=4.0", "runner.debug=true"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_python_gets_the_summary_and_the_errors(ran):
    assert launch.run(["epochs=2"])["loss"] == 0.25
    with pytest.raises(TrainingError):
        launch.run(["optimizer.learning_rate=2.0"])
    folders = [request.folder for request in ran]
    assert len(set(folders)) == 2


def test_a_named_folder_is_used_once(ran, place, capsys):
    assert cli.main(["hydra.run.dir=mine/run"]) == 0
    assert status(place / "mine" / "run")["status"] == "ok"
    assert cli.main(["hydra.run.dir=mine/run"]) == 4
    assert capsys.readouterr().err.startswith("BusyError: the run directory is not empty\n")
    (place / "empty").mkdir()
    assert cli.main(["hydra.run.dir=empty"]) == 0
    (place / "file").write_text("x")
    assert cli.main(["hydra.run.dir=file"]) == 5
    assert cli.main(["hydra.run.dir=file/below"]) == 5
    assert len(ran) == 2


def test_an_empty_folder_has_one_winner(place):
    results = []

    def claim():
        try:
            rundir.claim_run(place / "empty", given=True)
            results.append("won")
        except BusyError:
            results.append("lost")

    (place / "empty").mkdir()
    threads = [threading.Thread(target=claim) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["lost"] * 15 + ["won"]


def test_a_taken_place_for_outputs_is_a_storage_error(place):
    (place / "outputs").write_text("x")
    with pytest.raises(StorageError):
        rundir.claim_run(place / "outputs" / "2026-01-01" / "00-00-00", given=False)


def test_simultaneous_claims_get_their_own_folders(place):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(rundir.claim_run(place / "outputs" / "day" / "time", given=False)))
        for _ in range(64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 64
    assert {folder.name for folder in found} == {"time", *(f"time-{k}" for k in range(1, 64))}


def test_a_sweep_goes_on_after_a_failure(ran, place, capsys):
    assert cli.main(["-m", "+experiment=lenet", "optimizer.learning_rate=2.0,0.1,3.0"]) == 8
    assert [request.config.optimizer.learning_rate for request in ran] == [2.0, 0.1, 3.0]
    err = capsys.readouterr().err
    table = err[err.index("SweepError") :].splitlines()
    sweep = ran[0].folder.parent
    assert table == [
        "SweepError: 2 of 3 jobs failed",
        f"  #0    failed, exit 1  +experiment=lenet optimizer.learning_rate=2.0  {sweep}/0",
        "        TrainingError: the loss is not finite",
        "          step  3",
        f"  #2    failed, exit 6  +experiment=lenet optimizer.learning_rate=3.0  {sweep}/2",
        "        MismatchError: not met",
        f"  hint  runner resume {sweep}",
    ]
    assert [status(request.folder)["exit_code"] for request in ran] == [1, 0, 6]
    assert (
        sweep / "0" / ".hydra" / "overrides.yaml"
    ).read_text() == "- +experiment=lenet\n- optimizer.learning_rate=2.0\n"


def test_two_sweeps_do_not_share_a_folder(ran, place):
    for _ in range(2):
        assert cli.main(["-m", "seed=1,2"]) == 0
    assert len({request.folder for request in ran}) == 4
    assert cli.main(["-m", "seed=range(1,3)", "hydra.sweep.dir=mine", "hydra.sweep.subdir=s${hydra.job.num}"]) == 0
    assert (place / "mine" / "s1" / "status.json").exists()
    assert cli.main(["-m", "seed=1,2", "hydra.sweep.dir=mine"]) == 4


def test_every_wrong_value_of_a_sweep_is_found_before_it_starts(ran, place, capsys):
    assert cli.main(["-m", "epochs=0,1,-2", "seed=1,2"]) == 2
    assert cli.main(["-m", "dataset=digits,minst"]) == 2
    assert cli.main(["-m", "epocs=1,2"]) == 2
    assert capsys.readouterr().err.count("ConfigError") == 5
    assert not ran
    assert not list(place.iterdir())


def test_a_sweep_over_options(ran):
    assert cli.main(["-m", "dataset=glob(*,exclude=[csv,npz,image_folder])", "optimizer=adam,sgd"]) == 0
    assert len(ran) == 8
    assert {request.config.optimizer.name for request in ran} == {"adam", "sgd"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["trian"], f"ConfigError: unknown command\n  value    trian\n  allowed  {COMMANDS}\n"),
        (
            ["docter"],
            f"ConfigError: unknown command\n  value    docter\n  allowed  {COMMANDS}\n  nearest  doctor\n",
        ),
        (["--foo"], "ConfigError: wrong usage\n  reason  unrecognized arguments: --foo\n"),
        (["--experimental-rerun", "x.pickle"], "ConfigError: wrong usage\n  reason  unrecognized arguments:"),
        (["--cfg", "jobs"], "ConfigError: wrong usage\n  reason  argument -c/--cfg: invalid choice"),
        (["-cn", "nothing"], "ConfigError: a config does not exist\n  value  nothing\n"),
        (["-cd", "nowhere"], "ConfigError: the config folder does not exist\n  path  nowhere\n"),
        (["ls", "nowhere"], "ConfigError: the folder does not exist\n  path  nowhere\n"),
        (
            ["ls", "--all"],
            "ConfigError: wrong usage\n  reason  unrecognized arguments: --all\n"
            "  usage   runner ls [--status STATUS] [--where KEY=VALUE] [--sort KEY] [--limit N] [--best] [--json] "
            "[--code FILE] [DIR]\n",
        ),
    ],
)
def test_wrong_usage(words, text, capsys, place):
    assert cli.main(words) == 2
    assert capsys.readouterr().err.startswith(text)
    assert not list(place.iterdir())


WRONG = {
    "ls": ["a", "b"],
    "rm": [],
    "watch": ["a", "b"],
    "resume": [],
    "eval": [],
    "predict": ["a"],
    "export": ["a"],
    "inspect": [],
    "new": ["a", "b"],
    "doctor": ["a"],
    "parse-print": [],
    "compare": ["a"],
    "report": [],
    "golden": ["a"],
    "convert": [],
}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_and_refuses_wrong_words(name, capsys, place):
    text = cli.help_of(name)
    for flag in ("-h", "--help"):
        assert cli.main([name, flag]) == 0
        assert capsys.readouterr() == (text, "")
    assert f"usage: runner {name} " in text
    for action in cli.parser_of(name)._actions:
        assert action.help
        assert all(word in text for word in (*action.option_strings, action.metavar or ""))
    assert f"\n  {name:<14}{cli.COMMANDS[name].summary}\n" in cli.help_of()
    for words in (WRONG[name], ["--nothing"]):
        assert cli.main([name, *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("ConfigError: wrong usage\n  reason  ")
        assert f"\n  usage   runner {name}" in err
        assert err.endswith(f"\n  hint    runner {name} --help\n")
    assert not list(place.iterdir())


def test_help_and_completion_load_nothing_of_the_commands(place):
    code = (
        "import argparse, sys; argparse.ArgumentParser().format_help()\n"
        "parsing = {*sys.modules}\n"  # in Python 3.14 also dataclasses
        "from runner import cli\n"
        "for name in cli.COMMANDS: cli.main([name, '--help'])\n"
        "cli.main(['-sc', 'query=bash'])\n"
        "heavy = {'numpy', 'hydra', 'omegaconf', 'yaml', 'rich', 'dataclasses', 'runner.report'}\n"
        "loaded = heavy & {*sys.modules} - parsing\n"
        "cli.main(['--help'])\n"
        "loaded |= heavy & {*sys.modules} - {'numpy', 'yaml', 'dataclasses'}  # tables of datasets, optimizers, ...\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    for line in ("runner compare x --", "runner convert -t ", "runner -c ", "runner --", "runner ls "):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COMP_LINE": line}
        subprocess.run([sys.executable, "-c", code], cwd=place, env=environment, check=True)


def test_help_and_version(capsys):
    assert cli.main(["--help"]) == 0
    assert f"dataset     {', '.join(sorted(register.dataset))}\n" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"runner {runner.__version__}, hydra-core 1.")


def test_help_and_usage_have_no_colours_in_files(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where Python 3.14 colours help
    assert "\x1b" not in cli.help_of() + cli.parser_of("rm").format_usage()


def test_without_words_it_helps_and_creates_nothing(ran, place, capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr() == (cli.help_of(), "")
    assert not list(place.iterdir())
    assert not ran
    assert cli.main(["--run"]) == 0  # all keys have their defaults
    assert len(ran) == 1


def test_showing_the_config(capsys, place):
    assert cli.main(["+experiment=lenet", "--cfg", "job", "-p", "device"]) == 0
    shown = "# @package device\ntarget: CPU\nid: 0\nthreads: 0\nallow_fallback: false\ntf32: false\n"
    assert capsys.readouterr().out == shown
    assert cli.main(["dataset.data_dir=${dataset.name}", "--cfg", "job", "-p", "dataset.data_dir", "--resolve"]) == 0
    assert cli.main(["--cfg", "hydra", "-p", "hydra.run.dir"]) == 0
    assert cli.main(["--cfg", "all"]) == 0
    assert cli.main(["epochs=0", "--cfg", "job"]) == 2
    assert cli.main(["--cfg", "job", "-p", "nothing"]) == 2
    assert not list(place.iterdir())


@pytest.mark.parametrize("topic", ["defaults", "defaults-tree", "config", "plugins", "searchpath"])
def test_info(topic, capsys, place):
    assert cli.main(["+experiment=lenet", "--info", topic]) == 0
    assert not list(place.iterdir())


def test_hydra_help(capsys):
    assert cli.main(["--hydra-help"]) == 0
    said = capsys.readouterr().out
    assert "== Configuration groups ==" in said
    assert "--junit : write a JUnit file" in said  # runner's flags, not those of Hydra's own parser


@pytest.mark.parametrize(
    ("line", "answer"), [("+experiment=lenet_", "lenet_mnist"), ("optimizer.nes", ""), ("epo", "epochs=")]
)
def test_completion(line, answer, capsys, monkeypatch):
    monkeypatch.setenv("COMP_LINE", f"runner {line}")
    monkeypatch.setenv("COMP_POINT", "99")
    assert cli.main(["-sc", "query=bash"]) == 0
    assert answer in capsys.readouterr().out
    assert cli.main(["-sc", "install=bash"]) == 0


def test_every_exit_code_of_an_error_is_the_code_of_the_command(monkeypatch):
    def run(request):
        raise DeviceError("no such card")

    monkeypatch.setattr(experiment, "run", run)
    assert cli.main(["--run"]) == 3


def test_a_device_error_leaves_a_failed_status(monkeypatch, place):
    monkeypatch.setattr(experiment, "run", lambda request: (_ for _ in ()).throw(DeviceError("no such card")))
    assert cli.main(["hydra.run.dir=r"]) == 3
    assert status(place / "r")["error"] == "DeviceError: no such card"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_the_run(number, code, place):
    running = process("hydra.run.dir=r", seconds=60, cwd=place)
    assert running.stdout.readline() == "started\n"
    assert status(place / "r")["status"] == "running"
    running.send_signal(number)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == code
    assert err in [f"{what}; runner resume continues the run\n" for what in ("Interrupted", "Terminated")]
    assert {name: status(place / "r")[name] for name in ("status", "exit_code")} == {
        "status": "interrupted",
        "exit_code": code,
    }


def test_processes_that_start_together_have_their_own_folders(place):
    started = [process("--run", cwd=place) for _ in range(6)]
    for running in started:
        _, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, err
    assert len(list(place.glob("outputs/*/*/status.json"))) == 6


def test_the_module_is_the_command(place):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "runner", "trian"], cwd=place, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ConfigError: unknown command")


def test_the_history_survives_damaged_files(ran, place, capsys):
    cli.main(["+experiment=lenet", "hydra.run.dir=outputs/good"])
    (place / "outputs/good/summary.json").write_text('{"loss": 0.125, "metrics": {"accuracy": 0.975}}')
    damaged = {
        "empty": "",
        "binary": "\x00\x01",
        "list": "[1]",
        "number": "3",
        "deep": "[" * 100_000,
        "odd": '{"status": {"a": 1}, "started": 5, "pid": "x"}',
        "killed": '{"status": "running", "pid": 2147483646}',
        "running": json.dumps({"status": "running", "pid": os.getpid(), "mode": "[red]graph", "started": "2999"}),
    }
    for name, text in damaged.items():
        (place / "outputs" / name).mkdir()
        (place / "outputs" / name / "status.json").write_text(text)
    (place / "outputs" / "records" / ".hydra").mkdir(parents=True)
    (place / "outputs" / "odd" / "summary.json").write_text('{"metrics": 3}')
    capsys.readouterr()
    assert cli.main(["ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[-1].split("/")[-1]: line for line in lines if "outputs/" in line}
    assert rows.keys() == {"good", "records", *damaged}
    assert "0.1250" in rows["good"]
    assert "0.9750" in rows["good"]
    assert "ok" in rows["good"]
    assert "[red]graph" in rows["running"]
    assert "killed" in rows["killed"]
    assert all("broken" in rows[name] for name in ("empty", "binary", "list", "number", "deep", "odd", "records"))
    assert lines.index(rows["running"]) < lines.index(rows["good"])


def test_an_empty_history(capsys):
    assert cli.main(["ls"]) == 0
    assert "no runs here" in capsys.readouterr().out


def test_runs_of_a_sweep_are_listed(ran, place):
    cli.main(["-m", "seed=1,2"])
    assert [run.state for run in list_runs.find_runs([place / "multirun"])] == ["ok", "ok"]


def test_composing_is_quick():
    """In calls of functions, which are the same on any machine: 270,000, in 0.03 seconds."""
    launch.compose(CommandLine(("+experiment=lenet",)))
    calls = itertools.count()
    sys.setprofile(lambda frame, event, argument: "call" in event and next(calls))
    try:
        launch.compose(CommandLine(("+experiment=lenet",)))
    finally:
        sys.setprofile(None)
    assert next(calls) < 1_000_000


RUN = ["+experiment=lenet", "max_steps=3", "eval.every=never", "callbacks.loss_monitor=1", "hydra.run.dir=run"]
WARNS = "session.op_select_implmode=high_precision"  # without any effect, so that a line goes to stderr


def with_output(redirection: str, *words: str) -> tuple[int, str]:
    """The exit code of the command in a shell with this redirection, and what is left of its stderr."""
    line = f'set -o pipefail; "{sys.executable}" -m runner "$@" {redirection}'
    command = ["bash", "-c", line, "bash", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("redirection", "problems"),
    [
        ("| true", {"stdout": "Broken pipe"}),
        ("> /dev/full", {"stdout": "No space left on device"}),
        (">&-", {"stdout": "closed"}),
        (">&- 2>&- <&-", {"stdout": "closed", "stderr": "closed"}),
        ("> /dev/full 2> /dev/full", dict.fromkeys(("stdout", "stderr"), "No space left on device")),
    ],
)
def test_a_run_survives_its_console(place, redirection, problems):
    assert with_output(redirection, *RUN, WARNS)[0] == 0
    status = json.loads((place / "run" / "status.json").read_text())
    assert (status["status"], status["console"]) == ("ok", problems)
    assert json.loads((place / "run" / "summary.json").read_text())["steps"] == 3


@pytest.mark.parametrize(
    ("redirection", "code", "reason"),
    [("| true", 0, ""), ("> /dev/full", 5, "No space left on device"), (">&-", 5, "closed")],
)
def test_a_report_that_cannot_be_written_is_an_error_unless_its_reader_has_left(redirection, code, reason):
    for words in (["ls"], ["--help"], ["resume", "-h"], ["--version"], [*RUN, "--cfg", "job"], ["--info", "config"]):
        found, block = with_output(redirection, *words)
        assert found == code, words
        assert reason in block
        assert "Traceback" not in block
        assert bool(block) == bool(code)


def test_an_error_that_cannot_be_written_has_its_exit_code():
    assert with_output("2> /dev/full", "nonsense") == (2, "")


def limited(limit: str, *words: str) -> tuple[int, str]:
    """The exit code of `runner` after a command of the shell, and what it has on standard error."""
    line = f'{limit}; "{sys.executable}" -m runner "$@"'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", line, "bash", *words], capture_output=True, text=True, env=environment, timeout=PATIENCE
    )
    return done.returncode, done.stderr


def test_a_directory_that_was_removed(place):
    (place / "gone").mkdir()
    code, block = limited(f"cd {place}/gone && rmdir {place}/gone", "ls")
    assert (code, block.splitlines()[0]) == (5, "StorageError: the working directory does not exist any more")


def test_too_few_files_may_be_open():
    code, block = limited("ulimit -n 8", *RUN, "mode=graph")
    assert (code, block.splitlines()[0]) == (5, "StorageError: too many files are open")
    assert "\n  repair  ulimit -n 1024\n" in block


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory", "somewhere"),
        ImportError("x.so: failed to map segment from shared object"),
        RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 64"),
    ],
)
def test_memory_that_is_refused_is_no_defect(error):
    assert unexpected(error).what == "there is not enough memory"
    assert type(unexpected(error)) is ConfigError


def test_an_error_is_printed_without_an_import(monkeypatch, capsys):
    """What is missing may be the memory for it."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr(cli.commands, "annotations", None)
    assert cli.main(["nonsense"]) == 2
    assert capsys.readouterr().err.startswith("ConfigError: unknown command\n")
