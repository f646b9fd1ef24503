"""`Model`: a network with its loss, optimizer and metrics, and the loops over a dataset (spec section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import Any

import numpy as np

from runner import compile as compiler, context, nn
from runner.communication import settings as auto_parallel
from runner.core.graph import GraphObserver, ValueObserver
from runner.core.precision import use_precision
from runner.core.values import Tensor
from runner.dataset.pipeline import Dataset
from runner.device import Device
from runner.errors import ConfigError
from runner.host.console import LOG
from runner.host.threads import kernel_threads
from runner.nn import wrap
from runner.nn.steps import EagerStep, GraphStep, Step
from runner.observe import dump
from runner.ops.convolution.winograd import winograd_kernels
from runner.ops.random import COUNTER
from runner.train import amp, profile
from runner.train.arguments import check_dump, check_train_arguments, epoch_steps, total_steps
from runner.train.callback import Callback, CallbackList, CallbackParameters, RunContext
from runner.train.columns import check_columns, name_inputs, naming_columns
from runner.train.evaluation import evaluate, evaluation_cell, metrics_for
from runner.train.failure_replay import FailureReplay
from runner.train.gradient_observer import GradientObserver
from runner.train.inference import inference
from runner.train.loop import MakeSteps, run_epochs
from runner.train.loss_scale_manager import LossScaleManager
from runner.train.sink import Sink
from runner.train.steps import StepByStep, with_elements
from runner.types import TensorType
from runner.validation.arguments import flag
from runner.validation.keywords import KeywordNames


class Model(KeywordNames):
    """Trains and evaluates a network and computes its predictions, in the mode of the context.

    `mode` (context.GRAPH_MODE or PYNATIVE_MODE) and `device` override the context for this model, `eval_mode` the mode
    of its evaluation. `observer` observes its graphs (`save_graphs`), `values` the operands and outputs of the
    operators of training steps (dumps); `failure` locates the operator at which training fails, `profiler` measures
    training. `eval_network` replaces the cell whose outputs metrics receive; `eval_indexes` are the places of loss,
    output and label among them, without which every metric receives all. `precision_mode` (of `core.precision.MODES`)
    overrides the context too; `amp_level` O2 (mixed precision with a dynamic loss scale) and O3 (Float16) take
    precedence over it. `loss_scale_manager` scales the loss.
    """

    def __init__(
        self,
        network: nn.Cell,
        loss_fn: nn.Cell | None = None,
        optimizer: nn.Optimizer | None = None,
        metrics: Any = None,
        eval_network: nn.Cell | None = None,
        eval_indexes: Sequence[int] | None = None,
        amp_level: str = "O0",
        *,
        mode: int | None = None,
        eval_mode: int | None = None,
        device: Device | None = None,
        observer: GraphObserver | None = None,
        values: ValueObserver | None = None,
        failure: dump.FirstFailure | None = None,
        profiler: profile.TrainingProfiler | None = None,
        precision_mode: str | None = None,
        loss_scale_manager: LossScaleManager | None = None,
        **kwargs: Any,
    ) -> None:
        self.network, self.loss_fn, self.optimizer = network, loss_fn, optimizer
        self.metrics = metrics_for(loss_fn if eval_network is None else None, metrics)
        self.mode = context.get_context("mode") if mode is None else mode
        self.eval_mode = self.mode if eval_mode is None else eval_mode
        self.device = context.device() if device is None else device
        self.observer = context.graph_observer() if observer is None else observer
        if profiler is None and context.get_context("enable_profiling"):
            profiler = profile.profiler_from_context(self.mode, self.device)
        self.failure, self.profiler, self.values = failure, profiler, values  # no values: those of the context
        self.parallel = auto_parallel.settings() if auto_parallel.is_data_parallel() else None
        level = amp.resolve_level(amp_level, self.device, **kwargs)
        self.precision = amp.policy_of(level, precision_mode)
        self.train_network = amp.training_cell(network, loss_fn, optimizer, level, loss_scale_manager)
        self.eval_network, self.eval_places = evaluation_cell(network, loss_fn, eval_network, eval_indexes)
        self.gradients = GradientObserver()
        self.train_step = self._train_step()
        self.steps: Sink | StepByStep | None = None
        self.eval_step: Step | None = None
        self.predict_step: Step | None = None

    def tune(self, tuner: Callable[[nn.Cell, Device], Device]) -> None:
        """Use the device settings that `tuner` returns for the training cell and the present device."""
        self.network.set_train(True)
        with use_precision(self.precision):
            self.device = tuner(self.train_network, self.device)
        self.train_step = self._train_step()

    def _train_step(self) -> Step:
        return self._step(self.mode, self.train_network, "train_step", None, ("loss",))

    def _step(
        self, mode: int, cell: nn.Cell, name: str, columns: Sequence[str] | None, outputs: Sequence[str] | None
    ) -> Step:
        if mode == context.GRAPH_MODE:
            return GraphStep(cell, self.device, name, columns, outputs, self.observer)
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
        """Train for `epoch` epochs, or up to `max_steps` steps in total.

        With `dataset_sink_mode`, an epoch is `sink_size` batches (-1: the whole dataset) and the next one continues
        where it ended; in graph mode callbacks are then called once for the steps of an epoch, at its end. Without it
        an epoch is the dataset and `sink_size` has no effect. A run with loaded parameters continues with step
        `first_step` (counted from 0), as if it had executed the steps before. Random operators draw other numbers in
        another training, one with `first_step` 0. Raises ConfigError for invalid arguments, TrainingError when a step
        fails.
        """
        check_train_arguments(epoch, train_dataset, dataset_sink_mode, sink_size, max_steps)
        check_columns(self.network, train_dataset, self.loss_fn)
        steps = epoch_steps(train_dataset, dataset_sink_mode, sink_size)
        sunk = self._sinks(dataset_sink_mode, sink_size, train_dataset)
        hooks = CallbackList(callbacks) if self.profiler is None else self.profiler.callbacks(callbacks)
        cb_params = self._parameters(hooks, train_dataset, epoch_num=epoch, batch_num=steps, dataset_sink_mode=sunk)
        cb_params.cur_step_num = first_step
        run_context = RunContext(cb_params)
        if self.gradients.attach(self.train_network, hooks, run_context, first_step):
            self.train_step, self.steps = self._train_step(), None
        name_inputs(self.train_step, train_dataset)
        self.network.set_train(True)
        total = total_steps(epoch, steps, max_steps)
        COUNTER.begin_training(self, first_step)
        with self._running(self.mode, hooks, run_context) as stack:
            self.steps = stack.enter_context(self._open_steps(train_dataset, sunk, first_step, total))
            make = amp.with_overflow_check(self._with_replay(self.steps, train_dataset, first_step), self.train_network)
            make = with_elements(make, self.steps, cb_params)
            run_epochs(naming_columns(train_dataset)(make), hooks, run_context, total, steps if sunk else 1)

    @contextmanager
    def _running(self, mode: int, hooks: CallbackList, run_context: RunContext) -> Iterator[ExitStack]:
        """Context of a training or an evaluation: its precision, its callbacks, and their first and last event."""
        with ExitStack() as stack:
            stack.enter_context(self._computing(mode))
            for callback in hooks:
                stack.enter_context(callback)
            hooks.fire("begin", run_context)
            yield stack
            hooks.fire("end", run_context)

    @contextmanager
    def _computing(self, mode: int) -> Iterator[None]:
        """Context of steps in this mode: their precision, and how numpy's kernels compute."""
        threads = kernel_threads(self.device.workers) if mode == context.PYNATIVE_MODE else nullcontext()
        with use_precision(self.precision), threads, winograd_kernels(self.device.winograd == "auto"):
            yield

    @contextmanager
    def _open_steps(self, dataset: Dataset, sunk: bool, first: int, total: int) -> Iterator[Sink | StepByStep]:
        """The executor of the steps from number `first` to `total`."""
        if self.parallel and self.parallel["parameter_broadcast"]:
            wrap.broadcast(self.train_network.get_parameters())
        if self.profiler is not None:
            settings = self.train_step, dataset, self.device, self.observer, self.value_observer()
            with self.profiler.training(*settings, sunk=sunk, first=first, total=total) as timed:
                yield timed
            return
        steps = self._steps(dataset, sunk, first)
        with closing(steps) if isinstance(steps, StepByStep) else nullcontext():
            yield steps

    def _sinks(self, dataset_sink_mode: bool, sink_size: int, dataset: Dataset) -> bool:
        can_sink = self.mode == context.GRAPH_MODE and not dataset.has_whole_batches
        sunk = dataset_sink_mode and can_sink and not self.parallel
        check_dump(self.value_observer(), sunk)
        if dataset_sink_mode and sink_size > 0 and not sunk:  # the default, -1, promises nothing
            mode = "data-parallel training" if self.parallel else "PyNative mode"
            if dataset.has_whole_batches:
                mode = "training with batches that functions compute"
            LOG.warning("%s does not sink data: the same steps run one by one", mode)
        return sunk

    def _with_replay(self, make: MakeSteps, dataset: Dataset, first_step: int) -> MakeSteps:
        if self.failure is None:
            return make
        return FailureReplay(make, self.train_step, dataset, first_step, self.failure, self.gradients.paused)

    def _steps(self, dataset: Dataset, sunk: bool, first_step: int) -> Sink | StepByStep:
        """An executor of steps with the batches of a dataset, from the batch of step `first_step` on."""
        if not sunk:
            batches = dataset.prepared(dataset.visits_from(first_step))
            return StepByStep(self.train_step, batches, first_step, self.value_observer())
        values = self.value_observer()
        sink: Sink
        if isinstance(self.steps, Sink) and self.steps.dataset is dataset and self.steps.values is values:
            sink = self.steps
        else:
            sink = Sink(self.train_network, self.device, dataset, self.observer, values)
        sink.rewind(first_step)
        return sink

    def value_observer(self) -> ValueObserver:
        """The observer of the values of training steps."""
        return context.value_observer() if self.values is None else self.values

    @property
    def programs(self) -> list[compiler.Executable]:
        """The programs compiled for training, in order of compilation; empty in PyNative mode."""
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
            train_dataset_element=None,
            parallel_mode=auto_parallel.settings()["parallel_mode"],
            device_number=auto_parallel.get_auto_parallel_context("device_num"),
            **more,
        )

    def eval(
        self,
        valid_dataset: Dataset,
        callbacks: Callback | Sequence[Callback] | None = None,
        dataset_sink_mode: bool = True,
    ) -> dict[str, Any]:
        """The metrics over a dataset, which is read batch by batch, independent of `dataset_sink_mode`.

        Calls the hooks begin, step_begin and step_end for every batch, and end, where `metrics` are known. Raises
        ConfigError for invalid arguments, and without metrics or without a loss function.
        """
        flag({}, dataset_sink_mode=dataset_sink_mode)
        hooks = CallbackList(callbacks)
        if not self.metrics or self.eval_network is None:
            raise ConfigError(
                "evaluation needs metrics and a loss function or an evaluation network",
                repair="Model(..., loss_fn, metrics={'accuracy'})",
            )
        if isinstance(self.eval_network, nn.WithEvalCell):
            check_columns(self.network, valid_dataset, self.loss_fn)
        if self.eval_step is None:
            names = nn.WithEvalCell.outputs if isinstance(self.eval_network, nn.WithEvalCell) else None
            self.eval_step = self._step(self.eval_mode, self.eval_network, "eval_step", None, names)
        name_inputs(self.eval_step, valid_dataset)
        cb_params = self._eval_parameters(hooks, valid_dataset)
        run_context = RunContext(cb_params)
        with inference(self.network, self.precision), self._running(self.eval_mode, hooks, run_context):
            step = naming_columns(valid_dataset)(self.eval_step)
            cb_params.metrics = evaluate(step, self.metrics, self.eval_places, hooks, run_context)
        return dict(cb_params.metrics)

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
        with inference(self.network, self.precision), self._computing(self.eval_mode):
            outputs = self.predict_step([Tensor(x).array for x in data])
        tensors = [Tensor(array) for array in outputs]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def export(self, types: Sequence[TensorType], metadata: Mapping[str, str] | None = None) -> bytes:
        """The network in inference mode as an ONNX file with constant weights, for any batch size if it allows that."""
        with inference(self.network, self.precision):
            return compiler.export_onnx(self.network.compute, types, "network", metadata=metadata)
