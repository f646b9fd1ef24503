"""The format `mindir` of `runner export`: the trained network as a file that MindSpore 2 loads."""

from pathlib import Path

from runner import compile as compiler
from runner.errors import BusyError, ConfigError
from runner.experiment.export.options import ExportOptions
from runner.experiment.export.trained_run import TrainedRun
from runner.host.files import make_directory, write_atomically
from runner.train.model import inference

SUFFIX = ".mindir"


def check(place: Path, options: ExportOptions) -> None:
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


def write(run: TrainedRun, place: Path, options: ExportOptions) -> list[str]:
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
