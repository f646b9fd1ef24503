"""Unusual operands for every row of the contract, and what has to hold for them: NaN, infinities, zeros, denormals,
values at which functions saturate, and the largest numbers."""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from both_modes import Recording
from contract import FLOAT32, Arrays, computed, in_float64, run_lowering

from runner.core.lowering import Lowering
from runner.core.operators import Primitive, infer
from runner.core.precision import RoundedTypes, as_single, compute_rounded
from runner.core.values import Tensor
from runner.errors import NotDifferentiable
from runner.types import TensorType

KINDS: dict[str, tuple[float, ...]] = {
    "nan": (np.nan,),
    "inf": (np.inf,),
    "-inf": (-np.inf,),
    "zero": (0.0, -0.0),
    "far": (-100.0, 100.0, -20.0, 20.0, -80.0, 80.0),
    "largest": (np.inf, -np.inf),  # clipped to what is finite
    "denormal": (),  # every element becomes one
}
DENORMAL = {np.dtype(np.float32): 1e-40, np.dtype(np.float16): 1e-6}
SUMS = (
    "AvgPool",
    "BatchNorm",
    "SyncBatchNorm",
    "BiasAddGrad",
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "LayerNormGrad",
)
# Where the modes differ, by operator and kind, and why.
EXCEPTIONS = {
    ("MaxPool", "largest"): "onnxruntime begins with the lowest finite number, so that is taken for -inf",
    **dict.fromkeys([(name, "largest") for name in SUMS], "sums overflow, or not, by their order"),
    **dict.fromkeys(
        [
            (name, kind)
            for name in ("BatchNorm", "BatchNormGrad", "SyncBatchNorm", "SyncBatchNormGrad")
            for kind in ("inf", "-inf")
        ],
        "an infinite scale: (x - mean) * scale + bias, or x * slope + offset, which is inf - inf",
    ),
    **dict.fromkeys(
        [("Conv2DBackpropInput", kind) for kind in ("nan", "inf", "-inf")],
        "at the border, convolutions multiply such a weight by padding, and transposed convolutions do not",
    ),
    ("CumProd", "largest"): "products overflow, or not, by their order",
    ("ReluGrad", "denormal"): "the mask in one pass is a steep ramp, which is below 1 for denormals",
}
# Operators of operands that depend on each other: unusual ones reach them through the operators that they belong to.
DEPENDENT = {"BatchNormGrad", "SyncBatchNormGrad", "MaxPoolGrad"}
# Functions of one operand that lose digits where they are small, in both modes.
IMPRECISE = {"GeLU": "1 + tanh, MindSpore's formula, loses all digits below -5"}
# In Float64 nothing overflows, and products do not underflow: the kinds in which it is an oracle.
WIDE_VALUES = {"nan", "inf", "-inf", "zero", "far", "denormal"}
WIDE_GRADIENTS = {"nan", "zero", "far"}
DIGITS = 2e-6
SMALLEST = {np.dtype(np.float32): 2.0**-149, np.dtype(np.float16): 2.0**-24}
# Of denormal terms in a sum, and in rational functions that scale first; flushing to 0 would be 10 ** 4 roundings.
ROUNDINGS = {np.dtype(np.float32): 512, np.dtype(np.float16): 2}
RELATIVE = {np.dtype(np.float32): 0.0, np.dtype(np.float16): 2.0**-10}  # of each number, beside that of sums


def unusual(array: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """The array with every fifth element, at least one, replaced; or all of them scaled down to denormals."""
    if kind == "denormal":
        return np.asarray(array * array.dtype.type(DENORMAL[array.dtype]))
    values = np.array(KINDS[kind], array.dtype)
    if kind == "largest":
        values = np.nan_to_num(values)
    changed = array.copy()
    flat = changed.reshape(-1)
    places = np.random.default_rng(seed).choice(flat.size, max(1, flat.size // 5), replace=False)
    flat[places] = np.resize(values, len(places))
    return changed


def variants(arrays: Arrays, kind: str) -> Iterator[tuple[int, Arrays]]:
    """The arrays with one of those of floats changed, for each of them."""
    for k, operand in enumerate(arrays):
        if operand.dtype.kind == "f" and operand.size:
            changed = unusual(operand, kind, k)
            yield k, tuple(changed if i == k else a for i, a in enumerate(arrays))


def check_agreement(found: Arrays, expected: Arrays, operands: Arrays, kind: str) -> None:
    """What is not finite is equal, and the rest but for rounding, which is relative to the largest finite number."""
    for made, wanted in zip(found, expected, strict=True):
        assert made.shape == wanted.shape
        assert made.dtype == wanted.dtype
        if made.dtype.kind != "f":
            assert np.array_equal(made, wanted)
            continue
        finite = np.isfinite(wanted)
        assert np.array_equal(made[~finite], wanted[~finite], equal_nan=True), "what is not finite differs"
        seen = (wanted,) if kind == "denormal" else (*operands, *expected)
        scale = max(float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in seen if a.dtype.kind == "f")
        exact = wanted[finite].astype(np.float64)
        room = FLOAT32 * scale + ROUNDINGS[made.dtype] * SMALLEST[made.dtype] + RELATIVE[made.dtype] * np.abs(exact)
        assert (np.abs(made[finite] - exact) <= room).all(), "numbers differ"


@lru_cache(maxsize=64)  # those of a row, which are run for every kind
def lowered(op: Primitive, types: tuple[TensorType, ...]) -> list[tuple[str, Callable[[Arrays], Arrays]]]:
    """Each way to lower the operator, by name, as a function that runs it; without a form Float16 is not cast."""
    single = as_single(types)
    lowerings: tuple[Lowering | None, ...] = (*op.lowerings(*single), *[None] * (single == types))
    return [(lowering.name if lowering else "lower", run_lowering(op, types, lowering)) for lowering in lowerings]


def evaluated(op: Primitive, arrays: Arrays) -> Arrays:
    """What PyNative mode computes: Float16 is rounded once."""
    types = infer(op, tuple(map(TensorType.of, arrays)))
    return compute_rounded(op.kernel, arrays, types) if isinstance(types, RoundedTypes) else computed(op, arrays)


def check_modes(op: Primitive, arrays: Arrays, kind: str, expected: Arrays) -> None:
    """Whichever way the operator is lowered, onnxruntime gives what PyNative mode computes."""
    if (op.name, kind) in EXCEPTIONS:
        return
    for name, run in lowered(op, tuple(map(TensorType.of, arrays))):
        try:
            check_agreement(run(arrays), expected, arrays, kind)
        except AssertionError as error:
            error.add_note(f"{op} lowered as {name}")
            raise


def check_values(op: Primitive, arrays: Arrays, kind: str) -> None:
    """Both modes and Float64 have the same results for these operands."""
    expected = evaluated(op, arrays)
    check_modes(op, arrays, kind, expected)
    if kind in WIDE_VALUES:
        check_agreement(expected, rounded(computed(*in_float64(op, arrays)), expected), arrays, kind)


def check_unusual_values(op: Primitive, arrays: Arrays, kind: str) -> None:
    """`check_values` with one operand changed, for each of them."""
    for k, changed in variants(arrays, kind):
        try:
            check_values(op, changed, kind)
        except AssertionError as error:
            error.add_note(f"operand {k}")
            raise


def check_digits(op: Primitive) -> None:
    """A function of one operand has all digits in both modes, also where it is small."""
    x = np.array([1e-30, 1e-20, 1e-7, 1e-4, 0.01, 0.3, 1, 3, 5, 8, 12, 20, 50, 80, 87, 100], np.float32)
    x = np.concatenate([x, -x])
    (wide,) = computed(*in_float64(op, (x,)))
    normal = np.isfinite(wide) & (np.abs(wide) > 1e-37) & (np.abs(wide) < 1e38)
    for name, found in [
        ("kernel", computed(op, (x,))),
        *((n, run((x,))) for n, run in lowered(op, (TensorType.of(x),))),
    ]:
        error = np.abs(found[0][normal] - wide[normal]) / np.abs(wide[normal])
        assert error.max(initial=0.0) <= DIGITS, f"{name}: {error.max():.1e} at {x[normal][error.argmax()]}"


def rounded(wide: Arrays, like: Arrays) -> Arrays:
    """Results in the element types of others; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return tuple(a.astype(b.dtype) for a, b in zip(wide, like, strict=True))


def check_gradients(op: Primitive, arrays: Arrays, adjoints: Arrays, kind: str) -> None:
    """Both modes have the same results for every operator of the gradient rule, and the gradients are those of
    Float64."""
    nodes, gradients = backward(op, arrays, adjoints)
    for node in nodes:
        operands = tuple(np.asarray(x.array) for x in node.inputs)
        check_modes(node.op, operands, kind, tuple(np.asarray(y.array) for y in node.outputs))
    is_single = all(a.dtype != np.float16 for a in arrays)  # else every operator of the rule rounds
    if kind in WIDE_GRADIENTS and is_single:
        wide_op, wide = in_float64(op, arrays)
        _, expected = backward(wide_op, wide, tuple(u.astype(np.float64) for u in adjoints))
        check_agreement(gradients, rounded(expected, gradients), (*arrays, *adjoints), kind)


def random_adjoints(op: Primitive, arrays: Arrays) -> Arrays:
    """An adjoint for each result."""
    rng = np.random.default_rng(1)
    return tuple(np.asarray(rng.normal(size=y.shape)).astype(y.dtype) for y in evaluated(op, arrays))


def check_unusual_gradients(op: Primitive, arrays: Arrays, kind: str) -> None:
    """`check_gradients` with one operand or adjoint changed, for each of them."""
    adjoints = random_adjoints(op, arrays)
    changed = [(f"operand {k}", a, adjoints) for k, a in variants(arrays, kind)]
    changed += [(f"adjoint {k}", arrays, u) for k, u in variants(adjoints, kind) if k not in op.without_gradient]
    for label, operands, seeds in changed:
        try:
            check_gradients(op, operands, seeds, kind)
        except AssertionError as error:
            error.add_note(label)
            raise


def backward(op: Primitive, arrays: Arrays, adjoints: Arrays) -> tuple[list, Arrays]:
    """The nodes that compute the gradients of the float operands, and these gradients."""
    with Recording() as interpreter:
        inputs = [Tensor(a) for a in arrays]
        made = op(*inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        interpreter.seen.clear()
        try:
            rules = op.grad(inputs, outputs, [Tensor(a) for a in adjoints])
        except NotDifferentiable:
            return [], ()
        values = [rule() if callable(rule) else rule for rule in rules]
    return interpreter.seen, tuple(v.array for v in values if v is not None)
