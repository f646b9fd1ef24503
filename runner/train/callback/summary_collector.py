"""`SummaryCollector`: what a training does, in event files for TensorBoard."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from runner.core.values import Tensor
from runner.errors import ConfigError, known_names
from runner.host.console import note_once
from runner.host.json import fits
from runner.nn.optim.optimizer import Optimizer
from runner.train.callback.base import Callback, CallbackParameters, RunContext
from runner.train.callback.state import require_state
from runner.train.summary import SummaryRecord, check_export_options
from runner.validation.arguments import flag, whole

WHERE = {"callback": "SummaryCollector"}
REGULAR = "histogram_regular"
DEFAULTS: dict[str, Any] = {
    "collect_metric": True,
    "collect_graph": True,
    "collect_train_lineage": True,
    "collect_eval_lineage": True,
    "collect_input_data": True,
    "collect_dataset_graph": True,
    REGULAR: None,
}
HISTOGRAMS = 5  # parameters without a regular expression
TENSORS = 20  # records of `TensorSummary` in a training without `collect_tensor_freq`


class SummaryCollector(Callback):
    """Writes loss, learning rate, input images, histograms of parameters, and the values of summary operators into an
    event file in `summary_dir` (`runner.train.summary.SummaryRecord`).

    It records the first step and every `collect_freq` steps; with data sinking, the first epoch and every
    `collect_freq` epochs, with the values of the last step. Values of `ops.TensorSummary` are recorded every
    `collect_tensor_freq` steps or epochs (None: as often as others, but at most about 20 times).

    `collect_specified_data` changes what is collected, by name; with `keep_default_action=False`, only what it names is
    collected. `collect_metric`: the loss (`loss/auto`) and the learning rate (`learning_rate/auto`);
    `collect_input_data`: the first column as images (`input_data/auto`), without data sinking; `histogram_regular`: the
    parameters of the optimizer whose names match from the start (`{name}/auto`; None: the first five);
    `collect_train_lineage` and `collect_eval_lineage`: what was trained, and its metrics, as texts. `collect_graph` and
    `collect_dataset_graph` have no effect. `custom_lineage_data`, texts and numbers by name, becomes a text.
    `max_file_size` and `export_options` are those of `SummaryRecord`.

    A training that continues begins a file that makes viewers drop the steps after its checkpoint. Raises ConfigError
    for invalid arguments, for a second collector in a list of callbacks, and without tensorboardX.
    """

    def __init__(
        self,
        summary_dir: str | Path,
        collect_freq: int = 10,
        collect_specified_data: Mapping[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: Mapping[str, str | int | float] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: Mapping[str, str | None] | None = None,
    ) -> None:
        if not isinstance(summary_dir, str | Path) or not str(summary_dir):
            raise ConfigError("summary_dir must be the name of a directory", **WHERE, given=repr(summary_dir))
        numbers = {"collect_freq": collect_freq, "collect_tensor_freq": collect_tensor_freq}
        whole(
            WHERE, 1, **{name: value for name, value in numbers.items() if value is not None or name == "collect_freq"}
        )
        if max_file_size is not None:
            whole(WHERE, 1, max_file_size=max_file_size)
        flag(WHERE, keep_default_action=keep_default_action)
        self._folder, self._freq, self._tensor_freq = Path(summary_dir).absolute(), collect_freq, collect_tensor_freq
        self._chosen = _chosen(collect_specified_data, keep_default_action)
        self._custom = _lineage(custom_lineage_data)
        self._limit, self._exports = max_file_size, check_export_options(export_options)
        self._record: SummaryRecord | None = None
        self._first = True

    def __enter__(self) -> Self:
        self._record = SummaryRecord(self._folder, max_file_size=self._limit, export_options=self._exports)
        self._first = True
        return self

    def __exit__(self, *error: object) -> None:
        self.record.close()

    @property
    def record(self) -> SummaryRecord:
        """The record of the present training or evaluation."""
        assert self._record is not None
        return self._record

    def begin(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if sum(isinstance(callback, SummaryCollector) for callback in cb_params.list_callback) > 1:
            raise ConfigError("a training has more than one SummaryCollector", allowed="one in the list of callbacks")
        self.record.set_mode(cb_params.mode)
        if cb_params.cur_step_num:
            self.record.restart(cb_params.cur_step_num + 1)

    def step_end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        if cb_params.mode != "train":
            return
        if self._first and self._custom:
            self.record.add_value("custom_lineage_data", "custom_lineage_data", self._custom)
        sunk = cb_params.dataset_sink_mode
        number = cb_params.cur_epoch_num if sunk else cb_params.cur_step_num
        total = cb_params.epoch_num if sunk else cb_params.epoch_num * cb_params.batch_num
        due = self._first or number % self._freq == 0
        tensors_due = self._first or number in _tensor_numbers(total, self._freq, self._tensor_freq)
        if due:
            self._collect(cb_params)
        if due or tensors_due:
            self.record.record(cb_params.cur_step_num, plugin_filter=_filter(due, tensors_due))
        self._first = False

    def epoch_end(self, run_context: RunContext) -> None:
        self.record.flush()

    def end(self, run_context: RunContext) -> None:
        cb_params = run_context.original_args()
        self.record.set_mode("eval")  # the last values of operators belong to a step that was not due
        if cb_params.mode == "train" and self._chosen.get("collect_train_lineage"):
            self.record.add_value("train_lineage", "train_lineage", _train_lineage(cb_params))
        if cb_params.mode == "eval" and self._chosen.get("collect_eval_lineage"):
            values = {"metrics": cb_params.metrics, "eval_dataset_size": cb_params.batch_num}
            self.record.add_value("eval_lineage", "eval_lineage", values)
        self.record.record(cb_params.cur_step_num)

    def state_dict(self) -> dict[str, Any]:
        """Whether the first step is in a file already, and whether there are input data; values have files."""
        return {"first": self._first, "collect_input_data": bool(self._chosen.get("collect_input_data"))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_state(self, fits(dict(state), {"first": bool, "collect_input_data": bool}), state)
        self._first, self._chosen["collect_input_data"] = state["first"], state["collect_input_data"]

    def _collect(self, cb_params: CallbackParameters) -> None:
        """Add the values of this step."""
        if self._chosen.get("collect_input_data") and not cb_params.dataset_sink_mode:
            self._collect_images(cb_params)
        if self._chosen.get("collect_metric"):
            self.record.add_value("scalar", "loss/auto", _mean(cb_params.net_outputs))
            if (rate := _learning_rate(cb_params)) is not None:
                self.record.add_value("scalar", "learning_rate/auto", Tensor(rate))
        if REGULAR in self._chosen:
            for parameter in _selected(cb_params, self._chosen[REGULAR]):
                # A number has no axes; its distribution is that of one element.
                self.record.add_value("histogram", f"{parameter.name}/auto", Tensor(np.ravel(parameter.asnumpy())))

    def _collect_images(self, cb_params: CallbackParameters) -> None:
        try:
            self.record.add_value("image", "input_data/auto", cb_params.train_dataset_element[0])
        except ConfigError:
            note_once("SummaryCollector records no input data: the first column of the dataset is no batch of images")
            self._chosen["collect_input_data"] = False


def _chosen(specified: Mapping[str, Any] | None, keeps_defaults: bool) -> dict[str, Any]:
    """What to collect. Raises ConfigError for unknown names and invalid values."""
    if specified is not None and not isinstance(specified, Mapping):
        raise ConfigError("collect_specified_data must be a dict", **WHERE, given=repr(specified))
    specified = dict(specified or {})
    for name, value in specified.items():
        if name not in DEFAULTS:
            raise ConfigError("no such data", **WHERE, given=repr(name), **known_names(name, DEFAULTS))
        if name != REGULAR:
            flag(WHERE, **{name: value})
        elif value is not None:
            _check_expression(value)
    for name in ("collect_graph", "collect_dataset_graph"):
        if specified.get(name):
            note_once(f"SummaryCollector: {name} has no effect; context.set_context(save_graphs=True) writes graphs")
    return DEFAULTS | specified if keeps_defaults else specified


def _check_expression(value: object) -> None:
    try:
        re.compile(value)  # type: ignore[call-overload]
    except (re.error, TypeError) as reason:
        rows = {"given": repr(value), "reason": reason}
        raise ConfigError(f"{REGULAR} must be a regular expression", **WHERE, **rows) from None


def _lineage(values: Mapping[str, str | int | float] | None) -> dict[str, str | int | float]:
    if values is not None and not isinstance(values, Mapping):
        raise ConfigError("custom_lineage_data must be a dict", **WHERE, given=repr(values))
    for name, value in (values or {}).items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            rows = {"name": repr(name), "given": repr(value), "allowed": "texts and numbers by name"}
            raise ConfigError("custom_lineage_data has a value of another type", **WHERE, **rows)
    return dict(values or {})


def _tensor_numbers(total: int, freq: int, tensor_freq: int | None) -> range:
    """The numbers of the steps (or epochs) whose tensors are recorded, of a training of `total`.

    >>> list(_tensor_numbers(30, 10, None)), len(_tensor_numbers(600, 10, None))
    ([0, 10, 20, 30], 20)
    """
    if tensor_freq is not None:
        return range(0, total + 1, tensor_freq)
    if len(range(0, total + 1, freq)) <= TENSORS:
        return range(0, total + 1, freq)
    return range(0, total + 1, max(1, total // (TENSORS - 1)))[:TENSORS]


def _filter(due: bool, tensors_due: bool) -> Any:
    return lambda plugin: tensors_due if plugin == "tensor" else due


def _mean(outputs: Any) -> Tensor:
    """The loss of a step, that of the first output if there are several."""
    loss = outputs[0] if isinstance(outputs, tuple | list) else outputs
    return Tensor(np.asarray(np.asarray(loss).mean(), np.float32))


def _optimizer(cb_params: CallbackParameters) -> Optimizer | None:
    """The optimizer of the model, or the first one in its network."""
    cells = (cell for _, cell in cb_params.train_network.cells_and_names())
    found: Optimizer | None = cb_params.optimizer
    return found or next((cell for cell in cells if isinstance(cell, Optimizer)), None)


def _learning_rate(cb_params: CallbackParameters) -> np.ndarray | None:
    parameter = getattr(_optimizer(cb_params), "learning_rate", None)
    value = parameter.asnumpy() if isinstance(parameter, Tensor) else None
    return value if value is not None and value.size == 1 else None


def _selected(cb_params: CallbackParameters, regular: str | None) -> list[Any]:
    """The parameters whose histograms are collected: those of the optimizer, or all that are trained."""
    owned = getattr(_optimizer(cb_params), "parameters", None)
    parameters = cb_params.train_network.trainable_params() if owned is None else owned
    if regular is None:
        return list(parameters[:HISTOGRAMS])
    return [parameter for parameter in parameters if re.match(regular, parameter.name)]


def _train_lineage(cb_params: CallbackParameters) -> dict[str, Any]:
    rate = _learning_rate(cb_params)
    named = {"train_network": cb_params.network, "loss_function": cb_params.loss_fn, "optimizer": _optimizer(cb_params)}
    return {
        **{name: None if value is None else type(value).__name__ for name, value in named.items()},
        "learning_rate": None if rate is None else float(rate.item()),
        "loss": None if cb_params.net_outputs is None else float(_mean(cb_params.net_outputs).asnumpy()),
        "epoch": cb_params.epoch_num,
        "step_num": cb_params.cur_step_num,
        "batch_num": cb_params.batch_num,
    }
