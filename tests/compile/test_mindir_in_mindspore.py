"""MindIR files in MindSpore itself, which loads and evaluates them to the numbers of the network."""

import numpy as np
import pytest
from contract import computed
from samples import SAMPLES
from soak import thinned
from test_mindir import NETWORKS, floats

from runner import set_seed
from runner.compile.mindir import RULES, export_mindir, model, require_forms
from runner.core.trace import trace
from runner.errors import ConfigError
from runner.train import Model
from runner.train.model import inference
from runner.types import TensorType

mindspore = pytest.importorskip("mindspore", reason="MindSpore is the oracle here; it is not a dependency of runner")

ROWS_OF_AN_OPERATOR = 6
# What MindSpore 2.10 refuses on the CPU: negative positions. It returns a number where the result is a scalar tensor.
REFUSED = {"GatherNd-elements", "TensorScatterUpdate-elements", "SquaredDifference-()-()"}


@pytest.fixture(scope="module", autouse=True)
def cpu():
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_device("CPU")


def loaded(path, content: bytes):
    path.write_bytes(content)
    return mindspore.nn.GraphCell(mindspore.load(str(path)))


def run(graph, *arrays: np.ndarray) -> list[np.ndarray]:
    made = graph(*map(mindspore.Tensor, arrays))
    return [x.asnumpy() for x in (made if isinstance(made, tuple | list) else [made])]


def check_equal(made: np.ndarray, expected: np.ndarray) -> None:
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        assert np.array_equal(made, expected)
    elif expected.size:
        scale = max(float(np.abs(expected).max()), 1e-30)
        assert float(np.abs(made.astype(np.float64) - expected).max()) <= 1e-5 * scale


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_the_same_for_any_batch(name, tmp_path):
    set_seed(1)
    make, shape = NETWORKS[name]
    network, rng = make(), np.random.default_rng(0)
    for parameter in network.get_parameters():
        if "moving" in parameter.name:
            parameter.set_data(rng.uniform(0.5, 2.0, parameter.shape).astype(np.float32))
    with inference(network, None):
        content = export_mindir(network.compute, [floats(4, *shape)], "network")
    graph, data = loaded(tmp_path / "network.mindir", content), rng.standard_normal((7, *shape), np.float32)
    for size in (4, 7, 1):
        check_equal(*run(graph, data[:size]), Model(network).predict(data[:size]).asnumpy())


def test_the_file_is_a_part_of_another_network(tmp_path):
    """An operator whose attributes were not operands could be executed alone only."""
    make, shape = NETWORKS["lenet5"]
    network, data = make(), np.random.default_rng(0).standard_normal((3, *shape), np.float32)
    with inference(network, None):
        graph = loaded(tmp_path / "network.mindir", export_mindir(network.compute, [floats(3, *shape)], "network"))

    class Outer(mindspore.nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = graph

        def construct(self, x):
            return mindspore.ops.relu(self.inner(x))

    check_equal(*run(Outer(), data), np.maximum(Model(network).predict(data).asnumpy(), 0))


@pytest.mark.parametrize("operator", list(thinned(sorted(RULES), 4)))
def test_an_operator_computes_what_its_kernel_computes(operator, tmp_path):
    samples = [s for s in SAMPLES if s.op.name == operator and s.name not in REFUSED]
    count = 0
    for sample in samples[:: max(1, len(samples) // ROWS_OF_AN_OPERATOR)]:
        graph = trace(sample.op, [TensorType.of(a) for a in sample.arrays], "network")
        used = 1 if RULES[operator].results else len(graph.outputs)
        try:
            require_forms(graph)
        except ConfigError:
            if used == len(graph.outputs):
                continue
        made = run(loaded(tmp_path / "one.mindir", model(graph, {}, [x.name for x in graph.inputs])), *sample.arrays)
        for one, expected in zip(made[:used], computed(sample.op, sample.arrays)[:used], strict=True):
            check_equal(one, expected)
        count += 1
    assert count
