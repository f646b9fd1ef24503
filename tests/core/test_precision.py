"""Policies of `precision_mode`: which operands are cast to what."""

import numpy as np
import pytest
from tables import table

from models.lenet import LeNet5
from runner import Tensor, context, dtype, nn, ops
from runner.core.gradients import gradients
from runner.core.interpreter import Eager
from runner.core.operators import REGISTRY
from runner.core.precision import DEFAULT, MODES, policy, use_precision
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.types import TensorType

HALF, SINGLE, DOUBLE, WHOLE = (
    TensorType(d, (2, 2)) for d in (dtype.float16, dtype.float32, dtype.float64, dtype.int32)
)
MIXED, FORCED, FORCED32 = "allow_mix_precision", "force_fp16", "force_fp32"
# mode, operator, operands, and in which types it gets them
CASES = [
    (MIXED, ops.MatMul(), (SINGLE, SINGLE), (HALF, HALF)),
    (MIXED, ops.MatMul(), (HALF, SINGLE), (HALF, HALF)),
    (MIXED, ops.Add(), (SINGLE, SINGLE), (SINGLE, SINGLE)),
    (MIXED, ops.Add(), (HALF, HALF), (HALF, HALF)),
    (MIXED, ops.Add(), (HALF, SINGLE), (SINGLE, SINGLE)),
    (MIXED, ops.BiasAdd(), (HALF, SINGLE), (HALF, HALF)),
    (MIXED, ops.BiasAdd(), (SINGLE, HALF), (SINGLE, SINGLE)),
    (MIXED, ops.Softmax(), (HALF,), (SINGLE,)),
    (MIXED, ops.ReduceSum(), (HALF,), (SINGLE,)),
    (MIXED, ops.ReLU(), (HALF,), (HALF,)),
    (MIXED, ops.Cast(dtype.float16), (SINGLE,), (SINGLE,)),
    (MIXED, ops.BatchNorm(), (HALF, SINGLE, SINGLE, SINGLE, SINGLE), (HALF, SINGLE, SINGLE, SINGLE, SINGLE)),
    (MIXED, ops.MatMul(), (DOUBLE, DOUBLE), (DOUBLE, DOUBLE)),
    (MIXED, ops.SparseSoftmaxCrossEntropyWithLogits(), (HALF, WHOLE), (SINGLE, WHOLE)),
    (FORCED, ops.Add(), (SINGLE, SINGLE), (HALF, HALF)),
    (FORCED, ops.Softmax(), (SINGLE,), (HALF,)),
    (FORCED, ops.Gather(), (SINGLE, WHOLE), (HALF, WHOLE)),
    (FORCED, ops.SGD(), (HALF, SINGLE, SINGLE, HALF, SINGLE, SINGLE), (SINGLE,) * 6),
    (FORCED, ops.BatchNorm(), (SINGLE,) * 5, (HALF, SINGLE, SINGLE, SINGLE, SINGLE)),
    (FORCED, ops.Print(), (SINGLE,), (SINGLE,)),
    (FORCED32, ops.MatMul(), (HALF, SINGLE), (SINGLE, SINGLE)),
    (FORCED32, ops.ReLU(), (HALF,), (SINGLE,)),
    (FORCED32, ops.Cast(dtype.float32), (HALF,), (HALF,)),
]


@table(("mode", "op", "given", "expected"), CASES)
def test_operands_get_the_types_of_the_policy(mode, op, given, expected):
    chosen = policy(mode)
    assert chosen is not None
    casts = chosen.casts(op, given) or (None,) * len(given)
    assert tuple(t if c is None else t.with_dtype(c) for t, c in zip(given, casts, strict=True)) == expected


def test_what_needs_nothing_done_costs_one_look_up():
    assert policy(MIXED).casts(ops.ReLU(), (SINGLE,)) is None
    assert policy(MIXED).casts(ops.LogicalNot(), (TensorType(dtype.bool_, (2,)),)) is None


@pytest.mark.parametrize("mode", [DEFAULT, "must_keep_origin_dtype"])
def test_two_modes_change_nothing(mode):
    assert policy(mode) is None


def test_every_operator_that_computes_products_gains():
    for name in ops.__all__:
        getattr(ops, name)  # operators register when their file is loaded
    gaining = {name for name, kind in REGISTRY.items() if kind.precision.name == "HALF"}
    assert gaining == {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul", "BatchMatMul"}
    exact = {name for name, kind in REGISTRY.items() if kind.precision.name == "MASTER"}
    assert exact == {"ApplyMomentum", "SGD", "Adam", "AllReduce"}


def test_an_unknown_mode_is_told_the_nearest():
    with pytest.raises(ConfigError) as error:
        context.set_context(precision_mode="force_fp61")
    assert error.value.rows["nearest"] == "force_fp16"
    assert set(MODES) == set(error.value.rows["allowed"].split(", "))
    assert context.precision() is None


def test_policies_hold_for_interpreters_that_begin_inside():
    with use_precision(policy(FORCED)), Eager() as forced, use_precision(None), Eager() as free:
        assert forced.precision is policy(FORCED)
        assert free.precision is None
    assert Eager().precision is None


def test_gradients_of_a_shared_parameter_come_back_in_its_type():
    weight = Parameter(np.full((2, 2), 1.5, np.float32), "w")
    with use_precision(policy(FORCED)), Eager():
        loss = ops.ReduceSum()(ops.MatMul()(weight, weight))
        (found,) = gradients(loss, [weight])
    assert loss.dtype is dtype.float16
    assert found.dtype is dtype.float32
    assert np.array_equal(found.array, np.full((2, 2), 6.0))


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_cells_compute_as_the_context_says(mode):
    network, image = LeNet5(), np.random.default_rng(0).normal(size=(2, 1, 32, 32)).astype(np.float32)
    made = {}
    with context.preserved():
        context.set_context(mode=mode)
        for name in (DEFAULT, MIXED, FORCED, DEFAULT):
            context.set_context(precision_mode=name)
            made.setdefault(name, []).append(network(Tensor(image)))
    assert {name: values[0].dtype for name, values in made.items()} == {
        DEFAULT: dtype.float32,
        MIXED: dtype.float16,
        FORCED: dtype.float16,
    }
    assert np.array_equal(made[DEFAULT][0].array, made[DEFAULT][1].array)
    scale = np.abs(made[DEFAULT][0].array).max()
    for name in (MIXED, FORCED):
        assert 0 < np.abs(made[name][0].array - made[DEFAULT][0].array).max() < 4e-3 * scale


def test_a_tensor_that_the_user_cast_meets_others_only_under_a_policy():
    class Halving(nn.Cell):
        def construct(self, x):
            return ops.ReLU()(x.astype(dtype.float16)) + x

    x = np.array([0.1, -2.0], np.float32)
    with context.preserved():
        context.set_context(precision_mode="force_fp32")
        assert Halving()(Tensor(x)).dtype is dtype.float32
        context.set_context(precision_mode=MIXED)
        assert np.array_equal(Halving()(Tensor(x)).array, np.maximum(x.astype(np.float16), 0).astype(np.float32) + x)
