"""The workflow in examples/ci: every command of it is run, as a shell of CI would run it."""

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "examples" / "ci" / "workflow.yml"


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, dict[str, subprocess.CompletedProcess]]:
    """The sweep is shortened: what it expects of accuracy then fails, and later steps go on as `if: always()` says."""
    place = tmp_path_factory.mktemp("checkout")
    (place / "examples").symlink_to(ROOT / "examples")
    (place / "bin").mkdir()
    script = place / "bin" / "runner"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m runner "$@"\n')
    script.chmod(0o755)
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    summary = {"GITHUB_STEP_SUMMARY": str(place / "summary.md"), "GITHUB_ACTIONS": "true"}
    done = {}
    for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["lenet"]["steps"]:
        if "runner" in step.get("run", ""):
            text = step["run"].replace("+experiment=lenet seed", "+experiment=lenet max_steps=1 callbacks=quiet seed")
            shell = ["bash", "-e", "-c", text]
            environment = {**os.environ, "PATH": path, **summary}
            done[step["name"]] = subprocess.run(shell, cwd=place, env=environment, capture_output=True, text=True)
    return place, done


def test_every_step_does_what_it_says(ran):
    place, done = ran
    codes = [step.returncode for step in done.values()]
    assert codes == [8, 0, 0, 0], [step.stderr for step in done.values()]
    first = next(iter(done.values()))
    assert any(line.startswith("::error ") for line in first.stderr.splitlines())
    assert len(xml.parse(place / "junit.xml").findall(".//failure")) == 3
    assert "### metrics" in (place / "summary.md").read_text()
    assert "3 runs" in (place / "report.html").read_text()


def test_the_golden_numbers_hold(ran):
    """On any machine: the file requires a tolerance and not equal bits."""
    _, done = ran
    assert "unchanged, within tolerance" in list(done.values())[1].stdout


def test_what_the_workflow_uploads_is_made(ran):
    place, _ = ran
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["lenet"]["steps"]
    (paths,) = [step["with"]["path"].split() for step in steps if "upload-artifact" in step.get("uses", "")]
    assert [path for path in paths if not (place / path).exists()] == []
