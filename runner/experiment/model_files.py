"""`model/network.onnx` and `model/predict.onnx`: the trained network for other programs."""

import json
from pathlib import Path

from runner import __version__
from runner.errors import RunnerError
from runner.experiment.build import Experiment
from runner.host.files import make_directory, write_atomically
from runner.host.log import LOG
from runner.train import export


def write_networks(experiment: Experiment, folder: Path) -> None:
    """Write the network in inference mode with its weights, and a second time with the preprocessing of the test split.

    The second file is left out, with a warning, when a transform has no operators.
    """
    model, data = experiment.model, experiment.test_data
    metadata = {"runner": __version__, "preprocessing": json.dumps(export.describe(data))}
    class_names = getattr(data, "class_names", None)
    if class_names is not None:
        metadata["class_names"] = json.dumps(list(class_names))
    target, types = make_directory(folder / "model"), experiment.train_data.column_types()[:-1]
    write_atomically(target / "network.onnx", model.export(types, metadata))
    if (found := export.without_operators(data)) is not None:
        column, transform = found
        LOG.warning(
            "model/predict.onnx is not written: the transform %s of column %s has no operators; give it a method lower",
            type(transform).__name__,
            column.name,
        )
        return
    classes = getattr(data, "num_classes", None)
    try:
        content = export.predictor(model, data, types[0].shape[0], metadata, classes)
    except RunnerError as error:
        LOG.warning("model/predict.onnx is not written: %s", error)
    else:
        write_atomically(target / "predict.onnx", content)
