"""Requested devices, onnxruntime's names for them, and how to repair a machine on which one is not usable."""

import ctypes
import re
from collections.abc import Iterable, Mapping

from runner.errors import ConfigError, DeviceError, nearest
from runner.host.machine import runtimes, usable_cores
from runner.validation.rules import Frozen, key

MAX_ID = 4095
MAX_THREADS = 1024
WINOGRAD = "auto", "off"  # Winograd's transforms where they are faster, or never


class Backend(Frozen):
    """The software behind a device target.

    `provider` and `memory` are onnxruntime's names, `distribution` is the wheel that contains the provider, `install`
    its pip requirement, `extra` runner's own extra, `libraries` those that the driver or toolkit provides, `tool` the
    command that lists the cards.
    """

    provider: str
    memory: str
    distribution: str
    install: str
    extra: str | None = None
    libraries: tuple[str, ...] = ()
    tool: str | None = None


BACKENDS: Mapping[str, Backend] = {
    "CPU": Backend("CPUExecutionProvider", "cpu", "onnxruntime", "onnxruntime"),
    "GPU": Backend(
        provider="CUDAExecutionProvider",
        memory="cuda",
        distribution="onnxruntime-gpu",
        install='"onnxruntime-gpu[cuda,cudnn]"',
        extra="gpu",
        libraries=("libcuda.so.1",),
        tool="nvidia-smi",
    ),
    "Ascend": Backend(
        provider="CANNExecutionProvider",
        memory="cann",
        distribution="onnxruntime-cann",
        install='onnxruntime-cann "numpy<2" "ml_dtypes<0.6"',  # built for NumPy 1; ml_dtypes 0.6 requires NumPy 2
        extra="ascend",
        libraries=("libascendcl.so", "libacl_op_compiler.so", "libfmk_onnx_parser.so"),
        tool="npu-smi info",
    ),
}

_SOURCES = (  # where a missing library comes from: the first pattern that matches
    (r"libcuda\.", "install the NVIDIA driver, which brings {libraries}"),
    (r"libcu|libnv", "pip install {install}, which brings {libraries}"),
    (r"libascend|libacl|libfmk|libge|libhccl", "install the CANN toolkit and source its set_env.sh, for {libraries}"),
    (r"", "install what brings {libraries}"),
)


class Tuning(Frozen):
    """The fastest measured configuration of a graph on the CPU (`session.auto_tune_mode`); the default is untuned.

    `forms` are pairs of operator and lowering form, in the notation of the layout pass; without `placed`, onnxruntime
    optimises the plain graph instead.
    """

    forms: tuple[tuple[str, str], ...] = ()
    placed: bool = True


UNTUNED = Tuning()


class DeviceSettings(Frozen):
    """Where graph mode executes; PyNative mode uses `threads` only."""

    target: str = key("CPU", choices=tuple(BACKENDS), fold=True)  # device of graph mode
    id: int = key(0, low=0, high=MAX_ID)  # number of the device
    threads: int = key(0, low=0, high=MAX_THREADS)  # CPU threads, which never change a result; 0: as many as cores
    allow_fallback: bool = False  # use the CPU, with a warning, if the device does not work
    tf32: bool = False  # GPU: convolutions and products of Float32 on tensor cores, which read 10 bits of each fraction

    @property
    def card(self) -> int | None:
        """The number of the card; None on the CPU, which has no cards."""
        return None if self.target == "CPU" else self.id


class Device(DeviceSettings):
    """The requested device of a run. Raises ConfigError for invalid values.

    Without `in_parts` (`exact=false`) sessions compute whole batches with all threads, whose number changes bits.
    `tuning` is the measured configuration, `winograd` whether convolutions may use Winograd's transforms
    (`session.winograd`). `op_select_implmode` and `optypelist_for_implmode` are those of the session, which an NPU
    gets; None leaves them to it. Three are set for each graph (`compile.program`): `precision_mode`, the policy that an
    NPU gets (None: none), `channels_last`, whether a GPU keeps images in that layout, and `arena`, whether onnxruntime
    keeps the memory of values.
    """

    in_parts: bool = True
    tuning: Tuning = UNTUNED
    winograd: str = "auto"
    op_select_implmode: str | None = None
    optypelist_for_implmode: str | None = None
    precision_mode: str | None = None
    channels_last: bool = False
    arena: bool = True

    def __post_init__(self) -> None:
        if self.target not in BACKENDS:
            close = nearest(self.target, BACKENDS)
            raise ConfigError("no such device", value=self.target, allowed=", ".join(BACKENDS), nearest=close)
        if not 0 <= self.id <= MAX_ID:
            raise ConfigError("device.id is out of range", value=self.id, allowed=f"0 to {MAX_ID}")
        if not 0 <= self.threads <= MAX_THREADS:
            allowed = f"0 (as many as are useful) to {MAX_THREADS}"
            raise ConfigError("device.threads is out of range", value=self.threads, allowed=allowed)
        if self.winograd not in WINOGRAD:
            rows = {"allowed": ", ".join(WINOGRAD), "nearest": nearest(self.winograd, WINOGRAD)}
            raise ConfigError("no such choice", key="session.winograd", value=self.winograd, **rows)

    @property
    def backend(self) -> Backend:
        """The backend of the target."""
        return BACKENDS[self.target]

    @property
    def workers(self) -> int:
        """The number of threads that compute parts of a batch at once."""
        return self.threads or usable_cores()

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user, one line each, about values that have no effect."""
        unused = {"device.id": self.target == "CPU" and self.id, "device.tf32": self.target != "GPU" and self.tf32}
        place = "the CPU" if self.target == "CPU" else self.target
        return tuple(f"{name}={str(value).lower()} has no effect on {place}" for name, value in unused.items() if value)

    def __str__(self) -> str:
        return self.target if self.target == "CPU" else f"{self.target} {self.id}"


def device_error(device: Device, reason: str, text: str = "") -> DeviceError:
    """The error for a device that cannot be used; `text` is the output of the library during the attempt."""
    installed = runtimes()
    missing = missing_libraries(device.target, text)
    return DeviceError(
        "the device cannot be used",
        device=device,
        provider=device.backend.provider,
        reason=reason,
        missing=", ".join(missing) or None,
        installed=describe_runtimes(installed),
        repair=repair(device.target, installed, missing),
    )


def idle_card(device: Device, repair: str) -> DeviceError:
    """The error for a card that PyNative mode would leave idle without a word; `repair` is what to write instead."""
    return DeviceError("PyNative mode computes in numpy, on the CPU", device=device, repair=repair)


def describe_runtimes(installed: Mapping[str, str]) -> str:
    """The installed onnxruntime distributions in one line, with a warning when there are several."""
    listed = ", ".join(f"{name} {version}" for name, version in installed.items())
    return f"{listed}: they overwrite each other, keep one" if len(installed) > 1 else listed or "no onnxruntime"


def missing_libraries(target: str, text: str = "") -> list[str]:
    """The shared libraries that a device needs and this machine lacks: those named in `text`, then those looked for."""
    named = re.findall(r"(lib[\w+-]+\.so[\d.]*): cannot open shared object file", text)
    return list(dict.fromkeys([*named, *(name for name in BACKENDS[target].libraries if not _loads(name))]))


def reinstall(target: str, installed: Iterable[str]) -> str:
    """The command that puts the wheel of a target into the place of those that are installed."""
    remove = "".join(f" {name}" for name in installed)
    return (f"pip uninstall -y{remove} && " if remove else "") + f"pip install {BACKENDS[target].install}"


def repair(target: str, installed: Mapping[str, str], missing: Iterable[str]) -> str:
    """What to type or install so that a target becomes usable, one step per line."""
    backend = BACKENDS[target]
    steps = [] if list(installed) == [backend.distribution] else [reinstall(target, installed)]
    by_source: dict[str, list[str]] = {}
    for library in missing:
        source = next(source for pattern, source in _SOURCES if re.match(pattern, library))
        by_source.setdefault(source, []).append(library)
    for source, libraries in by_source.items():
        steps.append(source.format(libraries=", ".join(libraries), install=backend.install))
    return "\n".join(steps) or f"`{backend.tool}` shows whether the driver runs and which cards there are"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
