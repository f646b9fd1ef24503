"""`session.precision_mode` and `session.loss_scale` in whole runs: dumped, counted, refused and gone on with."""

import json
from pathlib import Path

import numpy as np
import pytest

import runner
from runner.errors import ConfigError
from runner.experiment.resume import resume

QUICK = (
    "+experiment=lenet_seed",
    "max_steps=3",
    "epochs=1",
    "eval.every=never",
    "callbacks=quiet",
    "dataset.batch_size=16",
)


def run(folder: Path, *overrides: str) -> dict[str, object]:
    return runner.run([*QUICK, f"hydra.run.dir={folder}", *overrides])


def dumped(folder: Path, mode: str) -> dict[str, bytes]:
    dump = f"{mode}-dump"
    more = ("dump=sync", f"dump.path={folder / dump}", "dump.iteration='1'", "dataset_sink_mode=false")
    run(folder / mode, f"mode={mode}", "session.precision_mode=force_fp16", *more)
    return {p.name: p.read_bytes() for p in (folder / dump).rglob("*.bin")}


def test_forced_float16_is_in_the_dumps_of_both_modes_under_equal_names(tmp_path):
    graph, eager = dumped(tmp_path, "graph"), dumped(tmp_path, "pynative")
    assert graph.keys() == eager.keys()
    halves = [name for name in graph if "_Float16_" in name]
    for kind in ("Conv2D", "MatMul", "ReLU", "MaxPoolGrad", "Conv2DBackpropFilter"):
        assert any(f"--{kind}-op" in name and "_output_0_" in name for name in halves), kind
    assert all("_Float32_" in name for name in graph if "--ApplyMomentum-op" in name)
    assert any("--conv1-Conv2d--Cast-op" in name for name in halves)
    for name in halves:
        a, b = (np.frombuffer(content, np.float16).astype(np.float64) for content in (graph[name], eager[name]))
        assert np.isfinite(a).all()
        apart = np.abs(a - b) > 4e-3 * np.abs(b).max()
        assert apart.mean() <= 0.02, name


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_mixed_precision_scales_the_loss_and_counts_what_it_skipped(tmp_path, mode):
    summary = run(tmp_path, f"mode={mode}", "session.precision_mode=allow_mix_precision")
    assert (summary["loss_scale"], summary["overflow_steps"]) == (2.0**10, 0)
    assert json.loads((tmp_path / "summary.json").read_text())["overflow_steps"] == 0


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {}),
        (("session.precision_mode=force_fp16",), {}),
        (("session.precision_mode=allow_mix_precision", "session.loss_scale=off"), {}),
        (("session.precision_mode=allow_mix_precision", "optimizer.loss_scale=64"), {}),
        (("session.precision_mode=force_fp16", "session.loss_scale=128"), {"loss_scale": 128.0, "overflow_steps": 0}),
        (("session.loss_scale=dynamic",), {"loss_scale": 2.0**10, "overflow_steps": 0}),
        (("session.precision_mode=force_fp16", "session.loss_scale=1e6"), {"loss_scale": 1e6, "overflow_steps": 3}),
    ],
)
def test_the_loss_scale_is_as_asked(tmp_path, overrides, expected):
    summary = run(tmp_path, "mode=graph", *overrides)
    assert {key: summary[key] for key in ("loss_scale", "overflow_steps") if key in summary} == expected


@pytest.mark.parametrize("given", ["0", "0.5", "-1", "true", "inf", "nan", "dynamik", "[1]"])
def test_what_is_no_loss_scale_is_refused(tmp_path, given):
    with pytest.raises(ConfigError) as error:
        run(tmp_path, f"session.loss_scale={given}")
    assert "session.loss_scale" in str(error.value)
    assert "dynamic" in str(error.value)


def test_two_scales_contradict_each_other(tmp_path):
    with pytest.raises(ConfigError) as error:
        run(tmp_path, "session.loss_scale=dynamic", "optimizer.loss_scale=64")
    assert "loss_scale=64.0" in str(error.value)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_resumed_run_has_the_scale_and_the_counts(tmp_path, mode):
    more = (f"mode={mode}", "session.precision_mode=force_fp16", "session.loss_scale=dynamic", "max_steps=6")
    whole = run(tmp_path / "whole", *more)
    run(tmp_path / "parts", *more[:-1])
    parts = resume(tmp_path / "parts", ["max_steps=6"])
    for key in ("loss", "loss_scale", "overflow_steps", "steps"):
        assert parts[key] == whole[key], key
