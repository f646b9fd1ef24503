"""Ranks that would train with other configs or data end before the first step; commands without ranks run once."""

import json
import platform
import re
import sys

import pytest
from ranks import finished, mpirun, needs_mpi, start_each

import runner

pytestmark = needs_mpi

RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")
SHORT = ("callbacks=quiet", "eval.every=never", "max_steps=2")
DIGITS = ("+experiment=lenet_seed", "dataset=synthetic", "dataset.num_samples=64", *SHORT)
TABLE = ("dataset=csv", "dataset.data_file=t.csv", "dataset.target=kind", "dataset.test_fraction=0.25", "network=mlp")


def started_with(places, *lines):
    """Each rank with its place and its own words."""
    words = [sys.executable, "-m", "runner"]
    return finished(
        start_each(*(["-n", "1", "-wdir", str(at), *words, *own] for at, own in zip(places, lines, strict=True)))
    )


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("optimizer.learning_rate", "0.05", "0.5"),
        ("seed", "1", "2"),
        ("dataset.batch_size", "32", "16"),
        ("epochs", "1", "2"),
        ("eval.every", "never", "end"),
        ("hydra.run.dir", "run", "other"),
    ],
)
def test_a_rank_with_another_config(tmp_path, key, first, second):
    words = [*DIGITS, *RANKS, "hydra.run.dir=run"]
    code, _, err = started_with([tmp_path] * 2, [*words, f"{key}={first}"], [*words, f"{key}={second}"])
    assert code == 2, err
    assert err.count(f"ConfigError: ranks have different configs\n  key     {key}\n") == 1, err
    for rank, value in enumerate((first, second)):
        assert re.search(rf"\n  rank {rank}  {platform.node()}: {key}=\"?{re.escape(value)}\"?\n", err), err
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_resumes_another_run(tmp_path):
    for name in ("a", "b"):
        assert mpirun(2, "-m", "runner", *DIGITS, *RANKS, f"hydra.run.dir={name}", cwd=tmp_path)[0] == 0
    code, _, err = started_with([tmp_path] * 2, ["resume", "a", "max_steps=4"], ["resume", "b", "max_steps=4"])
    assert code == 2, err
    assert re.search(
        r"ranks have different configs\n  key +run directory\n  rank 0 +\S+: run directory=\"a\"\n", err
    ), err


def test_what_ranks_may_have_of_their_own(tmp_path):
    """Their numbers, and the time in the name of the run directory, which the first rank chooses."""
    graphs = ("save_graphs=true", "save_graphs_path=${hydra:runtime.output_dir}/g", "mode=graph")
    words = [*DIGITS, *RANKS, *graphs, "hydra.run.dir=run-${now:%f}"]
    lines = [[*words, f"parallel.global_rank={rank}"] for rank in (0, 1)]
    code, _, err = started_with([tmp_path] * 2, *lines)
    assert code == 0, err
    assert len(list(tmp_path.iterdir())) == 1


def write_table(folder, last: str):
    folder.mkdir()
    rows = [f"{n},{n % 7},{'ab'[n % 2]}" for n in range(39)]
    (folder / "t.csv").write_text("\n".join(["x,y,kind", *rows, last, ""]))
    return folder


@pytest.mark.parametrize("resumed", [False, True])
def test_a_rank_with_other_data(tmp_path, resumed):
    """A table of the same size with one other value, as on a host with an older copy."""
    places = [write_table(tmp_path / name, "1,2,a") for name in ("here", "there")]
    words = [*TABLE, *SHORT, *RANKS, "dataset.batch_size=8", f"hydra.run.dir={tmp_path / 'run'}"]
    if resumed:
        assert started_with(places, words, words)[0] == 0
        words = ["resume", str(tmp_path / "run"), "max_steps=3"]
    (places[1] / "t.csv").write_text((places[0] / "t.csv").read_text().replace("1,2,a", "1,3,a"))
    code, _, err = started_with(places, words, words)
    assert code == 2, err
    assert err.count("ConfigError: ranks have different data\n  key     dataset.data_file\n") == 1, err
    for rank, place in enumerate(places):
        assert re.search(rf"\n  rank {rank}  {platform.node()}: {place}/t.csv \([0-9a-f]{{12}}\)\n", err), err
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert (status["status"], status["exit_code"]) == (("ok", 0) if resumed else ("failed", 2))


@pytest.mark.parametrize("words", [[], ["parallel=data_parallel"]])
def test_an_evaluation_runs_once(tmp_path, words):
    runner.run([*DIGITS, f"hydra.run.dir={tmp_path / 'run'}"])
    code, out, err = mpirun(2, "-m", "runner", "eval", "run", "hydra.run.dir=found", *words, cwd=tmp_path)
    assert code == 0, err
    assert out.count("run directory: found") == 1
    assert err == "mpirun launched 2 processes: the first one executes runner eval\n"


def test_other_commands_run_once(tmp_path):
    runner.run([*DIGITS, f"hydra.run.dir={tmp_path / 'run'}"])
    for words, said in ((["report", "run"], "report.html"), (["rm", "run"], "run"), (["ls", "nowhere"], "")):
        code, out, err = mpirun(2, "-m", "runner", *words, cwd=tmp_path)
        assert code == (2 if words[0] == "ls" else 0), err
        assert out.count(said) == 1 or not said, out
        assert err.startswith(f"mpirun launched 2 processes: the first one executes runner {words[0]}\n")
    assert not (tmp_path / "run").exists()
