"""Graphs, kernels and profiles of a resumed run: what it writes replaces what the process before it has written."""

import json
from pathlib import Path

import runner
from runner import cli
from runner.experiment.resume import resume

WORDS = (
    "dataset=synthetic",
    "dataset.num_samples=160",
    "callbacks=quiet",
    "device.threads=1",
    "mode=graph",
    "epochs=2",
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_kernel_files_of_two_processes_are_not_mixed(tmp_path):
    words = (*WORDS, "eval.every=never", "session.op_debug_level=4")
    runner.run([*words, "max_steps=4", f"hydra.run.dir={tmp_path / 'run'}"])
    before = names(tmp_path / "run/kernel_meta")
    for name in ("notes.json", "other.onnx"):
        (tmp_path / "run/kernel_meta" / name).write_text("[]")  # of the user
    assert any(name.endswith("_compute.json") for name in before)
    resume(tmp_path / "run", ["max_steps=6", "session.op_debug_level=3"], force=True)
    runner.run([*words, "session.op_debug_level=3", f"hydra.run.dir={tmp_path / 'other'}"])
    assert names(tmp_path / "run/kernel_meta") == names(tmp_path / "other/kernel_meta") | {"notes.json", "other.onnx"}


def test_a_graph_that_failed_before_is_not_that_of_the_resumed_run(tmp_path):
    run = tmp_path / "run"
    runner.run([*WORDS, "eval.every=never", "max_steps=4", f"hydra.run.dir={run}"])
    (run / "analyze_fail.ir").write_text("of the attempt before")
    resume(run, ["max_steps=6"])
    assert not (run / "analyze_fail.ir").exists()


def test_a_resumed_profile_says_which_steps_it_lacks(tmp_path, capsys):
    run = tmp_path / "run"
    runner.run([*WORDS, "profiling=trace", "eval.every=never", "max_steps=4", f"hydra.run.dir={run}"])
    assert "are not in the profile" not in capsys.readouterr().out
    before = names(run / "profiling")
    assert cli.main(["resume", str(run), "max_steps=8"]) == 0
    line = "the run was resumed after step 4: the steps before are not in the profile"
    assert line in capsys.readouterr().out
    assert names(run / "profiling") == before
    summaries = [json.loads(path.read_text()) for path in (run / "profiling").glob("*.json")]
    assert any(line in found.get("remarks", ()) for found in summaries if isinstance(found, dict))
