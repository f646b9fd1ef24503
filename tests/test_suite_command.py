"""The suite is run by one command, wherever it is written down."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = "pytest -n 2 --dist worksteal"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile", ".ci/run"])
def test_everywhere_the_same_command(name):
    text = re.sub(r"RUNNER_SOAK=1 .*pytest.*", "", (ROOT / name).read_text())  # the long tests
    found = re.findall(r"pytest -n[^`\n#&]*", text)
    assert [command.strip() for command in found] == [COMMAND]
