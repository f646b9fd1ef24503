"""`runner compare` across precisions and across versions of a network: what is paired, listed and reported."""

import json
import re
from functools import partial
from pathlib import Path

import network_versions as versions
import numpy as np
import pytest
from dump_files import ORDER, step, sync
from tables import table

import runner
from runner import context, ops
from runner.cli import main as cli, run_command
from runner.core.precision import DEFAULT, MODES
from runner.errors import MismatchError
from runner.host import seed

main = partial(run_command, "compare")
LENET = (
    *("dataset=synthetic", "dataset.num_samples=64", "max_steps=1", "callbacks=quiet", "device.threads=1"),
    *("dump=sync", "dataset_sink_mode=false"),
)
EXECUTED = ("graph", "pynative")


def compare(capsys, a: Path, b: Path, *words: str) -> dict:
    """The object of --json, and the exit code in it."""
    capsys.readouterr()
    code = main([str(a), str(b), "--json", *words])
    return json.loads(capsys.readouterr().out) | {"code": code}


def shown(capsys, a: Path, b: Path, *words: str) -> str:
    capsys.readouterr()
    main([str(a), str(b), *words])
    return capsys.readouterr().out


def executed(dump: Path) -> list[str]:
    (file,) = dump.rglob("ms_execution_order_graph_0.csv")
    return file.read_text().splitlines()[1:]


def kind(name: str) -> str:
    """The scope and the type."""
    return re.sub(r"-op\d+$", "", name)


@pytest.fixture(scope="module")
def precisions(tmp_path_factory) -> dict[tuple[str, str], Path]:
    """A step of LeNet-5 in every precision and both modes."""
    root, found = tmp_path_factory.mktemp("precisions"), {}
    for mode in EXECUTED:
        for precision in MODES:
            found[mode, precision] = root / f"{mode}-{precision}"
            words = f"mode={mode}", f"session.precision_mode={precision}", f"hydra.run.dir={found[mode, precision]}"
            seed.set_seed(1)
            runner.run([*LENET, *words])
    return found


@table("precision", MODES)
@table("modes", [("graph", "graph"), ("graph", "pynative"), ("pynative", "pynative"), ("pynative", "graph")])
def test_every_precision_against_the_default(precisions, capsys, precision, modes):
    """All operators of the default are paired, in their order; only casts and the loss scale are left."""
    a, b = precisions[modes[0], DEFAULT], precisions[modes[1], precision]
    found = compare(capsys, a, b)
    ours, theirs = executed(a), executed(b)
    # What the default has, in order: without casts, and without what the step with a loss scale does itself.
    same = [name for name in theirs if "/Cast-op" not in name and not re.match(r"Default/(scale_update-|\w+-op)", name)]
    assert [kind(name) for name in ours] == [kind(name) for name in same]
    assert found["pairs"] == [list(pair) for pair in zip(ours, same, strict=True)]
    left = [name for name in found["only_b"] if "-op" in name]
    assert sorted(left) == sorted(set(theirs) - set(same))
    assert (found["only_a"], found["renamed"]) == ([], [])
    if precision.startswith(("allow_fp32", "must", "force_fp32")):
        assert (found["code"], found["same"], found["coarser"]) == (0, True, "Float32")
    else:  # rounding to Float16 tips the choice of the largest of four
        assert (found["first"], found["coarser"]) == (None, "Float16")
        assert found["cause"] in (None, "rounding")


@table("precision", MODES)
def test_modes_agree_in_every_precision(precisions, capsys, precision):
    found = compare(capsys, precisions["graph", precision], precisions["pynative", precision], "--strict")
    assert (found["code"], found["cause"], found["only_a"], found["only_b"]) == (0, None, [], [])


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_of_a_scaled_loss(precisions, capsys, turned):
    """They are 1024 times as large, and agree all the same."""
    both = [precisions["graph", DEFAULT], precisions["graph", "allow_mix_precision"]]
    found = compare(capsys, *(reversed(both) if turned else both), "--all")
    rows = {kind(row["name"]).rpartition("/")[2] + row["name"].split("/")[-3]: row for row in found["all"][20:]}
    bias = rows["BiasAddGradfc3-Dense"]
    assert bias["status"] == "same"
    assert "a loss scale, 1024" in found["notes"][1]
    texts = shown(capsys, *(reversed(both) if turned else both))
    assert f"only {'A' if turned else 'B'} has a loss scale, 1024" in texts
    assert "8 FloatStatus" in texts


@pytest.fixture
def wrong_pooling(monkeypatch):
    usual = ops.MaxPool.kernel
    monkeypatch.setattr(ops.MaxPool, "kernel", lambda self, *arrays: usual(self, *arrays) * np.float32(1.05))


@pytest.mark.parametrize("precision", ["force_fp16", "allow_mix_precision"])
def test_a_wrong_operator_is_found_in_another_precision(precisions, tmp_path, capsys, precision, wrong_pooling):
    seed.set_seed(1)
    runner.run([*LENET, "mode=pynative", f"session.precision_mode={precision}", f"hydra.run.dir={tmp_path / 'wrong'}"])
    found = compare(capsys, tmp_path / "wrong", precisions["graph", DEFAULT])
    assert found["code"] == 6
    assert kind(found["first"]["name"]).endswith("max_pool2d-MaxPool2d/MaxPool")
    assert found["first"]["name_b"].endswith("MaxPool-op2")
    text = shown(capsys, tmp_path / "wrong", precisions["graph", DEFAULT])
    assert re.search(r"source +\S+lenet\.py\(\d+\)  x = self\.max_pool2d\(self\.relu\(self\.conv1\(x\)\)\)", text)


def test_strict(precisions, capsys):
    """Casts on one side are a difference only with --strict; the output says so."""
    both = precisions["graph", DEFAULT], precisions["graph", "force_fp16"]
    assert compare(capsys, *both, "--rtol", "0.5", "--atol", "1")["code"] == 0
    found = compare(capsys, *both, "--rtol", "0.5", "--atol", "1", "--strict")
    assert (found["code"], found["same"], found["first"], found["cause"]) == (6, False, None, "one side")
    text = shown(capsys, *both, "--rtol", "0.5", "--atol", "1", "--strict")
    assert text.startswith("different: only one side has some operators or parameters (--strict)\n")
    assert "all others: 45 operators and 17 parameters and constants of 1 iteration agree within rtol 0.5" in text
    assert "17 only in B: " in text
    assert "(17 Cast)" in text


# Versions


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("versions")
    networks = [x for x in vars(versions).values() if isinstance(x, type) and x.__module__ == versions.__name__]
    made = [x for x in networks if x is not versions.Convolution]
    try:
        return {x.__name__: versions.dump_step(root / x.__name__, x()) for x in made}
    finally:
        context.reset_context()


RELU, GRADIENT = "relu-ReLU/ReLU", "relu-ReLU/gradReLU/ReluGrad"
LEFT = {  # the operators and parameters that only the version has, and those that only the first one has
    "Network": ([], []),
    "TwiceActivated": ([RELU, GRADIENT], []),
    "WithExtraCell": (["extra-ReLU/ReLU", "extra-ReLU/gradReLU/ReluGrad"], []),
    "WithExtraLayer": (
        [
            *("between.weight", "moments.between.weight", "between-Dense/MatMul", "ApplyMomentum"),
            *["between-Dense/gradMatMul/MatMul"] * 2,
        ],
        [],
    ),
    "Renamed": ([], []),
    "OtherClass": ([], []),
    "WithCast": (["Cast"] * 3 + ["gradCast/Cast"] * 2, []),
    "Second": (["extra-ReLU/ReLU"] * 2 + ["extra-ReLU/gradReLU/ReluGrad"] * 2, [RELU, GRADIENT]),
}


def tails(names: list[str]) -> list[str]:
    """Without what is above the network."""
    return [kind(re.sub(r"^(.*_backbone-\w+|Default/optimizer-\w+)/", "", name)) for name in names]


@table("version", LEFT)
@table("turned", [False, True])
def test_versions_whose_values_agree(dumps, capsys, version, turned):
    """Added, removed and renamed operators are listed; all others agree, for their values are the same."""
    both = [dumps["Network"], dumps[version]]
    found = compare(capsys, *(reversed(both) if turned else both))
    assert (found["code"], found["same"]) == (0, True)
    only = found["only_a"], found["only_b"]
    more, fewer = only if turned else reversed(only)
    assert (sorted(tails(more)), sorted(tails(fewer))) == tuple(sorted(names) for names in LEFT[version])
    strict = compare(capsys, *(reversed(both) if turned else both), "--strict")
    assert strict["code"] == (6 if any(LEFT[version]) else 0)


@table(
    ("version", "renamed"),
    [
        ("Renamed", [["conv1", "first"], ["fc2", "head"]]),
        ("Second", [["fc2", "head"]]),
        ("WithExtraCell", []),
    ],
)
def test_renamed_layers_are_paired_and_the_output_says_so(dumps, capsys, version, renamed):
    found = compare(capsys, dumps["Network"], dumps[version], "--all")
    assert [[scope.rpartition("/")[2] for scope in pair] for pair in found["renamed"]] == renamed
    assert {row["name"]: row["name_b"] for row in found["all"]}["moments.fc2.bias"] == (
        "moments.head.bias" if renamed else "moments.fc2.bias"
    )
    text = shown(capsys, dumps["Network"], dumps[version])
    assert text.count("paired by position, since names differ (A is B): ") == bool(renamed)
    for one, other in renamed:
        assert f"/{one} is Default/network/_backbone/{other}" in text


def test_graph_and_pynative_of_two_versions(dumps, tmp_path, capsys):
    other = versions.dump_step(tmp_path, versions.Second(), context.PYNATIVE_MODE)
    found, same_mode = (compare(capsys, dumps["Network"], version) for version in (other, dumps["Second"]))
    assert (found["code"], len(found["pairs"]), found["pairs"]) == (0, 30, same_mode["pairs"])


def test_a_weight_that_differs_between_versions(dumps, tmp_path, capsys):
    other = versions.dump_step(tmp_path, versions.Second(), factor=1.5)
    found = compare(capsys, dumps["Network"], other)
    assert (found["code"], found["first"]["name"], found["first"]["kind"]) == (6, "conv2.weight", "value")


def test_an_operator_more_that_changes_the_values_is_named(dumps, capsys):
    """It has no partner; what is shown is the next operator, with where its input comes from in both."""
    found = compare(capsys, dumps["Network"], dumps["Scaled"])
    earlier = found["earlier"]
    assert (found["code"], found["first"], found["cause"], earlier["foreign"]) == (6, None, "foreign", ["input_0"])
    assert tails([earlier["made_by"]["input_0"], earlier["made_by_b"]["input_0"]]) == ["conv2-Conv2d/Conv2D", "Mul"]
    text = shown(capsys, dumps["Network"], dumps["Scaled"])
    assert "the networks are not the same there" in text
    assert "input_0 in B is  Default/network-WithLossCell/_backbone-Scaled/Mul-op3" in text
    assert "network_versions.py(" in text


def test_nothing_can_be_paired(tmp_path, capsys):
    a, b = step(), step()
    b.operators = [(name.replace("-op", "Twice-op"), *rest) for name, *rest in b.operators]
    with pytest.raises(MismatchError, match="no operator in common") as caught:
        main([str(sync(tmp_path / "a", a)), str(sync(tmp_path / "b", b))])
    rows = caught.value.rows
    assert (rows["first of A"], rows["first of B"]) == (ORDER[0], ORDER[0].replace("-op", "Twice-op"))
    assert "type and order in the scope" in rows["reason"]
    assert "--metrics" in rows["hint"]


def test_strict_is_about_dumps(capsys, tmp_path):
    assert cli(["compare", str(tmp_path), str(tmp_path), "--strict", "--metrics"]) == 2
    assert "--strict and --metrics" in capsys.readouterr().err
