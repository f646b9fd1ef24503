"""`network.freeze` and `network.head` of imported networks, under the names of the file."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_files import classifier, model, saved

import runner
from runner import dtype as dt, nn
from runner.errors import ConfigError
from runner.experiment.evaluate import evaluate
from runner.experiment.resume import resume
from runner.importer.network import OnnxNetwork
from runner.train.checkpoint import state
from runner.types import TensorType

MODES = pytest.mark.parametrize("mode", ["graph", "pynative"])
RUN = ("network=onnx", "dataset=digits", "dataset_sink_mode=false", "callbacks=quiet", "device.threads=1")
FROZEN = ("a.weight", "a.bias", "n.scale", "n.bias", "n.mean", "n.var")
rng = np.random.default_rng(2)


def weights(folder: Path) -> dict[str, np.ndarray]:
    found, _ = state.newest(folder / "checkpoints", "CKP")
    return found.arrays


@MODES
@pytest.mark.parametrize("pattern", ["[an].*", "[an]/*"])
def test_a_frozen_backbone_keeps_weights_and_statistics(tmp_path, mode, pattern):
    path = saved(tmp_path / "five.onnx", classifier((1, 32, 32), 5))
    given = {p.name: p.asnumpy().copy() for p in OnnxNetwork(str(path)).get_parameters()}
    words = (*RUN, f"network.path={path}", f"mode={mode}", "network.head=replace", f"network.freeze=['{pattern}']")
    summary = runner.run([*words, "max_steps=6", f"hydra.run.dir={tmp_path / 'run'}"])
    found = weights(tmp_path / "run")
    for name in FROZEN:
        assert np.array_equal(found[name], given[name]), name
    assert (found["b.weight"].shape, found["b.bias"].shape) == ((8, 10), (10,))
    assert (summary["parameters"], summary["trainable"]) == (1024 * 8 + 8 + 16 + 90, 90)
    assert evaluate(tmp_path / "run")["metrics"] == summary["metrics"]


@MODES
def test_only_the_statistics_of_frozen_normalizations_stay(tmp_path, mode):
    path = saved(tmp_path / "ten.onnx", classifier((1, 32, 32), 10))
    given = {p.name: p.asnumpy().copy() for p in OnnxNetwork(str(path)).get_parameters()}
    words = (*RUN, f"network.path={path}", f"mode={mode}", "network.freeze=[a.*]", "max_steps=3")
    runner.run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    found = weights(tmp_path / "run")
    assert {name for name in given if np.array_equal(found[name], given[name])} == {"a.weight", "a.bias"}


@MODES
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path, mode):
    path = saved(tmp_path / "five.onnx", classifier((1, 32, 32), 5))
    words = (*RUN, f"network.path={path}", f"mode={mode}", "network.head=replace", "network.freeze=[a.*]")
    more = ("eval.every=never", "checkpoint.every_steps=2")
    runner.run([*words, *more, "max_steps=6", f"hydra.run.dir={tmp_path / 'whole'}"])
    runner.run([*words, *more, "max_steps=2", f"hydra.run.dir={tmp_path / 'part'}"])
    resume(tmp_path / "part", ["max_steps=6"])
    one, other = (weights(tmp_path / name) for name in ("whole", "part"))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def head_of(nodes, initializers, shape=(4, 6)) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the parameters of the head, which gets 7 outputs; and the network works with them."""
    path = saved(Path("made.onnx"), model(nodes, {"x": ["n", *shape[1:]]}, ["y"], initializers))
    network, kind = OnnxNetwork(str(path)), TensorType(dt.float32, shape)
    head = nn.replace_head(network, [kind], 7)
    assert network(runner.Tensor(normal(*shape))).shape[:2] == (shape[0], 7)
    return [(p.name, p.shape) for p in head]


node = helper.make_node


def test_forms_of_heads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bias, product = {"b": normal(3)}, [("w", (6, 7)), ("b", (7,))]
    gemm = [node("Gemm", ["x", "w", "b"], ["y"])]
    assert head_of(gemm, {"w": normal(6, 3), **bias}) == product
    turned = [node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    assert head_of(turned, {"w": normal(3, 6), **bias}) == [("w", (7, 6)), ("b", (7,))]
    added = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["b", "p"], ["y"])]
    assert head_of(added, {"w": normal(6, 3), **bias}) == product
    transposed = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    assert head_of(transposed, {"w": normal(3, 6)}) == [("w", (7, 6))]
    mean = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "b"], ["s"]),
        node("ReduceMean", ["s"], ["y"], axes=[1]),
    ]
    mean[-1].attribute.append(helper.make_attribute("keepdims", 0))
    assert head_of(mean, {"w": normal(6, 3), **bias}, (4, 5, 6)) == product


def test_a_single_output(tmp_path, monkeypatch):
    """Which axis of a bias with ones only is that of the outputs follows from how it is broadcast."""
    monkeypatch.chdir(tmp_path)
    added = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
    assert head_of(added, {"w": normal(6, 1), "b": normal(1, 1)}) == [("w", (6, 7)), ("b", (1, 7))]
    filters = [node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]), node("Add", ["c", "b"], ["y"])]
    given = {"w": normal(1, 2, 3, 3), "b": normal(1, 1, 1)}
    assert head_of(filters, given, (4, 2, 5, 5)) == [("w", (7, 2, 3, 3)), ("b", (7, 1, 1))]


def test_convolutions_and_shapes_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    filters = {"w": normal(3, 2, 1, 1), "b": normal(3), "shape": np.array([-1, 3], np.int64)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[1, 1]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Reshape", ["g", "shape"], ["y"]),
    ]
    assert head_of(nodes, filters, (4, 2, 5, 5)) == [("w", (7, 2, 1, 1)), ("b", (7,))]


def test_what_has_no_head(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two = [node("MatMul", ["x", "v"], ["p"]), node("MatMul", ["x", "w"], ["q"]), node("Add", ["p", "q"], ["y"])]
    with pytest.raises(ConfigError, match="several linear layers are the last one") as caught:
        head_of(two, {"v": normal(6, 3), "w": normal(6, 3)})
    assert [line.split()[0] for line in caught.value.rows["candidates"].splitlines()] == ["v", "w"]
    with pytest.raises(ConfigError, match="no linear layer"):
        head_of([node("Relu", ["x"], ["y"])], {})
    scaled = [node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "s"], ["y"])]
    with pytest.raises(ConfigError, match="the last layer is not linear"):
        head_of(scaled, {"w": normal(6, 3), "s": normal(3)})


def test_a_pattern_of_the_file(tmp_path):
    path = saved(tmp_path / "five.onnx", classifier((1, 32, 32), 5))
    with pytest.raises(ConfigError) as caught:
        runner.run([*RUN, f"network.path={path}", "network.freeze=[c/*]"])
    assert (caught.value.rows["key"], caught.value.rows["value"]) == ("network.freeze", "c/*")
    assert "a.weight" in caught.value.rows["parameters"]
