"""Sessions: a model on a device, and clear errors when it cannot be opened or run. Only this file opens models with
onnxruntime.

There is no silent fallback: onnxruntime itself opens a CPU session when a provider is missing or broken, and at most
prints the reason. So the providers of the session are checked, and the captured output becomes the reason of the error.
First the messages of onnxruntime and the options of its providers, then `Session`.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.device import Device, device_error, reinstall
from runner.errors import (
    NO_MEMORY,
    ConfigError,
    DeviceError,
    InternalError,
    RunnerError,
    StorageError,
    TrainingError,
    is_memory_error,
    unexpected,
)
from runner.host.console import LOG
from runner.host.machine import runtimes
from runner.types import TensorType

# Messages of onnxruntime: capturing printed ones, and extracting the one useful sentence.

_OPERATOR = re.compile(r"""Name:'([^']+)'|node with name '([^']+)'|[Nn]ode \(([^)]+)\)|Node, \("([^"]+)\"""")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SIGNATURE = re.compile(r"/\S+\.(?:cc|h|cpp|cu):\d+ .*\) (?=\S)")  # C++ file, line and function


# What is needed for a moment only, and where there is no folder for it.


def _memory_file() -> BinaryIO:
    """An empty file without a name, in memory where the system has such files: a container may have no disk to write.

    Raises StorageError.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("runner"), "w+b")
    with _temporary():
        return TemporaryFile()


def temporary_folder(prefix: str) -> TemporaryDirectory[str]:
    """A folder that `with` or `cleanup` removes. Raises StorageError."""
    with _temporary():
        return TemporaryDirectory(prefix=prefix)


@contextmanager
def _temporary() -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        repair = "TMPDIR=DIRECTORY, one that can be written"
        raise StorageError(
            "there is no temporary directory to write to", reason=reason.strerror, repair=repair
        ) from None


class CapturedOutput:
    """Output of native code and of Python; `text` is set when the capture ends."""

    text = ""


@contextmanager
def capture_output() -> Iterator[CapturedOutput]:
    """Capture standard output and standard error, without colour codes, instead of printing them.

    Device libraries print the reason of a failure instead of raising it: native code to file descriptors 1 and 2,
    onnxruntime's Python code to `sys.stdout`, which differs from descriptor 1 in a notebook.
    """
    captured = CapturedOutput()
    with _memory_file() as file:
        try:
            with (
                _descriptors(file.fileno()),
                open(os.dup(file.fileno()), "w", buffering=1) as text,
                redirect_stdout(text),
                redirect_stderr(text),
            ):
                yield captured
        finally:
            file.seek(0)
            captured.text = _COLOUR.sub("", file.read().decode(errors="replace"))


@contextmanager
def _descriptors(target: int) -> Iterator[None]:
    """Redirect descriptors 1 and 2 to `target`."""
    saved = [(number, os.dup(number)) for number in (1, 2)]
    for number, _ in saved:
        os.dup2(target, number)
    try:
        yield
    finally:
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)


def device_reason(text: str, error: Exception | None = None) -> str:
    """The reason for the failure of a device, from onnxruntime's output or else from its exception."""
    if library := re.search(r"Failed to load library (?:\S*/)?(\S+) with error: (.+)", text):
        return f"Failed to load library {library[1]} with error: {library[2].strip()}"
    if error is not None:
        return first_line(error)
    for level in "EW":
        if line := re.search(rf"\[{level}:onnxruntime:[^\]]*\] (.+)", text):
            return line[1].strip()
    return "onnxruntime opened the session without the provider and gave no reason"


def import_reason(text: str, error: Exception) -> str:
    """Why `import onnxruntime` failed; a wheel that was built for NumPy 1 only prints the reason."""
    if "_ARRAY_API not found" in text:
        return "onnxruntime cannot be imported: it was built for NumPy 1 and finds NumPy 2 (_ARRAY_API not found)"
    return f"onnxruntime cannot be imported: {first_line(error)}"


NO_KERNEL = "Could not find an implementation for"  # onnxruntime's words
IN_FLOAT32 = "Float32, which has every operator, or PyNative mode"


def first_line(error: Exception) -> str:
    """The first line of an onnxruntime exception, without error code and C++ signatures."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _SIGNATURE.sub("", _CODE.sub("", line))


def operator_name(error: Exception) -> str | None:
    """The name of the node that an exception mentions, or None."""
    found = _OPERATOR.search(str(error))
    return next(filter(None, found.groups()), None) if found else None


# The options of onnxruntime's providers for a device; no other place sets them.


# CANN's `precision_mode` for a policy. For all others the element types are those of the graph, so Float32 is Float32:
# by default CANN computes in Float16, and also its allow_fp32_to_fp16 and force_fp32 read Float16 in matrix products.
CANN_PRECISION = {"force_fp16": "force_fp16", "allow_mix_precision": "allow_mix_precision"}
CANN_OF_GRAPH = "must_keep_origin_dtype"


def provider_options(device: Device) -> dict[str, str]:
    """The options of the provider of an accelerator, by onnxruntime's names (CUDA: 1.20 to 1.31, CANN: 1.24).

    cuDNN's heuristic instead of onnxruntime's default, which times the algorithms of every convolution: another winner
    would be another rounding, so two runs could differ. CANN writes no `.om` files, which it would leave in the working
    directory. Sources of onnxruntime after 1.24 call its `precision_mode` `precision_mode_v2`, with other values.
    """
    options = {"device_id": str(device.id)}
    if device.target == "GPU":
        options["cudnn_conv_algo_search"] = "HEURISTIC"
        options["use_tf32"] = _flag(device.tf32)
        options["prefer_nhwc"] = _flag(device.channels_last)
    if device.target == "Ascend":
        options["precision_mode"] = CANN_PRECISION.get(device.precision_mode or "", CANN_OF_GRAPH)
        options["dump_om_model"] = _flag(False)
        modes = {
            "op_select_impl_mode": device.op_select_implmode,
            "optypelist_for_implmode": device.optypelist_for_implmode,
        }
        options |= {name: value for name, value in modes.items() if value is not None}
    return options


def _flag(value: bool) -> str:
    return "1" if value else "0"


# Sessions.

Value: TypeAlias = Any  # a value on the device: an array on the CPU, onnxruntime's OrtValue elsewhere

_WARNED: set[Device] = set()  # devices with a logged warning that the CPU replaces them
# Optimisations of onnxruntime whose results depend on the processor: this one sums over blocks of 8 or 16 channels
# where a filter is a constant (those of layers are inputs).
DEPENDENT_ON_PROCESSOR = ("NchwcTransformer",)
# Of the address of an input: from another one, vectors begin with other elements, and sums round in other ways.
ALIGNMENT = 16
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

    `inputs` and `outputs` map names to types in the model's order (dynamic axes are -1). `device` and `providers` are
    those in use, `assignment` the number of operators that each provider took (empty on the CPU and where onnxruntime
    does not report it), `optimization_level` onnxruntime's name of the level, `notes` one-line remarks for the user.
    With `profile`, onnxruntime writes node times to a file with this path as prefix. Raises DeviceError when the device
    is not usable and fallback is not allowed, and InternalError when onnxruntime rejects the model.
    """

    def __init__(self, model: bytes, device: Device, *, optimize: bool = True, profile: Path | None = None) -> None:
        self.notes = list(device.notes)
        try:
            session, assignment = _open(model, device, optimize, profile)
        except DeviceError as problem:
            if not device.allow_fallback or _runtime()[1] is not None:
                raise
            self.notes.append(f"{device} is not usable and device.allow_fallback is on: running on the CPU")
            if device not in _WARNED:  # a run opens several sessions
                LOG.warning("%s\n%s", self.notes[-1], problem)
                _WARNED.add(device)
            device = Device("CPU", threads=device.threads)
            session, assignment = _open(model, device, optimize, profile)
        self.device = device
        self.assignment = assignment
        self.providers: tuple[str, ...] = tuple(session.get_providers())
        self.inputs = {node.name: _type(node) for node in session.get_inputs()}
        self.outputs = {node.name: _type(node) for node in session.get_outputs()}
        self.optimization_level = _level(optimize)
        on_host = device.target == "CPU"
        self._memory: _HostMemory | _DeviceMemory = _HostMemory(session) if on_host else _DeviceMemory(session, device)
        self.end_profile: Callable[[], str] = session.end_profiling  # returns the name of the file

    def put(self, array: np.ndarray | np.generic) -> Value:
        """Move an array to the device. On the CPU it is shared where it is aligned: it must not change while in use."""
        return self._memory.put(array)

    def fetch(self, value: Value) -> np.ndarray:
        """The value as an array. On the CPU it shares memory with the value; no later run overwrites it."""
        return self._memory.fetch(value)

    def step(self, values: Sequence[Value]) -> list[Value]:
        """Run once: values in the order of `inputs`, results in the order of `outputs`, both on the device.

        Results can be inputs of the next step without a copy. Raises TrainingError with the failing operator.
        """
        try:
            return self._memory.step(values)
        except Exception as error:
            raise self._explain(error, values) from error

    def run(self, feeds: Mapping[str, "Value"]) -> dict[str, np.ndarray]:
        """Run once with arrays or device values by name. Raises as `step`, and InternalError for a wrong name."""
        if feeds.keys() != self.inputs.keys():
            raise InternalError(
                "feeds do not match the inputs of the graph", given=", ".join(feeds), inputs=", ".join(self.inputs)
            )
        values = [self.put(v) if isinstance(v, np.ndarray) else v for v in map(feeds.__getitem__, self.inputs)]
        return dict(zip(self.outputs, map(self.fetch, self.step(values)), strict=True))

    def _explain(self, error: Exception, values: Sequence[Value]) -> RunnerError:
        if len(values) != len(self.inputs):
            return InternalError("a step received a wrong number of values", given=len(values), inputs=len(self.inputs))
        for (name, expected), value in zip(self.inputs.items(), values, strict=True):
            given = TensorType.of(value) if isinstance(value, np.ndarray) else None
            # An input without axes may be one whose shape is not declared: the values between pieces of a model.
            if given is not None and expected.shape and not _fits(given, expected):
                return InternalError("a value does not match its input", input=name, expected=expected, given=given)
        rows = {"operator": operator_name(error), "device": self.device, "reason": first_line(error)}
        if is_memory_error(error):
            return ConfigError(NO_MEMORY, **rows, repair="a smaller network, batch or image size")
        return TrainingError("a step failed in onnxruntime", **rows)


def device_problem(target: str, device_id: int = 0) -> RunnerError | None:
    """None when a small convolution runs correctly on a device, otherwise the error with its reason and a repair.

    Raises ConfigError for an unknown target.
    """
    device = Device(target, device_id, threads=1)
    ones = np.ones((1, 1, 2, 2), np.float32)
    try:
        result = Session(_PROBE, device).run({"x": ones, "w": ones})["y"].item()
    except RunnerError as problem:
        return problem
    return None if result == 4 else device_error(device, f"1+1+1+1 came out as {result}")


def version() -> str:
    """onnxruntime's version; empty if it cannot be imported."""
    return str(getattr(_runtime()[0], "__version__", ""))


class _Memory:
    """Base: a session of onnxruntime, and the names of its inputs and outputs."""

    def __init__(self, session: Any) -> None:
        self._session, self._run = session, session.run
        self._inputs = [node.name for node in session.get_inputs()]
        self._outputs = [node.name for node in session.get_outputs()]


class _HostMemory(_Memory):
    """Memory of the CPU: `run` reads arrays in place and returns arrays that own onnxruntime's buffers, without copies.

    With 20 inputs and 20 outputs a call takes 22 µs, against 50 µs with OrtValues and with I/O binding.
    """

    def put(self, array: np.ndarray | np.generic) -> Value:
        array = np.asarray(array, order="C")
        return array if array.__array_interface__["data"][0] % ALIGNMENT == 0 else array.copy()

    def fetch(self, value: Value) -> np.ndarray:
        array: np.ndarray = value
        return array

    def step(self, values: Sequence[Value]) -> list[Value]:
        return list(self._run(self._outputs, dict(zip(self._inputs, values, strict=True))))


class _DeviceMemory(_Memory):
    """Memory of an accelerator: values stay there between runs.

    Every run has a new binding, because a binding that is used again overwrites the results of the previous run.
    """

    def __init__(self, session: Any, device: Device) -> None:
        super().__init__(session)
        self._location = device.backend.memory, device.id

    def put(self, array: np.ndarray | np.generic) -> Value:
        return _runtime()[0].OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), *self._location)

    def fetch(self, value: Any) -> np.ndarray:
        return np.asarray(value.numpy())

    def step(self, values: Sequence[Value]) -> list[Value]:
        binding = self._session.io_binding()
        for name, value in zip(self._inputs, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, *self._location)
        self._session.run_with_iobinding(binding)
        return list(binding.get_outputs())


def _open(model: bytes, device: Device, optimize: bool, profile: Path | None = None) -> tuple[Any, dict[str, int]]:
    """An InferenceSession with the provider of the device, and the number of operators that each provider took."""
    _require_provider(device)
    session, problem = None, None
    on_host = device.target == "CPU"
    with contextlib.nullcontext(CapturedOutput()) if on_host else capture_output() as captured:
        try:
            session = _inference_session(model, device, optimize, profile)
        except Exception as error:
            problem = error
    if captured.text:
        LOG.debug("output of onnxruntime while a session was opened on %s: %s", device, captured.text.strip())
    if session is not None and session.get_providers()[0] == device.backend.provider:
        assignment = _assignment(session)
        if assignment and device.backend.provider not in assignment:
            if model == _PROBE or device_problem(device.target, device.id):
                raise device_error(device, f"the provider took no operator of the graph: {assignment}")
            LOG.warning("%s has no kernel for any operator of a graph: the CPU computes it", device)
        return session, assignment
    if problem is not None and (on_host or (model != _PROBE and not device_problem(device.target, device.id))):
        rows = {"operator": operator_name(problem), "device": device, "reason": first_line(problem)}
        if NO_KERNEL in str(problem):
            raise ConfigError(
                "onnxruntime has no kernel for an operator in this element type", **rows, repair=IN_FLOAT32
            )
        raise InternalError("onnxruntime rejected the graph", **rows) from problem
    raise device_error(device, device_reason(captured.text, problem), captured.text) from problem


@cache
def _runtime() -> tuple[Any, Exception | None, str]:
    """onnxruntime, the error of its import, and its output; the CANN wheel prints twenty lines with NumPy 2.

    It is imported when the first session is opened: that takes 25 ms, and PyNative mode needs no session.
    """
    problem: Exception | None = None
    with capture_output() as captured:
        try:
            import onnxruntime as ort

            if not hasattr(ort, "InferenceSession"):  # the empty folder that remains when one of two wheels was removed
                problem = ImportError("its files are missing")
        except Exception as error:
            problem = error
    return (None if problem else ort), problem, captured.text


def _require_provider(device: Device) -> None:
    ort, problem, output = _runtime()
    if problem is not None and is_memory_error(problem):
        raise unexpected(problem)
    if problem is not None:
        error = device_error(device, import_reason(output, problem))
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
    options.enable_cpu_mem_arena = device.arena
    options.log_severity_level = 4  # fatal: all other messages are also raised as exceptions
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _level(optimize))
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if not optimize:
        # Nodes run in the order of the model as far as possible; by default onnxruntime first computes everything that
        # the first result depends on. Planning the memory of a whole run would need 1.5 times as much (BENCHMARKS.md).
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_pattern = False
    providers: list[object] = ["CPUExecutionProvider"]
    if device.target != "CPU":
        providers.insert(0, (device.backend.provider, provider_options(device)))
        options.use_deterministic_compute = True  # two runs give the same bits
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")  # ignored by 1.20
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads of a busy machine
    if device.target == "GPU" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # finds CUDA and cuDNN in pip's folders
    # enable_fallback=0: no second try on the CPU, neither now nor when a run fails
    return ort.InferenceSession(
        model, options, providers=providers, enable_fallback=0, disabled_optimizers=[*DEPENDENT_ON_PROCESSOR]
    )


def _level(optimize: bool) -> str:
    return "ORT_ENABLE_ALL" if optimize else "ORT_DISABLE_ALL"


def _assignment(session: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    with contextlib.suppress(Exception):  # recorded on accelerators only, and unknown to onnxruntime 1.20
        for part in session.get_provider_graph_assignment_info():
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    return counts


def _type(node: Any) -> TensorType:
    """The type of a model's input or output, from onnxruntime's description such as `tensor(float)`."""
    kind = node.type.removeprefix("tensor(").removesuffix(")")
    if kind not in _ONNX_TYPES:
        raise InternalError("not an element type of tensors", value=node.name, type=node.type)
    return TensorType(_ONNX_TYPES[kind], tuple(n if isinstance(n, int) else -1 for n in node.shape))


def _fits(given: TensorType, expected: TensorType) -> bool:
    pairs = zip(given.shape, expected.shape, strict=False)
    return given.dtype is expected.dtype and given.ndim == expected.ndim and all(e in (g, -1) for g, e in pairs)
