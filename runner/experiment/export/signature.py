"""`signature.json`: what a program that trains with an exported step has to know; `signature.schema.json` is its
schema."""

import json
from collections.abc import Mapping
from typing import Any

from runner import __version__, compile as compiler
from runner.core.values import Parameter
from runner.experiment.export.trained_run import TrainedRun
from runner.nn.optim.optimizer import Optimizer
from runner.train import onnx_export
from runner.train.onnx_export import ACCURACY, LOSS, LOSSES, ExportedStep

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
