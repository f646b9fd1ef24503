from runner.ops.activation import (
    LogSoftmax as LogSoftmax,
    ReLU as ReLU,
    ReluGrad as ReluGrad,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Tanh as Tanh,
)
from runner.ops.activation_piecewise import (
    HSigmoid as HSigmoid,
    HSwish as HSwish,
    PReLU as PReLU,
    ReLU6 as ReLU6,
    ReLU6Grad as ReLU6Grad,
)
from runner.ops.activation_smooth import Elu as Elu, GeLU as GeLU, GeLUGrad as GeLUGrad, Softplus as Softplus
from runner.ops.array import (
    Cast as Cast,
    Concat as Concat,
    ExpandDims as ExpandDims,
    Flatten as Flatten,
    Pad as Pad,
    Reshape as Reshape,
    Slice as Slice,
    Transpose as Transpose,
)
from runner.ops.batchnorm import BatchNorm as BatchNorm, BatchNormGrad as BatchNormGrad
from runner.ops.collective import AllReduce as AllReduce
from runner.ops.compare import (
    Equal as Equal,
    Greater as Greater,
    GreaterEqual as GreaterEqual,
    Less as Less,
    LessEqual as LessEqual,
    Maximum as Maximum,
    Minimum as Minimum,
    NotEqual as NotEqual,
    ReduceMax as ReduceMax,
    ReduceMin as ReduceMin,
    Select as Select,
)
from runner.ops.composite import clip_by_value as clip_by_value
from runner.ops.conv import (
    Conv2D as Conv2D,
    Conv2DBackpropFilter as Conv2DBackpropFilter,
    Conv2DBackpropInput as Conv2DBackpropInput,
)
from runner.ops.dropout import Dropout as Dropout
from runner.ops.elementwise import (
    Abs as Abs,
    Add as Add,
    Exp as Exp,
    Log as Log,
    Mul as Mul,
    Neg as Neg,
    Pow as Pow,
    RealDiv as RealDiv,
    Sign as Sign,
    Sqrt as Sqrt,
    Square as Square,
    Sub as Sub,
)
from runner.ops.float_status import FloatStatus as FloatStatus
from runner.ops.gather import Gather as Gather, OneHot as OneHot, UnsortedSegmentSum as UnsortedSegmentSum
from runner.ops.insert_gradient import InsertGradientOf as InsertGradientOf
from runner.ops.layernorm import LayerNorm as LayerNorm, LayerNormGrad as LayerNormGrad
from runner.ops.logical import LogicalAnd as LogicalAnd, LogicalNot as LogicalNot, LogicalOr as LogicalOr
from runner.ops.loss import (
    SoftmaxCrossEntropyWithLogits as SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits as SparseSoftmaxCrossEntropyWithLogits,
)
from runner.ops.math import (
    Cos as Cos,
    Floor as Floor,
    OnesLike as OnesLike,
    Reciprocal as Reciprocal,
    Rsqrt as Rsqrt,
    Sin as Sin,
    ZerosLike as ZerosLike,
)
from runner.ops.matmul import BiasAdd as BiasAdd, BiasAddGrad as BiasAddGrad, MatMul as MatMul
from runner.ops.matmul_batch import BatchMatMul as BatchMatMul
from runner.ops.observe_step import ObserveStep as ObserveStep
from runner.ops.optimizer import SGD as SGD, Adam as Adam, ApplyMomentum as ApplyMomentum
from runner.ops.pool import (
    AvgPool as AvgPool,
    AvgPoolGrad as AvgPoolGrad,
    MaxPool as MaxPool,
    MaxPoolGrad as MaxPoolGrad,
)
from runner.ops.print.operator import Print as Print
from runner.ops.reduce import (
    Argmax as Argmax,
    Argmin as Argmin,
    BroadcastTo as BroadcastTo,
    ReduceMean as ReduceMean,
    ReduceSum as ReduceSum,
)
from runner.ops.reduce_prod import ReduceProd as ReduceProd
from runner.ops.split import Split as Split, Squeeze as Squeeze, Stack as Stack, Tile as Tile, Unstack as Unstack
from runner.ops.strided_slice import StridedSlice as StridedSlice, StridedSliceGrad as StridedSliceGrad
