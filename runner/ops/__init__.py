"""Floor 2: the vocabulary. One class per operator, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2.
"""

from runner.ops.activation import LogSoftmax, ReLU, ReluGrad, Sigmoid, Softmax, Tanh
from runner.ops.array import Cast, Concat, ExpandDims, Flatten, Pad, Reshape, Slice, Transpose
from runner.ops.batchnorm import BatchNorm, BatchNormGrad
from runner.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Maximum,
    Minimum,
    NotEqual,
    ReduceMax,
    ReduceMin,
    Select,
)
from runner.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from runner.ops.dropout import Dropout
from runner.ops.elementwise import Abs, Add, Exp, Log, Mul, Neg, Pow, RealDiv, Sign, Sqrt, Square, Sub
from runner.ops.index import Gather, OneHot, UnsortedSegmentSum
from runner.ops.loss import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from runner.ops.matmul import BiasAdd, BiasAddGrad, MatMul
from runner.ops.optimizer import SGD, Adam, ApplyMomentum
from runner.ops.pool import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad
from runner.ops.reduce import Argmax, BroadcastTo, ReduceMean, ReduceSum

__all__ = [
    "SGD",
    "Abs",
    "Adam",
    "Add",
    "ApplyMomentum",
    "Argmax",
    "AvgPool",
    "AvgPoolGrad",
    "BatchNorm",
    "BatchNormGrad",
    "BiasAdd",
    "BiasAddGrad",
    "BroadcastTo",
    "Cast",
    "Concat",
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Dropout",
    "Equal",
    "Exp",
    "ExpandDims",
    "Flatten",
    "Gather",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "Log",
    "LogSoftmax",
    "MatMul",
    "MaxPool",
    "MaxPoolGrad",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "NotEqual",
    "OneHot",
    "Pad",
    "Pow",
    "ReLU",
    "RealDiv",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "ReluGrad",
    "Reshape",
    "Select",
    "Sigmoid",
    "Sign",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Sqrt",
    "Square",
    "Sub",
    "Tanh",
    "Transpose",
    "UnsortedSegmentSum",
]
