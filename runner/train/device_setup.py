"""`initialize_system` and `shutdown_system` (seed 004): what a training needs first, done and timed apart from it.

Provider: onnxruntime is loaded, and a small convolution runs on the device. Communication: nothing as long as a run is
one process. Compilation: ONNX is loaded, and in a run its programs are compiled. PyNative mode needs none of them.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from runner import compile as compiler, context
from runner.device import Device
from runner.errors import ConfigError, DeviceError

_LOG = logging.getLogger("runner")
PHASES = "provider_seconds", "communication_seconds", "compilation_seconds"
_known: dict[tuple[Device, bool], dict[str, float]] = {}


def initialize_system(name: str | None = None) -> dict[str, float]:
    """Prepare the mode and the device of the context, and return what each phase took, in seconds.

    `name` is accepted as the reference does, where it names an operation. What is initialised already takes no time
    again: the first figures are returned. Raises ConfigError for a name that is none, DeviceError when the device
    cannot be used.
    """
    _check(name)
    return prepared(context.device(), context.get_context("mode") == context.GRAPH_MODE)


def shutdown_system(name: str | None = None) -> None:
    """Forget what was initialised, so that the next call does it again. Raises ConfigError for a name that is none."""
    _check(name)
    _known.clear()


def prepared(device: Device, graph: bool) -> dict[str, float]:
    """As `initialize_system`, for a device and for graph or PyNative mode."""
    if (device, graph) not in _known:
        took = dict.fromkeys(PHASES, 0.0)
        if graph:
            with _timed(took, "provider_seconds"):
                _open(device)
            with _timed(took, "compilation_seconds"):
                compiler.load_onnx()
        _known[device, graph] = took
    return dict(_known[device, graph])


def with_compilation(phases: dict[str, float], compile_seconds: float, train_seconds: float) -> dict[str, float]:
    """The phases of a run: with the compilation of its programs, and apart from them the training without it."""
    known = phases["compilation_seconds"] + compile_seconds
    return {**phases, "compilation_seconds": known, "training_seconds": max(0.0, train_seconds - compile_seconds)}


def _open(device: Device) -> None:
    trouble = compiler.device_problem(device.target, device.id)
    if trouble is None:
        return
    if not (isinstance(trouble, DeviceError) and device.allow_fallback):
        raise trouble
    _LOG.warning("%s is not usable: %s", device, trouble.rows.get("reason", trouble.what))


@contextmanager
def _timed(took: dict[str, float], phase: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    took[phase] = time.perf_counter() - start


def _check(name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise ConfigError("name must be a string", given=type(name).__name__, allowed="None or a string")
