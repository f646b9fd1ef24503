"""The directory of `runner export --format onnx`: training steps, networks, state, signature and a readme."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from runner import compile as compiler
from runner.errors import BusyError, ConfigError, DataError, StorageError
from runner.experiment.export import readme
from runner.experiment.export.options import ExportOptions
from runner.experiment.export.signature import FILE, FORMAT, INITIAL, STATE, signature
from runner.experiment.export.trained_run import TrainedRun
from runner.experiment.export.verification import Verification
from runner.experiment.results.model_files import metadata_of
from runner.host import files, json as json_data
from runner.train.checkpoint.state import encode, write_folder
from runner.train.onnx_export import export_network, export_step, export_steps

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


def check(place: Path, options: ExportOptions) -> None:
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


def write(run: TrainedRun, place: Path, options: ExportOptions) -> list[str]:
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
    check(place, options)  # again: building the run takes its time
    files.make_directory(place.parent)
    write_folder(place, contents)
    size = sum(map(len, contents.values())) / 1e6
    first, last = f"exported: {place} ({len(contents)} files, {size:.1f} MB)", f"next: see {place / README}"
    return [first, *lines, last]


def _is_export(path: Path) -> bool:
    try:
        values = json_data.read(path)
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
    return contents | {README: readme.text(described)}
