"""`runner.export`: a network as a file for other programs."""

from pathlib import Path
from typing import Any

from runner import compile as compiler, context
from runner.core.values import Tensor
from runner.errors import ConfigError, known_names
from runner.host.console import note_once
from runner.host.files import write_atomically
from runner.nn.cell import Cell
from runner.train.model import inference

SUFFIXES = {"ONNX": ".onnx", "AIR": ".onnx", "MINDIR": ".mindir"}  # by format


def export(net: Cell, *inputs: Any, file_name: str, file_format: str = "AIR", **kwargs: Any) -> None:
    """Write a network in inference mode to `file_name`.onnx or .mindir, for inputs of the types of `inputs`.

    The file accepts any batch size if the network allows that. For the format AIR a line says that the file is ONNX.
    Raises ConfigError for invalid arguments and for operators that MindIR does not have, StorageError when the file
    cannot be written.
    """
    if not isinstance(net, Cell):
        raise ConfigError("export needs a cell", given=type(net).__name__)
    if file_format not in SUFFIXES:
        raise ConfigError("unknown format", file_format=repr(file_format), **known_names(file_format, SUFFIXES))
    if kwargs:
        name = next(iter(kwargs))
        raise ConfigError("runner exports networks in Float32 or Float16 only", argument=name, value=repr(kwargs[name]))
    suffix = SUFFIXES[file_format]
    path = Path(file_name if str(file_name).endswith(suffix) else f"{file_name}{suffix}")
    if file_format == "AIR":
        note_once(f"export writes ONNX, which Ascend's ATC reads too, not AIR: {path}")
    types = [(x if isinstance(x, Tensor) else Tensor(x)).type for x in inputs]
    was_training = net.training
    with inference(net, context.precision()):
        writer = compiler.export_mindir if file_format == "MINDIR" else compiler.export_onnx
        content = writer(net.construct, types, type(net).__name__)
    net.set_train(was_training)
    write_atomically(path, content)
