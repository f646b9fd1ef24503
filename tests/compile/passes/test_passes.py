"""Each pass: what it changes, what it must leave alone and why, and that results stay what they were."""

import itertools

import numpy as np
import pytest
from both_modes import digits, lenet_step
from tables import table

from runner import dtype as dt, ops
from runner.compile.onnx.lower import lower, parameter_values
from runner.compile.passes import PASSES, default_passes, optimize
from runner.compile.passes.simplify import LIMIT, cse, dce, fold
from runner.compile.session import Session
from runner.core.graph import Graph, verify
from runner.core.interpreter import current
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor
from runner.device import Device
from runner.errors import InternalError
from runner.types import TensorType

VECTOR = TensorType(dt.float32, (3,))
X = np.array([-1.5, 0.25, 3.0], np.float32)


def traced(function, *types: TensorType) -> Graph:
    return trace(function, types or (VECTOR,), "net")


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def run(graph: Graph, *arrays: np.ndarray) -> list[bytes]:
    """The results, to the bit. onnxruntime's own rewriting is off: it is our passes that are tested."""
    inputs = [f"input{k}" for k in range(len(arrays))]
    model = lower(graph, inputs, [f"output{k}" for k in range(len(graph.outputs))])
    session = Session(model.SerializeToString(), Device(threads=1), optimize=False)
    made = session.run(dict(zip(inputs, arrays, strict=True)) | parameter_values(graph))
    return [made[name].tobytes() for name in session.outputs]


def check(function, change, expected: list[str], *arrays: np.ndarray) -> Graph:
    """A pass gives these operators and, to the bit, the same results."""
    arrays = arrays or (X,)
    before = traced(function, *map(TensorType.of, arrays))
    after = verify(change(before))
    assert operators(after) == expected
    assert run(after, *arrays) == run(before, *arrays)
    return after


# fold


def test_fold_computes_what_does_not_depend_on_data():
    def net(x):
        rate = ops.Exp()(Tensor([1.0, 2.0, 3.0])) * 2.0
        return x + ops.ReduceSum()(rate)

    check(net, fold, ["Add"])


def test_fold_leaves_what_depends_on_data_or_on_parameters():
    weight = Parameter(Tensor([1.0, 2.0, 3.0]), "w")
    check(lambda x: ops.Exp()(weight) + x, fold, ["Exp", "Add"])


def test_fold_leaves_constants_that_would_be_large():
    """They are cheaper to compute again than to carry in the model."""
    many = LIMIT + 1
    wide = TensorType(dt.float32, (many,))
    graph = fold(traced(lambda x: x + ops.BroadcastTo((many,))(Tensor([2.0])), wide))
    assert operators(graph) == ["BroadcastTo", "Add"]
    assert operators(fold(traced(lambda x: x + ops.BroadcastTo((3,))(Tensor([2.0]))))) == ["Add"]


@table(
    "net",
    [
        lambda x: ops.Exp()(x) * 1.0,
        lambda x: 1.0 * ops.Exp()(x),
        lambda x: ops.Exp()(x) + (-0.0),
        lambda x: -0.0 + ops.Exp()(x),
        lambda x: ops.Exp()(x) - 0.0,
        lambda x: ops.Exp()(x) / 1.0,
        lambda x: ops.Exp()(x) * Tensor([1.0, 1.0, 1.0]),
        lambda x: ops.Reshape((3,))(ops.Exp()(x)),
        lambda x: ops.Reshape((-1,))(ops.Exp()(x)),
        lambda x: ops.Transpose((0,))(ops.Exp()(x)),
        lambda x: ops.Cast(dt.float32)(ops.Exp()(x)),
        lambda x: ops.BroadcastTo((3,))(ops.Exp()(x)),
    ],
)
def test_fold_drops_operators_that_change_nothing(net):
    check(net, fold, ["Exp"])


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (lambda x: x * 2.0, "the factor is not 1"),
        (lambda x: x * Tensor([1.0, 1.0, 2.0]), "one of the factors is not 1"),
        (lambda x: x * Tensor([[1.0], [1.0]]), "the result has another shape"),
        (lambda x: 1.0 / x, "1 is neutral on the right only"),
        (lambda x: 0.0 - x, "0 is neutral on the right only"),
        (lambda x: ops.Reshape((3, 1))(x), "the shape changes"),
        (lambda x: ops.Cast(dt.float64)(x), "the element type changes"),
        (lambda x: ops.BroadcastTo((2, 3))(x), "the shape changes"),
        (lambda x: ops.Transpose((1, 0))(ops.Reshape((3, 1))(x)), "the axes change places"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_fold_leaves_operators_that_change_something(net, why):
    check(net, fold, operators(traced(net)))


def test_fold_keeps_a_result_that_is_a_constant_or_an_input():
    graph = check(lambda x: (x * 1.0, ops.Neg()(Tensor([2.0]))), fold, [])
    assert graph.outputs[0] is graph.inputs[0]
    assert graph.constants[graph.outputs[1]].tolist() == [-2.0]


def test_fold_does_not_lose_the_sign_of_zero():
    """-0.0 + 0.0 is 0.0, so only adding -0.0 changes nothing."""
    zeros = np.array([-0.0, 0.0, 1.0], np.float32)
    check(lambda x: x + 0.0, fold, ["Add"], zeros)
    check(lambda x: x + Tensor(-0.0), fold, [], zeros)
    check(lambda x: x - 0.0, fold, [], zeros)


# cse


def test_cse_computes_the_same_thing_once():
    check(lambda x: ops.Exp()(x) * 2.0 + ops.Exp()(x) * 2.0, cse, ["Exp", "Mul", "Add"])


def test_cse_follows_chains_and_operators_with_several_outputs():
    def net(x):
        step = Tensor(np.int64(4))
        (a, mask), (b, again) = ops.Dropout(0.5, 1)(x, step), ops.Dropout(0.5, 1)(x, step)
        return ops.Tanh()(a + mask), ops.Tanh()(b + again)

    graph = check(net, cse, ["Dropout", "Add", "Tanh"])
    assert graph.outputs[0] is graph.outputs[1]


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (lambda x: ops.Exp()(x) + ops.Exp()(-x), "other operands"),
        (lambda x: ops.Softmax(0)(ops.Reshape((1, 3))(x)) + ops.Softmax(1)(ops.Reshape((1, 3))(x)), "other attributes"),
        (lambda x: ops.Maximum()(x, -x) - ops.Minimum()(x, -x), "other operators"),
        (lambda x: ops.Sub()(x, 1.0) * ops.Sub()(1.0, x), "another order of operands"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_cse_leaves_what_differs(net, why):
    before = operators(traced(net))
    expected = ["Reshape", "Softmax", "Softmax", "Add"] if why == "other attributes" else before
    expected = ["Neg", "Maximum", "Minimum", "Sub"] if why == "other operators" else expected
    check(net, cse, expected)


def test_cse_renames_what_parameters_are_updated_with():
    weights = [Parameter(Tensor([1.0, 2.0, 3.0]), name) for name in "ab"]

    def net(x):
        for weight in weights:
            interpreter = current()
            interpreter.assign(weight, interpreter.lift(x * 2.0))
        return x

    graph = check(net, cse, ["Mul"])
    assert len(set(graph.updates.values())) == 1


# dce


def test_dce_drops_what_nothing_needs():
    unused = Parameter(Tensor([1.0, 2.0, 3.0]), "unused")

    def net(x):
        ops.Tanh()(ops.Exp()(x)) + unused
        return x * 2.0

    graph = check(net, dce, ["Mul"])
    assert (len(graph.parameters), len(graph.constants)) == (0, 1)


def test_dce_keeps_updates_inputs_and_half_used_operators():
    counter = Parameter(Tensor(np.int64(0)), "counter")
    written = Parameter(Tensor([1.0, 2.0, 3.0]), "written")

    def net(x, unused):
        interpreter = current()
        interpreter.assign(counter, interpreter.lift(counter + 1))
        interpreter.assign(written, interpreter.lift(x))
        return ops.Dropout(0.5, 1)(x, counter)[0]

    graph = check(net, dce, ["Add", "Dropout"], X, X)
    assert len(graph.inputs) == 2  # they belong to the caller
    assert [p.name for p in graph.parameters] == ["counter", "written"]  # `written` is read by nobody
    assert [p.name for p in graph.updates] == ["counter", "written"]


# together


def test_the_passes_that_run():
    assert [p.__name__ for p in PASSES] == ["fold", "cse", "dce", "pool_first", "schedule_updates"]
    assert default_passes(Device())[: len(PASSES)] == PASSES
    assert [p.__name__ for p in default_passes(Device())[len(PASSES) :]] == ["layout"]


def test_a_pass_that_breaks_a_graph_is_found_out():
    def careless(graph: Graph) -> Graph:
        return graph.replace_nodes(graph.nodes[1:], {})

    with pytest.raises(InternalError, match="a value is used before it is defined"):
        optimize(traced(lambda x: ops.Exp()(x) * 2.0), [careless])


@pytest.mark.parametrize("order", [*itertools.permutations(PASSES)][::7], ids=lambda o: "-".join(p.__name__ for p in o))
def test_a_training_step_stays_the_same_to_the_bit_in_any_order_of_passes(order):
    arrays = digits(1, batch=4)[0]
    graph = trace(lenet_step("sgd").construct, [TensorType.of(a) for a in arrays], "step")
    optimized = optimize(graph, order)
    assert len(optimized.nodes) < len(graph.nodes)
    assert run(optimized, *arrays) == run(graph, *arrays)


def test_passes_change_nothing_a_second_time():
    arrays = digits(1, batch=4)[0]
    once = optimize(trace(lenet_step().construct, [TensorType.of(a) for a in arrays], "step"))
    assert str(optimize(once)) == str(once)


def test_passes_leave_the_graph_they_were_given():
    graph = traced(lambda x: ops.Exp()(x) * 1.0 + ops.Exp()(x))
    text = str(graph)
    optimize(graph)
    assert str(graph) == text
