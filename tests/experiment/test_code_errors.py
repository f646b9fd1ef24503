"""Exceptions in a user's code, wherever it is called: the user's lines and no others; and runs without their code."""

import json
import os
import subprocess
import sys

import numpy as np
from own_code import CODE, WORDS, failing, ran, write_project
from processes import ROOT, called
from tables import check_rows

PLACES = (
    *("constructor", "construct", "loss", "metric", "callback", "dataset", "sample", "transform"),
    *("schedule", "optimizer", "update"),
)
WAYS = (
    ("mode=pynative",),
    ("mode=graph",),
    ("mode=graph", "dataset_sink_mode=true", "sink_size=2", "dataset.num_parallel_workers=2"),
    ("mode=pynative", "dataset.num_parallel_workers=2"),
)
CALLS = """
import contextlib, io, json, os, sys
from runner import cli
found = []
for place, words in json.load(sys.stdin):
    os.environ["FAIL"] = place
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        code = cli.main(words)
    found.append([code, err.getvalue()])
print(json.dumps(found))
"""


def test_every_exception_has_the_users_lines(tmp_path):
    file = write_project(tmp_path / "here")
    rows = [(place, [*WORDS, *way]) for place in PLACES for way in WAYS]
    options = {"input": json.dumps(rows), "text": True, "capture_output": True, "check": True}
    command = [sys.executable, "-c", CALLS]
    done = subprocess.run(command, cwd=tmp_path / "here", env={**os.environ, "PYTHONPATH": str(ROOT)}, **options)
    lines = CODE.splitlines()
    raises = next(number for number, line in enumerate(lines, 1) if "raise ValueError" in line)

    def check(row):
        (place, _), (code, err) = row
        assert code == 1, err
        assert f"ValueError: failed in {place}" in err
        call = next(number for number, line in enumerate(lines, 1) if f'fail("{place}")' in line)
        for number in (call, raises):
            assert f"{file}:{number} in " in err, err
        assert str(ROOT / "runner") not in err
        assert "Traceback" not in err
        assert "site-packages" not in err

    check_rows(zip(rows, json.loads(done.stdout), strict=True), check, name=lambda row: row[0])


def test_shapes_and_samples_that_do_not_fit_are_errors_of_usage(tmp_path):
    file = write_project(tmp_path / "here")
    texts = {
        "shape": ("ShapeError: ", f"{file}:{_line('self.last(self.first(x))')}  return"),
        "ragged": ("the samples of a column differ in shape or element type", "sample        20"),
        "other shape": ("samples have another shape than the first", "expected    [8, 3]"),
    }

    def check(row):
        place, way = row
        code, _, err = failing(place, (*WORDS, *way), tmp_path / "here")
        assert code == 2, err
        assert all(text in err for text in texts[place]), err

    check_rows([(place, way) for place in texts for way in WAYS[:3:2]], check)


def _line(text: str) -> int:
    return next(number for number, line in enumerate(CODE.splitlines(), 1) if text in line)


def test_a_file_that_is_edited_during_the_run(tmp_path):
    """The record has what was executed, and a resumed run notices the change."""
    file = write_project(tmp_path / "here")
    code, _, err = failing("edit", (*WORDS, "hydra.run.dir=r"), tmp_path / "here")
    assert code == 0, err
    assert file.read_text() != CODE
    assert (tmp_path / "here/r/code/own/parts.py").read_text() == CODE
    code, _, err = called(("resume", "r", "max_steps=4"), tmp_path / "here")
    assert code == 2
    assert "code.own/parts.py  was " in err


def test_a_run_that_is_resumed_without_its_code_says_how(tmp_path):
    place = tmp_path / "my place"
    write_project(place, "")
    words = (*WORDS, "hydra.run.dir=a run", "--code", "own")
    ran(words, place)
    manifest = json.loads((place / "a run/manifest.json").read_text())
    assert (manifest["code_given"], manifest["code_folder"]) == (["own"], str(place))
    code, _, err = called(("resume", "a run", "max_steps=4"), place)
    assert code == 2
    assert "own/parts.py: not loaded here; copies are in a run/code" in err
    assert "  runner resume 'a run' --code own\n" in err
    np.save(place / "rows.npy", np.zeros((2, 3), np.float32))
    for command, more in (("eval", ()), ("predict", ("rows.npy",))):
        code, _, err = called((command, "a run", *more), place)
        assert code == 2
        assert f"  runner {command} 'a run' --code own\n" in err
    ran(("eval", "a run", "--code", "own"), place)
    code, _, err = called(("resume", "my place/a run", "max_steps=4"), tmp_path)
    assert code == 2
    assert f"  cd '{place}' && runner resume '{place}/a run' --code own\n" in err
    ran(("resume", "a run", "max_steps=4", "--code", "own"), place)


def test_the_recorded_code_is_only_text(tmp_path):
    """A manifest names a file: it is shown, quoted, and never loaded."""
    place = tmp_path / "here"
    write_project(place, "")
    ran((*WORDS, "hydra.run.dir=r", "--code", "own"), place)
    path = place / "r/manifest.json"
    (place / "evil.py").write_text("open('MARKER', 'w')")
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "code_given": ["evil.py", "x; touch MARKER", "\x1b[2J"]}))
    code, _, err = called(("resume", "r", "max_steps=4"), place)
    assert code == 2
    assert "--code evil.py --code 'x; touch MARKER'" in err
    assert "\x1b" not in err
    for damaged in ({"code_given": "x"}, {"code_given": [1]}, {"code_folder": 3}, {"code_sha256": [1]}):
        path.write_text(json.dumps({**values, **damaged}))
        assert called(("resume", "r", "max_steps=4"), place)[0] == 2
    path.unlink()
    assert called(("resume", "r", "max_steps=4"), place)[0] == 2
    assert not (place / "MARKER").exists()
