"""The README as a new user reads it: its commands run from top to bottom and print what is shown."""

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import pytest
from patience import PATIENCE
from shown import ROOT, Shown, blocks, commands, environment, is_shown
from tables import table

from runner.host import arithmetic

README = (ROOT / "README.md").read_text()
END = "the command has ended"
UNTRIED = "python3 -m venv"  # tests of the wheel install it
CODES = {"runner compare": 6}


def in_order() -> list[Shown]:
    """All commands that can be tried; the comparison at the top is that of runs which are made further down."""
    first, *others = commands(README)
    return [x for x in (*others, first) if not x.command.startswith(UNTRIED)]


@dataclass
class Done:
    code: int
    output: str


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> dict[str, Done]:
    """What each command printed. All of them share one folder and one shell, as those of a reader do."""
    place, commands_place = tmp_path_factory.mktemp("readme"), tmp_path_factory.mktemp("bin")
    (name,) = re.findall(r"^Save this as `(.+?)`", README, re.MULTILINE)
    (code,) = [code for language, _, code in blocks(README) if language == "python"]
    (place / name).write_text(code)
    lines = [f"{shown.command}\necho '{END}' $?" for shown in in_order()]
    words = ["bash", "-c", "set -u\n" + "\n".join(lines)]
    process = subprocess.run(
        words, cwd=place, env=environment(commands_place), capture_output=True, text=True, timeout=PATIENCE
    )
    assert "Traceback" not in process.stderr
    parts = re.split(rf"^{END} (\d+)\n", process.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(lines) + 1, process.stderr
    ends = zip(parts[0::2], parts[1::2], strict=False)
    return {shown.command: Done(int(code), text) for shown, (text, code) in zip(in_order(), ends, strict=True)}


@table("shown", in_order(), ids=[x.command for x in in_order()])
def test_a_command(done, shown):
    real = done[shown.command]
    assert real.code == next((code for words, code in CODES.items() if shown.command.startswith(words)), 0), real.output
    assert shown.output is None or is_shown(shown.output, real.output, has_its_numbers()), real.output


@cache
def has_its_numbers() -> bool:
    """Every machine of the class has the bits of the page, with the versions that it was written with."""
    constraints = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    packages = "numpy", "onnxruntime"
    as_tested = all(version(name) == constraints[name] for name in packages)
    return as_tested and arithmetic.record()["class"] == arithmetic.V3


def test_its_length():
    """Own network and data in 25 lines, a terminal of ten."""
    lines = {language: code.splitlines() for language, _, code in reversed(blocks(README))}
    assert len(lines["python"]) == 25
    assert len(lines["console"]) == 10
    assert len(README.splitlines()) <= 160


def test_mindspore_is_explained_where_it_is_first_named():
    sentence = re.search(r"[^.;]*\bMindSpore\b.*?[.;]\s", README.replace("1.2", "1·2"))[0]
    assert "Huawei's framework for deep learning" in sentence


@pytest.mark.parametrize(
    ("shown", "output", "numbers", "same"),
    [
        (["a 1.5 b"], "a 2e-05  b \n", False, True),
        (["a 1.5 b"], "a 2e-05  b \n", True, False),
        (["a 1.5 b"], "a 1.5  b \n", True, True),
        (["a 1.5 b at 20 steps/s"], "a 1.5 b at 1,000.5 steps/s\n", True, True),
        (["a 1.5 b at 20 steps/s"], "a 1.6 b at 20 steps/s\n", True, False),
        (["a 1.5 b"], "a b\n", False, False),
        (["a", "...", "b"], "a\nx\ny\nb\n", False, True),
        (["a", "...", "b"], "a\nb\n", False, True),
        (["a", "b"], "a\nx\nb\n", False, False),
        (["a"], "a\nb\n", False, False),
        (["  source /home/me/rings.py(17)"], "  source   /tmp/x-1/rings.py(9)\n", False, True),
        (["loss 0.25"], "less 0.25\n", False, False),
        (["outputs/2026-11-23/12-09-04"], "outputs/2027-01-03/02-39-34\n", False, True),
        (["outputs/2026-11-23/12-09-04"], "outputs/2027-01-03/02-39-34\n", True, True),
        (["  source /home/me/rings.py(17)"], "  source   /tmp/x-1/rings.py(9)\n", True, False),
    ],
)
def test_what_counts_as_the_same_output(shown, output, numbers, same):
    assert is_shown(shown, output, numbers) == same


def test_outputs_belong_to_the_command_before_them():
    text = "```sh\na\nb\n```\n\n```text\n1\n```\n\n```console\n$ c\n2\n3\n$ d\n```\n"
    assert list(commands(text)) == [Shown("a"), Shown("b", ["1"]), Shown("c", ["2", "3"]), Shown("d")]
