"""The settings of scripts: every one, every wrong one, and switching the mode between two calls of one cell."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tables import table

from models.lenet import LeNet5
from runner import Model, Tensor, context, nn, ops
from runner.config.schema import SessionSettings
from runner.device import Device
from runner.errors import ConfigError, DeviceError

SETTINGS = "mode, device_target, device_id, reserve_class_name_in_scope, print_file_path, save_graphs"
SETTINGS += ", save_graphs_path, precision_mode, enable_profiling, profiling_options"
DEFAULTS = {
    "mode": 1,
    "device_target": "CPU",
    "device_id": 0,
    "reserve_class_name_in_scope": True,
    "print_file_path": "",
    "save_graphs": False,
    "save_graphs_path": ".",
    "precision_mode": "allow_fp32_to_fp16",
    "enable_profiling": False,
    "profiling_options": "training_trace",
}
SEEDS = Path(__file__).parents[2].parent / "shared" / "seeds"


def settings() -> dict[str, object]:
    return {name: context.get_context(name) for name in DEFAULTS}


def test_the_defaults():
    assert settings() == DEFAULTS
    assert (context.GRAPH_MODE, context.PYNATIVE_MODE) == (0, 1)
    assert context.device() == Device("CPU", 0)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("mode", context.GRAPH_MODE, 0),
        ("mode", context.PYNATIVE_MODE, 1),
        ("device_target", "CPU", "CPU"),
        ("device_target", "gpu", "GPU"),
        ("device_target", "ASCEND", "Ascend"),
        ("device_target", "Davinci", "Ascend"),
        ("device_id", 0, 0),
        ("device_id", 4095, 4095),
        ("reserve_class_name_in_scope", False, False),
    ],
)
def test_every_setting(name, value, kept):
    context.set_context(**{name: value})
    assert settings() == {**DEFAULTS, name: kept}
    context.reset_context()
    assert settings() == DEFAULTS


def test_several_settings_at_once():
    context.set_context(device_target="Ascend", device_id=6)
    assert context.device() == Device("Ascend", 6)
    context.set_context()
    assert context.device() == Device("Ascend", 6)


PRECISIONS = "allow_fp32_to_fp16, force_fp16, force_fp32, must_keep_origin_dtype, allow_mix_precision"
MODES_ALLOWED = "context.GRAPH_MODE (0), context.PYNATIVE_MODE (1)"
WRONG = [
    (("mode", 2), f"unknown mode\n  given    2\n  allowed  {MODES_ALLOWED}"),
    (("mode", True), f"unknown mode\n  given    True\n  allowed  {MODES_ALLOWED}"),
    (("mode", 1.0), f"unknown mode\n  given    1.0\n  allowed  {MODES_ALLOWED}"),
    (("mode", "graph"), f"unknown mode\n  given    'graph'\n  allowed  {MODES_ALLOWED}"),
    (
        ("device_target", "ascent"),
        ("unknown device target\n  given    ascent\n  allowed  CPU, GPU, Ascend\n  nearest  Ascend"),
    ),
    (("device_target", 3), "unknown device target\n  given    3\n  allowed  CPU, GPU, Ascend"),
    (("device_id", 4096), "device_id out of range\n  given    4096\n  allowed  0 to 4095"),
    (("device_id", -1), "device_id out of range\n  given    -1\n  allowed  0 to 4095"),
    (("device_id", "0"), "device_id is no whole number\n  given    '0'\n  allowed  0 to 4095"),
    (("device_id", True), "device_id is no whole number\n  given    True\n  allowed  0 to 4095"),
    (("mode", "0"), f"unknown mode\n  given    '0'\n  allowed  {MODES_ALLOWED}"),
    (
        ("precision_mode", ["force_fp16"]),
        f"unknown precision_mode\n  given    ['force_fp16']\n  allowed  {PRECISIONS}\n  nearest  force_fp16",
    ),
    (("reserve_class_name_in_scope", 1), "reserve_class_name_in_scope must be True or False\n  given  1"),
    (("save_graphs", 1), "save_graphs must be True or False\n  given  1"),
    (("save_graphs_path", None), "save_graphs_path must be a path\n  given  NoneType"),
    (
        ("save_graphs_path", "/dev/null/graphs"),
        "save_graphs_path is a file\n  value    /dev/null/graphs\n  file     /dev/null\n  allowed  a folder",
    ),
    (("print_file_path", None), "print_file_path must be a string\n  given  NoneType"),
    (
        ("print_file_path", "/"),
        "the print file is a folder\n  key    print_file_path\n  value  /\n  hint   /print.pb",
    ),
    (
        ("print_file_path", "/nowhere/print.pb"),
        "the folder of the print file does not exist\n"
        "  key     print_file_path\n  value   /nowhere/print.pb\n  folder  /nowhere",
    ),
    (
        ("device_targt", "GPU"),
        (f"unknown context setting\n  given    device_targt\n  allowed  {SETTINGS}\n  nearest  device_target"),
    ),
    (("zzz", 1), f"unknown context setting\n  given    zzz\n  allowed  {SETTINGS}"),
]


@table(("setting", "text"), WRONG, ids=[f"{name}={value!r}" for (name, value), _ in WRONG])
def test_a_wrong_setting_changes_nothing(setting, text):
    name, value = setting
    right = {"device_id": 3, "device_target": "GPU"} if name not in ("device_id", "device_target") else {"mode": 0}
    with pytest.raises(ConfigError) as caught:
        context.set_context(**right, **{name: value})
    assert str(caught.value) == f"ConfigError: {text}"
    assert isinstance(caught.value, ValueError)
    assert settings() == DEFAULTS


def test_asking_for_an_unknown_setting():
    with pytest.raises(ConfigError) as caught:
        context.get_context("moed")
    assert str(caught.value) == (
        f"ConfigError: unknown context setting\n  given    moed\n  allowed  {SETTINGS}\n  nearest  mode"
    )


OF_SESSIONS = ("op_debug_level", "enable_exception_dump", "graph_run_mode", "op_select_implmode")


@pytest.mark.parametrize("name", [*OF_SESSIONS, "optypelist_for_implmode", "profiling_mode", "initialize_system"])
def test_an_option_of_a_session_names_its_key(name):
    for call in (lambda: context.set_context(**{name: 1}), lambda: context.get_context(name)):
        with pytest.raises(ConfigError) as caught:
            call()
        hint = f"runs have this key, those of scripts too: runner.run(['session.{name}=...'])"
        assert caught.value.rows == {"given": name, "key": f"session.{name}", "hint": hint}
    assert set(context.OF_SESSIONS) <= set(SessionSettings.__dataclass_fields__)


@pytest.mark.parametrize("target", ["GPU", "Ascend"])
def test_a_card_that_pynative_mode_would_leave_idle(target):
    context.set_context(device_target=target, device_id=1)
    network = nn.Dense(3, 2)
    calls = (
        lambda: network(Tensor(np.ones((1, 3), np.float32))),
        lambda: Model(network, nn.MSELoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9)),
    )
    for call in calls:
        with pytest.raises(DeviceError) as caught:
            call()
        assert str(caught.value) == (
            "DeviceError: PyNative mode computes in numpy, on the CPU\n"
            f"  device  {target} 1\n"
            "  repair  context.set_context(mode=context.GRAPH_MODE), or device_target='CPU'"
        )
    context.set_context(device_target="CPU")
    assert network(Tensor(np.ones((1, 3), np.float32))).shape == (1, 2)


class Everything(nn.Cell):
    """Layers with and without parameters, and operators of its own."""

    def __init__(self):
        super().__init__()
        self.conv, self.tanh, self.drop = nn.Conv2d(2, 3, 3, has_bias=True), nn.Tanh(), nn.Dropout(0.5)
        self.pool, self.flatten, self.fc = nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(12, 5)

    def construct(self, x):
        y = self.flatten(self.pool(self.tanh(self.drop(self.conv(x)))))
        return self.fc(y), ops.ReduceMean()(y)


@pytest.mark.parametrize("build", [LeNet5, Everything])
def test_switching_between_two_calls_of_one_cell(build):
    shape = (2, 1, 32, 32) if build is LeNet5 else (2, 2, 4, 4)
    x = Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    network, made = build(), {0: [], 1: []}
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE) * 2:
        context.set_context(mode=mode)
        result = network(x)
        made[mode].append([part.asnumpy() for part in (result if isinstance(result, tuple) else (result,))])
    for mode in (0, 1):
        assert [part.tobytes() for part in made[mode][0]] == [part.tobytes() for part in made[mode][1]]
    for graph, eager in zip(made[0][0], made[1][0], strict=True):
        assert graph.dtype == eager.dtype
        np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-7)


EXAMPLE = """
import numpy as np
import mindspore.nn as nn
from mindspore import context, Tensor

context.set_context(mode=context.GRAPH_MODE, device_target="GPU")

conv = nn.Conv2d(3, 4, 3, bias_init='zeros')
input_data = Tensor(np.ones([1, 3, 5, 5]).astype(np.float32))
conv(input_data)
context.set_context(mode=context.PYNATIVE_MODE)

conv(input_data)
"""
SHOWN = """
import json
made = conv(input_data)
context.set_context(mode=context.GRAPH_MODE)
print(json.dumps([made.asnumpy().tolist(), conv(input_data).asnumpy().tolist(), conv.weight.asnumpy().tolist()]))
"""


def test_the_example_of_the_reference():
    """The page's own script, with the package's name replaced (and the CPU, which every machine has)."""
    if SEEDS.is_dir():
        page = next(SEEDS.glob("001*")).read_text()
        assert EXAMPLE.strip() in page
    script = EXAMPLE.replace("mindspore", "runner").replace('"GPU"', '"CPU"') + SHOWN
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=True)
    assert done.stderr == ""
    eager, graph, weight = (np.array(part, np.float32) for part in json.loads(done.stdout))
    assert eager.shape == (1, 4, 5, 5)
    # Over an image of ones a "same" convolution sums the part of the weights that lies on the image.
    padded = np.pad(np.ones((3, 5, 5)), ((0, 0), (1, 1), (1, 1)))
    expected = [
        [[(weight[k] * padded[:, y : y + 3, x : x + 3]).sum() for x in range(5)] for y in range(5)] for k in range(4)
    ]
    np.testing.assert_allclose(eager[0], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-7)
