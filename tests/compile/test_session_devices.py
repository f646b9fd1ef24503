"""Honesty about devices: no silent fallback, and the library's own reason in the error.

The texts that the fakes print were recorded from onnxruntime-gpu 1.31.1 and onnxruntime-cann 1.24.4 on a machine
without the hardware. Set RUNNER_ORT_GPU_PYTHON or RUNNER_ORT_CANN_PYTHON to a Python that has the wheel, to run them.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from runner import device as devices
from runner.compile import session, session as sessions
from runner.compile.session import Session, device_problem, device_reason, first_line, operator_name, provider_options
from runner.device import BACKENDS, Device
from runner.errors import ConfigError, DeviceError, InternalError

ROOT = Path(__file__).parents[2]
SITE = "/venv/lib/python3.11/site-packages/onnxruntime/capi"
NO_FILE = "cannot open shared object file: No such file or directory"
GPU_PRELOAD = (
    f"Failed to load libcublasLt.so.13: libcublasLt.so.13: {NO_FILE}\n"
    f"Failed to load libcublas.so.13: libcublas.so.13: {NO_FILE}\n"
    f"Failed to load libcurand.so.10: libcurand.so.10: {NO_FILE}\n"
    "Please follow https://onnxruntime.ai/docs/install/#cuda-and-cudnn to install CUDA.\n"
)
GPU_STDERR = (
    "\x1b[0;93m2026-11-20 20:41:38.834437751 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:856 operator()] "
    "No registered plugin EP device found for 'CUDAExecutionProvider' with device_id=0\x1b[m\n"
    "\x1b[1;31m2026-11-20 20:41:38.858041880 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] "
    "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& "
    "onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library "
    f"{SITE}/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: {NO_FILE}\n\x1b[m\n"
    "\x1b[0;93m2026-11-20 20:41:38.858079966 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:1295 "
    "CreateExecutionProviderFactoryInstance] Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. "
    "Please install all dependencies as mentioned in the GPU requirements page.\x1b[m\n"
)
CANN_STDERR = (
    "\x1b[1;31m2026-11-20 20:43:03.664256982 [E:onnxruntime:Default, provider_bridge_ort.cc:2387 "
    "TryGetProviderInfo_CANN] /root/Ascend-CI/onnxruntime/onnxruntime/core/session/provider_bridge_ort.cc:1952 "
    "onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library "
    f"{SITE}/libonnxruntime_providers_cann.so with error: libascendcl.so: {NO_FILE}\n\x1b[m\n"
)
CANN_RAISED = (
    "/root/Ascend-CI/onnxruntime/onnxruntime/python/onnxruntime_pybind_state.cc:1189 "
    "std::shared_ptr<onnxruntime::IExecutionProviderFactory> onnxruntime::python::"
    "CreateExecutionProviderFactoryInstance(const onnxruntime::SessionOptions&, const std::string&, "
    "const onnxruntime::ProviderOptionsMap&) "
    "create CANN ExecutionProvider fail\n"
)


def negation() -> bytes:
    """An ONNX model with one operator."""
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "test", *ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def wheel(monkeypatch, distribution, version):
    """Pretend that this machine has one distribution and no device library."""
    monkeypatch.setattr(devices, "_loads", lambda library: False)
    monkeypatch.setattr(devices, "runtimes", lambda: {distribution: version})


def fake_runtime(monkeypatch, provider, printed, problem=None):
    """Pretend that onnxruntime lists a provider, and prints and raises as recorded when it is asked for."""
    real = onnxruntime.InferenceSession

    def opened(content, options, providers, **rest):
        if providers[0] == "CPUExecutionProvider":
            return real(content, options, providers=providers, **rest)
        device = next(Device(target) for target, backend in BACKENDS.items() if backend.provider == provider)
        assert providers == [(provider, provider_options(device)), "CPUExecutionProvider"]
        assert rest.pop("disabled_optimizers") == ["NchwcTransformer"]
        assert rest == {"enable_fallback": 0}
        os.write(2, printed.encode())
        if problem is not None:
            raise problem
        return real(content, options, providers=["CPUExecutionProvider"], **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [provider, "CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: print(GPU_PRELOAD, end=""), raising=False)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Node (Default/mm-op1) Op (MatMul) [ShapeInferenceError] no",
            "Default/mm-op1",
        ),
        (
            "Type Error: Type parameter (T) of Optype (Add) bound to different types in node (Default/add-op1).",
            "Default/add-op1",
        ),
        ("Could not find an implementation for Add(14) node with name 'Default/add-op1'", "Default/add-op1"),
        ("Invalid model. Node input 'q' is not a graph input, initializer, or output of a previous node.", None),
    ],
)
def test_the_operator_in_a_message(message, name):
    assert operator_name(RuntimeError(message)) == name


def test_the_first_line_has_no_error_number_and_no_cpp_signature():
    assert first_line(RuntimeError(CANN_RAISED)) == "create CANN ExecutionProvider fail"
    assert first_line(RuntimeError("\n[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : a\nb")) == "a"
    assert first_line(KeyError()) == "KeyError"


def test_the_cpu_is_usable():
    assert device_problem("CPU") is None


def test_an_unknown_target():
    with pytest.raises(ConfigError):
        device_problem("TPU")


def test_the_probe_is_the_convolution_that_its_comment_promises():
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    assert onnx.load_model_from_string(sessions._PROBE).graph.node[0] == node
    onnx.checker.check_model(sessions._PROBE)


def test_a_device_that_computes_wrongly_is_not_usable(monkeypatch):
    monkeypatch.setattr(Session, "run", lambda self, feeds: {"y": np.array(5.0)})
    wheel(monkeypatch, "onnxruntime", "1.31.1")
    assert device_problem("CPU").rows["reason"] == "1+1+1+1 came out as 5.0"


def test_an_id_without_effect_is_noted():
    assert Session(negation(), Device(id=2)).notes == ["device.id=2 has no effect on the CPU"]


def test_a_wheel_without_the_provider(monkeypatch):
    wheel(monkeypatch, "onnxruntime", "1.31.1")
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["AzureExecutionProvider", "CPUExecutionProvider"]
    )
    with pytest.raises(DeviceError) as caught:
        Session(negation(), Device("GPU"))
    assert str(caught.value) == (
        "DeviceError: the device cannot be used\n"
        "  device     GPU 0\n"
        "  provider   CUDAExecutionProvider\n"
        "  reason     this onnxruntime has only AzureExecutionProvider, CPUExecutionProvider\n"
        "  missing    libcuda.so.1\n"
        "  installed  onnxruntime 1.31.1\n"
        '  repair     pip uninstall -y onnxruntime && pip install "onnxruntime-gpu[cuda,cudnn]"\n'
        "             install the NVIDIA driver, which brings libcuda.so.1"
    )


def test_the_gpu_wheel_without_cuda_opens_silently_on_the_cpu_and_is_caught(monkeypatch, capfd):
    wheel(monkeypatch, "onnxruntime-gpu", "1.31.1")
    fake_runtime(monkeypatch, "CUDAExecutionProvider", GPU_STDERR)
    with pytest.raises(DeviceError) as caught:
        Session(negation(), Device("GPU"))
    assert str(caught.value) == (
        "DeviceError: the device cannot be used\n"
        "  device     GPU 0\n"
        "  provider   CUDAExecutionProvider\n"
        "  reason     Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: "
        "cannot open shared object file: No such file or directory\n"
        "  missing    libcublasLt.so.13, libcublas.so.13, libcurand.so.10, libcuda.so.1\n"
        "  installed  onnxruntime-gpu 1.31.1\n"
        '  repair     pip install "onnxruntime-gpu[cuda,cudnn]", which brings libcublasLt.so.13, libcublas.so.13, '
        "libcurand.so.10\n"
        "             install the NVIDIA driver, which brings libcuda.so.1"
    )
    assert capfd.readouterr() == ("", "")


def test_the_cann_wheel_without_its_toolkit(monkeypatch, capfd):
    wheel(monkeypatch, "onnxruntime-cann", "1.24.4")
    fake_runtime(monkeypatch, "CANNExecutionProvider", CANN_STDERR, RuntimeError(CANN_RAISED))
    with pytest.raises(DeviceError) as caught:
        Session(negation(), Device("Ascend"))
    assert str(caught.value) == (
        "DeviceError: the device cannot be used\n"
        "  device     Ascend 0\n"
        "  provider   CANNExecutionProvider\n"
        "  reason     Failed to load library libonnxruntime_providers_cann.so with error: libascendcl.so: "
        "cannot open shared object file: No such file or directory\n"
        "  missing    libascendcl.so, libacl_op_compiler.so, libfmk_onnx_parser.so\n"
        "  installed  onnxruntime-cann 1.24.4\n"
        "  repair     install the CANN toolkit and source its set_env.sh, for libascendcl.so, libacl_op_compiler.so, "
        "libfmk_onnx_parser.so"
    )
    assert capfd.readouterr() == ("", "")


def test_a_fallback_that_is_allowed_warns(monkeypatch, caplog):
    wheel(monkeypatch, "onnxruntime-gpu", "1.31.1")
    fake_runtime(monkeypatch, "CUDAExecutionProvider", GPU_STDERR)
    with caplog.at_level(logging.WARNING, "runner"):
        session = Session(negation(), Device("GPU", threads=1, allow_fallback=True))
    note = "GPU 0 is not usable and device.allow_fallback is on: running on the CPU"
    assert session.notes == [note]
    assert (session.device, session.providers) == (Device("CPU", threads=1), ("CPUExecutionProvider",))
    assert [record.message.splitlines()[0] for record in caplog.records] == [note]
    assert "reason     Failed to load library" in caplog.records[0].message


def test_a_graph_that_a_working_card_refuses_is_no_device_error(monkeypatch):
    fake_runtime(monkeypatch, "CUDAExecutionProvider", "", RuntimeError("Node (Default/a-op1) Op (X) no kernel"))
    monkeypatch.setattr(sessions, "device_problem", lambda target, device_id: None)
    with pytest.raises(InternalError) as caught:
        Session(negation(), Device("GPU"))
    assert str(caught.value) == (
        "InternalError: onnxruntime rejected the graph\n"
        "  operator  Default/a-op1\n"
        "  device    GPU 0\n"
        "  reason    Node (Default/a-op1) Op (X) no kernel"
    )


class IdleCard:
    """A session that has the provider, which left every operator to the CPU."""

    def __init__(self, *args, **kwargs) -> None: ...

    def get_providers(self):
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def get_provider_graph_assignment_info(self):
        part = type("Part", (), {"ep_name": "CPUExecutionProvider", "get_nodes": lambda self: ["a", "b"]})
        return [part(), part()]


def test_a_provider_that_takes_no_operator(monkeypatch):
    wheel(monkeypatch, "onnxruntime-gpu", "1.31.1")
    fake_runtime(monkeypatch, "CUDAExecutionProvider", "")
    monkeypatch.setattr(onnxruntime, "InferenceSession", IdleCard)
    with pytest.raises(DeviceError) as caught:
        Session(negation(), Device("GPU"))
    assert caught.value.rows["reason"] == ("the provider took no operator of the graph: {'CPUExecutionProvider': 4}")


def test_a_card_that_works_but_has_no_kernel_for_any_operator(monkeypatch, caplog):
    """As CUDA for a graph of one Atan: the CPU computes it, and a line says so."""
    wheel(monkeypatch, "onnxruntime-gpu", "1.31.1")
    fake_runtime(monkeypatch, "CUDAExecutionProvider", "")
    monkeypatch.setattr(session, "_inference_session", lambda *how: IdleCard())
    monkeypatch.setattr(session, "device_problem", lambda target, number: None)
    opened, assignment = session._open(negation(), Device("GPU"), True)
    assert (type(opened), assignment) == (IdleCard, {"CPUExecutionProvider": 4})
    assert "GPU 0 has no kernel for any operator of a graph: the CPU computes it" in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026 [W:onnxruntime:Default, a.cc:1 f] careful\n2026 [E:onnxruntime:Default, a.cc:2 g] bad\n", "bad"),
        ("2026 [W:onnxruntime:Default, a.cc:1 f] careful\n", "careful"),
        ("", "onnxruntime opened the session without the provider and gave no reason"),
    ],
)
def test_the_reason_in_what_is_printed(text, reason):
    assert device_reason(text) == reason


# A broken onnxruntime, in a process of its own

CANN_IMPORT = """
import sys
sys.stderr.write("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.4.6\\n")
sys.stderr.write("AttributeError: _ARRAY_API not found\\n")
raise ImportError("import numpy failed")
"""
REASON = """from runner.compile.session import device_problem
problem = device_problem({!r})
print(problem and problem.rows['reason'])"""


def reason_in_process(python, target, *path) -> str:
    """The reason of `device_problem` in another process, which must print nothing else and exit with 0."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    done = subprocess.run(
        [python, "-c", REASON.format(target)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CANN_IMPORT, "it was built for NumPy 1 and finds NumPy 2 (_ARRAY_API not found)"),
        ("raise ModuleNotFoundError(\"No module named 'onnxruntime'\")", "No module named 'onnxruntime'"),
        ("", "its files are missing"),
    ],
)
def test_an_onnxruntime_that_cannot_be_imported(tmp_path, content, reason):
    (tmp_path / "onnxruntime.py").write_text(content)
    assert reason_in_process(sys.executable, "CPU", tmp_path) == f"onnxruntime cannot be imported: {reason}"


def test_the_error_for_an_import_that_failed(monkeypatch):
    wheel(monkeypatch, "onnxruntime-cann", "1.24.4")
    monkeypatch.setattr(sessions, "runtimes", lambda: {"onnxruntime-cann": "1.24.4"})
    monkeypatch.setattr(sessions, "_runtime", lambda: (None, ImportError("import numpy failed"), ""))
    with pytest.raises(DeviceError) as caught:
        Session(negation(), Device("Ascend", allow_fallback=True))
    assert str(caught.value) == (
        "DeviceError: the device cannot be used\n"
        "  device     Ascend 0\n"
        "  provider   CANNExecutionProvider\n"
        "  reason     onnxruntime cannot be imported: import numpy failed\n"
        "  missing    libascendcl.so, libacl_op_compiler.so, libfmk_onnx_parser.so\n"
        "  installed  onnxruntime-cann 1.24.4\n"
        '  repair     pip uninstall -y onnxruntime-cann && pip install onnxruntime-cann "numpy<2" "ml_dtypes<0.6"'
    )


@pytest.mark.parametrize(
    ("target", "variable"), [("GPU", "RUNNER_ORT_GPU_PYTHON"), ("Ascend", "RUNNER_ORT_CANN_PYTHON")]
)
def test_the_real_wheel_without_its_hardware(target, variable):
    python = os.environ.get(variable) or pytest.skip(f"{variable} is not set")
    assert reason_in_process(python, "CPU") == "None"
    assert reason_in_process(python, target).startswith("Failed to load library libonnxruntime_providers_")
