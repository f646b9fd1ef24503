"""The contract of operators, over all of them."""

import importlib
import pkgutil

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
from operands import Sample
from samples import NO_ADJOINT, NO_GRADIENT, NO_TEXT, NOT_DIFFERENTIABLE, SAMPLES, WIDE

from runner import ops
from runner.core.effect import Effect
from runner.core.primitive import REGISTRY, Primitive
from runner.types import TensorType


def every(samples: list[Sample]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("sample", samples, ids=lambda s: s.name)


def test_every_operator_has_a_row():
    """All but effects, which have no outputs: `tests/ops/print` tests what they emit."""
    assert {name for name, kind in REGISTRY.items() if not issubclass(kind, Effect)} == {s.op.name for s in SAMPLES}


def test_every_operator_is_public():
    for module in pkgutil.walk_packages(ops.__path__, "runner.ops."):
        importlib.import_module(module.name)
    assert set(REGISTRY) == {name for name in ops.__all__ if isinstance(getattr(ops, name), type)}
    assert all(getattr(ops, name) is kind for name, kind in REGISTRY.items())


def test_the_exceptions_are_of_operators_that_exist():
    classes = {type(x).__name__ if isinstance(x, Primitive) else x for x in NOT_DIFFERENTIABLE}
    assert {*NO_GRADIENT, *NO_ADJOINT, *NO_TEXT, *classes} <= set(REGISTRY)


@every(SAMPLES)
def test_the_type_rule_tells_the_truth(sample: Sample):
    check_types(sample.op, sample.arrays)


@every([*SAMPLES, *WIDE])
def test_onnxruntime_agrees_with_numpy(sample: Sample):
    check_onnx(sample.op, sample.arrays)


def test_the_wide_samples_reach_every_form_of_a_convolution():
    forms = {form.name for s in WIDE for form in s.op.forms(*map(TensorType.of, s.arrays))}
    assert forms == {
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
    }


@every(SAMPLES)
def test_float32_agrees_with_float64(sample: Sample):
    check_precision(sample.op, sample.arrays)


@every([s for s in SAMPLES if s.smooth and has_floats(s.arrays) and is_differentiable(s.op)])
def test_the_gradient_rule_is_right(sample: Sample):
    check_gradient(sample.op, sample.arrays)


@every([s for s in SAMPLES if not is_differentiable(s.op)])
def test_what_has_no_gradient_says_so(sample: Sample):
    check_not_differentiable(sample.op, sample.arrays)


@every(SAMPLES)
def test_operands_are_not_written_to(sample: Sample):
    check_inputs_unchanged(sample.op, sample.arrays)


@every(SAMPLES)
def test_memory_layout_does_not_matter(sample: Sample):
    check_layout(sample.op, sample.arrays)


@every([s for s in SAMPLES if s.op.name not in NO_TEXT])
def test_the_text_of_an_operator_is_the_operator(sample: Sample):
    check_repr(sample.op)


@every(SAMPLES)
def test_two_runs_give_the_same_bytes(sample: Sample):
    check_repeatable(sample.op, sample.arrays)
