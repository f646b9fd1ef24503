"""What type checkers see of packages whose names load late: every name, and every wrong call."""

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).parents[1]
RIGHT = """
import runner
from runner import Tensor, compile as compiler, dataset, nn, ops
from runner.experiment import ranks, sweep, tracking
from runner.observe import dump, profile
from runner.train.callback import Callback, StepValues

layer: nn.Cell = nn.Dense(3, 4)
product: ops.MatMul = ops.MatMul()
summary: dict[str, object] = runner.run(["+experiment=lenet"])
observer: type[dump.Dumper] = dump.Dumper
"""
WRONG = {
    "ops.MatMull()": 'has no attribute "MatMull"',
    "nn.Dense(3, 4, out_chanels=5)": "out_chanels",
    "compiler.Program(1, 2, 3, 4, 5)": "incompatible type",
    "dump.Dumper(1, 2, 3, 4, 5)": "Too many arguments",
    "sweep.start(1, 2, 3, 4, 5)": "Too many arguments",
    "tracking.folowed": "folowed",
    "ranks.joined(1, 2, 3, 4, 5)": "Too many arguments",
    "profile.ProfileSettings(wrong=1)": "wrong",
    "runner.run(3)": "incompatible type",
    "dataset.Nothing": "Nothing",
}


def test_late_names_are_typed(tmp_path):
    lines = RIGHT.strip().splitlines()
    script = tmp_path / "script.py"
    script.write_text("\n".join([*lines, *WRONG]) + "\n")
    words = [
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(tmp_path / "cache"),
        str(script),
    ]
    out, err, code = api.run(words)
    found = [line for line in out.splitlines() if f"{script.name}:" in line and " error: " in line]
    assert code == 1, out + err
    for number, (text, complaint) in enumerate(WRONG.items(), start=len(lines) + 1):
        assert any(f":{number}: " in line and complaint in line for line in found), (text, out)
    assert not [line for line in found if int(line.split(":")[1]) <= len(lines)], out
