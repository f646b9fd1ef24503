"""Floor 2: the vocabulary. One class per operator, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2.
"""

from runner.ops.activation import LogSoftmax, ReLU, ReluGrad, Sigmoid, Softmax, Tanh
from runner.ops.array import Cast, Concat, ExpandDims, Flatten, Pad, Reshape, Slice, Transpose
from runner.ops.batchmatmul import BatchMatMul
from runner.ops.batchnorm import BatchNorm, BatchNormGrad
from runner.ops.collective import AllReduce
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
from runner.ops.composite import clip_by_value
from runner.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from runner.ops.dropout import Dropout
from runner.ops.elementwise import Abs, Add, Exp, Log, Mul, Neg, Pow, RealDiv, Sign, Sqrt, Square, Sub
from runner.ops.functions import Cos, Floor, OnesLike, Reciprocal, Rsqrt, Sin, ZerosLike
from runner.ops.gradient import InsertGradientOf
from runner.ops.index import Gather, OneHot, UnsortedSegmentSum
from runner.ops.layernorm import LayerNorm, LayerNormGrad
from runner.ops.logical import LogicalAnd, LogicalNot, LogicalOr
from runner.ops.loss import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
from runner.ops.matmul import BiasAdd, BiasAddGrad, MatMul
from runner.ops.optimizer import SGD, Adam, ApplyMomentum
from runner.ops.pieces import Split, Squeeze, Stack, Tile, Unstack
from runner.ops.piecewise import HSigmoid, HSwish, PReLU, ReLU6, ReLU6Grad
from runner.ops.pool import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad
from runner.ops.print import Print
from runner.ops.product import ReduceProd
from runner.ops.reduce import Argmax, Argmin, BroadcastTo, ReduceMean, ReduceSum
from runner.ops.smooth import Elu, GeLU, GeLUGrad, Softplus
from runner.ops.strided import StridedSlice, StridedSliceGrad

__all__ = [
    "SGD",
    "Abs",
    "Adam",
    "Add",
    "AllReduce",
    "ApplyMomentum",
    "Argmax",
    "Argmin",
    "AvgPool",
    "AvgPoolGrad",
    "BatchMatMul",
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
    "Cos",
    "Dropout",
    "Elu",
    "Equal",
    "Exp",
    "ExpandDims",
    "Flatten",
    "Floor",
    "Gather",
    "GeLU",
    "GeLUGrad",
    "Greater",
    "GreaterEqual",
    "HSigmoid",
    "HSwish",
    "InsertGradientOf",
    "LayerNorm",
    "LayerNormGrad",
    "Less",
    "LessEqual",
    "Log",
    "LogSoftmax",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "MatMul",
    "MaxPool",
    "MaxPoolGrad",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "NotEqual",
    "OneHot",
    "OnesLike",
    "PReLU",
    "Pad",
    "Pow",
    "Print",
    "ReLU",
    "ReLU6",
    "ReLU6Grad",
    "RealDiv",
    "Reciprocal",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReluGrad",
    "Reshape",
    "Rsqrt",
    "Select",
    "Sigmoid",
    "Sign",
    "Sin",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "Softplus",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Split",
    "Sqrt",
    "Square",
    "Squeeze",
    "Stack",
    "StridedSlice",
    "StridedSliceGrad",
    "Sub",
    "Tanh",
    "Tile",
    "Transpose",
    "UnsortedSegmentSum",
    "Unstack",
    "ZerosLike",
    "clip_by_value",
]
