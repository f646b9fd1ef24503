"""`Model`: a network with its loss, optimizer and metrics, and the loops over a dataset (spec section 6.1)."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import numpy as np

from runner import auto_parallel, context, nn
from runner.compile.lower import lower, parameters_in, with_constants
from runner.compile.passes import optimize
from runner.compile.program import Executable
from runner.core.observer import GraphObserver, ValueObserver
from runner.core.value import Tensor
from runner.dataset.pipeline import Dataset
from runner.device import Device
from runner.engine.tracer import trace
from runner.errors import ConfigError
from runner.nn.metrics import get_metrics
from runner.startup import lazy_import
from runner.train.arguments import check_dump, check_sink_mode, check_train_arguments
from runner.train.callback import Callback, CallbackList, CallbackParameters, RunContext
from runner.train.sink import Sink
from runner.train.step import EagerStep, GraphStep, Step, StepByStep
from runner.types import TensorType

if TYPE_CHECKING:
    from runner.dumps.failure import FirstFailure
    from runner.train.examine import MakeSteps

reducer = lazy_import("runner.nn.reducer")  # only for data-parallel training
examine = lazy_import("runner.train.examine")  # only for runs that want to know
_LOG = logging.getLogger("runner")


class Model:
    """A network that can be trained, evaluated and asked for predictions, in the mode of the context.

    `mode` (context.GRAPH_MODE or PYNATIVE_MODE) and `device` override the context for this model, `eval_mode` the mode
    of its evaluation, `observer` who hears of its graphs (`save_graphs`), `values` who is shown what the operators of
    training steps take and make (dumps), `failure` who is to say which operator made a training fail.
    """

    def __init__(
        self,
        network: nn.Cell,
        loss_fn: nn.Cell | None = None,
        optimizer: nn.Optimizer | None = None,
        metrics: Any = None,
        *,
        mode: int | None = None,
        eval_mode: int | None = None,
        device: Device | None = None,
        observer: GraphObserver | None = None,
        values: ValueObserver | None = None,
        failure: "FirstFailure | None" = None,
    ) -> None:
        self.network, self.loss_fn, self.optimizer = network, loss_fn, optimizer
        self.metrics = get_metrics(metrics)
        self.mode = context.get_context("mode") if mode is None else mode
        self.eval_mode = self.mode if eval_mode is None else eval_mode
        self.device = context.device() if device is None else device
        self.observer = context.graph_observer() if observer is None else observer
        self.failure = failure
        self.values = values  # None: as the context says when training begins
        self.parallel = auto_parallel.settings() if auto_parallel.is_data_parallel() else None
        self.train_network = self._build_train_network()
        self.eval_network = nn.WithEvalCell(network, loss_fn) if loss_fn is not None else None
        self.train_step = self._step(self.mode, self.train_network, "train_step", ("image", "label"), ("loss",))
        self.steps: Sink | StepByStep | None = None
        self.eval_step: Step | None = None
        self.predict_step: Step | None = None

    def _build_train_network(self) -> nn.Cell:
        network = self.network if self.loss_fn is None else nn.WithLossCell(self.network, self.loss_fn)
        return (
            network
            if self.optimizer is None
            else nn.TrainOneStepCell(network, self.optimizer, self.optimizer.loss_scale)
        )

    def _step(
        self, mode: int, cell: nn.Cell, name: str, inputs: Sequence[str] | None, outputs: Sequence[str] | None
    ) -> Step:
        if mode == context.GRAPH_MODE:
            return GraphStep(cell, self.device, name, inputs, outputs, self.observer)
        return EagerStep(cell, name, self.observer)

    def train(
        self,
        epoch: int,
        train_dataset: Dataset,
        callbacks: Callback | Sequence[Callback] | None = None,
        dataset_sink_mode: bool = True,
        sink_size: int = -1,
        *,
        max_steps: int | None = None,
        first_step: int = 0,
    ) -> None:
        """Train for `epoch` epochs, or until `max_steps` steps were made in all.

        With `dataset_sink_mode`, an epoch is `sink_size` batches (-1: the whole dataset) and the next one continues
        where it ended; in graph mode callbacks then hear of an epoch's steps once, at its end. Without it an epoch is
        the dataset and `sink_size` has no effect. A run whose parameters were loaded goes on with step `first_step`
        (counted from 0), as if it had made the steps before. Raises ConfigError for impossible arguments, TrainingError
        when a step fails.
        """
        check_train_arguments(epoch, train_dataset, dataset_sink_mode, sink_size, max_steps)
        size = train_dataset.get_dataset_size()
        steps = size if sink_size == -1 or not dataset_sink_mode else sink_size
        sunk = self._sinks(dataset_sink_mode)
        hooks = CallbackList(callbacks)
        seen = self._parameters(hooks, train_dataset, epoch_num=epoch, batch_num=steps, dataset_sink_mode=sunk)
        seen.cur_step_num = first_step
        run_context = RunContext(seen)
        self.network.set_train(True)
        total = epoch * steps if max_steps is None else min(max_steps, epoch * steps)
        with ExitStack() as stack:
            for callback in hooks.list:
                stack.enter_context(callback)
            hooks.begin(run_context)
            self.steps = self._steps(train_dataset, sunk, first_step)
            if isinstance(self.steps, StepByStep):
                stack.enter_context(closing(self.steps))
            make = self._examined(self.steps, train_dataset, first_step)
            self._epochs(make, hooks, run_context, total, steps if sunk else 1)
            hooks.end(run_context)

    def _sinks(self, dataset_sink_mode: bool) -> bool:
        sunk = dataset_sink_mode and self.mode == context.GRAPH_MODE and not self.parallel
        check_dump(self._observer(), sunk)
        if dataset_sink_mode and not sunk:
            who = "data-parallel training" if self.parallel else "PyNative mode"
            _LOG.warning("%s does not sink data: the same steps run one by one", who)
        return sunk

    def _epochs(
        self,
        make: "MakeSteps",
        hooks: CallbackList,
        run_context: RunContext,
        total: int,
        chunk: int,
    ) -> None:
        seen = run_context.original_args()
        # A run that goes on after the last step of an epoch still owes the end of that epoch.
        first, last = max(0, seen.cur_step_num - 1) // seen.batch_num, (total - 1) // seen.batch_num
        for number in range(first, last + 1):
            if run_context.get_stop_requested():
                break
            seen.cur_epoch_num = number + 1
            hooks.epoch_begin(run_context)
            end = min(total, seen.cur_epoch_num * seen.batch_num)
            while seen.cur_step_num < end and not run_context.get_stop_requested():
                hooks.step_begin(run_context)
                count = min(chunk, end - seen.cur_step_num)
                seen.losses = make(count, hooks.wants_to_leave)
                seen.cur_step_num += len(seen.losses)
                seen.net_outputs = seen.losses[-1]
                if len(seen.losses) < count:
                    hooks.sink_left(run_context)
                else:
                    hooks.step_end(run_context)
            hooks.epoch_end(run_context)

    def _examined(self, make: "MakeSteps", dataset: Dataset, first_step: int) -> "MakeSteps":
        if self.failure is None:
            return make
        examined: MakeSteps = examine.Examined(make, self.train_step, dataset, first_step, self.failure)
        return examined

    def _steps(self, dataset: Dataset, sunk: bool, first_step: int) -> Sink | StepByStep:
        """What makes steps with the batches of a dataset, from the batch of step `first_step` on."""
        if self.parallel and self.parallel["parameter_broadcast"]:
            reducer.broadcast(self.train_network.get_parameters())
        if not sunk:
            batches = dataset.prepared(dataset.visits_from(first_step))
            return StepByStep(self.train_step, batches, first_step, self._observer())
        values = self._observer()
        if isinstance(self.steps, Sink) and self.steps.dataset is dataset and self.steps.values is values:
            sink = self.steps
        else:
            sink = Sink(self.train_network, self.device, dataset, self.observer, values)
        sink.rewind(first_step)
        return sink

    def _observer(self) -> ValueObserver:
        return context.value_observer() if self.values is None else self.values

    @property
    def programs(self) -> list[Executable]:
        """What was compiled for training, in the order in which it was needed; empty in PyNative mode."""
        return [] if self.steps is None else list(self.steps.programs.values())

    def _parameters(self, hooks: CallbackList, dataset: Dataset, **more: Any) -> CallbackParameters:
        return CallbackParameters(
            mode="train",
            network=self.network,
            train_network=self.train_network,
            loss_fn=self.loss_fn,
            optimizer=self.optimizer,
            train_dataset=dataset,
            list_callback=hooks,
            cur_epoch_num=0,
            cur_step_num=0,
            losses=np.zeros(0, np.float32),
            net_outputs=None,
            **more,
        )

    def eval(
        self,
        valid_dataset: Dataset,
        callbacks: Callback | Sequence[Callback] | None = None,
        dataset_sink_mode: bool = True,
    ) -> dict[str, float]:
        """The metrics over a dataset, which is read batch by batch, whatever `dataset_sink_mode` says.

        Callbacks hear begin, step_begin and step_end for every batch, and end, where `metrics` are known. Raises
        ConfigError for impossible arguments, and without metrics or without a loss function.
        """
        check_sink_mode(dataset_sink_mode)
        hooks = CallbackList(callbacks)
        if not self.metrics or self.eval_network is None:
            raise ConfigError(
                "evaluation needs metrics and a loss function", repair="Model(..., loss_fn, metrics={'accuracy'})"
            )
        if self.eval_step is None:
            names = ("image", "label"), ("loss", "output", "label_out")
            self.eval_step = self._step(self.eval_mode, self.eval_network, "eval_step", *names)
        seen = self._eval_parameters(hooks, valid_dataset)
        run_context = RunContext(seen)
        self.network.set_train(False)
        with ExitStack() as stack:
            for callback in hooks.list:
                stack.enter_context(callback)
            hooks.begin(run_context)
            seen.metrics = self._evaluate(self.eval_step, hooks, run_context)
            hooks.end(run_context)
        self.network.set_train(True)
        return dict(seen.metrics)

    def _evaluate(self, step: Step, hooks: CallbackList, run_context: RunContext) -> dict[str, float]:
        seen = run_context.original_args()
        for metric in self.metrics.values():
            metric.clear()
        with closing(seen.valid_dataset.read(0)) as batches:
            for arrays in batches:
                seen.cur_step_num += 1
                hooks.step_begin(run_context)
                seen.net_outputs = loss, output, label = step(arrays)
                hooks.step_end(run_context)
                for metric in self.metrics.values():
                    metric.update(loss, output, label)
        return {name: metric.eval() for name, metric in self.metrics.items()}

    def _eval_parameters(self, hooks: CallbackList, dataset: Dataset) -> CallbackParameters:
        return CallbackParameters(
            mode="eval",
            network=self.network,
            eval_network=self.eval_network,
            valid_dataset=dataset,
            batch_num=dataset.get_dataset_size(),
            list_callback=hooks,
            cur_step_num=0,
            net_outputs=None,
            metrics=None,
        )

    def predict(self, *data: Any) -> Any:
        """The output of the network in inference mode."""
        if self.predict_step is None:
            self.predict_step = self._step(self.eval_mode, self.network, "network", None, None)
        self.network.set_train(False)
        made = self.predict_step([Tensor(x).data for x in data])
        self.network.set_train(True)
        tensors = [Tensor(array) for array in made]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def export(self, types: Sequence[TensorType]) -> bytes:
        """The network in inference mode as an ONNX file for inputs of these types, with its parameters as constants."""
        self.network.set_train(False)
        graph = optimize(trace(self.network.construct, types, "network").silent())
        self.network.set_train(True)
        inputs = [f"input{k}" for k in range(len(types))]
        return with_constants(
            lower(graph, inputs, [f"output{k}" for k in range(len(graph.outputs))]), parameters_in(graph)
        )
