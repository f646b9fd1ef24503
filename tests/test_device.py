"""The device a run asks for, and the repair that is advised when a machine cannot give it."""

import pytest

from runner import device as devices
from runner.device import BACKENDS, Device, describe_runtimes, device_error, missing_libraries, repair
from runner.errors import ConfigError

GPU_WHEEL = {"onnxruntime-gpu": "1.31.1"}


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    """A machine without any device library, with the CPU wheel."""
    monkeypatch.setattr(devices, "_loads", lambda library: False)
    monkeypatch.setattr(devices, "runtimes", lambda: {"onnxruntime": "1.31.1"})


def test_a_device_prints_its_card_only_where_it_has_one():
    assert [str(Device(target, 3)) for target in BACKENDS] == ["CPU", "GPU 3", "Ascend 3"]


def test_targets_know_their_provider_and_extra():
    assert {target: (backend.provider, backend.extra) for target, backend in BACKENDS.items()} == {
        "CPU": ("CPUExecutionProvider", None),
        "GPU": ("CUDAExecutionProvider", "gpu"),
        "Ascend": ("CANNExecutionProvider", "ascend"),
    }


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"target": "Ascent"},
            "ConfigError: no such device\n  value    Ascent\n  allowed  CPU, GPU, Ascend\n  nearest  Ascend",
        ),
        (
            {"target": "GPU", "id": 4096},
            "ConfigError: device.id is out of range\n  value    4096\n  allowed  0 to 4095",
        ),
        ({"id": -1}, "ConfigError: device.id is out of range\n  value    -1\n  allowed  0 to 4095"),
        (
            {"threads": -2},
            "ConfigError: device.threads is out of range\n  value    -2\n  allowed  0 (as many as are useful) to 1024",
        ),
    ],
)
def test_impossible_devices(values, text):
    with pytest.raises(ConfigError) as caught:
        Device(**values)
    assert str(caught.value) == text


def test_an_id_without_effect_is_noted_in_one_line():
    assert Device("CPU", 3).notes == ("device.id=3 has no effect on the CPU",)
    assert Device("CPU").notes == Device("GPU", 3, tf32=True).notes == ()


def test_tf32_without_effect_is_noted():
    assert Device("CPU", tf32=True).notes == ("device.tf32=true has no effect on the CPU",)
    assert Device("Ascend", 1, tf32=True).notes == ("device.tf32=true has no effect on Ascend",)


def test_missing_libraries_are_those_printed_and_those_looked_for():
    text = (
        "Failed to load libcublas.so.13: libcublas.so.13: cannot open shared object file: No such file or directory\n"
        "Failed to load libcublas.so.13: libcublas.so.13: cannot open shared object file: No such file or directory\n"
    )
    assert missing_libraries("GPU", text) == ["libcublas.so.13", "libcuda.so.1"]
    assert missing_libraries("CPU") == []


def test_a_library_that_loads_is_not_missing(monkeypatch):
    monkeypatch.undo()
    assert devices._loads("libc.so.6")
    assert not devices._loads("libnot-there.so.1")


def test_repair_of_the_wrong_wheel():
    assert repair("GPU", {"onnxruntime": "1.31.1"}, []) == (
        'pip uninstall -y onnxruntime && pip install "onnxruntime-gpu[cuda,cudnn]"'
    )
    assert repair("Ascend", {}, []) == 'pip install onnxruntime-cann "numpy<2" "ml_dtypes<0.6"'


def test_repair_of_missing_libraries_is_grouped_by_what_brings_them():
    assert repair("GPU", GPU_WHEEL, ["libcublas.so.13", "libcudnn.so.9", "libcuda.so.1", "libodd.so"]) == (
        'pip install "onnxruntime-gpu[cuda,cudnn]", which brings libcublas.so.13, libcudnn.so.9\n'
        "install the NVIDIA driver, which brings libcuda.so.1\n"
        "install what brings libodd.so"
    )
    assert repair("Ascend", {"onnxruntime-cann": "1.24.4"}, ["libascendcl.so"]) == (
        "install the CANN toolkit and source its set_env.sh, for libascendcl.so"
    )


def test_repair_when_nothing_is_missing():
    assert repair("GPU", GPU_WHEEL, []) == "`nvidia-smi` shows whether the driver runs and which cards there are"


def test_two_wheels_in_one_environment_are_named_and_removed():
    installed = {"onnxruntime": "1.20.0", "onnxruntime-cann": "1.24.4"}
    assert describe_runtimes(installed) == (
        "onnxruntime 1.20.0, onnxruntime-cann 1.24.4: they overwrite each other, keep one"
    )
    assert repair("CPU", installed, []) == ("pip uninstall -y onnxruntime onnxruntime-cann && pip install onnxruntime")


def test_the_error_block():
    error = device_error(Device("Ascend", 1), "no such card")
    assert error.exit_code == 3
    assert str(error) == (
        "DeviceError: the device cannot be used\n"
        "  device     Ascend 1\n"
        "  provider   CANNExecutionProvider\n"
        "  reason     no such card\n"
        "  missing    libascendcl.so, libacl_op_compiler.so, libfmk_onnx_parser.so\n"
        "  installed  onnxruntime 1.31.1\n"
        '  repair     pip uninstall -y onnxruntime && pip install onnxruntime-cann "numpy<2" "ml_dtypes<0.6"\n'
        "             install the CANN toolkit and source its set_env.sh, for libascendcl.so, libacl_op_compiler.so, "
        "libfmk_onnx_parser.so"
    )
