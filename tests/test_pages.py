"""The documentation site: every block on its pages runs, and its reference says what the code says."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import shown
from patience import PATIENCE
from shown import blocks, is_shown

from runner import cli, ops
from runner.config.check import check
from runner.config.schema import RunConfig, defaults

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TRIED_LANGUAGES = {"sh", "python"}
UNTRIED = ' title="Not tested here: '


def script(page: Path) -> str:
    """All that can be run on a page, as one script: its blocks share a folder, as those of a reader do."""
    lines = ["set -eu"]
    for number, (language, words, code) in enumerate(blocks(page.read_text())):
        if words or language not in TRIED_LANGUAGES:
            continue
        if language == "python":
            lines += [f"cat > block{number}.py <<'BLOCK'", code + "BLOCK", f"python -W error block{number}.py"]
        else:
            lines.append(code)
    return "\n".join(lines)


def has_blocks(page: Path) -> bool:
    return any(language in TRIED_LANGUAGES and not words for language, words, _ in blocks(page.read_text()))


TRIED = [page for page in PAGES if has_blocks(page)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return shown.environment(tmp_path_factory.mktemp("bin"))


@pytest.mark.parametrize("page", TRIED, ids=[page.stem for page in TRIED])
def test_a_page(environment, tmp_path, page):
    command = ["bash", "-c", script(page)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    for output in (code.splitlines() for language, _, code in blocks(page.read_text()) if language == "text"):
        assert any(is_shown(["...", *output, "..."], text) for text in (done.stdout, done.stderr)), (
            done.stdout + done.stderr
        )
    for said, awaited in AWAITED.get(page.stem, {}).items():
        assert len(re.findall(said, done.stdout, re.MULTILINE)) == awaited, said


# What the blocks of a page must have said, and how often.
AWAITED = {
    "tutorial": {
        "^exit code 2$": 1,
        r"^2 jobs finished in multirun/": 1,
        "unchanged, bit for bit": 1,
        r"^epoch 1 of 15: loss \d": 2,
    },
    "fine-tune": {"^exit code 2$": 1},
    "project": {"^exit code 2$": 1, r"^3 jobs finished in multirun/": 1},
    "code": {"^exit code 2$": 1, "^pear +orchard/__init__.py:": 1, r"^network=pear$": 1, "^> # another line$": 1},
    "network": {"^exit code 2$": 3},
    **{page: {"^exit code 2$": 2} for page in ("dataset", "loss", "metric", "optimizer", "schedule", "callback")},
    "compare": {
        "^exit code 6$": 2,
        "^first difference: learning_rate$": 1,
        "^same: 45 operators": 1,
        r"^note: 17 only in B: .* \(17 Cast\)$": 1,
    },
    "dump": {r"Conv2D-op\d+_output_0_shape_32_6_28_28_Float32": 1},
    "port": {r"^scores": 2, r"^epoch: 1 step: \d, loss is": 2},
    "ci": {"^exit code 6$": 1, "unchanged, bit for bit": 2, r"^3 jobs finished in multirun/": 1},
    "commands": {"^exit code 2$": 1},
    "report": {"^exit code 6$": 1, r"^4 jobs finished in multirun/": 1},
    "scripts": {"^exit code 143$": 1, "unchanged, bit for bit": 1, r"^\S+ \S+ +interrupted +long": 1},
    "completion": {"^mode=graph mode=pynative$": 1},
}


def test_the_errors_on_the_pages_about_own_code_are_those_of_the_code():
    texts = [re.escape(node.value) for node in literals() if isinstance(node, ast.Constant) and type(node.value) is str]
    texts += ["".join(map(part_of_pattern, node.values)) for node in literals() if isinstance(node, ast.JoinedStr)]
    known = re.compile("|".join(f"(?:{text})" for text in set(texts) if len(text) > 12))
    shown = [
        (page.stem, error)
        for page in (ROOT / "docs" / "how-to" / "own").glob("*.md")
        for error in re.findall(r"^\| `([^`]+)` \|", page.read_text().partition("\n## Errors\n")[2], re.MULTILINE)
    ]
    assert len(shown) > 40
    assert [(page, error) for page, error in shown if not known.fullmatch(error)] == []


def literals() -> list[ast.expr]:
    """All texts in the source of runner, with and without values in them."""
    files = (ROOT / "runner").rglob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return [node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]


def part_of_pattern(node: ast.expr) -> str:
    return re.escape(str(node.value)) if isinstance(node, ast.Constant) else ".+"


def test_a_block_that_is_not_run_says_why():
    told = [(page, words) for page in PAGES for _, words, _ in blocks(page.read_text()) if words]
    assert len(told) >= 3
    assert [(page.stem, words) for page, words in told if not words.startswith(UNTRIED)] == []


def test_only_what_can_be_tried_is_shown():
    """Commands, Python, what they print, and settings of a project."""
    languages = {language for page in PAGES for language, _, _ in blocks(page.read_text())}
    assert languages == {*TRIED_LANGUAGES, "text", "toml"}
    assert all(page.read_text().count("```") == 2 * len(blocks(page.read_text())) for page in PAGES)


# The reference


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("reference_of_the_site", ROOT / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables by the first cell; of several with the same one, the first."""
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines() if line[:3] == "| `"]
    return {row[0].strip("`"): row[1:] for row in reversed(cells)}


def flat(values: dict, path: str = "") -> dict[str, object]:
    found = {}
    for name, value in values.items():
        place = f"{path}{name}"
        found |= flat(value, f"{place}.") if isinstance(value, dict) and value else {place: value}
    return found


def test_every_key_has_a_row_with_its_default_and_a_meaning(reference):
    told = rows(reference["keys"])
    known = {key for key in flat(defaults(RunConfig)) if not key.startswith(("expect", "metrics"))}
    assert known <= set(told)
    assert {"optimizer.beta1", "dump.trans_flag", "dump.dump_step", "parallel.gradients_mean"} <= set(told)
    assert told["epochs"] == ["`1`", "whole number, 1 to 2147483647", "passes over the training data"]
    assert [key for key, (_, allowed, meaning) in told.items() if not allowed or len(meaning) < 5] == []


def test_a_default_is_one_that_the_checker_accepts(reference):
    """The page is read back: its defaults make the config that no override makes."""
    values: dict = {}
    for key in flat(defaults(RunConfig)):
        if key in rows(reference["keys"]) and not key.startswith(
            ("dump", "profiling", "optimizer", "parallel", "tracking")
        ):
            *groups, name = key.split(".")
            place = values
            for group in groups:
                place = place.setdefault(group, {})
            place[name] = json.loads(rows(reference["keys"])[key][0].strip("`"))
    assert check(values) == RunConfig()


def test_every_command_flag_and_exit_code_is_told(reference):
    assert set(rows(reference["commands"])) == {f"runner {name}" for name in cli.COMMANDS}
    for name in (None, *cli.COMMANDS):
        assert f"```text\n{cli.help_of(name)}```" in reference["commands"]


COMMAND = re.compile(r"(?<![\w./-])runner ([a-z][a-z-]+)(?=$|[`.:;,]| [A-Z-])")
NO_COMMANDS = {"again", "needs", "checkpoint"}  # sentences, and the format of a file
KEY = re.compile(r"(?<![\w./'\"\[])([a-z_]+(?:\.[a-z_]+)+)=(?!=)")


def said() -> list[tuple[str, str]]:
    """The texts in the code but for docstrings: those of errors and advice, each with its file."""
    found = []
    for path in sorted((ROOT / "runner").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        bodies = [n.body[0] for n in nodes if isinstance(n, documented) and n.body]
        docstrings = {first.value for first in bodies if isinstance(first, ast.Expr)}
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and n not in docstrings]
        found += [(text, path.name) for text in texts if isinstance(text, str)]
    return found


def test_errors_and_advice_name_no_command_and_no_key_that_does_not_exist(reference):
    keys, groups = set(rows(reference["keys"])), set(defaults(RunConfig)) - {"expect"}
    commands = [(name, file) for text, file in said() for name in COMMAND.findall(text)]
    named = [(key, file) for text, file in said() for key in KEY.findall(text) if key.split(".")[0] in groups]
    assert len(commands) > 20
    assert len(named) > 30
    assert [one for one in commands if one[0] not in {*cli.COMMANDS, *NO_COMMANDS}] == []
    assert [one for one in named if one[0] not in keys] == []


def test_every_operator_has_a_row(reference):
    told = rows(reference["operators"])
    assert set(told) == {name for name in ops.__all__ if name[0].isupper() and isinstance(getattr(ops, name), type)}
    assert told["Square"] == ["-", "yes", "x * x."]
    assert told["ApplyMomentum"][1] == "-"


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "keys" / "index.html").read_text()
    assert "optimizer.learning_rate" in page
