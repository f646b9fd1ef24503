"""Networks in integers of 8 bits, by onnxruntime's own quantization tool."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from runner.errors import ConfigError
from runner.host.files import read_bytes

LIMIT = 2 << 30  # bytes of a model in one file


class _Calibration:
    """The batches from which the tool determines the ranges of values, in the form that it reads."""

    def __init__(self, batches: Iterable[Mapping[str, np.ndarray]]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """The next batch; None after the last one."""
        return next(self.batches, None)


def quantize(model: bytes, batches: Iterable[Mapping[str, np.ndarray]]) -> bytes:
    """The serialised model in 8 bits: weights Int8, activations UInt8 with ranges as in these batches.

    `model` has constant weights; QuantizeLinear and DequantizeLinear surround its operators. Raises ConfigError when
    the tool cannot convert the model.
    """
    import onnxruntime.quantization as tool

    with TemporaryDirectory(prefix="runner-quantize-") as folder, _silent_root_logger():
        source, path = Path(folder) / "network.onnx", Path(folder) / "quantized.onnx"
        source.write_bytes(model)  # the tool changes a model in memory
        try:
            tool.quantize_static(source, path, _Calibration(batches), weight_type=tool.QuantType.QInt8)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            rows = {"reason": reason, "repair": "leave --quantize out"}
            raise ConfigError("onnxruntime's tool cannot quantize the network", **rows) from error
        return read_bytes(path, LIMIT)


@contextlib.contextmanager
def _silent_root_logger() -> Iterator[None]:
    """Without the advice that the tool logs for every model: to run its preprocessing, which the passes replace."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    root = logging.getLogger()
    root.addFilter(is_error)
    try:
        yield
    finally:
        root.removeFilter(is_error)
