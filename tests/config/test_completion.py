"""Tab completion: what `runner -sc query=...` answers, and what real shells make of it."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from runner import cli
from runner.config import completion
from runner.config.command_line import OVERRIDE

ROOT = Path(__file__).parents[2]
OPTIMIZER_NAMES = (
    *("adagrad", "adam", "adam_weight_decay", "ftrl", "lamb", "lars"),
    *("momentum", "proximal_adagrad", "rmsprop", "sgd"),
)


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(place, monkeypatch, capsys):
    def answers(line: str) -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        assert cli.main(["-sc", "query=bash"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split()

    return answers


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("runner mode=", "mode=graph mode=pynative"),
        ("runner mode=g", "mode=graph"),
        ("runner dump.trans_flag=", "dump.trans_flag=false dump.trans_flag=true"),
        ("runner eval.mode=n", "eval.mode=null"),
        ("runner +exp", "+experiment="),
        ("runner +experiment=lenet_", "+experiment=lenet_cifar10 +experiment=lenet_mnist +experiment=lenet_seed"),
        ("runner +optimizer", ""),
        ("runner ~opt", "~optimizer"),
        ("runner optimizer=", " ".join(f"optimizer={name}" for name in OPTIMIZER_NAMES)),
        ("runner optimizer=adam optimizer.beta", "optimizer.beta1= optimizer.beta2="),
        ("runner +experiment=resnet50_tiny optimizer.beta", "optimizer.beta1= optimizer.beta2="),
        ("runner optimizer.nes", ""),
        ("runner epo", "epochs="),
        ("runner epochs=", "epochs=1"),
        ("runner -m +experiment=lenet hydra/l", "hydra/launcher="),
        ("runner res", "reserve_class_name_in_scope= resume"),
        ("runner seed=3 res", "reserve_class_name_in_scope="),
        ("runner --hel", "--help"),
        ("runner -c ", "all hydra job"),
        ("runner +experiment=lenet --cfg j", "job"),
        ("runner compare x --a", "--all --atol"),
        ("runner resume r ep", "epochs="),
        ("runner resume r --", "--code --force --help"),
        ("runner resume epochs=2 mode=", "mode=graph mode=pynative"),
        ("runner resume r mode=graph --force epo", "epochs="),
        ("runner doctor ", ""),
        ("runner ls x ", ""),
        ("runner ls --status ", "broken failed interrupted killed ok running"),
        (
            "runner ls --where optimizer.name=ada",
            "optimizer.name=adagrad optimizer.name=adam optimizer.name=adam_weight_decay",
        ),
        ("runner ls --sort ", ""),
        ("runner rm r --", "--dry-run --force --help"),
        ("runner compare --rtol ", ""),
        ("runner convert -d x -t ", "bin msnpy npy"),
        ("runner convert -v ", "1 2"),
        ("runner -p ", ""),
        ("runner seed='", ""),
        ("runner mode mo", ""),
        ("runner -cn", "-cn"),
    ],
)
def test_an_answer(ask, line, answer):
    assert ask(line) == answer.split()


def test_the_first_word_may_be_a_command_a_group_or_a_key(ask):
    assert {*cli.COMMANDS, "+experiment=", "mode=", "optimizer=", "optimizer.", "epochs="} <= set(ask("runner "))
    assert not {"experiment=", "hydra", "schema", "schema="} & set(ask("runner "))


def test_folders_of_runs(ask, place):
    for name in ("outputs/2026-01-02/03-04-05", "multirun/2026-01-02/03-04-05", "multirun/2026-01-02/03-04-05/0"):
        (place / name).mkdir(parents=True)
    for name in ("outputs/2026-01-02/03-04-05/status.json", "multirun/2026-01-02/03-04-05/sweep.jsonl"):
        (place / name).touch()
    (place / "multirun/2026-01-02/03-04-05/0/.hydra").mkdir()
    (place / "outputs/2026-01-02/no_run").mkdir()
    (place / "golden.json").touch()
    runs = ["multirun/2026-01-02/03-04-05", "multirun/2026-01-02/03-04-05/0", "outputs/2026-01-02/03-04-05"]
    assert ask("runner resume ") == sorted([*runs, "golden.json", "multirun/", "outputs/"])
    assert ask("runner report outputs/2026-01-02/03-04-05 m") == ["multirun/", *runs[:2]]
    assert ask("runner golden --check g") == ["golden.json"]
    assert ask("runner convert -d outputs/2026-01-02/n") == ["outputs/2026-01-02/no_run/"]
    assert ask(f"runner -cd {place}/o") == [f"{place}/outputs/"]
    assert ask("runner --junit g") == ["golden.json"]
    assert ask("runner golden --check ") == ["golden.json", "multirun/", "outputs/"]
    assert ask("runner golden --check golden.json ") == sorted([*runs, "golden.json", "multirun/", "outputs/"])
    assert ask("runner compare --rtol 1 x o") == ["outputs/", "outputs/2026-01-02/03-04-05"]
    assert ask("runner compare x y ") == []


def test_configs_of_a_folder_of_the_users(ask, place):
    (place / "mine" / "experiment").mkdir(parents=True)
    (place / "mine" / "experiment" / "first_try.json").write_text('{"epochs": 2}')
    assert ask("runner -cd mine +experiment=fi") == ["+experiment=first_try"]


@pytest.mark.parametrize("name", [None, *cli.COMMANDS])
def test_every_flag_and_choice_is_offered(ask, name):
    line = f"runner {name or ''}".strip()
    actions = cli.parser_of(name)._actions
    flags = {flag for action in actions for flag in action.option_strings}
    assert "--help" in flags
    assert set(ask(f"{line} -")) == flags
    for action in actions:
        for flag in action.option_strings if action.choices else ():
            assert ask(f"{line} {flag} ") == sorted(map(str, action.choices))


@pytest.mark.parametrize("name", [None, *cli.COMMANDS])
def test_every_metavar_says_what_is_offered(name):
    """A path, a run directory, an override, or one of those that nothing is offered for."""
    free = {"X", "N", "NAME", "KEY", "PACKAGE", "FORMAT", "SHAPE"}
    for action in cli.parser_of(name)._actions:
        if action.nargs != 0 and not action.choices:
            assert action.metavar in {*free, *completion._PATHS, OVERRIDE} or action.metavar.startswith("RUN")


# Real shells


@pytest.fixture
def shell(place) -> dict[str, str]:
    """The environment of a shell that has the command `runner`."""
    command = place / "bin" / "runner"
    command.parent.mkdir()
    start = "import sys; sys.argv[0] = 'runner'; from runner.cli import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -c "{start}" "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb"}


BASH = """
eval "$(runner -sc install=bash)"
complete -p runner | grep -q hydra_bash_completion || exit 3
for COMP_LINE in "$@"; do
    COMP_WORDS=($COMP_LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_POINT=${#COMP_LINE}; COMPREPLY=()
    hydra_bash_completion runner "${COMP_WORDS[$COMP_CWORD]}" ""
    echo "${COMPREPLY[*]}"
done
"""


def said(*words: str, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash(shell, place):
    lines = ["runner +experiment=lenet_m", "runner mode=", "runner rep"]
    printed = said("bash", "--norc", "-c", BASH, "bash", *lines, env=shell, cwd=place)
    assert printed.splitlines() == ["+experiment=lenet_mnist", "mode=graph mode=pynative", "report"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_nothing_that_a_config_or_a_file_is_called_is_executed(shell, place):
    """bash expands the words that it is given."""
    (place / "mine" / "experiment").mkdir(parents=True)
    trap = "# @package _global_\ndataset: {data_dir: '$(touch${IFS}trapped)'}\n"
    (place / "mine" / "experiment" / "trap.yaml").write_text(trap)
    (place / "d$(touch trapped)").mkdir()
    lines = ["runner -cd mine +experiment=trap dataset.data_dir=", "runner report d", "runner report m"]
    printed = said("bash", "--norc", "-c", BASH, "bash", *lines, env=shell, cwd=place)
    assert printed.splitlines()[::2] == ["", "mine/"]  # for the second one, bash itself looks for files
    assert not (place / "trapped").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish(shell, place):
    commands = "runner -sc install=fish | source; complete -C 'runner +experiment=lenet_m'; complete -C 'runner rep'"
    printed = said("fish", "--no-config", "-c", commands, env=shell, cwd=place)
    assert printed.split() == ["+experiment=lenet_mnist", "report"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh(shell, place):
    """With Hydra's script for bash, which zsh understands; the key is pressed at a terminal."""
    typed = (
        "autoload -Uz compinit bashcompinit; compinit -u; bashcompinit; "
        'eval "$(runner -sc install=zsh)"; print rea""dy\n',
        "runner +experiment=lenet_m\t",
    )
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(place)
        os.execvpe("zsh", ["zsh", "-f", "-i"], shell)
    shown = ""
    try:
        for text, awaited in zip(typed, ("ready", "lenet_mnist"), strict=True):
            os.write(terminal, text.encode())
            shown = ""
            while awaited not in shown and select.select([terminal], [], [], PATIENCE)[0]:
                shown += os.read(terminal, 4096).decode(errors="replace")
    finally:
        os.close(terminal)
        os.kill(process, 9)
        os.waitpid(process, 0)
    assert "+experiment=lenet_mnist" in shown
