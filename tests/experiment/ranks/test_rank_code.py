"""Ranks with the user's own code: all load it, and different versions of it are found before anything is written."""

import json
import platform
import re
import shutil
import sys

import pytest
from own_code import CODE, WORDS, write_project
from ranks import environment, finished, mpirun, needs_mpi, start_each

pytestmark = needs_mpi

RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_ranks_train_with_the_users_code(tmp_path, mode):
    write_project(tmp_path / "here")
    code, _, err = mpirun(2, "-m", "runner", *WORDS, *RANKS, f"mode={mode}", "hydra.run.dir=r", cwd=tmp_path / "here")
    assert code == 0, err
    folder = tmp_path / "here/r"
    assert json.loads((folder / "manifest.json").read_text())["ranks"] == 2
    assert (folder / "marked").read_text() == "done"
    code, _, err = mpirun(2, "-m", "runner", "resume", folder, "max_steps=4", cwd=tmp_path / "here")
    assert code == 0, err


def started_in(places, *words):
    groups = [["-n", "1", "-wdir", str(place), sys.executable, "-m", "runner", *words] for place in places]
    return finished(start_each(*groups))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_rank_with_an_old_file(tmp_path, resumed):
    """As on a host to which the last change was not copied."""
    places, run = [tmp_path / "here", tmp_path / "there"], tmp_path / "run"
    write_project(places[0])
    shutil.copytree(places[0], places[1])
    words = [*WORDS, *RANKS, f"hydra.run.dir={run}"]
    if resumed:
        assert started_in(places, *words)[0] == 0
        words = ["resume", str(run), "max_steps=4"]
    (places[1] / "own/parts.py").write_text(CODE + "# older\n")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, _, err = started_in(places, *words)
    assert code == 2, err
    assert err.count("ConfigError: ranks have different code\n  file    own/parts.py\n") == 1
    for rank, place in enumerate(places):
        name = re.escape(f"{platform.node()}: {place}/own/parts.py")
        assert re.search(rf"\n  rank {rank}  {name} \([0-9a-f]{{12}}\)\n", err), err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_rank_that_lacks_the_file(tmp_path):
    places = [tmp_path / "here", tmp_path / "there"]
    write_project(places[0])
    shutil.copytree(places[0], places[1])
    shutil.rmtree(places[1] / "own")
    (places[1] / "runner.toml").write_text('code = ["own/parts.py"]\n')
    code, _, err = started_in(places, *WORDS, *RANKS, f"hydra.run.dir={tmp_path / 'run'}")
    assert code == 2
    assert f"{places[1]}/own/parts.py" in err
    assert platform.node() in err
    assert not (tmp_path / "run").exists()


def test_an_exception_on_ranks_has_the_users_lines(tmp_path):
    file = write_project(tmp_path / "here")
    for place in ("dataset", "construct", "callback"):
        words = ("-m", "runner", *WORDS, *RANKS)
        code, _, err = mpirun(2, *words, cwd=tmp_path / "here", env=environment(FAIL=place))
        assert code == 1, err
        assert err.count(f"ValueError: failed in {place}") == 1
        assert len(re.findall(re.escape(f"{file}:"), err)) >= 2
        assert "Traceback" not in err
