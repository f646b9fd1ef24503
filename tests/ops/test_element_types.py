"""Every operator in every element type: both modes give equal numbers, or the type is refused with a reason."""

import numpy as np
import pytest
from contract import Arrays, computed, ran
from operands import Sample
from samples import SAMPLES
from soak import thinned

from runner import dtype as dt, nn, ops
from runner.compile.program import Program
from runner.core.operators import Primitive, infer
from runner.device import Device
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

HARD = {2**31, 2**32 - 1, 2**32, 2**53 + 1, 3 * 10**9, -(2**53) - 1, -3 * 10**9, -1, 0, 1, 2, 3, 7}
# Operators that graph mode refuses in these types: onnxruntime has no kernel, and no other type is exact.
NO_FLOAT64 = """ACos Acosh Asin Asinh Atan Atan2 Atanh AvgPool AvgPoolGrad Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Cosh Erf Sinh Tan"""
NO_UINT64 = """Argmax Argmin Div DivNoNan FloorDiv FloorMod Mod ReduceMax ReduceMin TruncateDiv TruncateMod"""
WITHOUT_KERNEL = {dt.float64: NO_FLOAT64.split(), dt.uint64: NO_UINT64.split()}
# Operands that are no numbers: what indexes elements.
SEGMENTS = dict.fromkeys(("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"), 1)
GATHERS = dict.fromkeys(("Gather", "GatherD", "GatherNd", "ScatterReduce", "TensorScatterUpdate"), 1)
INDICES = {**SEGMENTS, **GATHERS, "ScatterNd": 0}


def converted(op: Primitive, array: np.ndarray, kind: dt.DType, hard: bool) -> np.ndarray:
    """The operand in an element type; a `hard` one has the ends of the range, and numbers around 2**32 and 2**53."""
    if not hard or kind.numpy.kind not in "iu":
        return np.asarray(np.abs(array) if kind.numpy.kind == "u" else array).astype(kind.numpy)
    limits = np.iinfo(kind.numpy)
    ends = {limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2}
    numbers = sorted(x for x in HARD | ends if limits.min <= x <= limits.max)
    rng = np.random.default_rng([len(op.name), array.size, kind.numpy.num])
    return np.asarray(rng.choice(np.array(numbers, object), array.shape)).astype(kind.numpy)


def in_type(sample: Sample, kind: dt.DType, hard: bool) -> Arrays:
    """The operands that have the element type of the first number, in another one."""
    first = sample.arrays[1 if sample.op.name == "Select" else 0].dtype
    index = INDICES.get(sample.op.name)
    return tuple(
        converted(sample.op, a, kind, hard) if a.dtype == first and k != index else a
        for k, a in enumerate(sample.arrays)
    )


def check_type(sample: Sample, kind: dt.DType, hard: bool) -> None:
    """Equal numbers, or the same refusal in both modes, or a kernel that onnxruntime does not have."""
    op, arrays = sample.op, in_type(sample, kind, hard)
    try:
        infer(op, tuple(map(TensorType.of, arrays)))
    except (ShapeError, ConfigError):
        return
    with np.errstate(all="ignore"):
        expected = computed(op, arrays)
    if op.name in WITHOUT_KERNEL.get(kind, ()):
        with pytest.raises(ConfigError, match="onnxruntime has no kernel for an operator in this element type"):
            ran(op, arrays)
        return
    made = ran(op, arrays)
    assert [a.dtype for a in made] == [a.dtype for a in expected]
    for y, z in zip(made, expected, strict=True):
        scale = float(np.abs(z[np.isfinite(z)]).max(initial=0.0)) if kind is dt.float64 else 0.0
        np.testing.assert_allclose(y, z, rtol=0.0, atol=1e-12 * scale)


NUMBERS = [s for s in SAMPLES if s.arrays]
KINDS = [kind for kind in dt.ALL if kind not in (dt.float16, dt.float32)]  # of those, the contract has its own rows


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("hard", [False, True], ids=["small", "hard"])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_both_modes_give_the_numbers_of_numpy_in_every_type(kind, hard):
    failed = []
    for sample in thinned(NUMBERS, 3):
        try:
            check_type(sample, kind, hard)
        except Exception as error:  # all rows of the table, whatever fails
            failed.append(f"{sample.name}: {type(error).__name__} {error}")
    assert not failed, "\n".join(failed)


def test_what_has_no_kernel_is_named_with_its_types_and_a_repair():
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.erf = ops.Erf()

        def construct(self, x):
            return self.erf(x)

    with pytest.raises(ConfigError) as caught:
        Program(Net().construct, [TensorType(dt.float64, (2, 3))], Device("CPU"), "net")
    rows = caught.value.rows
    assert rows["operator"] == "Default/Erf-op0"
    assert rows["operands"] == "Float64[2, 3]"
    assert rows["repair"] == "Float32, which has every operator, or PyNative mode"
    assert rows["line"].endswith("return self.erf(x)")


def test_neighbours_above_two_to_the_31_are_told_apart():
    """onnxruntime compares the lower halves of Int64 as signed numbers."""
    x = np.array([[5, 3_000_000_000], [-3_000_000_000, -5]])
    for op in (ops.ReduceMax(False, 1), ops.ReduceMin(False, 1), ops.Sign()):
        np.testing.assert_array_equal(ran(op, (x,))[0], computed(op, (x,))[0])
    for op in (ops.Maximum(), ops.Minimum()):
        np.testing.assert_array_equal(ran(op, (x, x[:, ::-1]))[0], computed(op, (x, x[:, ::-1]))[0])


def test_every_quotient_of_two_bytes():
    """All 65,280 pairs of Int8 without a division by 0, and that one, which gives 0."""
    x, y = (np.arange(-128, 128, dtype=np.int8).reshape(shape) for shape in ((256, 1), (1, 256)))
    expected = np.where(y == 0, 0, np.floor(x / np.where(y == 0, 1, y).astype(np.float64)))
    np.testing.assert_array_equal(ran(ops.FloorDiv(), (x, y))[0], expected.astype(np.int64).astype(np.int8))
    for op in (ops.FloorMod(), ops.Mod(), ops.TruncateDiv(), ops.TruncateMod()):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ran(op, (x, y))[0], computed(op, (x, y))[0])


def test_sums_and_products_of_whole_numbers_lose_no_digit():
    x = np.array([[2**53, 1, 2**62], [3, -5, 2**40 + 1]])
    assert ran(ops.ReduceSum(), (x[:1, :2],))[0] == 2**53 + 1
    with np.errstate(over="ignore"):
        for op, axis in ((ops.ReduceSum, 0), (ops.ReduceSum, (0, 1)), (ops.ReduceProd, 1), (ops.ReduceProd, None)):
            for keep in (False, True):
                given = x if axis != 0 else x.astype(np.int32)
                np.testing.assert_array_equal(ran(op(keep, axis), (given,))[0], computed(op(keep, axis), (given,))[0])


def test_softplus_of_large_float64_is_finite():
    x = np.array([710.0, 1e300, -700.0, 0.0, np.inf, -np.inf])
    np.testing.assert_allclose(ran(ops.Softplus(), (x,))[0], np.logaddexp(0, x), rtol=1e-15)
