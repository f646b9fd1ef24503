"""Floor 2: the vocabulary. One class per operator, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2.
"""

from typing import TYPE_CHECKING

from runner.host.lazy import late_names
from runner.ops import elementwise, matmul  # noqa: F401  the arithmetic of handles (`x + y`) is theirs

if TYPE_CHECKING:  # for those who read; what runs loads a module when one of its names is asked for
    from runner.ops.activation import LogSoftmax, ReLU, ReluGrad, Sigmoid, Softmax, Tanh
    from runner.ops.activation_piecewise import HSigmoid, HSwish, PReLU, ReLU6, ReLU6Grad
    from runner.ops.activation_smooth import Elu, GeLU, GeLUGrad, Softplus
    from runner.ops.array import Cast, Concat, ExpandDims, Flatten, Pad, Reshape, Slice, Transpose
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
    from runner.ops.float_status import FloatStatus
    from runner.ops.gather import Gather, OneHot, UnsortedSegmentSum
    from runner.ops.insert_gradient import InsertGradientOf
    from runner.ops.layernorm import LayerNorm, LayerNormGrad
    from runner.ops.logical import LogicalAnd, LogicalNot, LogicalOr
    from runner.ops.loss import SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits
    from runner.ops.math import Cos, Floor, OnesLike, Reciprocal, Rsqrt, Sin, ZerosLike
    from runner.ops.matmul import BiasAdd, BiasAddGrad, MatMul
    from runner.ops.matmul_batch import BatchMatMul
    from runner.ops.optimizer import SGD, Adam, ApplyMomentum
    from runner.ops.pool import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGrad
    from runner.ops.print.operator import Print
    from runner.ops.reduce import Argmax, Argmin, BroadcastTo, ReduceMean, ReduceSum
    from runner.ops.reduce_prod import ReduceProd
    from runner.ops.split import Split, Squeeze, Stack, Tile, Unstack
    from runner.ops.strided_slice import StridedSlice, StridedSliceGrad
else:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "activation": "LogSoftmax ReLU ReluGrad Sigmoid Softmax Tanh",
            "array": "Cast Concat ExpandDims Flatten Pad Reshape Slice Transpose",
            "batchmatmul": "BatchMatMul",
            "batchnorm": "BatchNorm BatchNormGrad",
            "collective": "AllReduce",
            "compare": "Equal Greater GreaterEqual Less LessEqual Maximum Minimum NotEqual ReduceMax ReduceMin Select",
            "composite": "clip_by_value",
            "conv": "Conv2D Conv2DBackpropFilter Conv2DBackpropInput",
            "dropout": "Dropout",
            "elementwise": "Abs Add Exp Log Mul Neg Pow RealDiv Sign Sqrt Square Sub",
            "functions": "Cos Floor OnesLike Reciprocal Rsqrt Sin ZerosLike",
            "gradient": "InsertGradientOf",
            "index": "Gather OneHot UnsortedSegmentSum",
            "layernorm": "LayerNorm LayerNormGrad",
            "logical": "LogicalAnd LogicalNot LogicalOr",
            "loss": "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
            "matmul": "BiasAdd BiasAddGrad MatMul",
            "optimizer": "SGD Adam ApplyMomentum",
            "pieces": "Split Squeeze Stack Tile Unstack",
            "piecewise": "HSigmoid HSwish PReLU ReLU6 ReLU6Grad",
            "pool": "AvgPool AvgPoolGrad MaxPool MaxPoolGrad",
            "print": "Print",
            "product": "ReduceProd",
            "reduce": "Argmax Argmin BroadcastTo ReduceMean ReduceSum",
            "smooth": "Elu GeLU GeLUGrad Softplus",
            "status": "FloatStatus",
            "strided": "StridedSlice StridedSliceGrad",
        },
    )

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
    "FloatStatus",
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
