"""`model/network.onnx` and `model/predict.onnx`: the trained network for other programs."""

import json
from pathlib import Path

from runner import __version__
from runner.dataset.batches import facts_of
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError
from runner.experiment.build import Experiment
from runner.host.console import LOG
from runner.host.files import make_directory, remove, write_atomically
from runner.train import onnx_export


def write_networks(experiment: Experiment, folder: Path) -> None:
    """Write the network in inference mode with its weights, and a second time with the preprocessing of the test split.

    The second file is left out, with a warning, when a transform has no operators, or wrong ones.
    """
    target = make_directory(folder / "model")
    metadata = metadata_of(experiment.test_data)
    types = experiment.train_data.column_types()[:-1]
    write_atomically(target / "network.onnx", experiment.model.export(types, metadata))
    try:
        write_atomically(target / "predict.onnx", _predictor(experiment, types[0].shape[0], metadata))
    except ConfigError as error:
        LOG.warning("model/predict.onnx is not written: %s", error)
        remove(target / "predict.onnx")  # of the run before it was resumed


def metadata_of(data: Dataset) -> dict[str, str]:
    """The metadata of exported networks: version, preprocessing, and how files become rows."""
    metadata = {"runner": __version__, "preprocessing": json.dumps(onnx_export.describe(data), default=str)}
    if data.preprocessing is not None:
        metadata["reader"] = json.dumps(data.preprocessing.as_json())
    if data.class_names is not None:
        metadata["class_names"] = json.dumps(list(data.class_names))
    return metadata


def _predictor(experiment: Experiment, batch_size: int, metadata: dict[str, str]) -> bytes:
    classes = facts_of(experiment.train_data).get("num_classes")
    return onnx_export.predictor(experiment.model, experiment.test_data, batch_size, metadata, classes)
