"""`optimizer.schedule`: what its keys mean, and that a run follows them."""

import pytest

import runner
from runner import nn
from runner.config.compose import CommandLine, compose
from runner.config.groups import GROUPS
from runner.config.groups.entries import SCHEDULES, ScheduleSettings
from runner.errors import ConfigError

AdamSettings = GROUPS["optimizer"]["adam"]
ConstantLRSettings = SCHEDULES["constant"]
StepLRSettings = SCHEDULES["step"]
ExponentialDecayLRSettings = SCHEDULES["exponential"]
CosineDecayLRSettings = SCHEDULES["cosine"]
PolynomialDecayLRSettings = SCHEDULES["polynomial"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (ConstantLRSettings(), 0.01),
        (ConstantLRSettings(warmup_steps=5), nn.WarmUpThen(5, nn.ConstantLR(0.01))),
        (StepLRSettings(decay_steps=30, decay_rate=0.5), nn.StepLR(0.01, 0.5, 30)),
        (ExponentialDecayLRSettings(is_stair=True), nn.ExponentialDecayLR(0.01, 0.9, 1000, True)),
        (CosineDecayLRSettings(), nn.CosineDecayLR(0.0, 0.01, 100)),
        (CosineDecayLRSettings(decay_steps=30, min_lr=0.001), nn.CosineDecayLR(0.001, 0.01, 30)),
        (CosineDecayLRSettings(warmup_steps=20), nn.WarmUpThen(20, nn.CosineDecayLR(0.0, 0.01, 80))),
        (CosineDecayLRSettings(warmup_steps=200), nn.WarmUpThen(200, nn.CosineDecayLR(0.0, 0.01, 1))),
        (PolynomialDecayLRSettings(power=2.0), nn.PolynomialDecayLR(0.01, 0.0, 100, 2.0)),
    ],
)
def test_what_the_keys_mean_in_a_run_of_a_hundred_steps(chosen, expected):
    assert repr(chosen.learning_rate(0.01, 100)) == repr(expected)


def test_every_optimizer_has_a_schedule_and_every_schedule_a_warm_up():
    assert {kind().schedule for kind in GROUPS["optimizer"].values()} == {ConstantLRSettings()}
    assert {kind().warmup_steps for kind in SCHEDULES.values()} == {0}
    assert [kind().name for kind in SCHEDULES.values()] == list(SCHEDULES)
    assert all(issubclass(kind, ScheduleSettings) for kind in SCHEDULES.values())


def test_overrides_choose_a_schedule_and_its_keys():
    lines = ("optimizer=adam", "optimizer.schedule.name=cosine", "optimizer.schedule.decay_steps=2000")
    config = compose(CommandLine(lines)).config
    assert config.optimizer == AdamSettings(schedule=CosineDecayLRSettings(decay_steps=2000))


@pytest.mark.parametrize("first", [0, 1])
def test_a_value_beside_keys_below_it_is_not_dropped_silently(first):
    lines = ["optimizer.schedule=cosine", "optimizer.schedule.warmup_steps=9"]
    with pytest.raises(ConfigError, match="a value and keys below it") as raised:
        compose(CommandLine((lines[first], lines[1 - first])))
    assert raised.value.rows["hint"] == "optimizer.schedule.name=cosine, if it is a name"


@pytest.mark.parametrize("file", ["mine.yaml", "mine.json"])
def test_a_file_chooses_a_schedule(file, tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    yaml = "# @package _global_\noptimizer:\n  schedule: {name: step, decay_steps: 7}\n"
    json = '{"@package": "_global_", "optimizer": {"schedule": {"name": "step", "decay_steps": 7}}}'
    (folder / file).write_text(json if file.endswith("json") else yaml)
    config = compose(CommandLine(("+experiment=mine", "optimizer.schedule.warmup_steps=3"), config_dir=tmp_path)).config
    assert config.optimizer.schedule == StepLRSettings(decay_steps=7, warmup_steps=3)


@pytest.mark.parametrize("mode", ["mode=graph sink_size=7", "mode=graph dataset_sink_mode=false", "mode=pynative"])
def test_a_run_follows_its_schedule(mode, tmp_path):
    def run(name, *lines):
        common = ("eval.every=never", "epochs=2", "max_steps=14", f"hydra.run.dir={tmp_path}/{name}")
        return runner.run([*mode.split(), *common, *lines])["loss"]

    assert run("constant") == run("step", "optimizer.schedule.name=step")
    assert run("cosine", "optimizer.schedule.name=cosine") != run("constant_again")
