"""save_checkpoint, load_checkpoint, load_param_into_net: both formats, and everything a user can get wrong."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from models.lenet import LeNet5
from runner import Parameter, Tensor, dtype, nn
from runner.errors import ConfigError, DataError, StorageError
from runner.train.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint


class Small(nn.Cell):
    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.fc1 = nn.Dense(3, width)
        self.out = nn.Dense(width, 1, has_bias=False)

    def construct(self, x):
        return self.out(self.fc1(x))


class Other(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        return self.fc(x)


def values(net: nn.Cell) -> dict[str, bytes]:
    return {name: parameter.asnumpy().tobytes() for name, parameter in net.parameters_and_names()}


def tensors(**arrays: object) -> dict[str, Tensor]:
    return {name: Tensor(np.array(array, np.float32)) for name, array in arrays.items()}


def message(error: pytest.ExceptionInfo, folder: Path) -> str:
    return str(error.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize(
    ("name", "made"), [("x.ckpt", "x.ckpt"), ("x", "x.ckpt"), ("x.pt", "x.pt.ckpt"), ("x/", "x"), ("x.ckpt/", "x.ckpt")]
)
def test_a_network_travels(tmp_path, name, made):
    first, second = LeNet5(), LeNet5()
    assert values(first) != values(second)
    save_checkpoint(first, f"{tmp_path}/{name}")
    assert [path.name for path in tmp_path.iterdir()] == [made]
    found = load_checkpoint(f"{tmp_path}/{made}")
    assert {type(parameter) for parameter in found.values()} == {Parameter}
    assert [parameter.name for parameter in found.values()] == list(found)
    assert load_param_into_net(second, found) == []
    assert values(first) == values(second)
    found["fc3.bias"].asnumpy()[:] = 7  # what was loaded is a copy
    assert values(first) == values(second)


def test_a_path_is_a_name_too(tmp_path):
    net = Small()
    save_checkpoint(net, tmp_path / "x")
    loaded = load_checkpoint(tmp_path / "x.ckpt", net, strict_load=True)
    assert list(loaded) == list(net.parameters_dict())


@pytest.mark.parametrize("name", ["x.ckpt", "x/"])
def test_numbers_beside_the_parameters(tmp_path, name):
    net = Small()
    numbers = {"epoch_num": 3, "rate": 0.1, "done": True, "steps": np.int64(7), "scale": Tensor(2.0)}
    save_checkpoint(net, f"{tmp_path}/{name}", append_info=numbers)
    found = load_checkpoint(f"{tmp_path}/{name}", Small())
    assert [*found] == [*net.parameters_dict(), *numbers] or name == "x/"
    read = {key: (found[key].dtype, found[key].shape, found[key].asnumpy().item()) for key in numbers}
    assert read == {
        "epoch_num": (dtype.int64, (), 3),
        "rate": (dtype.float64, (), 0.1),
        "done": (dtype.bool_, (), True),
        "steps": (dtype.int64, (), 7),
        "scale": (dtype.float64, (), 2.0),
    }


def test_a_network_with_its_optimizer_travels(tmp_path):
    """The state of the optimizer is saved too, and surplus for the network alone."""
    net = Small()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    save_checkpoint(step, f"{tmp_path}/x.ckpt")
    found = load_checkpoint(f"{tmp_path}/x.ckpt", Small())
    assert list(found) == list(step.parameters_dict())
    assert found["learning_rate"].shape == ()
    assert list(load_checkpoint(f"{tmp_path}/x.ckpt", filter_prefix=["moments.", "learning"])) == list(values(net))
    assert "learning_rate" in load_checkpoint(f"{tmp_path}/x.ckpt", filter_prefix="moments.")


def test_a_damaged_file_is_an_error_by_default(tmp_path):
    """Without a checksum, flipped bits of numbers and a cut between two parameters are not found."""
    net, path = Small(), tmp_path / "x.ckpt"
    save_checkpoint(net, path)
    whole = path.read_bytes()
    save_checkpoint(net, tmp_path / "plain.ckpt", crc_check=False)
    plain = (tmp_path / "plain.ckpt").read_bytes()
    assert whole[10:-17] == plain
    cut = whole.index(b"out.weight") - 4  # the beginning of the last message
    flipped = [whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :] for k in range(len(whole))]
    for content in (whole[:cut], whole[:-17], *flipped):
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            load_checkpoint(path, net)
        assert error.value.rows["repair"] == "save it again, or fetch another copy"


def test_a_list_travels(tmp_path):
    given = [{"name": "a", "data": Tensor(1.5)}, {"name": "b.c", "data": Parameter(np.arange(3, dtype=np.int8))}]
    save_checkpoint(given, f"{tmp_path}/x.ckpt", True, False)
    found = load_checkpoint(f"{tmp_path}/x.ckpt")
    assert [(name, p.dtype, p.asnumpy().tolist()) for name, p in found.items()] == [
        ("a", dtype.float32, 1.5),
        ("b.c", dtype.int8, [0, 1, 2]),
    ]


def test_parameters_that_got_no_value(tmp_path):
    net = Small()
    before = values(net)
    assert load_param_into_net(net, tensors(**{"fc1.bias": [1, 2], "surplus": 3})) == ["fc1.weight", "out.weight"]
    assert net.fc1.bias.asnumpy().tolist() == [1, 2]
    assert values(net) == before | {"fc1.bias": values(net)["fc1.bias"]}
    save_checkpoint([{"name": "fc1.bias", "data": net.fc1.bias}], f"{tmp_path}/x.ckpt")
    with pytest.warns(UserWarning, match="parameters that .*x.ckpt does not have: fc1.weight, out.weight"):
        load_checkpoint(f"{tmp_path}/x.ckpt", net)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_checkpoint(f"{tmp_path}/x.ckpt")


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_of_another_network(tmp_path, strict):
    save_checkpoint(Other(), f"{tmp_path}/other.ckpt")
    net = Small()
    before = values(net)
    with pytest.raises(ConfigError) as error:
        load_checkpoint(f"{tmp_path}/other.ckpt", net, strict)
    assert message(error, tmp_path) == (
        "ConfigError: the checkpoint is of another network\n"
        "  network     Small\n"
        "  missing     fc1.weight (nearest: fc.weight)\n"
        "              fc1.bias (nearest: fc.bias)\n"
        "              out.weight (nearest: fc.weight)\n"
        "  surplus     fc.weight (nearest: fc1.weight)\n"
        "              fc.bias (nearest: fc1.bias)\n"
        "  checkpoint  FOLDER/other.ckpt"
    )
    assert values(net) == before


def test_a_checkpoint_with_other_shapes():
    net = Small()
    before = values(net)
    given = tensors(**{"fc1.weight": np.zeros((4, 3)), "fc1.bias": [1, 2], "zzz": 0})
    given["out.weight"] = Tensor(np.zeros((1, 2), np.float16))
    with pytest.raises(ConfigError) as error:
        load_param_into_net(net, given)
    assert str(error.value) == (
        "ConfigError: the checkpoint is of another network\n"
        "  network     Small\n"
        "  other type  fc1.weight: Float32[2, 3], in the checkpoint Float32[4, 3]\n"
        "              out.weight: Float32[1, 2], in the checkpoint Float16[1, 2]\n"
        "  surplus     zzz"
    )
    assert error.value.exit_code == 2
    assert values(net) == before


def test_strictness_is_both_ways():
    net = Small()
    whole = dict(net.parameters_and_names())
    assert load_param_into_net(net, whole, strict_load=True) == []
    with pytest.raises(ConfigError) as error:
        load_param_into_net(net, {**whole, "moments.x": Tensor(1.0)}, strict_load=True)
    assert str(error.value) == (
        "ConfigError: the checkpoint is of another network\n  network  Small\n  surplus  moments.x"
    )
    del whole["fc1.bias"]
    with pytest.raises(ConfigError) as error:
        load_param_into_net(net, whole, strict_load=True)
    assert str(error.value) == (
        "ConfigError: the checkpoint is of another network\n  network  Small\n  missing  fc1.bias"
    )


def test_a_long_list_is_cut():
    with pytest.raises(ConfigError) as error:
        load_param_into_net(Small(), {f"layer{k}.x": Tensor(1.0) for k in range(20)})
    assert error.value.rows["surplus"].splitlines() == [*(f"layer{k}.x" for k in range(8)), "and 12 more"]


SAVING = 'a Cell, or a list of {"name": str, "data": Tensor}'
T = Tensor(1.0)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, "x"), f"not something to save\n  given    None\n  allowed  {SAVING}"),
        (({"a": T}, "x"), f"not something to save\n  given    dict\n  allowed  {SAVING}"),
        (([T], "x"), f"not something to save\n  given    Tensor\n  at       0\n  allowed  {SAVING}"),
        (([{"name": "a"}], "x"), f"not something to save\n  given    dict\n  at       0\n  allowed  {SAVING}"),
        (
            ([{"name": "a", "data": [1]}], "x"),
            f"not something to save\n  given    dict\n  at       0\n  allowed  {SAVING}",
        ),
        (([{"name": "a", "data": T}] * 2, "x"), "two parameters have one name\n  name  a\n  at    1"),
        (([{"name": 5, "data": T}], "x"), "not a name for an array of a checkpoint\n  name  5"),
        (([], "x"), "there are no parameters to save\n  file  x"),
        ((nn.ReLU(), "x"), "there are no parameters to save\n  file  x"),
        ((Small(), ""), "ckpt_file_name must be the name of a file\n  given  ''"),
        ((Small(), 3), "ckpt_file_name must be the name of a file\n  given  3"),
        ((Small(), None), "ckpt_file_name must be the name of a file\n  given  None"),
        ((Small(), "x", 1), "integrated_save must be True or False\n  given  1"),
        ((Small(), "x", True, "process"), "async_save must be True or False\n  given  'process'"),
        ((Small(), "x", True, False, ["epoch_num"]), "append_info must be a dict\n  given  list"),
        (
            (Small(), "x", True, False, {"a": "b"}),
            "append_info has something that is no number with a name\n  name     'a'\n  given    'b'\n"
            "  allowed  numbers by name, of 64 bits at most",
        ),
        (
            (Small(), "x", True, False, {"out.weight": 1}),
            "append_info has the name of a parameter\n  file  x\n  name  out.weight",
        ),
    ],
)
def test_what_cannot_be_saved(tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        save_checkpoint(*arguments)
    assert str(error.value) == f"ConfigError: {expected}"
    assert isinstance(error.value, ValueError)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_checkpoint_stays(tmp_path):
    (tmp_path / "data").write_text("x")
    with pytest.raises(ConfigError, match="cannot replace a directory that is not a checkpoint"):
        save_checkpoint(Small(), f"{tmp_path}/")
    with pytest.raises(StorageError, match="cannot write a file"):
        save_checkpoint(Small(), f"{tmp_path}/nowhere/x.ckpt")


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        ((5,), ConfigError, "ckpt_file_name must be the name of a file\n  given  5"),
        (("lent.ckpt",), DataError, "there is no such checkpoint\n  file     lent.ckpt\n  nearest  lenet.ckpt"),
        (("none/x.ckpt",), DataError, "there is no such checkpoint\n  file  none/x.ckpt"),
        (
            ("notes.txt",),
            ConfigError,
            "not the name of a checkpoint\n  given    notes.txt\n"
            "  allowed  a file *.ckpt or *.safetensors, or a directory",
        ),
        (
            ("folder",),
            DataError,
            "a file is missing\n  file    folder/MANIFEST.json\n"
            "  repair  restore it from a copy, or delete this checkpoint",
        ),
        (("lenet.ckpt", "net"), ConfigError, "net must be a Cell\n  given  'net'"),
        (
            ("lenet.ckpt", LeNet5(), "yes"),
            ConfigError,
            "strict_load must be True or False\n  given       'yes'\n  checkpoint  lenet.ckpt",
        ),
        (
            ("lenet.ckpt", None, False, ["conv", "fc"]),
            ConfigError,
            "filter_prefix excludes all parameters\n  file   lenet.ckpt\n  given  conv, fc",
        ),
        *(
            (
                ("lenet.ckpt", None, False, prefix),
                ConfigError,
                f"filter_prefix must be a text or a list of texts, none empty\n  given  {prefix!r}",
            )
            for prefix in ("", [], [""], 5, ["a", 1])
        ),
    ],
)
def test_what_cannot_be_loaded(tmp_path, monkeypatch, arguments, kind, expected):
    monkeypatch.chdir(tmp_path)
    save_checkpoint(LeNet5(), "lenet")
    Path("notes.txt").write_text("x")
    Path("folder").mkdir()
    with pytest.raises(kind) as error:
        load_checkpoint(*arguments)
    assert str(error.value) == f"{kind.__name__}: {expected}"
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize("given", [None, [], [T], {"a": 1}, {"a": np.zeros(1)}])
def test_what_is_no_dictionary_of_parameters(given):
    with pytest.raises(ConfigError) as error:
        load_param_into_net(Small(), given)
    name = "None" if given is None else type(given).__name__
    assert str(error.value) == f"ConfigError: parameter_dict must have tensors by name\n  given  {name}"
