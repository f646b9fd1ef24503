"""The reference's `ops.functional`: operators as functions. Scripts import them as `F`.

Those of Python values are in `python_values.py`; `assign`, `depend`, `partial` and `stop_gradient` are with their
operators.
"""

from runner.mindspore.ops.indexing import ScatterNdUpdate, ScatterUpdate
from runner.mindspore.ops.python_values import (
    DType,
    IsInstance,
    IsSubClass,
    Rank,
    SameTypeShape,
    ScalarCast,
    ScalarToArray,
    ScalarToTensor,
    Shape,
    Size,
    TupleToArray,
)
from runner.mindspore.ops.reductions import AddN
from runner.ops.activation import FastGeLU, GeLU, Tanh
from runner.ops.array import Cast, ExpandDims, Identity, Reshape, Slice, Squeeze, Stack, Transpose, Unstack
from runner.ops.creation import Eye, Fill, Range
from runner.ops.effects import Print
from runner.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Exp,
    Floor,
    Log,
    Mul,
    Neg,
    Pow,
    RealDiv,
    Reciprocal,
    Sqrt,
    Square,
    Sub,
)
from runner.ops.elementwise.compare import (
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterEqual,
    Invert,
    IsFinite,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Select,
)
from runner.ops.elementwise.division import FloorDiv, FloorMod
from runner.ops.elementwise.functions import (
    ACos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    Cos,
    Cosh,
    Erf,
    Erfc,
    Expm1,
    Sin,
    Sinh,
    Tan,
)
from runner.ops.indexing.gather import Gather, GatherD, GatherNd, ScatterNd
from runner.ops.indexing.scatter import TensorScatterUpdate
from runner.ops.indexing.slices import StridedSlice
from runner.ops.indexing.sort import Sort
from runner.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceSum, Tile

absolute = Abs()
acos = ACos()
acosh = Acosh()
add = Add()
addn = AddN()
asin = Asin()
asinh = Asinh()
atan = Atan()
atan2 = Atan2()
atanh = Atanh()
bitwise_and = BitwiseAnd()
bitwise_or = BitwiseOr()
bitwise_xor = BitwiseXor()
cast = Cast()
cos = Cos()
cosh = Cosh()
cumsum = CumSum()
div = RealDiv()
dtype = DType()
equal = Equal()
erf = Erf()
erfc = Erfc()
exp = Exp()
expand_dims = ExpandDims()
eye = Eye()
fill = Fill()
floor = Floor()
floordiv = FloorDiv()
gather = Gather()
gather_d = GatherD()
gather_nd = GatherNd()
ge = GreaterEqual()
gt = Greater()
invert = Invert()
isfinite = IsFinite()
isinstance_ = IsInstance()
isnan = IsNan()
issubclass_ = IsSubClass()
le = LessEqual()
less = Less()
log = Log()
logical_and = LogicalAnd()
logical_not = LogicalNot()
logical_or = LogicalOr()
maximum = Maximum()
minimum = Minimum()
mul = Mul()
neg_tensor = Neg()
not_equal = NotEqual()
pack = Stack()
pows = Pow()
print_ = Print()
rank = Rank()
reduce_max = ReduceMax()
reduce_mean = ReduceMean()
reduce_min = ReduceMin()
reduce_sum = ReduceSum()
reshape = Reshape()
same_type_shape = SameTypeShape()
scalar_cast = ScalarCast()
scalar_to_array = ScalarToArray()
scalar_to_tensor = ScalarToTensor()
scatter_nd = ScatterNd()
scatter_nd_update = ScatterNdUpdate()
scatter_update = ScatterUpdate()
select = Select()
shape = Shape()
sin = Sin()
sinh = Sinh()
size = Size()
sort = Sort()
sqrt = Sqrt()
square = Square()
squeeze = Squeeze()
stack = Stack()
strided_slice = StridedSlice()
sub = Sub()
tan = Tan()
tanh = Tanh()
tensor_add = Add()
tensor_div = RealDiv()
tensor_exp = Exp()
tensor_expm1 = Expm1()
tensor_floordiv = FloorDiv()
tensor_ge = GreaterEqual()
tensor_gt = Greater()
tensor_le = LessEqual()
tensor_lt = Less()
tensor_mod = FloorMod()
tensor_mul = Mul()
tensor_pow = Pow()
tensor_range = Range()
tensor_scatter_update = TensorScatterUpdate()
tensor_slice = Slice()
tensor_sub = Sub()
tile = Tile()
transpose = Transpose()
tuple_to_array = TupleToArray()


# Second names of operators that the reference keeps for older scripts.

TensorAdd = Add
GatherV2 = SparseGatherV2 = Gather
Pack, Unpack = Stack, Unstack
Inv = Reciprocal
Gelu, FastGelu = GeLU, FastGeLU
identity = Identity
