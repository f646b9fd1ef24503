"""The only file that imports onnxruntime: open a model on a device, run it, say plainly why that fails.

Never a silent fallback: onnxruntime itself opens a CPU session when a provider is missing or broken and at most prints
why, so what the session *says it has* is checked, and what the library printed becomes the reason in our error.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.compile.ort.messages import Heard, device_reason, first_line, import_reason, listening, operator_name
from runner.device import Device, device_error, reinstall
from runner.errors import DeviceError, InternalError, RunnerError, TrainingError
from runner.host.machine import runtimes
from runner.types import TensorType

Value: TypeAlias = Any  # resident data: an array on the CPU, onnxruntime's OrtValue elsewhere

_LOG = logging.getLogger("runner")
_TOLD: set[Device] = set()  # devices of which the user knows that they are replaced by the CPU
SPINNING = {  # what onnxruntime calls the ways in which `Tuning.spins`
    "always": (),
    "running": (("force_spinning_stop", "1"),),
    "never": (("intra_op.allow_spinning", "0"),),
}
_ONNX_TYPES = {"float": dt.float32, "double": dt.float64, "bool": dt.bool_} | {t.numpy.name: t for t in dt.ALL}
# y[1,1,1,1] = Conv(x[1,1,2,2], w[1,1,2,2]), as onnx.helper writes it: a GPU without cuDNN fails at its first Conv
_PROBE = (
    b'\x08\x08:o\n\x0f\n\x01x\n\x01w\x12\x01y"\x04Conv\x12\x05probeZ\x1b\n\x01x\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08'
    b"\x01\n\x02\x08\x01\n\x02\x08\x02\n\x02\x08\x02Z\x1b\n\x01w\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n\x02\x08\x01"
    b"\n\x02\x08\x02\n\x02\x08\x02b\x1b\n\x01y\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x01\n"
    b"\x02\x08\x01B\x04\n\x00\x10\r"
)


class Session:
    """A model that is open on a device.

    `inputs` and `outputs` map names to types in the model's order (an axis without a fixed length is -1). `device` and
    `providers` are what is really used, `assignment` how many operators each provider took (empty on the CPU and where
    onnxruntime cannot tell), `optimization_level` onnxruntime's name of it, `notes` one-line remarks for the user.
    Raises DeviceError when the device is not usable and fallback is not allowed, and InternalError when onnxruntime
    refuses the model. With `profile`, onnxruntime writes down what the nodes take, in a file whose name begins so.
    """

    def __init__(self, model: bytes, device: Device, *, optimize: bool = True, profile: Path | None = None) -> None:
        self.notes = list(device.notes)
        try:
            session, assignment = _open(model, device, optimize, profile)
        except DeviceError as trouble:
            if not device.allow_fallback or _runtime()[1] is not None:
                raise
            self.notes.append(f"{device} is not usable and device.allow_fallback is on: running on the CPU")
            if device not in _TOLD:  # a run opens several sessions
                _LOG.warning("%s\n%s", self.notes[-1], trouble)
                _TOLD.add(device)
            device = Device("CPU", threads=device.threads)
            session, assignment = _open(model, device, optimize, profile)
        self.device = device
        self.assignment = assignment
        self.providers: tuple[str, ...] = tuple(session.get_providers())
        self.inputs = {node.name: _type(node) for node in session.get_inputs()}
        self.outputs = {node.name: _type(node) for node in session.get_outputs()}
        self.optimization_level = _level(optimize)
        on_host = device.target == "CPU"
        self._memory: _HostMemory | _CardMemory = _HostMemory(session) if on_host else _CardMemory(session, device)
        self.end_profile: Callable[[], str] = session.end_profiling  # gives the name of the file

    def put(self, array: np.ndarray) -> Value:
        """Make an array resident. On the CPU it is shared, not copied: leave it unchanged while it is in use."""
        return self._memory.put(array)

    def fetch(self, value: Value) -> np.ndarray:
        """The array behind a value. On the CPU it is the same memory; no later run overwrites it."""
        return self._memory.fetch(value)

    def step(self, values: Sequence[Value]) -> list[Value]:
        """Run once: values in the order of `inputs`, results in the order of `outputs`, both resident.

        Results may be given to the next step without a copy. Raises TrainingError with the failing operator.
        """
        try:
            return self._memory.step(values)
        except Exception as error:
            raise self._explain(error, values) from error

    def run(self, feeds: Mapping[str, "Value"]) -> dict[str, np.ndarray]:
        """Run once with arrays (or resident values) by name. Raises as `step`, and InternalError for a wrong name."""
        if feeds.keys() != self.inputs.keys():
            raise InternalError("feeds do not fit the graph", given=", ".join(feeds), inputs=", ".join(self.inputs))
        values = [self.put(v) if isinstance(v, np.ndarray) else v for v in map(feeds.__getitem__, self.inputs)]
        return dict(zip(self.outputs, map(self.fetch, self.step(values)), strict=True))

    def _explain(self, error: Exception, values: Sequence[Value]) -> RunnerError:
        if len(values) != len(self.inputs):
            return InternalError("a step has a wrong number of values", given=len(values), inputs=len(self.inputs))
        for (name, expected), value in zip(self.inputs.items(), values, strict=True):
            given = TensorType.of(value) if isinstance(value, np.ndarray) else None
            if given is not None and not _fits(given, expected):
                return InternalError("a value does not fit its input", input=name, expected=expected, given=given)
        operator, reason = operator_name(error), first_line(error)
        return TrainingError("a step failed in onnxruntime", operator=operator, device=self.device, reason=reason)


def unusable(target: str, device_id: int = 0) -> RunnerError | None:
    """None when a small convolution really runs on a device, otherwise the error, with what would repair it."""
    device = Device(target, device_id, threads=1)
    ones = np.ones((1, 1, 2, 2), np.float32)
    try:
        result = Session(_PROBE, device).run({"x": ones, "w": ones})["y"].item()
    except RunnerError as trouble:
        return trouble
    return None if result == 4 else device_error(device, f"1+1+1+1 came out as {result}")


def version() -> str:
    """onnxruntime's version; empty without one."""
    return str(getattr(_runtime()[0], "__version__", ""))


class _HostMemory:
    """The CPU: `run` reads arrays in place and returns arrays that own onnxruntime's buffers, so nothing is copied.

    Measured with 20 inputs and 20 outputs: 22 µs a call, against 50 µs with OrtValues and with I/O binding.
    """

    def __init__(self, session: Any) -> None:
        self._run = session.run
        self._inputs = [node.name for node in session.get_inputs()]
        self._outputs = [node.name for node in session.get_outputs()]

    def put(self, array: np.ndarray) -> Value:
        return np.asarray(array, order="C")

    def fetch(self, value: Value) -> np.ndarray:
        array: np.ndarray = value
        return array

    def step(self, values: Sequence[Value]) -> list[Value]:
        return list(self._run(self._outputs, dict(zip(self._inputs, values, strict=True))))


class _CardMemory:
    """A card with its own memory: values stay there between runs.

    Every run has a new binding, because one that is used twice writes its results over those of the run before.
    """

    def __init__(self, session: Any, device: Device) -> None:
        self._session = session
        self._place = device.backend.memory, device.id
        self._inputs = [node.name for node in session.get_inputs()]
        self._outputs = [node.name for node in session.get_outputs()]

    def put(self, array: np.ndarray) -> Value:
        return _runtime()[0].OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), *self._place)

    def fetch(self, value: Any) -> np.ndarray:
        return np.asarray(value.numpy())

    def step(self, values: Sequence[Value]) -> list[Value]:
        binding = self._session.io_binding()
        for name, value in zip(self._inputs, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, *self._place)
        self._session.run_with_iobinding(binding)
        return list(binding.get_outputs())


def _open(model: bytes, device: Device, optimize: bool, profile: Path | None = None) -> tuple[Any, dict[str, int]]:
    """An InferenceSession that really has the provider of the device, and how many operators each provider took."""
    _require_provider(device)
    session, problem = None, None
    with listening() if device.target != "CPU" else contextlib.nullcontext(Heard()) as heard:
        try:
            session = _inference_session(model, device, optimize, profile)
        except Exception as error:
            problem = error
    if heard.text:
        _LOG.debug("onnxruntime, while it opened a session on %s: %s", device, heard.text.strip())
    if session is not None and session.get_providers()[0] == device.backend.provider:
        assignment = _assignment(session)
        if assignment and device.backend.provider not in assignment:
            raise device_error(device, f"the provider took no operator of the graph: {assignment}")
        return session, assignment
    if problem is not None and (device.target == "CPU" or (model != _PROBE and not unusable(device.target, device.id))):
        facts = {"operator": operator_name(problem), "device": device, "reason": first_line(problem)}
        raise InternalError("onnxruntime refused the graph", **facts) from problem
    raise device_error(device, device_reason(heard.text, problem), heard.text) from problem


@cache
def _runtime() -> tuple[Any, Exception | None, str]:
    """onnxruntime, why it cannot be imported, and what it printed; the CANN wheel prints twenty lines with NumPy 2.

    Imported when a session is first opened: it takes 25 ms, and PyNative mode needs none.
    """
    trouble: Exception | None = None
    with listening() as heard:
        try:
            import onnxruntime as ort

            if not hasattr(ort, "InferenceSession"):  # the empty folder that stays when one of two wheels was removed
                trouble = ImportError("its files are gone")
        except Exception as error:
            trouble = error
    return (None if trouble else ort), trouble, heard.text


def _require_provider(device: Device) -> None:
    ort, problem, said = _runtime()
    if problem is not None:
        error = device_error(device, import_reason(said, problem))
        error.rows["repair"] = reinstall(device.target, runtimes())
        raise error
    available = ort.get_available_providers()
    if device.backend.provider not in available:
        raise device_error(device, f"this onnxruntime has only {', '.join(available)}")


def _inference_session(model: bytes, device: Device, optimize: bool, profile: Path | None) -> Any:
    ort = _runtime()[0]
    options = ort.SessionOptions()
    options.intra_op_num_threads = device.workers
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal: all else also arrives as an exception
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _level(optimize))
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if not optimize:
        # The nodes run in their order as far as possible; by default onnxruntime would compute all that leads to the
        # first result first. Planning the memory of a whole run takes half as much again of it (BENCHMARKS.md).
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_pattern = False
    providers: list[object] = ["CPUExecutionProvider"]
    if device.target != "CPU":
        providers.insert(0, (device.backend.provider, {"device_id": str(device.id)}))
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")  # 1.20 does not know it yet
    for name, value in SPINNING[device.tuning.spins]:
        options.add_session_config_entry(f"session.{name}", value)
    if device.tuning.block_base:
        options.add_session_config_entry("session.dynamic_block_base", str(device.tuning.block_base))
    if device.target == "GPU" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # finds CUDA and cuDNN where pip puts them
    # enable_fallback=0: no second try on the CPU, neither now nor when a run fails
    return ort.InferenceSession(model, options, providers=providers, enable_fallback=0)


def _level(optimize: bool) -> str:
    return "ORT_ENABLE_ALL" if optimize else "ORT_DISABLE_ALL"


def _assignment(session: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    with contextlib.suppress(Exception):  # asked for on cards only, and unknown to onnxruntime 1.20
        for part in session.get_provider_graph_assignment_info():
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    return counts


def _type(node: Any) -> TensorType:
    """The type of a model's input or output, whose own description reads `tensor(float)`."""
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    if kind not in _ONNX_TYPES:
        raise InternalError("not an element type of tensors", value=node.name, type=node.type)
    return TensorType(_ONNX_TYPES[kind], tuple(n if isinstance(n, int) else -1 for n in node.shape))


def _fits(given: TensorType, expected: TensorType) -> bool:
    pairs = zip(given.shape, expected.shape, strict=False)
    return given.dtype is expected.dtype and given.ndim == expected.ndim and all(e in (g, -1) for g, e in pairs)
