"""The suite is run by one command, wherever it is written down."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
COMMAND = "pytest -n 2 --dist worksteal"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile", ".ci/run"])
def test_everywhere_the_same_command(name):
    text = re.sub(r"RUNNER_SOAK=1 .*pytest.*", "", (ROOT / name).read_text())  # the long tests
    found = re.findall(r"pytest -n[^`\n#&]*", text)
    assert [command.strip() for command in found] == [COMMAND]


def runs() -> list[str]:
    """What the steps of the workflow run."""
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


def test_the_workflow_has_the_suite_in_all_shards():
    matrix = yaml.safe_load(WORKFLOW.read_text())["jobs"]["suite"]["strategy"]["matrix"]
    (suite,) = (run for run in runs() if run.startswith("pytest"))
    assert suite.startswith(COMMAND)
    assert suite.endswith(f"$(.ci/shard ${{{{ matrix.shard }}}} {len(matrix['shard'])})")
    assert matrix["shard"] == [*range(1, len(matrix["shard"]) + 1)]


def test_the_shards_are_the_suite():
    shards = [subprocess.check_output([ROOT / ".ci" / "shard", str(k), "4"], text=True).split() for k in (1, 2, 3, 4)]
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("test_*.py")}
    theirs = {file for file in files if re.match("tests/projects/.*/", file)}  # those of users
    assert sorted(file for shard in shards for file in shard) == sorted([*files - theirs, "tests/support", "runner"])
    assert max(map(len, shards)) - min(map(len, shards)) <= 3


def test_the_workflow_runs_what_exists():
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    targets = [target for run in runs() for target in re.findall(r"make (\w+)", run)]
    targets += jobs["nightly"]["strategy"]["matrix"]["target"]
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert {*targets} == {"lint", "types", "soak", "mutants"} <= {*declared}
    named = [file for run in runs() for file in re.findall(r"(?<![\w/$}])(?:\.ci|benchmarks)/[\w.]+", run)]
    assert len(named) == 2
    assert all((ROOT / file).exists() for file in named)
