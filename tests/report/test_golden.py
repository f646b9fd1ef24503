"""`runner golden`: a run is held to the bits of its file, or to the tolerance where the machine is another."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from run_folders import NO_PROCESS
from safetensors.numpy import load_file

from runner.cli import run_command
from runner.errors import ConfigError, DataError, MismatchError
from runner.experiment import launch
from runner.report import ci

main = partial(run_command, "golden")

WORDS = ("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "callbacks=quiet", "epochs=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("golden")
    words = {
        "a": [],
        "again": [],
        "graph": ["mode=graph"],
        "short": ["max_steps=3"],
        "rate": ["optimizer.momentum=0.8"],
    }
    for name, more in words.items():
        launch.run([*WORDS, f"hydra.run.dir={place / name}", *more])
    return {name: place / name for name in words}


@pytest.fixture
def golden(runs, tmp_path) -> Path:
    assert main(["--update", str(tmp_path / "g.json"), str(runs["a"])]) == 0
    return tmp_path / "g.json"


def edit(path: Path, change) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def refused(golden: Path, run: Path) -> str:
    with pytest.raises(MismatchError) as caught:
        main(["--check", str(golden), str(run)])
    return str(caught.value)


def test_the_file_says_what_the_run_left(golden, runs):
    """Read with the library of the format, and from the lines of the journal."""
    values = json.loads(golden.read_text())
    (file,) = runs["a"].glob("checkpoints/*/state.safetensors")
    arrays = load_file(file)
    assert {name: one["sha256"] for name, one in values["tensors"].items()} == {
        name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()
    }
    for name, array in arrays.items():
        assert values["tensors"][name]["norm"] == pytest.approx(np.sqrt(np.sum(np.square(array.astype(np.float64)))))
    rows = [json.loads(line) for line in (runs["a"] / "metrics.jsonl").read_text().splitlines()]
    assert values["losses"]["at"] == {str(r["global_step"]): r["loss"] for r in rows if r["event"] == "step"}
    assert values["metrics"]["accuracy"] == rows[-1]["accuracy"]
    assert values["steps"] == 4
    assert {"mode", "seed", "data.train", "cpu", "packages.onnxruntime"} <= set(values["key"])


def test_the_same_config_gives_the_same_bits(golden, runs, capsys):
    assert main(["--check", str(golden), str(runs["again"])]) == 0
    assert "unchanged, bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda v: v["losses"].update(at={**v["losses"]["at"], "3": 1.5}, sha256=""), "loss at step 3"),
        (lambda v: v["losses"].update(sha256="0" * 64), "losses"),
        (lambda v: v["metrics"].update(accuracy=2.0), "accuracy"),
        (lambda v: v["metrics"].pop("loss"), "was -"),
        (lambda v: v["tensors"]["fc1.weight"].update(sha256="0" * 64), "tensor fc1.weight"),
        (lambda v: v["tensors"].pop("fc1.weight"), "tensor fc1.weight"),
        (lambda v: v.update(steps=5), "steps"),
        (lambda v: v["key"].update(seed=2), "key.seed"),
        (lambda v: v["key"].update({"optimizer.new": 1}), "key.optimizer.new"),
    ],
)
def test_whatever_differs_is_told(golden, runs, change, expected):
    edit(golden, change)
    text = refused(golden, runs["a"])
    assert expected in text
    assert ("does not belong to this file" in text) == expected.startswith("key.")
    assert str(golden) in text


def test_a_new_key_at_its_default_is_no_difference(golden, runs):
    edit(golden, lambda values: values["key"].pop("optimizer.momentum"))
    assert main(["--check", str(golden), str(runs["a"])]) == 0
    assert "key.optimizer.momentum" in refused(golden, runs["rate"])


def test_another_machine_is_held_to_the_tolerance(golden, runs, capsys):
    def other(values):
        values["key"] |= {"threads": 999, "packages.numpy": "0"}
        values["tensors"]["fc1.weight"]["sha256"] = "0" * 64
        values["losses"]["at"]["3"] *= 1.0005
        values["losses"]["sha256"] = ""

    edit(golden, other)
    assert main(["--check", str(golden), str(runs["a"])]) == 0
    here = json.loads((runs["a"] / "manifest.json").read_text())
    line = f"(threads was 999, is {here['threads']}; packages.numpy was 0, is {np.__version__})"
    assert f"unchanged, within tolerance {line}:" in capsys.readouterr().out
    edit(golden, lambda values: values["losses"]["at"].update({"3": values["losses"]["at"]["3"] * 1.01}))
    assert "loss at step 3" in refused(golden, runs["a"])


def test_both_modes_agree_when_the_mode_may_differ(golden, runs):
    assert "key.mode" in refused(golden, runs["graph"])
    edit(golden, lambda values: values["may_differ"].append("mode"))
    assert main(["--check", str(golden), str(runs["graph"])]) == 0


def test_bits_may_be_no_matter(golden, runs, capsys):
    edit(golden, lambda values: values.update(exact=False))
    edit(golden, lambda values: values["tensors"]["fc1.weight"].update(sha256="0" * 64))
    assert main(["--check", str(golden), str(runs["a"])]) == 0
    assert "within tolerance:" in capsys.readouterr().out
    edit(golden, lambda values: values["tensors"]["fc1.weight"].update(norm=1e6))
    assert "norm of fc1.weight" in refused(golden, runs["a"])


def test_fewer_steps(golden, runs):
    assert "was 4, is 3" in refused(golden, runs["short"])


def test_an_update_keeps_what_was_chosen(golden, runs):
    chosen = {"may_differ": ["mode"], "exact": False, "tolerance": {"*": {"rtol": 0.5, "atol": 0.0}}}
    edit(golden, lambda values: values.update(chosen, metrics={}))
    assert main(["--update", str(golden), str(runs["graph"])]) == 0
    values = json.loads(golden.read_text())
    assert {name: values[name] for name in chosen} == chosen
    assert (values["key"]["mode"], len(values["metrics"])) == ("graph", 3)


def test_the_newest_run_is_taken(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs["a"], tmp_path / "outputs" / "x")
    assert main(["--update", "g.json"]) == 0
    assert "outputs/x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "missing"),
        ("{", "not JSON"),
        ("[]", "not a golden file"),
        ('{"format": "runner golden", "version": 2}', "unknown version"),
        ('{"format": "runner golden", "version": 1}', "is invalid"),
        ('{"format": "runner golden", "version": 1, "strange": 1}', "is invalid"),
    ],
)
def test_damaged_files(runs, tmp_path, content, expected):
    if content is not None:
        (tmp_path / "g.json").write_text(content)
    with pytest.raises(DataError) as caught:
        main(["--check", str(tmp_path / "g.json"), str(runs["a"])])
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.update(key=[]),
        lambda v: v["metrics"].update(loss="x"),
        lambda v: v["losses"].pop("at"),
        lambda v: v["losses"].update(at={"x": 1.0}),
        lambda v: v["tolerance"].update(loss={"rtol": -1}),
        lambda v: v["tolerance"].update(loss=1),
        lambda v: v["tensors"].update(x={}),
        lambda v: v["tensors"].update(x=1),
        lambda v: next(iter(v["tensors"].values())).update(norm="1.0"),
        lambda v: next(iter(v["tensors"].values())).update(sha256=[]),
        lambda v: next(iter(v["tensors"].values())).update(shape=None),
        lambda v: v["losses"].update(sha256=None),
        lambda v: v["losses"].pop("sha256"),
        lambda v: v["losses"].update(at={"\u00b2": 1.0}),
        lambda v: v.update(steps="3"),
        lambda v: v.update(exact=1),
        lambda v: v.update(may_differ="cpu"),
        lambda v: v.update(may_differ=[1]),
    ],
)
def test_edits_that_cannot_be_right(golden, runs, change):
    edit(golden, change)
    with pytest.raises(DataError, match="a golden file is invalid"):
        main(["--check", str(golden), str(runs["a"])])


def test_runs_that_are_not_finished(runs, tmp_path):
    run = Path(shutil.copytree(runs["a"], tmp_path / "run"))
    edit(run / "status.json", lambda values: values.update(status="running", pid=NO_PROCESS))
    with pytest.raises(ConfigError, match="not finished"):
        main(["--update", str(tmp_path / "g.json"), str(run)])
    with pytest.raises(ConfigError, match="not a run"):
        main(["--update", str(tmp_path / "g.json"), str(tmp_path)])
    assert not (tmp_path / "g.json").exists()


def test_a_run_without_a_checkpoint(runs, tmp_path):
    run = Path(shutil.copytree(runs["a"], tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(DataError, match="no valid checkpoint"):
        main(["--update", str(tmp_path / "g.json"), str(run)])


def test_few_losses_of_a_long_run_are_kept():
    steps = np.arange(1, 100_001)
    kept = ci._losses(ci.Metrics(steps, 1.0 / steps))["at"]
    assert len(kept) < 60
    assert [int(step) for step in kept][:11] == list(range(1, 12))
    assert all(value == 1 / int(step) for step, value in kept.items())


@pytest.mark.parametrize(
    "words", [[], ["--check"], ["--update", "--check", "x"], ["--check", "a", "b", "c"], ["x", "y"]]
)
def test_bad_words(words):
    with pytest.raises(ConfigError, match="wrong usage"):
        main(words)


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "may_differ" in capsys.readouterr().out
