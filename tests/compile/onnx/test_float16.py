"""Float16 in lowered graphs: Casts around operators on the CPU, none on cards, and constants as PyNative has them."""

import numpy as np
import pytest

from runner import Tensor, dtype, ops
from runner.compile.onnx.lower import lower
from runner.compile.passes import PASSES, default_passes, fold, optimize
from runner.compile.session import Session
from runner.core.interpreter import Eager
from runner.core.trace import trace
from runner.core.values import Value
from runner.device import Device
from runner.types import TensorType

HALF = TensorType(dtype.float16, (4, 6))
WEIGHT = np.linspace(-1, 1, 6 * 3).reshape(6, 3).astype(np.float16)


def network(x: Value) -> Value:
    return ops.ReLU()(ops.Reshape((2, 6))(ops.MatMul()(x, Tensor(WEIGHT))))


def kinds(passes) -> list[tuple[str, str]]:
    model = lower(optimize(trace(network, [HALF], "net"), passes), ["x"], ["y"])
    return [(node.op_type, node.name) for node in model.graph.node]


def test_on_the_cpu_operators_compute_between_casts_that_have_their_names():
    made = kinds(default_passes(Device()))
    assert [kind for kind, _ in made] == ["Cast", "Gemm", "Cast", "Reshape", "Cast", "Relu", "Cast"]
    assert [name.split("/")[1] for _, name in made] == [*["MatMul-op0"] * 3, "Reshape-op1", *["ReLU-op2"] * 3]


def test_cards_get_their_own_kernels():
    assert [kind for kind, _ in kinds(PASSES)] == ["Gemm", "Reshape", "Relu"]


def test_operands_of_both_types_meet_in_float32_everywhere():
    types = [TensorType(dtype.float16, (4, 3)), *[TensorType(dtype.float32, (3,))] * 4]
    for passes in (PASSES, default_passes(Device())):
        graph = optimize(trace(lambda *xs: ops.BatchNorm(True)(*xs), types, "norm"), passes)
        names = [f"x{k}" for k in range(5)], [f"y{k}" for k in range(5)]
        session = Session(lower(graph, *names).SerializeToString(), Device(threads=1), optimize=False)
        assert [t.dtype for t in session.outputs.values()] == [dtype.float16, *[dtype.float32] * 4]


@pytest.mark.parametrize("count", [4000, 10])
def test_constants_are_folded_to_what_pynative_mode_computes(count):
    """A sum in float16 of 4000 times 1 would stay at 2048."""
    ones = np.full(count, 1.0, np.float16)

    def summed() -> Value:
        return ops.ReduceSum()(Tensor(ones))

    folded = fold(trace(summed, [], "sum"))
    with Eager():
        eager = summed()
    assert not folded.nodes
    assert folded.constants[folded.outputs[0]] == eager.array == count
