"""What callbacks hear, when, and what the monitors print."""

import re

import numpy as np
import pytest

from runner.errors import ConfigError, TrainingError
from runner.experiment.manifest import Stopwatch
from runner.train.callback import (
    Callback,
    CallbackList,
    CallbackParameters,
    LossMonitor,
    RunContext,
    TimeMonitor,
    check_losses,
    standard as monitors,
)
from runner.train.callback.base import EVENTS

# The output that MindSpore's page on running a model shows, as it stands there.
PAGE = """\
epoch: 1 step: 1000, loss is 0.110185064
epoch: 2 step: 1000, loss is 0.12088283
epoch: 3 step: 1000, loss is 0.15903473
epoch: 4 step: 1000, loss is 0.030054657
epoch: 5 step: 1000, loss is 0.013846226
epoch: 6 step: 1000, loss is 0.052161213
epoch: 7 step: 1000, loss is 0.0050197737
epoch: 8 step: 1000, loss is 0.17207858
epoch: 9 step: 1000, loss is 0.010310417
epoch: 10 step: 1000, loss is 0.000672762
"""


def at(epoch: int, step: int, losses, batch_num: int) -> RunContext:
    """The moment after step number `step` (over all epochs), with the losses since the last moment."""
    made = np.asarray(losses, np.float32)
    seen = {"cur_epoch_num": epoch, "cur_step_num": step, "batch_num": batch_num, "losses": made}
    return RunContext(CallbackParameters(**seen, net_outputs=made[-1]))


def test_lines_are_those_of_the_page(capsys):
    monitor = LossMonitor()
    for epoch, line in enumerate(PAGE.splitlines(), 1):
        last = np.float32(line.split()[-1])
        monitor.step_end(at(epoch, 1000 * epoch, [*np.ones(999), last], batch_num=1000))
    assert capsys.readouterr().out == PAGE


@pytest.mark.parametrize(("every", "printed"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6]), (7, [7]), (8, []), (0, [])])
def test_one_line_every_so_many_steps(every, printed, capsys):
    monitor = LossMonitor(every)
    for step in range(1, 8):
        monitor.step_end(at(1, step, [0.5], batch_num=10))
    assert capsys.readouterr().out == "".join(f"epoch: 1 step: {step}, loss is 0.5\n" for step in printed)


@pytest.mark.parametrize(("every", "sinks"), [(1, [4, 8, 12]), (4, [4, 8, 12]), (6, [8, 12]), (12, [12]), (13, [])])
def test_a_sink_is_printed_when_one_of_its_steps_was_due(every, sinks, capsys):
    monitor = LossMonitor(every)
    for sink in (4, 8, 12):
        monitor.step_end(at(sink // 4, sink, [9, 9, 9, 0.25], batch_num=4))
    assert capsys.readouterr().out == "".join(f"epoch: {sink // 4} step: 4, loss is 0.25\n" for sink in sinks)


def test_the_step_counts_inside_of_the_epoch(capsys):
    LossMonitor().step_end(at(3, 25, [0.125], batch_num=10))
    assert capsys.readouterr().out == "epoch: 3 step: 5, loss is 0.125\n"


def test_a_loss_per_sample_is_printed_as_its_mean(capsys):
    """As MindSpore does: its loss function has no reduction unless one is asked for."""
    LossMonitor().step_end(at(1, 2, [[0.5, 1.0, 1.5], [1.0, 2.0, 3.0]], batch_num=2))
    assert capsys.readouterr().out == "epoch: 1 step: 2, loss is 2.0\n"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("per_print_times", [1, 0])
def test_a_loss_that_is_not_finite_ends_the_run(bad, per_print_times, capsys):
    """Also when nothing is printed, and also in the middle of a sink."""
    with pytest.raises(TrainingError) as caught:
        LossMonitor(per_print_times).step_end(at(3, 12, [0.5, bad, np.nan, 0.5], batch_num=4))
    assert str(caught.value) == (
        "TrainingError: the loss is not a finite number\n"
        f"  loss         {bad}\n"
        "  epoch        3\n"
        "  step         2\n"
        "  global step  10\n"
        "  repair       a smaller optimizer.learning_rate, or look for invalid values in the data"
    )
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == ""


def test_a_loss_per_sample_that_is_not_finite():
    with pytest.raises(TrainingError) as caught:
        check_losses(at(1, 3, [[1, 1, 1], [1, 1, np.nan], [1, 1, 1]], batch_num=3).original_args())
    assert {name: caught.value.rows[name] for name in ("epoch", "step", "global step")} == {
        "epoch": "1",
        "step": "2",
        "global step": "2",
    }


@pytest.mark.parametrize("wrong", [-1, 1.0, "1", True, None])
def test_per_print_times_is_a_whole_number(wrong):
    with pytest.raises(ConfigError) as caught:
        LossMonitor(wrong)
    assert str(caught.value) == (
        f"ConfigError: per_print_times must be a whole number of at least 0\n  given  {wrong!r}"
    )


@pytest.mark.parametrize(("made", "shown"), [(10, 150.0), (3, 500.0)])
def test_the_time_of_an_epoch_is_shared_by_the_steps_that_were_made(made, shown, capsys, monkeypatch):
    """An epoch that `max_steps` or a request ended early has fewer steps than batches."""
    clock = iter([100.0, 101.5])
    monkeypatch.setattr(monitors.time, "perf_counter", lambda: next(clock))
    monitor = TimeMonitor(data_size=99)
    monitor.epoch_begin(at(2, 10, [0.5], batch_num=10))
    monitor.epoch_end(at(2, 10 + made, [0.5], batch_num=10))
    assert capsys.readouterr().out == f"epoch time: 1500.000 ms, per step time: {shown:5.3f} ms\n"


def test_the_line_of_the_time_has_the_form_of_the_reference(capsys):
    monitor = TimeMonitor()
    monitor.epoch_begin(at(1, 0, [0.5], batch_num=1))
    monitor.epoch_end(at(1, 1, [0.5], batch_num=1))
    assert re.fullmatch(r"epoch time: \d+\.\d{3} ms, per step time: \d+\.\d{3} ms\n", capsys.readouterr().out)


def test_an_epoch_without_steps_has_no_line(capsys):
    """As the one that a run begins with that is resumed after the last step of an epoch."""
    monitor = TimeMonitor()
    monitor.epoch_begin(at(1, 5, [0.5], batch_num=5))
    monitor.epoch_end(at(1, 5, [0.5], batch_num=5))
    assert capsys.readouterr().out == ""


HOOKS = ("begin", "epoch_begin", "step_begin", "step_end", "sink_left", "epoch_end", "end")


def recorder(seen: list[str], name: str) -> Callback:
    """A callback that writes down every hook."""
    hooks = {hook: lambda self, run_context, hook=hook: seen.append(f"{name}.{hook}") for hook in HOOKS}
    return type("Recorder", (Callback,), hooks)()


@pytest.mark.parametrize("hook", HOOKS)
def test_a_list_calls_its_callbacks_in_order(hook):
    seen: list[str] = []
    both = CallbackList([recorder(seen, "a"), Callback(), recorder(seen, "b")])
    both.fire(hook, RunContext(CallbackParameters()))
    assert seen == [f"a.{hook}", f"b.{hook}"]


def test_every_hook_of_a_callback_is_an_event():
    hooks = {name for name, hook in vars(Callback).items() if callable(hook) and not name.startswith("__")}
    assert hooks == {*EVENTS, "next_stop", "wants_to_leave", "step_gradients", "state_dict", "load_state_dict"}


@pytest.mark.parametrize(("given", "count"), [(None, 0), ([], 0), (Callback(), 1), ((Callback(), Callback()), 2)])
def test_callbacks_come_alone_or_together(given, count):
    assert len(CallbackList(given).list) == count


@pytest.mark.parametrize(("given", "at"), [([Callback(), 3], 1), ([LossMonitor], 0)])
def test_what_is_no_callback(given, at):
    with pytest.raises(ConfigError) as caught:
        CallbackList(given)
    assert (
        str(caught.value) == f"ConfigError: callbacks must be Callback objects\n  given  {given[at]!r}\n  at     {at}"
    )


def test_parameters_are_attributes():
    seen = CallbackParameters(cur_step_num=3)
    seen.mine = "kept"
    assert (seen.cur_step_num, seen["mine"]) == (3, "kept")
    with pytest.raises(AttributeError, match="nothing"):
        seen.nothing  # noqa: B018
    assert not hasattr(seen, "nothing")


def test_a_request_to_stop_is_kept():
    run_context = RunContext(CallbackParameters(mode="train"))
    assert run_context.get_stop_requested() is False
    run_context.request_stop()
    assert run_context.get_stop_requested() is True
    assert run_context.original_args().mode == "train"


def test_the_clock_runs_while_steps_run(monkeypatch):
    """What other callbacks do between steps and after the last one, such as an evaluation, is not training."""
    now = [10.0]
    monkeypatch.setattr("runner.experiment.callbacks.time.perf_counter", lambda: now[0])
    clock, moment = Stopwatch(), at(1, 1, [0.5], batch_num=1)
    moments = [("begin", 12.0), ("step_begin", 13.0), ("step_end", 15.0), ("epoch_end", 20.0)]
    for hook, time in (*moments, ("step_begin", 21.0), ("step_end", 23.0), ("end", 30.0)):
        now[0] = time
        getattr(clock, hook)(moment)
    assert (clock.init_seconds, clock.first_loss_seconds, clock.train_seconds) == (2.0, 5.0, 4.0)
