"""`Model`: a network with its loss, optimizer and metrics, and the loops over a dataset.

`Model` is at the end; before it are the checks of columns, the loop of an evaluation, and those of arguments. Training
itself is `run_epochs` (`loop.py`), with steps one by one (`StepByStep`) or in a `Sink`.

A resumed run calls `train(first_step=n)`, after parameters, counters and states of the optimizer were loaded (see
`checkpoint/state.py`). All else follows from n: the epoch, the batches from that place in it (`Dataset.visits_from`),
and the numbers that random operators draw in a step (`random_counter`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from runner import compile as compiler, context, nn
from runner.communication.settings import get_auto_parallel_context, is_data_parallel, settings
from runner.communication.world import world
from runner.core.graph import NO_VALUES, GraphObserver, ValueObserver
from runner.core.precision import Policy, use_precision
from runner.core.source import SourceLine, is_users
from runner.core.values import Tensor
from runner.dataset.pipeline import Dataset
from runner.device import Device
from runner.errors import ConfigError, RunnerError, ShapeError, TrainingError, user_lines
from runner.host.console import LOG
from runner.host.threads import kernel_threads
from runner.nn import wrap
from runner.nn.cell import Cell
from runner.nn.metrics.base import AnyMetric, attach, checked_metrics, update_metrics
from runner.nn.steps import EagerStep, GraphStep, Step, run_observed
from runner.observe import dump
from runner.ops.convolution.winograd import winograd_kernels
from runner.ops.random import random_counter
from runner.train import amp, profile
from runner.train.amp import LossScaleManager
from runner.train.callback import Callback, CallbackList, CallbackParameters, RunContext
from runner.train.callback.base import NO_LOSSES
from runner.train.loop import FailureReplay, GradientObserver, MakeSteps, StepByStep, run_epochs, with_elements
from runner.train.sink import Sink
from runner.types import TensorType
from runner.validation.arguments import flag, whole
from runner.validation.rules import KeywordNames

# The columns of a dataset as operands of a network: whether it takes so many, and what errors say about them.


def check_columns(network: Cell, dataset: Dataset, loss_fn: Cell | None) -> None:
    """Raise ConfigError unless `construct` of the network takes the columns; with a loss, all but the last one, the
    target, which `construct` of the loss takes after an output."""
    names = dataset.get_col_names()
    inputs = names if loss_fn is None else names[:-1]
    if loss_fn is not None:
        _check_loss(loss_fn)
    if not inputs:
        repair = "a dataset with a column for each input of the network, and the target as the last one"
        raise ConfigError("no column is left for the network", columns=described(dataset), repair=repair)
    signature = _signature(network)
    try:
        signature.bind(*inputs)
    except TypeError as reason:
        name = type(network).__name__
        raise ConfigError(
            f"{name} does not take the columns of the dataset as its inputs",
            inputs=", ".join(inputs),
            construct=signature,
            reason=reason,
            columns=described(dataset),
            line=_definition(network),
            repair="the columns that it takes: dataset.project([...]), in the order of its inputs, then the target",
        ) from None


def _check_loss(loss_fn: Cell) -> None:
    signature = _signature(loss_fn)
    try:
        signature.bind("output", "target")
    except TypeError as reason:
        rows = {"construct": signature, "reason": reason, "line": _definition(loss_fn)}
        raise ConfigError(f"{type(loss_fn).__name__} does not take (output, target)", **rows) from None


def _signature(cell: Cell) -> inspect.Signature:
    if getattr(cell.construct, "__func__", None) is Cell.construct:
        rows = {"cell": type(cell).__name__, "line": cell.__dict__["_built"], "hint": "def construct(self, x): ..."}
        raise ConfigError("a cell that does not define construct", **rows)
    return inspect.signature(cell.construct)


def name_inputs(step: Step, dataset: Dataset) -> None:
    """The programs that a step compiles from now on have inputs with the names of the columns."""
    if isinstance(step, GraphStep):
        step.columns = dataset.get_col_names()


@contextmanager
def naming_columns(dataset: Dataset) -> Iterator[None]:
    """Errors inside the network get the types of the columns.

    What its own code raises becomes a TrainingError with the user's line, which both modes report alike.
    """
    try:
        yield
    except RunnerError as error:
        # also a type rule of an operator
        if isinstance(error, ShapeError) or (isinstance(error, ConfigError) and "scope" in error.rows):
            error.add(columns=described(dataset))
        raise
    except (OSError, MemoryError):
        raise
    except Exception as error:
        line = _line_in_network(error.__traceback__)
        if line is None:
            raise
        what = f"the network's own code failed: {type(error).__name__}: {error}"
        lines = user_lines(error)
        called = "\n".join(lines) if len(lines) > 1 else None
        raise TrainingError(what, line=line, at=called, columns=described(dataset)) from error


def described(dataset: Dataset) -> str:
    """The columns of a batch: `tokens Int32[8, 16], label Int32[8]`."""
    pairs = zip(dataset.get_col_names(), dataset.column_types(), strict=True)
    return ", ".join(f"{name} {kind}" for name, kind in pairs)


def _definition(network: Cell) -> SourceLine | None:
    """The line that defines `construct`, or the line that built a network whose class is not the user's."""
    code = getattr(network.construct, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return network.__dict__["_built"]  # type: ignore[no-any-return]
    return SourceLine(code.co_filename, code.co_firstlineno)


def _line_in_network(traceback: TracebackType | None) -> SourceLine | None:
    """The innermost line of the user's code inside of a `construct`, which may have called an operator; None if the
    exception comes from elsewhere, such as a callback that observes the step."""
    found, inside = None, False
    while traceback is not None and not (inside and traceback.tb_frame.f_code.co_name == "bind"):
        code = traceback.tb_frame.f_code
        inside = inside or code.co_name == "construct"
        if inside and is_users(code.co_filename):
            found = SourceLine(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


# The evaluation of a `Model`: its cell, and the loop over a dataset.


def metrics_for(
    loss_fn: nn.Cell | None, wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None
) -> dict[str, AnyMetric]:
    """As `nn.get_metrics`, for outputs that this loss function is computed of."""
    if isinstance(wanted, Mapping):
        found = checked_metrics(wanted)
    else:
        found = nn.get_metrics(wanted) if wanted else {}
    if loss_fn is not None:
        attach(found.values(), loss_fn)
    return found


def evaluation_cell(
    network: nn.Cell, loss_fn: nn.Cell | None, eval_network: nn.Cell | None, eval_indexes: Sequence[int] | None
) -> tuple[nn.Cell | None, Sequence[int] | None]:
    """The cell whose outputs metrics receive, and the places of loss, output and label among them.

    The cell is that of the user, or else has these three outputs; None without a loss. Without places metrics receive
    all outputs of the user's cell. Raises ConfigError for other places.
    """
    cell = nn.WithEvalCell(network, loss_fn) if eval_network is None and loss_fn is not None else eval_network
    return cell, _output_places(eval_network, eval_indexes)


def _output_places(eval_network: nn.Cell | None, eval_indexes: Sequence[int] | None) -> Sequence[int] | None:
    if eval_indexes is None:
        return (0, 1, 2) if eval_network is None else None
    if len(eval_indexes) != 3 or not all(type(place) is int for place in eval_indexes):
        allowed = "the places of loss, output and label"
        raise ConfigError("eval_indexes must be three whole numbers", given=repr(eval_indexes), allowed=allowed)
    return tuple(eval_indexes)


def evaluate(
    step: Callable[[tuple[np.ndarray, ...]], list[np.ndarray]],
    metrics: Mapping[str, AnyMetric],
    places: Sequence[int] | None,
    hooks: CallbackList,
    run_context: RunContext,
) -> dict[str, Any]:
    """The values of metrics after one epoch. Raises ConfigError for places that the outputs do not have."""
    cb_params = run_context.original_args()
    for metric in metrics.values():
        metric.clear()
    with closing(cb_params.valid_dataset.read(0)) as batches, random_counter().preserved():
        for arrays in batches:
            cb_params.cur_step_num += 1
            hooks.fire("step_begin", run_context)
            random_counter().begin_batch(cb_params.cur_step_num - 1)
            outputs = step(arrays)
            cb_params.net_outputs = tuple(map(Tensor, outputs))
            hooks.fire("step_end", run_context)
            update_metrics(metrics.values(), outputs, places)
    return {name: metric.eval() for name, metric in metrics.items()}


# Arguments of `Model.train`: their checks, and the number of steps.


def check_train_arguments(
    epoch: int, train_dataset: Dataset, dataset_sink_mode: bool, sink_size: int, max_steps: int | None
) -> None:
    """Raise ConfigError unless epoch and max_steps are positive ints and sink_size is -1 or positive."""
    whole({}, 1, epoch=epoch)
    flag({}, dataset_sink_mode=dataset_sink_mode)
    if type(sink_size) is not int or (sink_size < 1 and sink_size != -1):
        raise ConfigError("sink_size must be -1 or a whole number of at least 1", given=repr(sink_size))
    if max_steps is not None:
        whole({}, 1, max_steps=max_steps)
    if not isinstance(train_dataset, Dataset):
        raise ConfigError("train_dataset must be a dataset of runner.dataset", given=repr(train_dataset))


def epoch_steps(dataset: Dataset, dataset_sink_mode: bool, sink_size: int) -> int:
    """The number of steps of an epoch."""
    return dataset.get_dataset_size() if sink_size == -1 or not dataset_sink_mode else sink_size


def require_equal_steps(epoch: int, steps: int, max_steps: int | None) -> None:
    """Raise ConfigError, on all ranks, when they plan different numbers of steps: some would wait for ever."""
    planned = world().all_gathered([epoch, steps, max_steps])
    if any(one != planned[0] for one in planned):
        rows = {"epochs": planned[0][0]} | {f"steps of rank {rank}": one[1] for rank, one in enumerate(planned)}
        repair = "sampler=DistributedSampler(num_shards, shard_id), which fills shards up, or drop_remainder=True"
        raise ConfigError("ranks have different numbers of steps in an epoch", **rows, repair=repair)


def total_steps(epoch: int, steps: int, max_steps: int | None) -> int:
    """The number of steps of a training of `epoch` epochs of `steps` steps."""
    return epoch * steps if max_steps is None else min(max_steps, epoch * steps)


def check_dump(observer: ValueObserver, sunk: bool) -> None:
    """Raise ConfigError for a synchronous dump with data sinking."""
    if sunk and not observer.supports_sinks:
        repair = "dataset_sink_mode=False, or an asynchronous dump, which works while sinking"
        raise ConfigError("a synchronous dump needs separate steps", dataset_sink_mode="true", repair=repair)


@contextmanager
def inference(network: Cell, precision: Policy | None) -> Iterator[None]:
    """Inside, the network is in inference mode and operators have this precision; then each cell is as it was before.

    A cell that the user has set to inference stays so, and dropout of a new network is not switched on.
    """
    before = [(cell, cell.training, cell.phase) for _, cell in network.cells_and_names()]
    network.set_train(False)
    try:
        with use_precision(precision):
            yield
    finally:
        for cell, training, phase in before:
            cell.add_flags(training=training).phase = phase


# `Model`


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
        self.device = context.device(self.mode) if device is None else device
        self.observer = context.graph_observer() if observer is None else observer
        if profiler is None and context.profiling_settings() is not None:
            profiler = profile.profiler_from_context(self.mode, self.device)
        self.failure, self.profiler, self.values = failure, profiler, values  # no values: those of the context
        self.parallel = settings() if is_data_parallel() else None
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
        self._attach(train_dataset)
        steps = epoch_steps(train_dataset, dataset_sink_mode, sink_size)
        if self.parallel and world().limit is None:  # in a script: the ranks of a run divide every batch
            require_equal_steps(epoch, steps, max_steps)
        sunk = self._sinks(dataset_sink_mode, sink_size, train_dataset)
        hooks = CallbackList(callbacks) if self.profiler is None else self.profiler.callbacks(callbacks)
        cb_params = self._parameters(hooks, train_dataset, epoch_num=epoch, batch_num=steps, dataset_sink_mode=sunk)
        cb_params.cur_step_num, run_context = first_step, RunContext(cb_params)
        if self.gradients.attach(self.train_network, hooks, run_context, first_step):
            self.train_step, self.steps = self._train_step(), None
        name_inputs(self.train_step, train_dataset)
        self.network.set_train(True)
        total = total_steps(epoch, steps, max_steps)
        random_counter().begin_training(self, first_step)
        with self._running(self.mode, hooks, run_context) as stack:
            self.steps = stack.enter_context(self._open_steps(train_dataset, sunk, first_step, total))
            make = amp.with_overflow_check(self._with_replay(self.steps, train_dataset, first_step), self.train_network)
            make = with_elements(make, self.steps, cb_params)
            run_epochs(naming_columns(train_dataset)(make), hooks, run_context, total, steps if sunk else 1)

    def _attach(self, dataset: Dataset) -> None:
        """Check that the network takes the columns, and tell it their types."""
        check_columns(self.network, dataset, self.loss_fn)
        types = dataset.column_types()
        self.network.attach_data(types if self.loss_fn is None else types[:-1])

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
        values = self.value_observer()
        values.iterations = max(values.iterations, first)  # steps of a resumed run keep their numbers
        if self.profiler is not None:
            how = self.train_step, dataset, self.device, self.observer, values
            with self.profiler.training(*how, sunk=sunk, first=first, total=total) as timed:
                yield timed
            return
        steps = self._steps(dataset, sunk, first)
        with closing(steps) if isinstance(steps, StepByStep) else nullcontext():
            yield steps

    def _sinks(self, dataset_sink_mode: bool, sink_size: int, dataset: Dataset) -> bool:
        can_sink = self.mode == context.GRAPH_MODE and not dataset.has_whole_batches
        sunk = dataset_sink_mode and can_sink and not self.parallel
        check_dump(self.value_observer(), sunk)
        is_requested = sink_size > 0 or (self.parallel and can_sink)  # by default, sinking is what can be had
        if dataset_sink_mode and is_requested and not sunk:
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

    def _evaluated(self) -> ValueObserver:
        """The observer of evaluations and predictions: that of the context. A run dumps its training alone."""
        return context.value_observer() if self.values is None else NO_VALUES

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
            losses=NO_LOSSES,
            net_outputs=None,
            train_dataset_element=None,
            parallel_mode=settings()["parallel_mode"],
            device_number=get_auto_parallel_context("device_num"),
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
            self._attach(valid_dataset)
        if self.eval_step is None:
            names = nn.WithEvalCell.outputs if isinstance(self.eval_network, nn.WithEvalCell) else None
            self.eval_step = self._step(self.eval_mode, self.eval_network, "eval_step", None, names)
        name_inputs(self.eval_step, valid_dataset)
        cb_params = self._eval_parameters(hooks, valid_dataset)
        run_context = RunContext(cb_params)
        with inference(self.network, self.precision), self._running(self.eval_mode, hooks, run_context):
            step = naming_columns(valid_dataset)(partial(run_observed, self.eval_step, observer=self._evaluated()))
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
            outputs = run_observed(self.predict_step, [Tensor(x).array for x in data], self._evaluated())
        tensors = [Tensor(array) for array in outputs]
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def export(self, types: Sequence[TensorType], metadata: Mapping[str, str] | None = None) -> bytes:
        """The network in inference mode as an ONNX file with constant weights, for any batch size if it allows that."""
        with inference(self.network, self.precision):
            return compiler.export_onnx(self.network.compute, types, "network", metadata=metadata)
