"""What is installed: the metadata of the package, and what it needs."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_DEPENDENCIES = 9


def test_few_direct_dependencies_without_upper_bounds():
    assert len(PROJECT["dependencies"]) <= MOST_DEPENDENCIES
    assert [line for line in PROJECT["dependencies"] if not re.fullmatch(r"[\w-]+>=[\d.]+", line)] == []


def test_the_oldest_python_is_that_of_the_first_classifier():
    minors = [int(line.rpartition(".")[2]) for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert minors == [*range(min(minors), max(minors) + 1)]
    assert PROJECT["requires-python"] == f">=3.{min(minors)}"


@pytest.mark.parametrize("name", PROJECT["license-files"])
def test_the_licences_are_there(name):
    assert (ROOT / name).read_text()


def test_every_dependency_has_a_tested_version():
    pinned = (ROOT / "constraints.txt").read_text().lower()
    needed = [re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]]
    assert [name for name in needed if f"\n{name}==" not in pinned] == []


def test_windows_is_told_what_it_needs():
    code = "import sys; sys.platform = 'win32'; import runner"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: runner needs Linux or macOS; on Windows, install it in"
    )


def test_containers_have_a_supported_python_and_files_that_exist():
    dockerfiles = sorted((ROOT / "docker").glob("*.Dockerfile"))
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    images = [image for file in dockerfiles for image in re.findall(r"^FROM (\S+)", file.read_text(), re.MULTILINE)]
    pythons = {re.search(r"python:(3\.\d+)", image)[1] for image in [*images, settings["image"]]}
    assert {f"Programming Language :: Python :: {version}" for version in pythons} <= set(PROJECT["classifiers"])
    assert (ROOT / settings["postCreateCommand"].split()[-1]).is_file()
    page = (ROOT / "docs" / "install.md").read_text()
    assert [file.name for file in dockerfiles if f"docker build -f docker/{file.name}" not in page] == []


def test_every_extra_is_on_the_page_about_the_installation():
    page = (ROOT / "docs" / "install.md").read_text()
    devices = {"gpu", "ascend"}  # other wheels in the place of onnxruntime
    assert [name for name in PROJECT["optional-dependencies"].keys() - devices if f"`{name}`" not in page] == []
