"""The contract of operators, over all of them."""

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterable

import pytest
from contract import (
    check_gradient,
    check_inputs_unchanged,
    check_layout,
    check_not_differentiable,
    check_onnx,
    check_precision,
    check_repeatable,
    check_repr,
    check_types,
    has_floats,
    is_differentiable,
)
from half import half
from operands import Sample
from samples import NO_GRADIENT, NO_TEXT, NOT_DIFFERENTIABLE, ONCE_DIFFERENTIABLE, SAMPLES, WIDE
from second_order import check_second_order, check_second_order_modes
from sizes import check_sizes
from soak import thinned
from tables import check_rows
from unusual import (
    DEPENDENT,
    EXCEPTIONS,
    IMPRECISE,
    KINDS,
    check_digits,
    check_unusual_gradients,
    check_unusual_values,
)

from runner import ops
from runner.core.operators import REGISTRY, ComposedOperator, Effect, Primitive
from runner.ops.elementwise.arithmetic import Unary
from runner.types import TensorType


def every(samples: list[Sample]) -> pytest.MarkDecorator:
    """For each operator one test of all its rows."""
    rows: dict[str, list[Sample]] = {}
    for sample in samples:
        rows.setdefault(sample.op.name, []).append(sample)
    return pytest.mark.parametrize("samples", rows.values(), ids=rows)


def check(samples: list[Sample], promise: Callable[..., object]) -> None:
    check_rows(samples, lambda s: promise(s.op, s.arrays), name=lambda s: s.name)


def test_every_operator_has_a_row():
    """All but effects, which have no outputs: `test_print.py` and `test_summary.py` test what they emit."""
    assert {name for name, kind in REGISTRY.items() if not issubclass(kind, Effect)} == {s.op.name for s in SAMPLES}


def test_every_operator_is_public():
    for module in pkgutil.walk_packages(ops.__path__, "runner.ops."):
        importlib.import_module(module.name)
    classes = [getattr(ops, name) for name in ops.__all__ if isinstance(getattr(ops, name), type)]
    with_rules = [x for x in classes if issubclass(x, Primitive) and not issubclass(x, ComposedOperator)]
    assert set(REGISTRY) == {kind.__name__ for kind in with_rules}
    assert all(getattr(ops, name) is kind for name, kind in REGISTRY.items())


def test_operators_have_one_base():
    public = [getattr(ops, name) for name in ops.__all__]
    composed = {x for x in public if isinstance(x, type) and "compose" in dir(x)}
    assert len(composed) > 80
    assert all(issubclass(kind, Primitive) for kind in composed)
    assert isinstance(ops.AddN(), Primitive)


def test_the_exceptions_are_of_operators_that_exist():
    classes = {x.name if isinstance(x, Primitive) else x for x in NOT_DIFFERENTIABLE | ONCE_DIFFERENTIABLE}
    unusual = {*DEPENDENT, *IMPRECISE, *(name for name, _ in EXCEPTIONS)}
    assert {*NO_GRADIENT, *NO_TEXT, *classes, *unusual} <= set(REGISTRY)


@every(SAMPLES)
def test_the_type_rule_tells_the_truth(samples: list[Sample]):
    check(samples, check_types)


@every([*SAMPLES, *WIDE])
def test_onnxruntime_agrees_with_numpy(samples: list[Sample]):
    check(samples, check_onnx)


def test_the_wide_samples_reach_every_lowering_of_a_convolution():
    lowerings = {lowering.name for s in WIDE for lowering in s.op.lowerings(*map(TensorType.of, s.arrays))}
    assert lowerings == {
        "plain",
        "pointwise",
        "gathered",
        "convolved",
        "tiled",
        "transposed",
        "turned",
        "woven",
        "grouped",
        "by_taps",
        "winograd2x2",
        "winograd4x4",
    }


@every(SAMPLES)
def test_float32_agrees_with_float64(samples: list[Sample]):
    check(samples, check_precision)


@every([s for s in SAMPLES if s.smooth and has_floats(s.arrays) and is_differentiable(s.op)])
def test_the_gradient_rule_is_right(samples: list[Sample]):
    check(samples, check_gradient)


@every([s for s in SAMPLES if not is_differentiable(s.op)])
def test_what_has_no_gradient_says_so(samples: list[Sample]):
    check(samples, check_not_differentiable)


@every(SAMPLES)
def test_operands_are_not_written_to(samples: list[Sample]):
    check(samples, check_inputs_unchanged)


@every(SAMPLES)
def test_memory_layout_does_not_matter(samples: list[Sample]):
    check(samples, check_layout)


@every([s for s in SAMPLES if s.op.name not in NO_TEXT])
def test_the_text_of_an_operator_is_the_operator(samples: list[Sample]):
    check_rows(samples, lambda s: check_repr(s.op), name=lambda s: s.name)


@every(SAMPLES)
def test_two_runs_give_the_same_bytes(samples: list[Sample]):
    check(samples, check_repeatable)


def check_kinds(samples: list[Sample], promise: Callable[..., object], kinds: Iterable[str]) -> None:
    rows = itertools.product(samples, kinds)
    check_rows(rows, lambda row: promise(row[0].op, row[0].arrays, row[1]), name=lambda row: f"{row[0].name}-{row[1]}")


def in_half(promise: Callable[..., object]) -> Callable[..., object]:
    return lambda op, arrays, kind: promise(*half(op, arrays), kind)


FLOATS = [s for s in SAMPLES if has_floats(s.arrays)]
GRADIENT_KINDS = [kind for kind in KINDS if kind != "largest"]  # whose sums overflow, or not, by their order
INDEPENDENT = [s for s in FLOATS if s.op.name not in DEPENDENT]


@every(INDEPENDENT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_unusual_values(samples: list[Sample]):
    check_kinds(list(thinned(samples, 2)), check_unusual_values, KINDS)


@every([s for s in FLOATS if is_differentiable(s.op)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_of_unusual_values(samples: list[Sample]):
    check_kinds(list(thinned(samples, 2)), check_unusual_gradients, GRADIENT_KINDS)


@every(INDEPENDENT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_unusual_values_in_float16(samples: list[Sample]):
    check_kinds(list(thinned(samples, 3)), in_half(check_unusual_values), KINDS)


@every([s for s in FLOATS if is_differentiable(s.op)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_of_unusual_values_in_float16(samples: list[Sample]):
    check_kinds(list(thinned(samples, 5)), in_half(check_unusual_gradients), GRADIENT_KINDS)


def fails(samples: list[Sample], promise: Callable[..., object], kind: str) -> bool:
    try:
        check_kinds(samples, promise, [kind])
    except BaseExceptionGroup:
        return True
    return False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_exceptions_for_unusual_values_are_needed(monkeypatch):
    for (name, kind), reason in list(EXCEPTIONS.items()):
        with monkeypatch.context() as patch:
            patch.delitem(EXCEPTIONS, (name, kind))
            rows = [s for s in FLOATS if s.op.name == name.replace("BatchNormGrad", "BatchNorm")]
            in_gradients = kind in GRADIENT_KINDS and fails(rows, check_unusual_gradients, kind)
            assert in_gradients or fails(rows, check_unusual_values, kind), reason


@pytest.mark.parametrize("kind", sorted(k for k, v in REGISTRY.items() if issubclass(v, Unary) and v.floats_only))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_one_operand_have_all_digits(kind: str):
    if kind in IMPRECISE:
        with pytest.raises(AssertionError):
            check_digits(REGISTRY[kind]())
    else:
        check_digits(REGISTRY[kind]())


@every(SAMPLES)
def test_axes_of_length_0_and_1(samples: list[Sample]):
    check_rows(thinned(samples, 8), lambda s: check_sizes(s.op, s.arrays), name=lambda s: s.name)


@every([s for s in FLOATS if s.smooth])
def test_second_derivatives(samples: list[Sample]):
    check(samples, check_second_order)


@every([s for s in FLOATS if s.smooth])
def test_second_derivatives_in_both_modes(samples: list[Sample]):
    check(list(thinned(samples, 8)), check_second_order_modes)
