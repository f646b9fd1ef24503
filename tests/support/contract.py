"""What every operator promises, as functions that raise AssertionError; `test_of_the_test.py` shows that they can."""

import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np
from samples import NO_GRADIENT, NOT_DIFFERENTIABLE

from runner import dtype as dt
from runner.compile.onnx.lower import lower
from runner.compile.session import Session
from runner.core.interpreter import Eager
from runner.core.lowering import Lowering
from runner.core.operators import REGISTRY, Primitive, infer
from runner.core.trace import trace
from runner.core.values import Tensor, Value
from runner.device import Device
from runner.errors import NotDifferentiable
from runner.types import TensorType

Arrays = tuple[np.ndarray, ...]

# Differences are measured against the largest element, since a sum loses digits in proportion to its terms. float32 has
# 6e-8 and the longest sums here about 60 terms (measured: 9e-7 at most). A wrong pad or tap changes a tenth and more.
FLOAT32 = 3e-6
# Central differences in float64: the truncation h^2 is 1e-10, the rounding eps / h is 2e-11, third derivatives here are
# at most a hundred times the first (measured: 1e-8 at most). A rule that is 0.1% off misses by 1e-3.
H = 1e-5
GRADIENT = 1e-7


def computed(op: Primitive, arrays: Arrays) -> Arrays:
    """The kernel's outputs."""
    made = op.kernel(*arrays)
    return tuple(map(np.asarray, made if isinstance(made, tuple) else (made,)))


def ran(op: Primitive, arrays: Arrays, lowering: Lowering | None = None) -> Arrays:
    """The outputs of a graph that is only this operator, lowered and run by onnxruntime."""
    return run_lowering(op, tuple(map(TensorType.of, arrays)), lowering)(arrays)


def run_lowering(op: Primitive, types: tuple[TensorType, ...], lowering: Lowering | None) -> Callable[[Arrays], Arrays]:
    """A function that runs the graph of only this operator, lowered in this form, in onnxruntime."""
    graph = trace(op, types, "one")
    graph = dataclasses.replace(
        graph, nodes=tuple(dataclasses.replace(node, lowering=lowering) for node in graph.nodes)
    )
    inputs = [f"input{k}" for k in range(len(types))]
    outputs = [f"output{k}" for k in range(len(graph.outputs))]
    is_half = any(t.dtype is dt.float16 for t in types)
    session = Session(lower(graph, inputs, outputs).SerializeToString(), Device(threads=1), optimize=not is_half)

    def run(arrays: Arrays) -> Arrays:
        made = session.run(dict(zip(inputs, arrays, strict=True)))
        return tuple(made[name] for name in outputs)

    return run


def distance(a: Arrays, b: Arrays) -> float:
    """Largest difference, relative to the largest element of each array; what is not a float must be equal."""
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        assert x.shape == y.shape
        if x.dtype.kind != "f":
            assert np.array_equal(x, y)
        elif x.size:
            scale = max(float(np.abs(y).max()), 1e-30)
            worst = max(worst, float(np.abs(x.astype(np.float64) - y).max()) / scale)
    return worst


def in_float64(op: Primitive, arrays: Arrays) -> tuple[Primitive, Arrays]:
    """The same question in float64; attributes that say Float32 say Float64."""
    changes = {name: dt.float64 for name, value in op.attributes().items() if value is dt.float32}
    wide = tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
    return dataclasses.replace(op, **changes), wide


def check_types(op: Primitive, arrays: Arrays) -> None:
    """The type rule says what the kernel gives."""
    assert tuple(map(TensorType.of, computed(op, arrays))) == infer(op, tuple(map(TensorType.of, arrays)))


def check_onnx(op: Primitive, arrays: Arrays) -> float:
    """numpy and onnxruntime agree, in types and values, whichever way the operator is lowered."""
    expected, worst = computed(op, arrays), 0.0
    for lowering in (None, *op.lowerings(*map(TensorType.of, arrays))):
        made = ran(op, arrays, lowering)
        assert [a.dtype for a in made] == [a.dtype for a in expected], lowering
        found = distance(made, expected)
        assert found <= FLOAT32, lowering
        worst = max(worst, found)
    return worst


def check_precision(op: Primitive, arrays: Arrays) -> float:
    """The float32 kernel is as precise as float32 can be, and the float64 kernel computes in float64."""
    wide = computed(*in_float64(op, arrays))
    narrow = computed(op, arrays)
    pairs = [(n, w) for n, w in zip(narrow, wide, strict=True) if n.dtype.kind == "f"]
    assert all(w.dtype == np.float64 for _, w in pairs)
    found = distance(tuple(n for n, _ in pairs), tuple(w for _, w in pairs))
    assert found <= FLOAT32
    return found


def check_gradient(op: Primitive, arrays: Arrays) -> float:
    """Each gradient agrees with central differences of the kernel along a random direction, for a random adjoint."""
    rng = np.random.default_rng(1)
    op, arrays = in_float64(op, arrays)
    adjoints = [
        rng.normal(size=y.shape) * (k not in op.without_gradient) if y.dtype.kind == "f" else np.zeros(y.shape, y.dtype)
        for k, y in enumerate(computed(op, arrays))
    ]
    worst = 0.0
    for k, (x, gradient) in enumerate(zip(arrays, rule_values(op, arrays, adjoints), strict=True)):
        if gradient is None:
            continue
        assert gradient.type == TensorType.of(x)
        direction = rng.normal(size=x.shape)
        ends = [
            sum(
                float((adjoint * y).sum())
                for adjoint, y in zip(adjoints, computed(op, moved(arrays, k, h * direction)), strict=True)
            )
            for h in (H, -H)
        ]
        slopes = gradient.array * direction
        scale = max(float(np.abs(slopes).sum()), 1e-3)
        worst = max(worst, abs((ends[0] - ends[1]) / (2 * H) - float(slopes.sum())) / scale)
    hint = "at a kink of the function or of its slope, mark the row smooth=False"
    assert worst <= GRADIENT, f"the gradient differs by {worst:.1e} of its scale, allowed {GRADIENT}; {hint}"
    return worst


def moved(arrays: Arrays, k: int, by: np.ndarray) -> Arrays:
    return tuple(a + by if i == k else a for i, a in enumerate(arrays))


def rule_values(op: Primitive, arrays: Arrays, adjoints: list[np.ndarray]) -> list[Tensor | None]:
    """What the gradient rule gives for each float operand; None must be where the table says so, and only there."""
    with Eager():
        inputs = [Tensor(a) for a in arrays]
        made = op(*inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        rules = op.grad(inputs, outputs, [Tensor(a) for a in adjoints])
        pairs = zip(inputs, rules, strict=True)
        values = [(rule() if callable(rule) else rule) if x.dtype.is_float else None for x, rule in pairs]
    for k, (x, value) in enumerate(zip(inputs, values, strict=True)):
        expects_none = not x.dtype.is_float or k in NO_GRADIENT.get(type(op).__name__, ())
        assert (value is None) == expects_none, f"operand {k}"
    return values


def check_not_differentiable(op: Primitive, arrays: Arrays) -> None:
    """The operator says that it has no gradient."""
    with Eager():
        inputs: list[Value] = [Tensor(a) for a in arrays]
        made = op(*inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        with contextlib.suppress(NotDifferentiable):
            op.grad(inputs, outputs, outputs)
            raise AssertionError(f"{op.name} has a gradient after all: strike it from the list")


def is_differentiable(op: Primitive) -> bool:
    """Whether the operator is expected to have a gradient."""
    return not ({op, type(op).__name__} & NOT_DIFFERENTIABLE)


def has_floats(arrays: Arrays) -> bool:
    """Whether there is anything to differentiate."""
    return any(a.dtype.kind == "f" for a in arrays)


def check_inputs_unchanged(op: Primitive, arrays: Arrays) -> None:
    """Kernels work on read-only arrays, and do not change them."""
    frozen = tuple(a.copy() for a in arrays)
    for a in frozen:
        a.flags.writeable = False
    computed(op, frozen)
    assert all(np.array_equal(a, b) for a, b in zip(frozen, arrays, strict=True))


def check_layout(op: Primitive, arrays: Arrays) -> float:
    """Values count, not how their memory runs: batch last, reversed axes, every second element."""
    expected = computed(op, arrays)
    worst = 0.0
    for turn in (batch_last_memory, reversed_memory, gaps_in_memory):
        turned = tuple(map(turn, arrays))
        assert all(np.array_equal(a, b) for a, b in zip(turned, arrays, strict=True))
        made = computed(op, turned)
        assert [a.dtype for a in made] == [a.dtype for a in expected]
        worst = max(worst, distance(made, expected))
    assert worst <= FLOAT32
    return worst


def batch_last_memory(a: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0) if a.ndim > 1 else a


def reversed_memory(a: np.ndarray) -> np.ndarray:
    return np.asarray(a, order="F")


def gaps_in_memory(a: np.ndarray) -> np.ndarray:
    return np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a


def check_repr(op: Primitive) -> None:
    """The text of an operator is the operator."""
    read = eval(repr(op), {**REGISTRY, **{t.name: t for t in dt.ALL}})
    assert read == op
    assert hash(read) == hash(op)
    assert read is not op


def check_repeatable(op: Primitive, arrays: Arrays) -> None:
    """Two runs give the same bytes."""
    for run in (computed, ran):
        first, second = run(op, arrays), run(op, arrays)
        assert [a.tobytes() for a in first] == [a.tobytes() for a in second]
