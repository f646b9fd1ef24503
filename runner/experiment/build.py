"""Builds the network, data, optimizer and model of a checked config: `build` returns an `Experiment`.

In order: the network with its implementations, head and frozen parameters; `inputs.json`, what a prediction needs to
know of the training data; the experiment; and the reader of `inputs.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner import compile as compiler, context, dtype as dt, nn, rundir
from runner.communication import settings as auto_parallel
from runner.communication.world import world
from runner.config.groups.entries import METRICS, DatasetSettings, NetworkSettings
from runner.config.groups.services import DataParallel, SessionSettings
from runner.config.schema import RunConfig
from runner.core.graph import NO_GRAPHS, NO_VALUES, GraphObserver, ValueObserver
from runner.core.values import Parameter
from runner.dataset.batches import facts_of, in_batches, is_batched
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers.preprocessing import READERS, stored_preprocessing
from runner.dataset.readers.split import SPLITS
from runner.device import Device, idle_card
from runner.errors import ConfigError, DataError, DeviceError, collect_errors, known_names, raise_all
from runner.host import json
from runner.host.console import LOG, as_unicode
from runner.host.json import StoredValues
from runner.host.machine import require_memory
from runner.nn.cell import Cell
from runner.nn.convolution import set_impl_mode
from runner.nn.metrics.base import AnyMetric
from runner.nn.wrap import StepCell
from runner.observe import dump
from runner.train.amp import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from runner.train.model import Model, check_columns, described, naming_columns
from runner.types import TensorType
from runner.validation.rules import Frozen

# The network of a checked config: implementations of its operators, a new head, frozen parameters.

FREEZE, HEAD = {"key": "network.freeze"}, {"key": "network.head"}


class ParameterRoles(Frozen):
    """The parameters of a new head, and those that are frozen and would be trained otherwise."""

    head: tuple[Parameter, ...] = ()
    frozen: tuple[Parameter, ...] = ()


NO_ROLES = ParameterRoles()


def create_network(config: RunConfig, facts: Mapping[str, Any], loss: Cell) -> nn.Cell:
    """The network for data with these facts, as it is registered, with this loss. Raises ConfigError."""
    network = config.network.create(nn.Cell, **facts)
    network.attach_loss(loss)
    _select_implementations(network, config.session, config.device.target)
    return network


def adapt_network(
    network: nn.Cell, settings: NetworkSettings, facts: Mapping[str, Any], types: Sequence[TensorType]
) -> ParameterRoles:
    """Suit the data, replace the head and freeze parameters as the keys say; `types` are those of a batch's inputs.

    Raises ConfigError, or ConfigErrors for several keys.
    """
    network.attach_data(types)
    head: tuple[Parameter, ...] | None = ()
    errors: list[ConfigError] = []
    if settings.head == "replace":
        head, errors = collect_errors(lambda: nn.replace_head(network, types, _outputs(settings, facts), HEAD))
    frozen, of_freeze = collect_errors(lambda: nn.freeze(network, settings.freeze, head or (), FREEZE))
    raise_all([*errors, *of_freeze])
    return ParameterRoles(head=head or (), frozen=tuple(frozen or ()))


def _outputs(settings: NetworkSettings, facts: Mapping[str, Any]) -> int:
    """The number of classes: the key of the network, or of the dataset, or the default of the network's parameter."""
    parameter = settings.entry.parameters.get("num_classes")
    default = None if parameter is None else parameter.default
    for given in (getattr(settings, "num_classes", None), facts.get("num_classes"), default):
        if isinstance(given, int):
            return given
    rows = {"value": "replace", "network": settings.entry.place}
    hint = "network.num_classes=..." if parameter is not None else "a dataset with classes, or a parameter num_classes"
    raise ConfigError("the dataset does not determine num_classes", **HEAD, **rows, hint=hint)


def _select_implementations(network: nn.Cell, session: SessionSettings, target: str) -> None:
    reported = target != "Ascend"  # CANN reads both keys, for its own list of operators
    if session.optypelist_for_implmode is None:
        if reported and session.op_select_implmode != SessionSettings.op_select_implmode:
            LOG.warning("session.op_select_implmode has no effect without session.optypelist_for_implmode=Pooling")
    elif not set_impl_mode(network, session.op_select_implmode) and reported:
        LOG.warning("session.optypelist_for_implmode has no effect: the network has no layer AvgPool2d")


# `inputs.json` of a run directory: what a prediction needs to know of the training data.

SHAPE, NAMES = "input_shape", "class_names"


class ModelInputs(Frozen):
    """The facts that networks are built from, the types of the inputs, names, and the preprocessing of new files.

    `inputs` are the types of single samples by column name. `preprocessing` is None for data of a function that has
    none; with `is_foreign` it is the user's own, which only the dataset itself has.
    """

    facts: Mapping[str, Any]
    inputs: Mapping[str, TensorType]
    target: str
    class_names: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    is_foreign: bool = False

    @classmethod
    def of(cls, data: Dataset) -> ModelInputs:
        """Of the training data, batched or not, with the target as the last column."""
        *names, target = data.get_col_names()
        columns = [column.sample for column in data.columns[:-1]]
        inputs = dict(zip(names, columns, strict=True))
        return cls(facts_of(data), inputs, target, data.class_names, data.preprocessing)

    def as_json(self) -> dict[str, Any]:
        """Values of plain JSON."""
        inputs = [
            {"name": name, "dtype": kind.dtype.numpy.name, "shape": list(kind.shape)}
            for name, kind in self.inputs.items()
        ]
        return {
            "facts": {
                name: list(value) if name == SHAPE else value
                for name, value in self.facts.items()
                if name != NAMES  # stored below
            },
            "inputs": inputs,
            "target": self.target,
            NAMES: None if self.class_names is None else [as_unicode(str(name)) for name in self.class_names],
            "preprocessing": None if self.preprocessing is None else self.preprocessing.as_json(),
        }


# The experiment.

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
# Gradients from 6e-11 to 64 fit Float16 then, and it grows by itself; MindSpore's 2**24 costs LeNet nine steps.
FIRST_LOSS_SCALE = 2.0**10


@dataclass
class Experiment:
    """The model and data built from a config."""

    model: Model
    train_data: Dataset
    test_data: Dataset
    total_steps: int
    tuning: dict[str, Any] | None = None  # what `session.auto_tune_mode` found
    training_rows: Dataset | None = None  # the whole training split in order, if this is what is evaluated
    roles: ParameterRoles = NO_ROLES

    @property
    def eval_data(self) -> Dataset:
        """The batches of the split that is evaluated (`eval.split`)."""
        return self.test_data if self.training_rows is None else self.training_rows


def build(
    config: RunConfig,
    observer: GraphObserver = NO_GRAPHS,
    values: ValueObserver = NO_VALUES,
    failure: dump.FirstFailure | None = None,
) -> Experiment:
    """Network, data, optimizer and model with its observers.

    Raises ConfigError, DataError and DeviceError.
    """
    device = _checked_device(config)
    train_samples, test_samples = (samples_of(config.dataset, split) for split in SPLITS)
    facts = _facts(config.dataset, train_samples, test_samples)
    loss = config.loss.create(Cell, **facts)
    one_hot = _one_hot(config, loss, facts)
    train_data = _rank_part(config, _batches(config, train_samples, True, one_hot))
    test_data = _batches(config, test_samples, False, one_hot)
    training_rows = _batches(config, train_samples, False, one_hot) if config.eval.split == "train" else None
    network, roles = _network(config, facts, train_data, loss)
    is_sum = getattr(loss, "reduction", "mean") == "sum"
    total = _total_steps(config, train_data)
    rate = config.optimizer.schedule.learning_rate(getattr(config.optimizer, "learning_rate", 0.0), total)
    mode, eval_mode = MODES[config.mode], MODES[config.eval.mode or config.mode]
    model = Model(
        network,
        loss,
        config.optimizer.with_rate(network.trainable_params(), rate),
        _metrics(config, {**facts, "summed": is_sum}),
        mode=mode,
        eval_mode=eval_mode,
        device=device,
        observer=observer,
        values=values,
        failure=failure,
        precision_mode=config.session.precision_mode,
        loss_scale_manager=_loss_scale(config),
    )
    _declare_rows(model, train_data.is_even, is_sum)
    return Experiment(model, train_data, test_data, total, training_rows=training_rows, roles=roles)


def _declare_rows(model: Model, is_even: bool, is_sum: bool) -> None:
    """What ranks know of each other's rows: whether there are equally many, and else whether rows are weights."""
    world().is_even = is_even
    if isinstance(model.train_network, StepCell):
        model.train_network.weighs_ranks = not (is_even or is_sum)


def inference_model(config: RunConfig, inputs: ModelInputs) -> Model:
    """Network and loss for data with these inputs, without an optimizer. Raises ConfigError and DeviceError."""
    loss = config.loss.create(Cell, **inputs.facts)
    network = create_network(config, inputs.facts, loss)
    batch = [kind.with_shape(config.dataset.batch_size, *kind.shape) for kind in inputs.inputs.values()]
    adapt_network(network, config.network, inputs.facts, batch)
    return Model(
        network,
        loss,
        mode=MODES[config.mode],
        device=_checked_device(config),
        observer=NO_GRAPHS,
        values=NO_VALUES,
        precision_mode=config.session.precision_mode,
    )


def _network(config: RunConfig, facts: Mapping[str, Any], data: Dataset, loss: Cell) -> tuple[Cell, ParameterRoles]:
    network = create_network(config, facts, loss)
    if config.network.head == "replace":
        check_columns(network, data, loss)  # the network is traced
    with naming_columns(data):
        return network, adapt_network(network, config.network, facts, data.column_types()[:-1])


def _loss_scale(config: RunConfig) -> LossScaleManager | None:
    """How the loss is scaled; by default none when the optimizer has its own scale."""
    scale = config.session.loss_scale
    if scale is None and config.session.precision_mode == "allow_mix_precision":
        scale = "dynamic" if getattr(config.optimizer, "loss_scale", 1.0) == 1.0 else None
    if scale == "dynamic":
        return DynamicLossScaleManager(FIRST_LOSS_SCALE)
    return FixedLossScaleManager(scale) if isinstance(scale, float) else None


def device_of(config: RunConfig) -> Device:
    """The device that a run requests."""
    session = config.session
    modes = {name: getattr(session, name) for name in ("winograd", "op_select_implmode", "optypelist_for_implmode")}
    return Device(**asdict(config.device), **modes, in_parts=config.exact)


def samples_of(settings: DatasetSettings, split: str) -> Dataset:
    """The samples of a split with the columns that the config selects, the target last. Raises ConfigError."""
    data = settings.create(Dataset, split=split)
    names = data.get_col_names()
    if not settings.selects_columns or (settings.inputs is None and settings.target is None):
        return data
    target = names[-1] if settings.target is None else settings.target
    inputs = settings.inputs or tuple(name for name in names if name != target)
    for key, chosen in (("inputs", inputs), ("target", (target,))):
        for name in chosen:
            if name not in names:
                rows = {"value": name, **known_names(name, names), "where": settings.entry.place}
                raise ConfigError("the dataset has no such column", key=f"dataset.{key}", **rows)
    if target in inputs:
        raise ConfigError("the target cannot be an input", key="dataset.inputs", value=target)
    return data.project([*inputs, target])


def _facts(settings: DatasetSettings, *splits: Dataset) -> dict[str, Any]:
    """The facts of the first split. Raises ConfigError for batches, and for splits whose columns or classes differ."""
    where = {"dataset": settings.name, "where": settings.entry.place}
    expected = described(splits[0])
    found = []
    for name, data in zip(SPLITS, splits, strict=True):
        if is_batched(data):
            repair = "samples without .batch(...): dataset.batch_size is the size of the batches"
            raise ConfigError("a dataset returns single samples", split=name, **where, repair=repair)
        if described(data) != expected:
            raise ConfigError("the splits have different columns", train=expected, test=described(data), **where)
        try:
            found.append(facts_of(data))
        except ConfigError as error:  # classes without a name
            raise error.add(split=name, **where) from None
    return found[0]


def _batches(config: RunConfig, samples: Dataset, train: bool, one_hot: int | None) -> Dataset:
    settings = config.dataset
    data = in_batches(
        samples,
        settings.batch_size,
        drop_remainder=settings.drop_remainder and train,  # every test sample counts
        buffer_size=settings.buffer_size if settings.shuffle and train else None,
        num_parallel_workers=settings.num_parallel_workers,
        one_hot=one_hot,
    )
    first, *_ = data.column_types()
    require_memory(first.nbytes, key="dataset.batch_size", value=settings.batch_size, batch=str(first))
    return data


def _one_hot(config: RunConfig, loss: Cell, facts: Mapping[str, Any]) -> int | None:
    """The number of classes of one-hot targets, for a loss that needs them; None for others."""
    if getattr(loss, "sparse", True):
        return None
    return getattr(config.network, "num_classes", None) or facts.get("num_classes")


def _metrics(config: RunConfig, facts: Mapping[str, Any]) -> dict[str, AnyMetric]:
    """The metrics of the evaluation with their keys."""
    return {name: config.metrics.get(name, METRICS[name]()).metric(**facts) for name in config.eval.metrics}


def _rank_part(config: RunConfig, train_data: Dataset) -> Dataset:
    """The data with this rank's part of every batch in data-parallel training."""
    if not isinstance(config.parallel, DataParallel) or not config.session.graph_run_mode:
        return train_data  # only the first rank evaluates
    if not auto_parallel.is_data_parallel():
        hint = "mpirun -n N runner ... for each job"
        raise ConfigError("jobs of a sweep are single processes", key="parallel", value="data_parallel", hint=hint)
    try:
        return train_data.divided(world().size, world().rank)
    except ConfigError as error:
        raise error.add(key="dataset.batch_size") from None


def _total_steps(config: RunConfig, train_data: Dataset) -> int:
    sunk = config.dataset_sink_mode and config.sink_size > 0
    total = config.epochs * (config.sink_size if sunk else train_data.get_dataset_size())
    return min(total, config.max_steps or total)


def _checked_device(config: RunConfig) -> Device:
    device = device_of(config)
    for note in device.notes:
        LOG.warning("%s", note)
    if config.mode == "pynative":
        _check_pynative_device(device)
    return device


def _check_pynative_device(device: Device) -> None:
    """PyNative mode computes in numpy: a requested card would stay idle without a message."""
    if device.target == "CPU":
        return
    error = idle_card(device, "mode=graph, or device=cpu")
    if device.allow_fallback:
        LOG.warning("%s", error.what)
        return
    trouble = compiler.device_problem(device.target, device.id)
    raise trouble.add(also=error.what) if isinstance(trouble, DeviceError) else error


# Reads `inputs.json` of a run directory, which may be damaged or edited; only predictions do.

MAX_BYTES = 64 << 20
LARGEST_FACT = 1 << 31
TYPES = {kind.numpy.name: kind for kind in (dt.float32, dt.float16, dt.float64, dt.int32, dt.int64, dt.uint8)}


def read_inputs(folder: Path) -> ModelInputs | None:
    """Those of a run directory; None for runs of versions without them. Raises DataError for a damaged file."""
    path = folder / rundir.INPUTS
    if not path.exists():
        return None
    try:
        return _from_json(json.read_object(path, MAX_BYTES))
    except DataError as error:
        raise error.add(file=path) from None


def _from_json(values: Mapping[str, Any]) -> ModelInputs:
    stored = StoredValues(values)
    reader = values.get("preprocessing")
    stored.require(reader is None or isinstance(reader, dict), "preprocessing", "an object, or null")
    is_foreign = reader is not None and reader.get("reader") not in (*READERS,)  # any value, also one without a hash
    names = stored.optional_names(NAMES)
    return ModelInputs(
        facts=_stored_facts(stored) | ({} if names is None else {NAMES: names}),
        inputs={one.text("name"): _type(one) for one in stored.groups("inputs")},
        target=stored.text("target"),
        class_names=names,
        preprocessing=None if reader is None or is_foreign else stored_preprocessing(reader),
        is_foreign=is_foreign,
    )


def _stored_facts(stored: StoredValues) -> dict[str, Any]:
    values = stored.values.get("facts")
    stored.require(isinstance(values, dict), "facts", "an object")
    facts = StoredValues(dict(values or {}))
    return {name: facts.shape(SHAPE) if name == SHAPE else facts.whole(name, 1, LARGEST_FACT) for name in facts.values}


def _type(stored: StoredValues) -> TensorType:
    stored.require(stored.values.get("dtype") in [*TYPES], "dtype", ", ".join(TYPES))
    return TensorType(TYPES[stored.text("dtype")], stored.shape("shape"))
