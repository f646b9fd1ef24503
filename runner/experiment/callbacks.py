"""The journal and the checkpoints of a run: callbacks that write them, and `restore`, with which a resumed run begins.

A run calls `MetricsJournal` after every step, and last of all `Checkpointer`, which saves parameters, progress, length
and hash of the journal when a checkpoint is due or a signal has come. `restore` reads the newest whole checkpoint that
fits the journal, and cuts that to its length; `global_step` of what it returns is where `Model.train` continues.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from runner import rundir
from runner.config.schema import CheckpointSettings
from runner.errors import ConfigError, DataError, changed_rows
from runner.experiment.manifest import RunDescription, check_identity, number, warn_of_machine
from runner.experiment.progress import BYTES, CALLBACKS, ENDED, LOSSES, PRINTS, SHA256, check_progress
from runner.host.console import LOG
from runner.host.files import Journal, make_directory
from runner.host.json import read_optional
from runner.train.callback import Callback, CallbackParameters, RunContext, step_in_epoch
from runner.train.callback.base import NO_LOSSES
from runner.train.callback.state import CallbackStates
from runner.train.checkpoint import state
from runner.train.checkpoint.state import SavedCheckpoint, sweep_run
from runner.types import TensorType


class MetricsJournal(Callback):
    """Writes a `step` event for each step, also of a sink, and `eval` events for reported evaluations."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._written = 0  # steps that have a row

    def begin(self, run_context: RunContext) -> None:
        self._written = run_context.original_args().cur_step_num

    def step_end(self, run_context: RunContext) -> None:
        self.sink_left(run_context)

    def sink_left(self, run_context: RunContext) -> None:
        """Write the steps until here: a checkpoint that follows counts them as done."""
        cb_params = run_context.original_args()
        losses = cb_params.losses[self._written - cb_params.cur_step_num :]  # in a sink also those of steps before
        if losses[0].size != 1:
            repair = "reduction=mean, or ops.ReduceMean()(loss) at the end of construct"
            rows = {"loss": type(cb_params.loss_fn).__name__, "shape": losses[0].shape}
            raise ConfigError("the loss of a batch is not a single number", **rows, repair=repair)
        first, last = cb_params.cur_step_num - len(losses) + 1, step_in_epoch(cb_params)
        for number_of_step, loss in enumerate(losses.reshape(-1), first):
            step = last - (cb_params.cur_step_num - number_of_step)
            row = {"event": "step", "epoch": cb_params.cur_epoch_num, "step": step, "global_step": number_of_step}
            self.journal.append({**row, "loss": number(loss)})
        self._written = cb_params.cur_step_num

    def epoch_end(self, run_context: RunContext) -> None:
        self.journal.sync()

    def evaluated(self, metrics: Mapping[str, Any], epoch: int, global_step: int) -> None:
        """Write an `eval` event."""
        self.journal.append({"event": "eval", "epoch": epoch, "global_step": global_step, **metrics})
        self.journal.sync()


class Signals(Protocol):
    """`requested`: the exception with which the run ends after this step, or None."""

    @property
    def requested(self) -> type[KeyboardInterrupt] | None: ...


class Checkpointer(Callback):
    """Saves all parameters and the progress of the run; the last callback, so that the journal has the step's row.

    Saves as `settings` say, also inside of sinks, at the last step, and when `signals` request the end of the run. It
    saves the states of `callbacks` too, and gives them those of the checkpoint that the run continues. When a callback
    has stopped the run, the checkpoint follows the end of the epoch, and a resumed run makes no further steps.
    """

    def __init__(
        self,
        description: RunDescription,
        settings: CheckpointSettings,
        journal: Journal,
        signals: Signals,
        callbacks: Iterable[Callback],
    ) -> None:
        self.description, self.settings, self.journal, self.signals = description, settings, journal, signals
        self.folder = make_directory(description.subject.folder / rundir.CHECKPOINTS)
        self.states, self._continues = CallbackStates(callbacks), bool(description.before)
        self._saved_step, self._saved_time = 0, time.monotonic()

    def begin(self, run_context: RunContext) -> None:
        self._saved_step = run_context.original_args().cur_step_num
        self._saved_time = time.monotonic()
        self.states.begin()

    def epoch_begin(self, run_context: RunContext) -> None:
        if self._continues:
            self._continues, arrays = False, dict(self.description.before_arrays)
            run_context.original_args().losses = arrays.pop(LOSSES, NO_LOSSES)
            self.states.load(self.description.before.get(CALLBACKS, {}), arrays)

    def next_stop(self, step: int) -> int | None:
        every_steps = self.settings.every_steps
        return None if every_steps is None else (step // every_steps + 1) * every_steps

    def wants_to_leave(self) -> bool:
        return self.signals.requested is not None or self._seconds_are_due()

    def step_end(self, run_context: RunContext) -> None:
        self._step(run_context)

    def sink_left(self, run_context: RunContext) -> None:
        self._step(run_context, {LOSSES: run_context.original_args().losses})

    def _step(self, run_context: RunContext, losses: Mapping[str, np.ndarray] = state.NO_ARRAYS) -> None:
        cb_params, stops = run_context.original_args(), run_context.get_stop_requested()
        if not stops and (self._due(cb_params.cur_step_num) or self.signals.requested):
            self.save(cb_params, losses)
        if self.signals.requested:
            raise self.signals.requested

    def end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if cb_params.cur_step_num > self._saved_step:  # a callback has requested a stop before the last step
            self.save(cb_params, has_ended=True)

    def save(
        self,
        cb_params: CallbackParameters,
        losses: Mapping[str, np.ndarray] = state.NO_ARRAYS,
        has_ended: bool = False,
    ) -> None:
        """Write a checkpoint, and delete the oldest beyond `keep_max`.

        `losses` are those of an unfinished sink; `has_ended`: a resumed run that is not told otherwise makes no steps.
        """
        self.description.experiment.model.value_observer().flush()  # a resumed run does not repeat the steps before
        self.journal.sync()
        size, digest = self.journal.position()
        progress = {
            "global_step": cb_params.cur_step_num,
            "epoch": cb_params.cur_epoch_num,
            "step": step_in_epoch(cb_params),
            "loss": str(number(cb_params.net_outputs)),
            BYTES: size,
            SHA256: digest,
            "providers": self.description.providers,
        }
        states, of_callbacks = self.states.saved()
        progress |= ({CALLBACKS: states} if states else {}) | ({ENDED: True} if has_ended else {})
        progress |= {PRINTS: prints.position()} if (prints := self.description.prints) else {}
        name = f"{self.settings.prefix}-{progress['epoch']}_{progress['step']}"
        arrays = {p.name: p.array for p in cb_params.train_network.get_parameters()}
        state.save(self.folder / name, arrays, progress, self.description.identity, {**of_callbacks, **losses})
        state.prune(self.folder, self.settings.prefix, self.settings.keep_max, cb_params.cur_step_num)
        self._saved_step, self._saved_time = cb_params.cur_step_num, time.monotonic()

    def _due(self, step: int) -> bool:
        every_steps = self.settings.every_steps
        steps = every_steps is not None and step // every_steps > self._saved_step // every_steps
        return steps or self._seconds_are_due() or step >= self.description.experiment.total_steps

    def _seconds_are_due(self) -> bool:
        every_seconds = self.settings.every_seconds
        return every_seconds is not None and time.monotonic() - self._saved_time >= every_seconds


def restore(
    description: RunDescription, settings: CheckpointSettings, journal: Journal, force: bool, goes_on: bool
) -> dict[str, Any]:
    """Restore the model and the journal from the newest checkpoint that fits it, and return its recorded progress.

    {} when there is none: the run starts again. `goes_on`: a run that was finished there is to make more steps, also if
    a callback had stopped it. Raises DataError when no checkpoint can be used, ConfigError when something has changed
    that the results depend on, unless `force`.
    """
    folder = description.subject.folder
    sweep_run(folder)
    place = folder / rundir.CHECKPOINTS
    found, unusable = state.newest(place, settings.prefix, lambda one: check_progress(one, journal.path))
    if found is None:
        if unusable:
            repair = f"restore checkpoints or {rundir.METRICS} from a copy; without checkpoints the run starts again"
            reasons = "\n".join(unusable)
            raise DataError("no checkpoint of the run can be used", path=place, reasons=reasons, repair=repair)
        if description.prints:
            description.prints.rewind(None)
        journal.cut(0)
        return {}
    for line in unusable:
        LOG.warning("%s", line)
    if not force:
        check_identity(found.identity, description.identity)
    warn_of_machine(folder)
    _load_parameters(description, found, force)
    if description.prints:
        description.prints.rewind(found.progress.get(PRINTS))
    journal.cut(found.progress[BYTES])
    step = found.progress["global_step"]
    state.prune(place, settings.prefix, settings.keep_max, step)  # there may be no further one
    description.before_arrays = found.callbacks
    was_finished = read_optional(folder / rundir.SUMMARY).get("steps") == step
    return {name: value for name, value in found.progress.items() if name != ENDED or not (goes_on and was_finished)}


def _load_parameters(description: RunDescription, found: SavedCheckpoint, force: bool) -> None:
    """Raise DataError unless the arrays of a checkpoint are the parameters of the run; with `force` some of them."""
    parameters = description.experiment.model.train_network.parameters_dict()
    has = {name: TensorType.of(array) for name, array in found.arrays.items() if not force or name in parameters}
    if rows := changed_rows(has, {name: parameter.type for name, parameter in parameters.items()}):
        first = dict([*rows.items()][: rundir.NAMED])
        what = "the parameters of the checkpoint are not those of the run"
        raise DataError(what, file=found.folder, **first, repair=state.REPAIR)
    for name, parameter in parameters.items():
        parameter.set_data(found.arrays[name])
