"""Softmax cross-entropy, for class numbers and for distributions."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, PLAIN, Builder, Lowering
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.parts import Axes, PartRule, Parts, each_sample
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.ops.activation import log_softmax, lower_softmax
from runner.ops.array import ExpandDims, require
from runner.types import TensorType


@primitive
class SparseSoftmaxCrossEntropyWithLogits(Primitive):
    """Mean of -log softmax(logits)[label] over the batch, or with `is_grad` its gradient with respect to the logits.

    logits (N, C) of floats, labels (N,) Int32 or Int64 from 0 to C - 1; the result is a scalar, with `is_grad` (N, C).
    """

    precision: ClassVar = OperandPrecision.SINGLE
    needs_elements: ClassVar = True
    operand_names: ClassVar = ("features", "labels")

    is_grad: bool = False

    def infer(self, logits: TensorType, labels: TensorType) -> TensorType:
        require(logits.ndim == 2 and logits.dtype.is_float, "logits must be floats (N, C)", logits=logits)
        fits = labels.shape == logits.shape[:1] and labels.dtype in (dt.int32, dt.int64)
        repair = {"repair": "sparse=False, in a config loss.sparse=false"} if labels.shape == logits.shape else {}
        require(fits, "labels must be class numbers (N,) as Int32 or Int64", logits=logits, labels=labels, **repair)
        return logits if self.is_grad else logits.with_shape()

    def kernel(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        count = len(labels)
        logarithms = log_softmax(logits)
        # One above the last class, an error, for negative labels: numpy would count them from the last class.
        chosen = np.arange(count), np.where(labels < 0, logits.shape[1], labels)
        try:
            if not self.is_grad:
                return np.asarray(-logarithms[chosen].mean(dtype=logits.dtype))
            result: np.ndarray = np.exp(logarithms)
            result[chosen] -= 1
        except IndexError:
            wrong = labels[(labels < 0) | (labels >= logits.shape[1])]
            raise IndexError(f"label {wrong[0]} is not a class number, 0 to {logits.shape[1] - 1}") from None
        result /= count
        return result

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """The gradient of the mean over a part is larger than that over the batch."""
        return each_sample(self, axes, (0, 0), (0 if self.is_grad else None,), 1 / parts.count)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        if self.is_grad:
            return super().grad(inputs, outputs, douts)
        logits, labels = inputs
        return douts[0] * SparseSoftmaxCrossEntropyWithLogits(is_grad=True)(logits, labels), None

    def lower(self, b: Builder, logits: str, labels: str) -> str:
        return self._lower_along(b, logits, labels, axis=1)

    def lowerings(self, logits: TensorType, labels: TensorType) -> Sequence[Lowering]:
        results = (LAST,) if self.is_grad else (PLAIN,)
        return Lowering("plain", self.lower), Lowering("last", partial(self._lower_along, axis=0), (LAST,), results)

    def _lower_along(self, b: Builder, logits: str, labels: str, axis: int) -> str:
        count, classes = b.type(logits).shape
        logarithms = lower_softmax(b, "LogSoftmax", logits, axis, classes)
        if not self.is_grad:
            shape = (count, 1) if axis else (1, count)
            # As in the kernel: onnxruntime would count negative labels from the last class, too.
            zero, above = (b.const(np.array(number, b.type(labels).dtype.numpy)) for number in (0, classes))
            numbers = b.node("Where", (b.node("Less", (labels, zero)), above, labels))
            chosen = b.node("GatherElements", (logarithms, b.reshape(numbers, shape)), axis=axis)
            return b.node("Neg", (b.node("ReduceMean", (chosen,), keepdims=0),))
        numbers = b.node("Cast", (labels,), to=dt.int64)  # onnxruntime has OneHot for few types
        share = b.const(1.0 / count, like=logits)
        is_wide = b.type(logits).dtype is dt.float64  # there 0 and 1 are cast: onnxruntime has no OneHot of Float64
        ones = np.array([0.0, 1.0], np.float32) if is_wide else np.array([0.0, 1.0 / count], b.type(logits).dtype.numpy)
        hit = b.const(ones)
        probabilities = b.node("Mul", (b.node("Exp", (logarithms,)), share))
        hits = b.node("OneHot", (numbers, b.const(classes), hit), axis=axis)
        if is_wide:
            hits = b.node("Mul", (b.node("Cast", (hits,), to=dt.float64), share))
        return b.node("Sub", (probabilities, hits))


@primitive
class SoftmaxCrossEntropyWithLogits(Primitive):
    """-sum(labels * log softmax(logits)) per sample, and its gradient with respect to the logits.

    logits and labels (N, C) of floats; outputs (N,) and (N, C). As in MindSpore, labels and the second output have
    no gradient, so there is no second derivative.
    """

    precision: ClassVar = OperandPrecision.SINGLE
    needs_elements: ClassVar = True
    without_gradient: ClassVar = (1,)
    operand_names: ClassVar = ("features", "labels")
    result_names: ClassVar = ("loss", "dlogits")

    def infer(self, logits: TensorType, labels: TensorType) -> tuple[TensorType, TensorType]:
        require(logits.ndim == 2 and logits.dtype.is_float, "logits must be floats (N, C)", logits=logits)
        require(
            labels == logits, "labels must be distributions in the type of the logits", logits=logits, labels=labels
        )
        return logits.with_shape(logits.shape[0]), logits

    def kernel(self, logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logarithms = log_softmax(logits)
        return -(labels * logarithms).sum(-1), np.exp(logarithms) - labels

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, 0), (0, 0))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return outputs[1] * ExpandDims(-1)(douts[0]), None

    def lower(self, b: Builder, logits: str, labels: str) -> tuple[str, str]:
        logarithms = lower_softmax(b, "LogSoftmax", logits, -1, b.type(logits).shape[-1])
        total = b.node("ReduceSum", (b.node("Mul", (labels, logarithms)), b.const([-1])), keepdims=0)
        return b.node("Neg", (total,)), b.node("Sub", (b.node("Exp", (logarithms,)), labels))
