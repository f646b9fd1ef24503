"""Placed graphs compute what the same graphs compute as they were traced: whole steps, every value in between, and
random networks. How often values are turned around is counted in the ONNX model."""

from dataclasses import replace
from functools import partial

import numpy as np
import onnx
import pytest
from both_modes import relative
from hypothesis import example, given, settings, strategies as st
from random_networks import LAYERS, computed, traced
from training_steps import Batch, lenet, resnet, results, training_step

from runner.compile.onnx.lower import lower
from runner.compile.passes import PASSES, default_passes, optimize
from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Lowering
from runner.core.operators import Node
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType

NETWORKS = {"lenet": lenet, "resnet": resnet, "imagenet": partial(resnet, stem="imagenet")}
# Differences in units of the largest element. Sums of other lengths and orders round differently: float32 has 6e-8,
# sums here have up to 33 * 32 * 32 terms, and batch normalisation over few samples divides by what is left.
ROUNDING = {"lenet": 2e-6, "resnet": 1e-4, "imagenet": 1e-4}
TURNED = "(1, 0)", "(2, 3, 0, 4, 1, 5)", "(2, 4, 0, 1, 3, 5)"  # batch last or back, to tiles, and back
BATCHES = 1, 7, 8, 9, 33  # rows of 8 floats are the shortest that pay


def step_graph(network: str, batch: int) -> tuple[Graph, Batch]:
    """A training step as it was traced, and a batch."""
    cell, arrays = NETWORKS[network](batch)
    return trace(training_step(cell).construct, [TensorType.of(a) for a in arrays], "step"), arrays


def lowering_of(node: Node) -> Lowering:
    """How a node is lowered."""
    assert node.lowering is not None
    return node.lowering


def model_of(graph: Graph) -> onnx.ModelProto:
    """The ONNX model of a graph."""
    return lower(graph, [f"i{k}" for k in range(len(graph.inputs))], [f"o{k}" for k in range(len(graph.outputs))])


def distance(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Largest relative difference."""
    assert [(a.dtype, a.shape) for a in first] == [(b.dtype, b.shape) for b in second]
    return max(relative(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_placed_step_computes_the_same(network, batch):
    """The loss and every update."""
    graph, arrays = step_graph(network, batch)
    placed, plain = optimize(graph, default_passes(Device())), optimize(graph, PASSES)
    assert (placed.has_lowerings, plain.has_lowerings) == (True, False)
    assert distance(results(placed, *arrays), results(plain, *arrays)) < ROUNDING[network]


@pytest.mark.parametrize("network", NETWORKS)
def test_short_rows_of_a_batch_do_not_pay(network):
    """32 bytes do: seven images lie as they came, eight are turned around."""
    graphs = {batch: optimize(step_graph(network, batch)[0], default_passes(Device())) for batch in (7, 8)}
    images = {batch: [n for n in g.nodes if n.op.name.startswith("Conv2D")] for batch, g in graphs.items()}
    assert {lowering_of(node).results for node in images[7]} == {()}
    assert PLAIN not in {lowering_of(node).operands[0] for node in images[8]}


@pytest.mark.parametrize("network", NETWORKS)
def test_every_value_on_the_way_is_the_same_and_lies_as_its_type_says(network):
    """With all of them returned, no operator may be fused away or give its result turned around."""
    graph, arrays = step_graph(network, 9)
    placed, plain = optimize(graph, default_passes(Device())), optimize(graph, PASSES)
    assert any(set(lowering_of(node).results) - {PLAIN} for node in placed.nodes)
    every = [replace(g, outputs=tuple(y for node in g.nodes for y in node.outputs)) for g in (placed, plain)]
    first, second = (results(g, *arrays) for g in every)
    assert distance(first, second) < ROUNDING[network]


TURNS = {"lenet": ["(1, 0)", "(2, 3, 0, 4, 1, 5)"], "resnet": ["(1, 0)"], "imagenet": ["(1, 0)"] * 5}


@pytest.mark.parametrize("network", TURNS)
@pytest.mark.parametrize("batch", [8, 32])
def test_values_are_turned_around_where_it_cannot_be_helped(network, batch):
    """The images come in turned; LeNet makes tiles of one gradient; a pool whose windows overlap takes plain images.

    Winograd's forms turn tiles around inside.
    """
    nodes = model_of(optimize(step_graph(network, batch)[0], default_passes(Device(winograd="off")))).graph.node
    whole = {n.output[0]: n.input[0] for n in nodes if n.op_type == "Reshape"}
    turned = {n.output[0]: whole.get(n.input[0], n.input[0]) for n in nodes if perm(n) in TURNED}
    assert sorted(perm(n) for n in nodes if perm(n) in TURNED) == TURNS[network]
    assert len(set(turned.values())) == len(turned)  # no value twice
    assert turned.keys().isdisjoint(turned.values())  # and none there and back


def perm(node: onnx.NodeProto) -> str:
    """The axes of a Transpose, and nothing for other nodes."""
    return str(tuple(node.attribute[0].ints)) if node.op_type == "Transpose" else ""


@settings(max_examples=100)
@given(
    layers=st.lists(st.sampled_from(LAYERS), min_size=1, max_size=7),
    batch=st.sampled_from([1, 7, 8, 9]),
    size=st.sampled_from([4, 7, 8]),
    seed=st.integers(0, 99),
)
@example(layers=["batch"], batch=8, size=4, seed=0)  # a mean over the batch, beside which nothing lies batch last
def test_random_networks(layers, batch, size, seed):
    """Outputs, loss and gradients of a placed graph against the numpy kernels of the graph as it was traced."""
    graph, images = traced(layers, batch, size, seed)
    placed = optimize(graph, default_passes(Device()))
    made, expected = results(placed, images), computed(graph, images)
    # Gradients that cancel out to zero keep the rounding of what they are the sum of.
    least = 0.03 * max(float(np.abs(array).max()) for array in expected)
    for first, second in zip(made, expected, strict=True):
        assert first.shape == second.shape
        assert np.abs(first - second).max() <= 1e-4 * max(float(np.abs(second).max()), least)
