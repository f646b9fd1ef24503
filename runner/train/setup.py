"""`initialize_system` and `shutdown_system`: initialisation before training, timed separately.

Provider: loads onnxruntime, and runs a small convolution on the device. Communication: nothing for a run in one
process. Compilation: loads ONNX, and in a run compiles its programs. PyNative mode needs none of them.
"""

import time

from runner import compile as compiler, context
from runner.device import Device
from runner.errors import ConfigError, DeviceError
from runner.host.console import LOG

PHASES = "provider_seconds", "communication_seconds", "compilation_seconds"
_known: dict[tuple[Device, bool], dict[str, float]] = {}


def initialize_system(name: str | None = None) -> dict[str, float]:
    """Prepare the mode and device of the context, and return the duration of each phase in seconds.

    `name` is accepted as by MindSpore, where it names an operation. A repeated call returns the first durations.
    Raises ConfigError for an invalid name, DeviceError when the device cannot be used.
    """
    _check(name)
    return prepare(context.device(), context.get_context("mode") == context.GRAPH_MODE)


def shutdown_system(name: str | None = None) -> None:
    """Reset the initialisation, so that the next call repeats it. Raises ConfigError for an invalid name."""
    _check(name)
    _known.clear()


def prepare(device: Device, graph: bool) -> dict[str, float]:
    """Like `initialize_system`, for a device and graph or PyNative mode."""
    if (device, graph) not in _known:
        seconds = dict.fromkeys(PHASES, 0.0)
        if graph:
            start = time.perf_counter()
            _open(device)
            opened = time.perf_counter()
            compiler.load_onnx()
            seconds |= {"provider_seconds": opened - start, "compilation_seconds": time.perf_counter() - opened}
        _known[device, graph] = seconds
    return dict(_known[device, graph])


def with_compilation(phases: dict[str, float], compile_seconds: float, train_seconds: float) -> dict[str, float]:
    """The phases of a run: adds the compilation of its programs, and the training without it."""
    known = phases["compilation_seconds"] + compile_seconds
    return {**phases, "compilation_seconds": known, "training_seconds": max(0.0, train_seconds - compile_seconds)}


def _open(device: Device) -> None:
    trouble = compiler.device_problem(device.target, device.id)
    if trouble is None:
        return
    if not (isinstance(trouble, DeviceError) and device.allow_fallback):
        raise trouble
    LOG.warning("%s is not usable: %s", device, trouble.rows.get("reason", trouble.what))


def _check(name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise ConfigError("name must be a string", given=type(name).__name__, allowed="None or a string")
