"""`runner export RUN_DIR --to DIR`: what a run has trained, for other programs, in one of several formats (`FORMATS`).

In order: the README of an exported directory; the run, built again from its newest checkpoint; the comparison of the
exported step with that of the run; `signature.json`; the options; the format `onnx`, a directory; the format `mindir`,
a file that MindSpore 2 loads; the command.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner import __version__, compile as compiler, nn, rundir
from runner.config import code
from runner.config.check import check
from runner.config.schema import RunConfig
from runner.core.precision import use_precision
from runner.core.values import Parameter
from runner.device import Device
from runner.errors import BusyError, ConfigError, DataError, MismatchError, StorageError, known_names
from runner.experiment.build import Experiment, build
from runner.experiment.evaluate import config_of, newest_checkpoint, without_training_settings
from runner.experiment.manifest import naming_code_of
from runner.experiment.results import metadata_of
from runner.experiment.run import initial_weights_of, run_environment
from runner.host import files, json as stored
from runner.host.console import LOG
from runner.host.files import make_directory, write_atomically
from runner.host.json import read_optional
from runner.host.process import stopped_by_signals
from runner.nn.optim.optimizer import Optimizer
from runner.ops.random import random_counter
from runner.train import onnx_export
from runner.train.checkpoint import load_param_into_net
from runner.train.checkpoint.state import encode, write_folder
from runner.train.model import inference
from runner.train.onnx_export import ACCURACY, LOSS, LOSSES, ExportedStep, export_network, export_step, export_steps
from runner.validation.rules import Frozen

# The README.md of an exported directory: what is in it, and how to train with it in three languages.

PURPOSES = {
    "train_step": "one training step: the new values of parameters and state are outputs",
    "train_steps": "{steps} training steps in one call, each with its own batch",
    "network": "the network with the weights after the last step of the run",
    "network_int8": "the same in integers of 8 bits, which is smaller and less exact",
    "inference": "the network with weights as inputs, for those that were just trained",
}
TEXT = """\
# A training step as an ONNX model

Written by runner {runner} ([signature.json](signature.json) has all names, types and shapes). The models have standard
ONNX operators only and run in every onnxruntime; nothing else is needed, not even Python.

| file | content |
|---|---|
{files}
| `{state}` | parameters and state after the last step of the run |
| `{initial}` | the same before its first step, to train from scratch |

## How a step is called

| role of an input | value |
|---|---|
| `data`, `target` | a batch, preprocessed as `preprocessing` in signature.json says; its first axis: {batch} |
| `learning_rate` | a number, {learning_rate:g} at the first step of the run ({schedule}) |
| `step` | the number of the step, from 0, from which random operators draw; only in some networks |
| `parameter`, `state` | at first from a state file (`entries` has the names in it), then from the step before |

An output whose `feeds` is a name is the value of that input in the next step. The output `{loss}` is the loss.

## Python

```python
import json
import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file, save_file

signature = json.load(open("signature.json"))
step, begin = signature["models"]["train_step"], signature["initial"]
session = ort.InferenceSession(step["file"])
stored = load_file(begin["file"])
state = {{name: stored[entry] for name, entry in begin["entries"].items()}}
inputs = {{value["role"]: value for value in step["inputs"]}}
known = {{value["name"] for value in step["inputs"]}}

def train(batch, number):  # batch: an array for each input of role data or target, by name
    feeds = {{name: value for name, value in state.items() if name in known}} | batch
    if "learning_rate" in inputs:
        feeds[inputs["learning_rate"]["name"]] = np.float32(signature["learning_rate"])
    if "step" in inputs:
        feeds[inputs["step"]["name"]] = np.int64(number)
    feeds = {{name: np.asarray(value) for name, value in feeds.items()}}
    for output, value in zip(step["outputs"], results := session.run(None, feeds)):
        if output["feeds"]:
            state[output["feeds"]] = value
    return results[0]  # the loss

save_file({{begin["entries"][name]: value for name, value in state.items()}}, "weights.safetensors")
```

## Node and browser

The same code with `onnxruntime-node`, or `onnxruntime-web` in a page (`ort` is the module, `state` maps names to
`ort.Tensor`, read from a state file):

```js
const signature = await (await fetch("signature.json")).json(); // in Node: JSON.parse(readFileSync("signature.json"))
const step = signature.models.train_step;
const session = await ort.InferenceSession.create(step.file);

async function train(batch, number) {{
  const feeds = {{ ...batch }};
  for (const {{ name, role }} of step.inputs) {{
    if (name in state) feeds[name] = state[name];
    if (role === "learning_rate") feeds[name] = new ort.Tensor("float32", Float32Array.of(signature.learning_rate), []);
    if (role === "step") feeds[name] = new ort.Tensor("int64", BigInt64Array.of(BigInt(number)), []);
  }}
  const results = await session.run(feeds);
  for (const {{ name, feeds: next }} of step.outputs) if (next) state[next] = results[name];
  return results.{loss}.data[0];
}}
```

## Back to runner

`weights.safetensors` with the parameters, or with parameters and state, is evaluated by the run that was exported, and
another training can begin with it:

```sh
runner eval RUN_DIR checkpoint.load=weights.safetensors
runner +experiment=NAME checkpoint.load=weights.safetensors
```
"""


def text(signature: Mapping[str, Any]) -> str:
    """The text of README.md for the values of `signature.json`."""
    batch = signature["batch"]
    return TEXT.format(
        files="\n".join(_files(signature["models"])),
        runner=signature["runner"],
        state=signature["state"]["file"],
        initial=signature["initial"]["file"],
        batch="any length" if batch == "any" else f"{batch}, no other length",
        learning_rate=signature["learning_rate"],
        schedule=signature["schedule"],
        loss=next(y["name"] for y in signature["models"]["train_step"]["outputs"] if y["role"] == "loss"),
    )


def _files(models: Mapping[str, Any]) -> Iterator[str]:
    for name, model in models.items():
        yield f"| `{model['file']}` | {PURPOSES[name].format(steps=model.get('steps'))} |"


# A finished run, built again with the parameters of its newest checkpoint, for the writers of `runner export`.

CPU = {"target": "CPU", "id": 0}


class TrainedRun(Frozen):
    """The experiment of a run as one process on the CPU, with the parameters of its newest checkpoint.

    `initial` and `state` have all parameters of the training step by name, before the first step of the run and after
    `step` steps.
    """

    folder: Path
    config: RunConfig
    experiment: Experiment
    initial: dict[str, np.ndarray]
    state: dict[str, np.ndarray]
    step: int

    def first_batch(self) -> tuple[np.ndarray, ...]:
        """The first batch of the training data."""
        data = self.experiment.train_data
        batches = data.prepared(data.visits_from(0))
        try:
            return next(batches)
        finally:
            batches.close()


@contextmanager
def opened(folder: Path, given_code: Sequence[str] = ()) -> Iterator[TrainedRun]:
    """The run in `folder`, which is only read; inside, seed and context are those of the run.

    Raises ConfigError when there is no run, or its code and its weights do not fit, DataError for its checkpoints and
    for data.
    """
    code.load(code.sources(given_code))
    manifest = read_optional(folder / rundir.MANIFEST)
    with naming_code_of(folder, manifest, "export"):
        values = config_of(folder)
        newest = newest_checkpoint(folder, values.get("checkpoint"))
        config = check(_of_one_process(values))
    with run_environment(config):
        experiment = build(config)
        if config.checkpoint.load is not None:
            initial_weights_of(config.checkpoint, experiment).load(experiment.model.network)
        cell = experiment.model.train_network
        _sum_gradients(cell, values, manifest)
        initial = arrays_of(cell)
        try:
            load_param_into_net(cell, {name: Parameter(x, name) for name, x in newest.arrays.items()}, True)
        except ConfigError as error:
            raise error.add(checkpoint=newest.folder) from None
        step = int(newest.progress.get("global_step", 0))
        yield TrainedRun(folder, config, experiment, initial, arrays_of(cell), step)


def arrays_of(cell: nn.Cell) -> dict[str, np.ndarray]:
    """Copies of the values of all parameters of a cell, by name."""
    return {parameter.name: np.array(parameter.array) for parameter in cell.get_parameters()}


def set_arrays(cell: nn.Cell, arrays: dict[str, np.ndarray]) -> None:
    """Set parameters of a cell by name."""
    for parameter in cell.get_parameters():
        if parameter.name in arrays:
            parameter.set_data(np.array(arrays[parameter.name]))


def _of_one_process(values: dict[str, Any]) -> dict[str, Any]:
    """The config of a run as a training on the CPU, without what a training writes or requires."""
    kept = without_training_settings(values)
    device = kept.get("device")
    kept["device"] = {**(device if isinstance(device, dict) else {}), **CPU}
    return kept | {"max_steps": values.get("max_steps")}


def _sum_gradients(cell: nn.Cell, values: dict[str, Any], manifest: dict[str, Any]) -> None:
    """The step of a run whose processes sum their gradients: that of one process, times their number."""
    parallel, ranks = values.get("parallel"), manifest.get("ranks", 1)
    if not isinstance(parallel, dict) or parallel.get("name") != "data_parallel" or ranks == 1:
        return
    LOG.warning("the run had %s processes; the exported step is that of one process with the whole batch", ranks)
    if parallel.get("gradients_mean"):
        return
    if not isinstance(cell, nn.TrainOneStepCell) or not isinstance(ranks, int):
        repair = "train with parallel.gradients_mean=true"
        raise ConfigError("the step of processes that sum scaled gradients cannot be exported", repair=repair)
    cell.sens *= ranks


# An exported step is executed once in onnxruntime and compared with the step of the run, before anything is written.
#
# What is compared is the change of each parameter, as a whole: an activation near a kink may be on its other side after
# another rounding, which changes single elements. How far two correct steps may differ depends on the step as well:
# Adam divides a gradient that is nothing but rounding errors by itself. So the step of the run is also executed with
# parameters that differ by rounding errors, and the distance between its results is what these explain.

RELATIVE, RELATIVE_OF_HALVES = 2e-2, 5e-2  # of the change of a parameter, or of an output of the network
EXPLAINED = 10.0  # times the distance between two steps of the run
ROUNDING, ROUNDING_OF_HALVES = 5e-7, 1e-3  # relative changes of the parameters, and of a value that is stored
SAMPLES = 2
LEAST_RATE = 1e-3  # a schedule may have the rate 0, with which no step changes parameters
STEPS = 2  # of a model that makes several

Arrays = dict[str, np.ndarray]


class Verification:
    """Results of the step of a run, with its first batch and the parameters of its last checkpoint."""

    def __init__(self, run: TrainedRun, step: ExportedStep) -> None:
        self.run, self.step, self.batch = run, step, run.first_batch()
        self.halves = run.experiment.model.precision is not None
        self.start = {**run.state, **_rates(run)}
        before = {result: self.start[name] for name, result in step.carried.items()}
        rounding = ROUNDING_OF_HALVES if self.halves else ROUNDING
        changed = [_changed(self.start, rounding, seed) for seed in range(SAMPLES)]
        self.expected, *moved = self._original([self.start, *changed])
        self.allowed = {name: self._allowed(y, before.get(name)) for name, y in self.expected.items()}
        for name, limit in self.allowed.items():
            explained = max(_distance(other[name], self.expected[name]) for other in moved)
            self.allowed[name] = limit + EXPLAINED * explained

    def check_step(self, model: Any) -> None:
        """Compare one step. Raises MismatchError."""
        found = self._session(model).run(self._feeds(self.start, self.batch))
        self._compare(found, "train_step.onnx", self.expected)

    def check_steps(self) -> None:
        """Compare a model of several steps with as many of one step. Raises MismatchError."""
        several = export_steps(self.step, STEPS)
        batches = tuple([np.stack([column] * STEPS) for column in self.batch])
        found = self._session(several).run(self._feeds(self.start, batches))
        one, results, state, losses = self._session(self.step.model), {}, dict(self.start), []
        for number in range(STEPS):
            results = one.run(self._feeds(state, self.batch, number))
            state |= {name: results[result] for name, result in self.step.carried.items()}
            losses.append(results[LOSS])
        self._compare({**found, LOSS: found[LOSSES][-1]}, "train_steps.onnx", {**results, LOSS: losses[-1]})

    def check_network(self, model: Any, inference: Any) -> None:
        """Compare the outputs of the network, with constant weights and with those fed. Raises MismatchError."""
        network = self.run.experiment.model
        set_arrays(network.train_network, self.run.state)
        data = dict(zip(self.step.columns, self.batch[:-1], strict=False))
        random_counter().begin_batch(0)
        returned = network.predict(*data.values())
        outputs = [y.array for y in (returned if isinstance(returned, tuple) else (returned,))]
        for name, proto in (("network.onnx", model), ("inference.onnx", inference)):
            session = self._session(proto)
            feeds = {x: data[x] if x in data else self.run.state[x] for x in session.inputs}
            found = dict(zip([f"output {k}" for k in range(len(outputs))], session.run(feeds).values(), strict=True))
            expected = dict(zip(found, outputs, strict=True))
            _compare(found, expected, {k: self._allowed(y, None) for k, y in expected.items()}, name)

    def distance_of(self, model: Any, reference: Any) -> float:
        """How far the outputs of two networks are from each other for the first batch, relative to their size.

        Raises MismatchError when outputs are not finite.
        """
        sessions = self._session(model), self._session(reference)
        data = dict(zip(self.step.columns, self.batch[:-1], strict=False))
        found, expected = ([*session.run({x: data[x] for x in session.inputs}).values()] for session in sessions)
        distance = max(_distance(x, y) / (_norm(y) or 1.0) for x, y in zip(found, expected, strict=True))
        if not np.isfinite(distance):
            raise MismatchError("outputs of the network in 8 bits are not finite", repair="leave --quantize out")
        return distance

    def _original(self, starts: list[Arrays]) -> list[Arrays]:
        """The results of the run's own step from these values of its parameters, by names of the exported outputs."""
        model, results = self.run.experiment.model, []
        model.network.set_train(True)
        for start in starts:
            set_arrays(model.train_network, start)
            random_counter().begin_training(model, 0)
            random_counter().begin_step(0)
            with use_precision(model.precision):
                loss = model.train_step(self.batch)[0]
            after = arrays_of(model.train_network)
            results.append({LOSS: loss} | {result: after[name] for name, result in self.step.carried.items()})
        set_arrays(model.train_network, self.run.state)
        return results

    def _feeds(self, state: Arrays, batch: tuple[np.ndarray, ...], number: int = 0) -> Arrays:
        feeds = dict(zip(self.step.columns, batch, strict=True))
        if self.step.counter:
            feeds[self.step.counter] = np.asarray(number, np.int64)
        return feeds | {p.name: state[p.name] for p in self.step.parameters}

    def _session(self, model: Any) -> Any:
        return compiler.Session(model.SerializeToString(), Device("CPU", threads=self.run.config.device.threads))

    def _allowed(self, expected: np.ndarray, before: np.ndarray | None) -> float:
        """The distance that is allowed for a value, which was `before` if it is that of a parameter."""
        relative = RELATIVE_OF_HALVES if self.halves else RELATIVE
        rounding = ROUNDING_OF_HALVES if self.halves else ROUNDING
        change = _norm(expected) if before is None else _distance(expected, before)
        return relative * change + rounding * _norm(expected)

    def _compare(self, found: Arrays, file: str, expected: Arrays) -> None:
        _compare(found, expected, self.allowed, file)


def _compare(found: Arrays, expected: Arrays, allowed: Mapping[str, float], file: str) -> None:
    for name, limit in allowed.items():
        distance = _distance(found[name], expected[name])
        if not distance <= limit:
            rows = {"value": name, "distance": f"{distance:.3g}", "allowed": f"{limit:.3g}"}
            hint = "nothing is written; please report this with the config of the run"
            what = "an exported model does not compute what the run computes"
            raise MismatchError(what, file=file, **rows, hint=hint)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64).ravel()))


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The Euclidean distance of the finite elements; infinite if others are not finite."""
    if found.shape != expected.shape or not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return np.inf
    finite = np.isfinite(expected)
    return _norm(found[finite].astype(np.float64) - expected[finite].astype(np.float64))


def _changed(arrays: Arrays, relative: float, seed: int) -> Arrays:
    """The arrays, with floats that differ by at most this part of themselves."""
    random = np.random.default_rng(seed)
    changed = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            factor = 1.0 + relative * random.uniform(-1.0, 1.0, array.shape)
            changed[name] = np.asarray(array * factor, array.dtype)
    return {**arrays, **changed}


def _rates(run: TrainedRun) -> Arrays:
    """The learning rates of the comparison: those of the first step, unless they are too small to change anything."""
    optimizer = run.experiment.model.optimizer
    if not isinstance(optimizer, Optimizer):
        return {}
    least = np.float32(LEAST_RATE)
    return {p.name: np.asarray(np.maximum(run.initial[p.name], least)) for p in optimizer.rates}


# `signature.json`: what a program that trains with an exported step has to know; `signature.schema.json` is its
# schema.

FORMAT = 1
FILE = "signature.json"
STATE, INITIAL = "state.safetensors", "initial.safetensors"
DATA, TARGET, RATE, STEP, PARAMETER, STATE_ROLE = "data", "target", "learning_rate", "step", "parameter", "state"


class Roles:
    """The roles of the values of a step: of its columns, its learning rates, the network's parameters, other state."""

    def __init__(self, run: TrainedRun, step: ExportedStep) -> None:
        model = run.experiment.model
        *data, target = step.columns
        self.of_inputs = {**dict.fromkeys(data, DATA), target: TARGET}
        if step.counter:
            self.of_inputs[step.counter] = STEP
        weights = [*model.network.get_parameters(), *_of_loss(model.loss_fn)]
        of_network = {p.name for p in weights if p.dtype.is_float}
        self.of_inputs |= dict.fromkeys(of_network, PARAMETER)
        rates = {p.name for p in model.optimizer.rates} if isinstance(model.optimizer, Optimizer) else set()
        for parameter in step.parameters:
            name = parameter.name
            self.of_inputs[name] = RATE if name in rates else PARAMETER if name in of_network else STATE_ROLE
        self.of_outputs = {LOSS: LOSS, LOSSES: LOSS, ACCURACY: "metric"}
        self.of_outputs |= {result: self.of_inputs[name] for name, result in step.carried.items()}
        self.feeds = {result: name for name, result in step.carried.items()}


def signature(run: TrainedRun, step: ExportedStep, models: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The values of `signature.json`; `models` has for each name in it the file and the model."""
    roles, data = Roles(run, step), run.experiment.train_data
    described = {name: _model(name, file, model, roles) for name, (file, model) in models.items()}
    values: dict[str, Any] = {"format": FORMAT, "runner": __version__, "models": described}
    fed = [x for model in described.values() for x in model["inputs"] if x["role"] in (PARAMETER, STATE_ROLE)]
    entries = {x["name"]: x["name"] for x in fed}
    values |= {"state": {"file": STATE, "entries": entries}, "initial": {"file": INITIAL, "entries": entries}}
    rate, schedule = _rate(run)
    preprocessing = json.loads(json.dumps(onnx_export.describe(run.experiment.test_data), default=str))
    values |= {"learning_rate": rate, "schedule": schedule, "preprocessing": preprocessing}
    values["class_names"] = [str(name) for name in run.experiment.test_data.class_names or ()]
    values["batch"] = data.column_types()[0].shape[0] if step.batch_reason else "any"
    return values | ({"batch_reason": step.batch_reason} if step.batch_reason else {})


def _model(name: str, file: str, model: Any, roles: Roles) -> dict[str, Any]:
    inputs, outputs = compiler.model_values(model)
    entry: dict[str, Any] = {"file": file}
    if name == "train_steps":
        entry["steps"] = next(x.shape[0] for x in inputs if roles.of_inputs[x.name] == DATA)
    entry["inputs"] = [
        {"name": x.name, "type": x.type, "shape": list(x.shape), "role": roles.of_inputs[x.name]} for x in inputs
    ]
    entry["outputs"] = [_output(y, roles, name.startswith("train_")) for y in outputs]
    return entry


def _output(value: Any, roles: Roles, is_step: bool) -> dict[str, Any]:
    described = {"name": value.name, "type": value.type, "shape": list(value.shape)}
    if not is_step:
        return {**described, "role": "output", "feeds": None}
    return {**described, "role": roles.of_outputs[value.name], "feeds": roles.feeds.get(value.name)}


def _of_loss(loss: Any) -> list[Parameter]:
    return [] if loss is None else list(loss.get_parameters())


def _rate(run: TrainedRun) -> tuple[float, str]:
    """The learning rate at the first step of the run, and its schedule as text."""
    optimizer = run.experiment.model.optimizer
    if not isinstance(optimizer, Optimizer) or not optimizer.rates:
        return 0.0, "none"
    schedule = optimizer.schedule
    return float(run.initial[optimizer.rates[0].name]), "constant" if schedule is None else repr(schedule)


# The options.


class ExportOptions(Frozen):
    """`steps`: of a second training model that makes several in one call; `quantize`: also write the network in 8 bits;
    `opset`: the version of the ONNX operators. None: not given."""

    steps: int | None = None
    quantize: bool = False
    opset: int | None = None


# The format `onnx`: a directory with training steps, networks, state, signature and a readme.

README = "README.md"
MODELS = {
    "train_step": "train_step.onnx",
    "train_steps": "train_steps.onnx",
    "network": "network.onnx",
    "network_int8": "network.int8.onnx",
    "inference": "inference.onnx",
}
FILES = {*MODELS.values(), STATE, INITIAL, FILE, README}
CALIBRATION_BATCHES = 8
MOST_BYTES = 2_000_000_000  # of a model in one file: the limit of protobuf


def check_onnx(place: Path, options: ExportOptions) -> None:
    """Raise BusyError unless the directory is new, empty or an earlier export, ConfigError for another path and for
    the opset."""
    compiler.require_opset(options.opset or compiler.OPSET)
    if place.exists() and not place.is_dir():
        raise ConfigError("not a directory", path=place, hint="runner export RUN_DIR --to DIR creates it")
    if place == files.real_path(Path()):
        raise ConfigError("the current directory cannot be replaced", path=place, hint="--to DIR: one inside")
    names = files.names(place)
    others = sorted(set(names) - FILES)
    if names and (others or not _is_export(place / FILE)):
        hint = "choose a new directory, or empty this one; only an earlier export is replaced"
        contains = ", ".join((others or names)[:3])
        raise BusyError("the directory is not empty", path=place, contains=contains, hint=hint)


def write_onnx(run: TrainedRun, place: Path, options: ExportOptions) -> list[str]:
    """Write the directory, whole or not at all, after its models have computed what the run computes.

    Raises MismatchError when they do not, ConfigError for what cannot be exported, StorageError.
    """
    opset = options.opset or compiler.OPSET
    experiment = run.experiment
    step = export_step(experiment.model, experiment.train_data)
    step = step._replace(model=compiler.with_opset(step.model, opset))
    metadata = metadata_of(experiment.test_data)
    network, inference = export_network(experiment.model, experiment.train_data, metadata)
    models = {"train_step": step.model, "network": network, "inference": inference}
    for name in ("network", "inference"):
        models[name] = compiler.with_opset(models[name], opset)
    if options.steps is not None:
        models["train_steps"] = export_steps(step, options.steps)
    verification = _verify(run, step, models)
    lines = [f"the batch has one size: {step.batch_reason}"] if step.batch_reason else []
    if options.quantize:
        models["network_int8"] = quantized = _quantized(run, step.columns, models["network"])
        distance = verification.distance_of(quantized, models["network"])
        lines.append(f"{MODELS['network_int8']}: outputs differ by {distance:.2g} of their size")
    contents = _contents(run, step, {name: models[name] for name in MODELS if name in models})
    check_onnx(place, options)  # again: building the run takes its time
    files.make_directory(place.parent)
    write_folder(place, contents)
    size = sum(map(len, contents.values())) / 1e6
    first, last = f"exported: {place} ({len(contents)} files, {size:.1f} MB)", f"next: see {place / README}"
    return [first, *lines, last]


def _is_export(path: Path) -> bool:
    try:
        values = stored.read(path)
    except (DataError, StorageError):
        return False
    return isinstance(values, dict) and values.get("format") == FORMAT and "runner" in values and "models" in values


def _verify(run: TrainedRun, step: Any, models: dict[str, Any]) -> Verification:
    verification = Verification(run, step)
    verification.check_step(models["train_step"])
    if "train_steps" in models:
        verification.check_steps()
    verification.check_network(models["network"], models["inference"])
    return verification


def _quantized(run: TrainedRun, columns: tuple[str, ...], network: Any) -> Any:
    """The network in 8 bits, with ranges from the first batches of the training data."""
    data = run.experiment.train_data

    def batches() -> Iterator[dict[str, np.ndarray]]:
        read = data.prepared(islice(data.visits_from(0), CALIBRATION_BATCHES))
        for arrays in read:
            yield dict(zip(columns, arrays[:-1], strict=False))

    return compiler.parse_model(compiler.quantize(network.SerializeToString(), batches()))


def _contents(run: TrainedRun, step: Any, models: dict[str, Any]) -> dict[str, bytes | str]:
    described = signature(run, step, {name: (MODELS[name], model) for name, model in models.items()})
    contents: dict[str, bytes | str] = {}
    for name, model in models.items():
        if (size := model.ByteSize()) > MOST_BYTES:
            raise ConfigError("a model with its weights does not fit into one file", file=MODELS[name], bytes=size)
        contents[MODELS[name]] = model.SerializeToString(deterministic=True)
    contents |= {STATE: encode(run.state), INITIAL: encode(run.initial)}
    contents[FILE] = json.dumps(described, indent=2, allow_nan=False) + "\n"
    return contents | {README: text(described)}


# The format `mindir`: the trained network as a file that MindSpore 2 loads.

SUFFIX = ".mindir"


def check_mindir(place: Path, options: ExportOptions) -> None:
    """Raise ConfigError for options of ONNX and for a path with another suffix, BusyError for a directory."""
    given = [f"--{name}" for name, value in vars(options).items() if value]
    if given:
        raise ConfigError(
            "an option of another format", options=", ".join(given), repair="--format onnx, or leave it out"
        )
    if place.suffix != SUFFIX:
        raise ConfigError("a MindIR file has another suffix", path=place, expected=SUFFIX, hint=f"--to {place}{SUFFIX}")
    if place.is_dir():
        raise BusyError("this is a directory, not a file", path=place)


def write_mindir(run: TrainedRun, place: Path, options: ExportOptions) -> list[str]:
    """Write the network in inference mode, for the batches that the run trains with, or of any size if it allows that.

    Raises ConfigError with all operators that MindIR does not have, StorageError.
    """
    model, data = run.experiment.model, run.experiment.train_data
    names = {parameter.name for parameter in model.network.get_parameters()}
    inputs = compiler.free_names(data.get_col_names()[:-1], names)
    with inference(model.network, model.precision):
        types = data.column_types()[:-1]
        content = compiler.export_mindir(model.network.compute, types, "network", input_names=inputs)
    make_directory(place.parent)
    write_atomically(place, content)
    return [f"exported: {place} ({len(content) / 1e6:.1f} MB)"]


# The command.


class Format(NamedTuple):
    """A format: `check` raises, before the run is built, when the place or an option does not fit; `write` writes
    atomically and returns lines about what was written."""

    check: Callable[[Path, ExportOptions], None]
    write: Callable[[TrainedRun, Path, ExportOptions], list[str]]


FORMATS = {
    "onnx": Format(check_onnx, write_onnx),
    "mindir": Format(check_mindir, write_mindir),
}


def main(args: argparse.Namespace) -> int:
    """Write the files and print what they are. Raises RunnerError."""
    if args.format not in FORMATS:
        raise ConfigError("unknown format", format=args.format, **known_names(args.format, FORMATS))
    chosen, place = FORMATS[args.format], files.real_path(Path(args.to))
    options = ExportOptions(steps=args.steps, quantize=args.quantize, opset=args.opset)
    chosen.check(place, options)
    with stopped_by_signals(), opened(Path(args.run), args.code) as run:
        lines = chosen.write(run, place, options)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0
