"""`Callback`: its hooks, the run parameters that they receive, and lists of callbacks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Self, get_args

import numpy as np

from runner.errors import ConfigError
from runner.validation.rules import Frozen, KeywordNames

# The hooks of `Callback` that take only the run context: `CallbackList.fire` calls them.
Event = Literal["begin", "epoch_begin", "step_begin", "step_end", "sink_left", "epoch_end", "end"]
EVENTS: tuple[Event, ...] = get_args(Event)


Arrays = Mapping[str, np.ndarray]
NO_LOSSES = np.zeros(0, np.float32)


class StepValues(Frozen):
    """Arrays of one step by parameter name, in the optimizer's order; they must not be changed.

    `global_step` counts from 1. `gradients` are the inputs of the optimizer: reduced over ranks, and divided by the
    loss scale. `parameters` are the values before the step and `assigned` those after it: equal in a step that was
    skipped because of an overflow.
    """

    global_step: int
    gradients: Arrays
    parameters: Arrays
    assigned: Arrays

    @property
    def updates(self) -> Arrays:
        """The change of each parameter by the step."""
        return {name: self.assigned[name] - before for name, before in self.parameters.items()}


class CallbackParameters(dict[str, Any]):
    """The parameters of a run for callbacks, as attributes.

    Training: epoch_num, batch_num, cur_epoch_num, cur_step_num (from 1, over all epochs), net_outputs (the loss of the
    last step, a tensor), losses (arrays of all steps since the last step_end), mode, network, train_network, loss_fn,
    optimizer, train_dataset, list_callback, dataset_sink_mode, train_dataset_element (the tensors of the last batch;
    None with data sinking), parallel_mode, device_number.

    Evaluation: batch_num, cur_step_num, net_outputs (loss, output and label of the last batch, tensors), metrics (None
    before `end`), mode, network, eval_network, valid_dataset, list_callback.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self:  # an AttributeError, so that `hasattr` works
            raise AttributeError(f"the run has no parameter {name}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


# The name of MindSpore, for scripts with training loops of their own: they set the parameters that callbacks need.
_InternalCallbackParam = CallbackParameters


class RunContext:
    """The argument of every hook: the run's parameters, and stop requests."""

    def __init__(self, original_args: CallbackParameters) -> None:
        self._args, self._stop = original_args, False

    def original_args(self) -> CallbackParameters:
        """The parameters of the run."""
        return self._args

    def request_stop(self) -> None:
        """End training after the current step (after the current sink when data sinking)."""
        self._stop = True

    def get_stop_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._stop


class Callback(KeywordNames):
    """Base: override the needed hooks. Callbacks are called in list order; an exception ends the run."""

    def begin(self, run_context: RunContext) -> None:
        """Before the first epoch."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Before an epoch."""

    def step_begin(self, run_context: RunContext) -> None:
        """Before a step, or before a sink of steps and before the rest of one that was left."""

    def step_end(self, run_context: RunContext) -> None:
        """After a step, or after a sink of steps."""

    def wants_to_leave(self) -> bool:
        """Whether to leave a sink that would continue for seconds; called between its calls to the device."""
        return False

    def next_stop(self, step: int) -> int | None:
        """The number of the first step after `step` behind which to leave a sink; None: no step.

        Called before each call to the device, with the number of steps executed before.
        """
        return None

    def sink_left(self, run_context: RunContext) -> None:
        """After some steps of a sink that was left; unless this raises, the remaining steps follow.

        `losses` are those of the sink until then; at `step_end` they are those of the whole sink.
        """

    def step_gradients(self, run_context: RunContext, values: StepValues) -> None:
        """After each step, also inside a sink: its gradients, parameters and updates.

        They are computed and delivered only when a callback overrides this method; the results do not change.
        The steps of a sink are delivered in order when the call to the device returns, before `step_end`, so use
        `values.global_step` instead of `cur_step_num`.
        """

    def epoch_end(self, run_context: RunContext) -> None:
        """After an epoch."""

    def end(self, run_context: RunContext) -> None:
        """After the last epoch."""

    def state_dict(self) -> Mapping[str, Any]:
        """What this callback has to know to go on in a resumed run as if that had not been interrupted, by name.

        None, bools, ints of 64 bits, floats, text, lists and dicts of these, and arrays and numbers of numpy
        (`runner/train/callback/state.py` has the limits). It is called for every checkpoint. {} says that there is
        nothing to keep; a callback that does not override this, and changes its attributes, is warned about.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take what `state_dict` returned at the checkpoint with which a resumed run goes on; tuples are lists.

        Called behind `begin` and the first `epoch_begin`, since that is where in an epoch checkpoints are saved.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def step_in_epoch(parameters: CallbackParameters) -> int:
    """Number of the current step inside its epoch, from 1."""
    return int((parameters.cur_step_num - 1) % parameters.batch_num + 1)


class CallbackList:
    """A list of callbacks, called as one. A hook that no callback overrides costs nothing."""

    def __init__(self, callbacks: Callback | Iterable[Callback] | None) -> None:
        items = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or ())
        for item in items:
            if not isinstance(item, Callback):
                raise ConfigError("callbacks must be Callback objects", given=repr(item), at=items.index(item))
        self.list = items
        self._hooks = {event: list(self._overriding(event)) for event in EVENTS}
        self._gradient_hooks = list(self._overriding("step_gradients"))
        self._stop_hooks = list(self._overriding("next_stop"))

    def __iter__(self) -> Iterator[Callback]:
        return iter(self.list)

    def fire(self, event: Event, run_context: RunContext) -> None:
        """Call this hook of each callback, in list order."""
        for hook in self._hooks[event]:
            hook(run_context)

    def step_gradients(self, run_context: RunContext, values: StepValues) -> None:
        """Call this hook, which has one more argument, of each callback."""
        for hook in self._gradient_hooks:
            hook(run_context, values)

    @property
    def observes_gradients(self) -> bool:
        """Whether a callback overrides `step_gradients`."""
        return bool(self._gradient_hooks)

    def wants_to_leave(self) -> bool:
        """Whether one of the callbacks wants to leave a sink."""
        return any(callback.wants_to_leave() for callback in self.list)

    def next_stop(self, step: int) -> int | None:
        """The first of the steps after `step` behind which one of the callbacks wants to leave a sink."""
        return min([stop for hook in self._stop_hooks if (stop := hook(step)) is not None], default=None)

    def _overriding(self, hook: str) -> Iterator[Callable[..., Any]]:
        for callback in self.list:
            method = getattr(callback, hook)
            if getattr(method, "__func__", None) is not getattr(Callback, hook):
                yield method
