"""Steps, names of files, and the choice of operators: each read back, each mistake named."""

import numpy as np
import pytest
from tables import table

from runner import dtype as dt
from runner.observe.dump.dumper import KernelSelection
from runner.observe.dump.files import AsyncName, NpyName, SyncName, sanitised
from runner.observe.dump.settings import Iterations
from runner.types import TensorType
from runner.validation.rules import Invalid


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("0|5-8|100-120", [0, *range(5, 9), *range(100, 121)]),
        ("8|3|3-4", [3, 4, 8]),
        (0, [0]),
        ("7", [7]),
        ("2-2", [2]),
        ("0-3|2-5", list(range(6))),
    ],
)
def test_iterations(text, steps):
    chosen = Iterations.parse(text)
    assert [step for step in range(200) if chosen.next_step(step) == step] == steps
    walked, step = [], chosen.next_step(0)
    while step is not None:
        walked.append(step)
        step = chosen.next_step(step + 1)
    assert walked == steps


def test_all_iterations():
    chosen = Iterations.parse("all")
    assert [chosen.next_step(step) for step in (0, 5, 10**12)] == [0, 5, 10**12]


WRONG_TEXTS = "", "5-", "-5", "8-5", "-1", "a", "0 | 5-8", " 0", "1||2", "|1", "1|", "1-2-3", "1,2", "ALL", "1.5", "0x1"


@table("text", [*WRONG_TEXTS, "\u0663", "9" * 19, True, None, 1.0, [0], -1])
def test_wrong_iterations(text):
    with pytest.raises(Invalid) as caught:
        Iterations.parse(text)
    assert "such as" in caught.value.allowed


SYNC_NAMES = [
    SyncName("Default/network-LeNet5/conv1-Conv2d/Conv2D-op3", "input", 1, TensorType(dt.float32, (64, 3, 3, 3))),
    SyncName("conv1.weight", "output", 0, TensorType(dt.float16, (1,))),
    SyncName("Default/a_input_1/Print-op2", "input", 12, TensorType(dt.bool_, (3, 4)), "CHWN"),
    SyncName("cst1", "output", 0, TensorType(dt.int64, ())),
    SyncName("Default/x/Add-op0", "output", 0, TensorType(dt.uint8, (0,))),
]


@pytest.mark.parametrize("name", SYNC_NAMES, ids=str)
def test_sync_names_are_read_back(name):
    assert SyncName.parse(str(name), name.type.nbytes) == name


def test_the_seeds_own_sync_name():
    text = (
        "Default--network-TrainOneStepCell--network-WithLossCell--_backbone-ResNet--conv1-Conv2d--"
        "Conv2D-op516_input_1_shape_64_3_3_3_Float32_DefaultFormat.bin"
    )
    name = SyncName.parse(text, 64 * 27 * 4)
    assert name is not None
    assert name.name.endswith("/conv1-Conv2d/Conv2D-op516")
    assert (name.io, name.slot, name.type, name.format) == (
        "input",
        1,
        TensorType(dt.float32, (64, 3, 3, 3)),
        "DefaultFormat",
    )
    assert str(name) == text
    gpu = SyncName.parse("x_output_0_shape_2_kNumberTypeFloat32_NCHW.bin", 8)
    assert gpu is not None
    assert gpu.type == TensorType(dt.float32, (2,))
    assert SyncName.parse("mapping.csv", 3) is None
    assert SyncName.parse("x_output_0_shape_2_Complex7_NCHW.bin", 8) is None


def test_async_names():
    seed = "Conv2D.Default_network__backbone_conv1_Conv2D-op515.58.16.1624605159829577"
    name = AsyncName.parse(seed)
    assert name == AsyncName("Conv2D", "Default_network__backbone_conv1_Conv2D-op515", 58, 16, 1624605159829577)
    assert str(name) == seed
    four = AsyncName.parse("Add.Default_Add-op1.2.161243956333802")
    assert four == AsyncName("Add", "Default_Add-op1", 2, 0, 161243956333802)
    npy = NpyName.parse(seed + ".output.0.DefaultFormat.npy")
    assert npy == NpyName(name, "output", 0, "DefaultFormat")
    assert str(npy) == seed + ".output.0.DefaultFormat.npy"
    assert NpyName.parse(seed + ".output.0.DefaultFormat.Float32.npy") == npy
    for other in ("statistic.csv", "mapping.csv", seed + ".tmp", ".x.1.2.3.tmp"):
        assert AsyncName.parse(other) is None
        assert NpyName.parse(other) is None
    assert sanitised("Default/a.b c\\d-op1") == "Default_a_b_c_d-op1"


NAMES = {
    "Default/conv1-Conv2d/Conv2D-op0": "Conv2D",
    "Default/conv2-Conv2d/Conv2D-op3": "Conv2D",
    "Gradients/Default/conv1-Conv2d/gradConv2D/Conv2DBackpropFilter-op9": "Conv2DBackpropFilter",
    "Default/relu-ReLU/ReLU-op1": "ReLU",
}


@pytest.mark.parametrize(
    ("kernels", "numbers"),
    [
        (None, {0, 1, 3, 9}),
        (["Conv2D"], {0, 3}),
        (["Conv2D*"], {0, 3, 9}),
        (["Default/conv1-Conv2d/Conv2D-op0"], {0}),
        (["*conv1*"], {0, 9}),
        (["Gradients/*", "ReLU"], {1, 9}),
        (["conv1"], set()),
        ([".*"], set()),
        (["Conv2D-op0"], set()),
    ],
)
def test_selection(kernels, numbers):
    chosen = KernelSelection(kernels)
    assert {int(n.rpartition("-op")[2]) for n, kind in NAMES.items() if chosen.selects_operator(n, kind)} == numbers
    assert {int(n.rpartition("-op")[2]) for n, kind in NAMES.items() if chosen.selects_operator(n, kind)} == numbers


@pytest.mark.parametrize("kernel", ["Gradients/Default/fc-Dense/MatMul-op3", "Gradients/Default/fc-*"])
def test_a_name_selects_with_and_without_the_root_of_sinks(kernel):
    sunk_kernel = kernel.replace("Default/", "Default/network-TrainOneStepCell/")
    name = "Gradients/Default/fc-Dense/MatMul-op3"
    sunk = "Gradients/Default/network-TrainOneStepCell/fc-Dense/MatMul-op3"
    for given in (kernel, sunk_kernel):
        for found in (name, sunk):
            assert KernelSelection([given]).selects_operator(found, "MatMul")
            assert KernelSelection([given]).unmatched([found]) == []
        assert not KernelSelection([given]).selects_operator(sunk.replace("fc", "conv1"), "MatMul")


def test_parameters_are_chosen_by_their_names():
    assert KernelSelection(None).selects_value("conv1.weight")
    assert KernelSelection(["conv1.*"]).selects_value("conv1.weight")
    assert not KernelSelection(["Conv2D", "conv1"]).selects_value("conv1.weight")


def test_kernels_that_match_nothing_have_nearest_names():
    found = KernelSelection(["Conv2d", "ReLU", "conv1.weight", "Default/conv1-Conv2d/Conv2D-op1", "fc9*"]).unmatched(
        [*NAMES, "conv1.weight"]
    )
    nearest = dict(found)
    assert nearest.keys() == {"Conv2d", "Default/conv1-Conv2d/Conv2D-op1", "fc9*"}
    assert "Conv2D" in nearest["Conv2d"]
    assert nearest["Default/conv1-Conv2d/Conv2D-op1"][0] == "Default/conv1-Conv2d/Conv2D-op0"


def test_sizes_tell_no_axes_from_no_elements():
    text = str(SYNC_NAMES[3])
    assert SyncName.parse(text, 8).type.shape == ()
    assert SyncName.parse(text, 0).type.shape == (0,)
    assert np.dtype(SyncName.parse(text, 8).type.dtype.numpy) == np.int64
