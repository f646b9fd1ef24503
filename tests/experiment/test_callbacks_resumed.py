"""A run with any callback that runner ships, killed anywhere and resumed, ends at the same step with the same bytes."""

import itertools
import logging
import re
from pathlib import Path

import event_records
import numpy as np
import pytest
import recorded_script
from deaths import Dead, die_at, status_of, traces
from soak import SOAK, thinned

import runner
from runner.errors import ConfigError, DataError
from runner.experiment.resume import resume
from runner.train.callback import (
    Callback,
    CheckpointConfig,
    EarlyStopping,
    EpochMonitor,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    ModelCheckpoint,
    SummaryCollector,
    TimeMonitor,
    standard,
    summary_collector,
)
from runner.train.checkpoint import state

# 160 samples are 5 batches; the third epoch is not better by `min_delta`, nor are the next ones.
WORDS = (
    *("dataset=synthetic", "dataset.num_samples=160", "device.threads=1", "optimizer.learning_rate=0.05"),
    *("callbacks=quiet", "epochs=12", "eval.every=epoch", "checkpoint.every_steps=4"),
)
WAYS = {
    "pynative": ("mode=pynative",),
    "graph": ("mode=graph", "dataset_sink_mode=false"),
    "sunk": ("mode=graph",),
    "sinks of 7": ("mode=graph", "sink_size=7"),
}
FIRST = 4  # the step of the first checkpoint


class StopAt(Callback):
    """Counts its own steps, and stops the run behind one of them."""

    def __init__(self, stop: int) -> None:
        self.stop, self.counted, self.seen = stop, 0, np.zeros(3, np.float64)

    def step_end(self, run_context):
        cb_params = run_context.original_args()
        self.counted += len(cb_params.losses)
        self.seen = np.roll(self.seen, 1) + float(cb_params.net_outputs.asnumpy())
        if self.counted >= self.stop:
            run_context.request_stop()

    def state_dict(self):
        return {"counted": self.counted, "seen": self.seen}

    def load_state_dict(self, state):
        self.counted, self.seen = state["counted"], state["seen"]


def saver(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint("model", folder / "ckpt", CheckpointConfig(save_checkpoint_steps=3, keep_checkpoint_max=2))


def halved(rate: float, step: int) -> float:
    return rate / 2 if step % 5 == 0 else rate


SHIPPED = {
    "early_stopping": lambda folder: EarlyStopping(min_delta=0.05, patience=2),
    "model_checkpoint": saver,
    "rates": lambda folder: LearningRateScheduler(halved),
    "epoch_lines": lambda folder: EpochMonitor(),
    "time_lines": lambda folder: TimeMonitor(),
    "loss_lines": lambda folder: LossMonitor(3),
    "functions": lambda folder: LambdaCallback(step_end=lambda run_context: None),
    "bar": lambda folder: standard.ProgressBar(60),
    "own_stop": lambda folder: StopAt(23),
}


@pytest.fixture
def shipped():
    """All of them, with the callback of the suite that stops behind a step, as names of a config."""
    for name, make in SHIPPED.items():
        runner.register.callback(name)(factory(make))


def factory(make):
    def callback(run_dir: Path) -> Callback:
        """One of the callbacks."""
        return make(Path(run_dir))

    return callback


def execute(folder: Path, *words: str) -> None:
    runner.run([*WORDS, *words, f"hydra.run.dir={folder}"])


def killed(monkeypatch, folder: Path, words: tuple[str, ...], number: int, only: str = "") -> bool:
    """Run, and die; False when the run ended before."""
    with monkeypatch.context() as patch:
        die_at(patch, number, only)
        try:
            execute(folder, *words)
        except Dead:
            return True
    return False


def steps_of(folder: Path) -> int:
    return (folder / "metrics.jsonl").read_text().count('"event": "step"')


def test_every_callback_that_is_shipped_is_killed_here():
    values = [value for module in (standard, summary_collector) for value in vars(module).values()]
    classes = {value.__name__ for value in values if isinstance(value, type) and issubclass(value, Callback)}
    tested = {type(make(Path("x"))).__name__ for make in SHIPPED.values()} | {"SummaryCollector"}
    assert tested - {"StopAt"} == classes - {"Callback"}


STOPS = {"early_stopping": "early", "own_stop": "own"}


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_with_all_callbacks_that_dies_at_any_step(tmp_path, monkeypatch, caplog, capsys, way, stop):
    names = [name for name in SHIPPED if name == stop or name not in STOPS]
    words = (*WAYS[way], *(f"callbacks.{name}=true" for name in names))
    execute(tmp_path / "whole", *words)
    expected, steps = traces(tmp_path / "whole"), steps_of(tmp_path / "whole")
    assert 2 * 7 < steps < 60  # it was stopped
    capsys.readouterr()
    for number in range(FIRST + 1, steps + 1, 1 if SOAK else 7):
        folder = tmp_path / str(number)
        assert killed(monkeypatch, folder, words, number, "metrics.jsonl")
        resume(folder)
        assert steps_of(folder) == steps, f"died at step {number}"
        assert traces(folder) == expected, f"died at step {number}"
    assert "has no state_dict" not in caplog.text


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_run_that_dies_at_any_file_operation(tmp_path, monkeypatch, stop):
    """Also behind the checkpoint of the stop, while it is evaluated: no further step follows."""
    words = (*WAYS["pynative"], f"callbacks.{stop}=true")
    execute(tmp_path / "whole", *words)
    expected = traces(tmp_path / "whole")
    for number in itertools.count(1, 1 if SOAK else 29):
        folder = tmp_path / str(number)
        if not killed(monkeypatch, folder, words, number):
            break
        if (folder / "config.json").exists() and status_of(folder) != "ok":
            resume(folder)
            assert traces(folder) == expected, f"died at operation {number}"
    assert number > 100


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("way", [*thinned(WAYS, every=2)])
def test_the_line_of_an_epoch_has_the_mean_of_all_of_its_steps(tmp_path, monkeypatch, capsys, way):
    words = (*WAYS[way], "callbacks.epoch_lines=true", "max_steps=13")

    def lines() -> list[str]:
        return re.findall(r"epoch \d+ of 12: loss \S+(?=,)", capsys.readouterr().out)

    execute(tmp_path / "whole", *words)
    expected = lines()
    assert killed(monkeypatch, tmp_path / "killed", words, 9, "metrics.jsonl")
    resume(tmp_path / "killed")
    found = lines()
    assert list(dict.fromkeys(found)) == expected


@pytest.mark.parametrize("sunk", ["false", "true"])
def test_summaries_go_on_as_if_there_had_been_no_kill(tmp_path, monkeypatch, sunk):
    """Viewers drop the steps that are executed again; the first step of the process is none of the training."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    runner.register.callback("summaries")(factory(lambda folder: SummaryCollector(folder / "summary", collect_freq=2)))
    words = ("mode=graph", f"dataset_sink_mode={sunk}", "epochs=6", "callbacks.summaries=true")

    def collected(folder: Path) -> dict[tuple[str, int], float]:
        found: dict[tuple[str, int], float] = {}
        for path in sorted((folder / "summary").iterdir(), key=lambda path: path.stat().st_mtime_ns):
            for first in event_records.starts(path):
                found = {key: value for key, value in found.items() if key[1] < first}
            scalars = [one for one in event_records.summaries(path) if one.kind == "scalar"]
            found |= {(one.tag, one.step): one.value for one in scalars}
        return found

    execute(tmp_path / "whole", *words)
    assert killed(monkeypatch, tmp_path / "killed", words, 14, "metrics.jsonl")
    resume(tmp_path / "killed")
    expected = collected(tmp_path / "whole")
    assert len(expected) > 4
    assert collected(tmp_path / "killed") == expected


@pytest.mark.usefixtures("shipped")
def test_more_epochs_follow_a_stop_when_they_are_asked_for(tmp_path):
    words = ("mode=pynative", "callbacks.own_stop=true")
    execute(tmp_path / "run", *words)
    assert steps_of(tmp_path / "run") == 23
    with pytest.raises(ConfigError, match="the run is finished"):
        resume(tmp_path / "run")
    resume(tmp_path / "run", ["epochs=13", "callbacks.own_stop=false"])
    assert steps_of(tmp_path / "run") == 65


def script(folder: Path, mode: int, sunk: bool) -> EarlyStopping:
    """A script's run, which `EarlyStopping` ends; started again, it continues."""
    runner.set_seed(3)
    net = recorded_script.Net()
    loss = runner.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = runner.Model(net, loss, runner.nn.Momentum(net.trainable_params(), 0.05, 0.9), {"accuracy"}, mode=mode)
    stopping = EarlyStopping(min_delta=0.03, patience=2)
    with runner.record(folder, {"rate": 0.05}, checkpoint={"every_steps": 4}) as run:
        data = recorded_script.points(1)
        run.train(model, 12, data, [stopping, saver(folder)], sunk, test_dataset=recorded_script.points(2))
    return stopping


@pytest.mark.parametrize(("mode", "sunk"), [(0, False), (0, True), (1, False)])
def test_a_script_that_is_killed_stops_where_it_would_have_stopped(tmp_path, monkeypatch, mode, sunk):
    whole = script(tmp_path / "whole", mode, sunk)
    expected, steps = traces(tmp_path / "whole"), steps_of(tmp_path / "whole")
    assert steps == 5 * whole.stopped_epoch < 60
    for number in range(FIRST + 1, steps + 1, 1 if SOAK else 6):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            die_at(patch, number, "metrics.jsonl")
            with pytest.raises(Dead):
                script(folder, mode, sunk)
        found = script(folder, mode, sunk)
        for name in ("best", "best_epoch", "stopped_epoch"):
            assert getattr(found, name) == getattr(whole, name)
        assert traces(folder) == expected, f"died at step {number}"


class Forgetful(Callback):
    """Has a state, and does not say so."""

    def __init__(self) -> None:
        self.count, self.losses, self.limit = 0, [], 3

    def step_end(self, run_context):
        self.count += 1
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))


def test_a_callback_without_a_state_is_warned_about_once(tmp_path, caplog):
    runner.register.callback("forgetful")(factory(lambda folder: Forgetful()))
    with caplog.at_level(logging.WARNING, "runner"):
        execute(tmp_path / "run", "mode=pynative", "epochs=3", "callbacks.forgetful=true")
    found = [line for line in caplog.messages if "state_dict" in line]
    assert found == [
        "callback Forgetful has changed count, losses and has no state_dict: a resumed run will have lost that; "
        "docs/how-to/own/callback.md has an example"
    ]


def test_what_a_checkpoint_cannot_hold_is_refused_at_the_first_one(tmp_path):
    class Wrong(Callback):
        def state_dict(self):
            return {"seen": [1, {2}]}

        def load_state_dict(self, state):
            pass

    runner.register.callback("wrong")(factory(lambda folder: Wrong()))
    with pytest.raises(ConfigError) as caught:
        execute(tmp_path / "run", "mode=pynative", "max_steps=8", "callbacks.wrong=true")
    assert "state_dict returns what a checkpoint cannot hold" in str(caught.value)
    assert re.search(r"\n  at +seen\.1\n", str(caught.value))


@pytest.mark.usefixtures("shipped")
def test_a_state_that_does_not_fit_and_one_without_its_callback(tmp_path, caplog):
    execute(tmp_path / "run", "mode=pynative", "max_steps=4", "callbacks.early_stopping=true")
    found, _ = state.newest(tmp_path / "run/checkpoints", "CKP")
    states = found.progress["callbacks"]
    assert states["EarlyStopping"]["best"] is None
    for wrong in ({**states["EarlyStopping"], "waited": "3"}, {"best": 1.0}):
        progress = {**found.progress, "callbacks": {"EarlyStopping": wrong}}
        state.save(found.folder, found.arrays, progress, found.identity, found.callbacks)
        with pytest.raises(DataError, match="not the state of such a callback"):
            resume(tmp_path / "run", ["max_steps=6"])
    state.save(found.folder, found.arrays, found.progress, found.identity, found.callbacks)
    resume(tmp_path / "run", ["max_steps=6", "callbacks.early_stopping=false"])
    assert "the checkpoint has the state of EarlyStopping, which this run does not have" in caplog.text
