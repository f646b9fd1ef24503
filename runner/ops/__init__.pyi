from runner.mindspore.ops.candidates import (
    LogUniformCandidateSampler as LogUniformCandidateSampler,
    RandomChoiceWithMask as RandomChoiceWithMask,
    UniformCandidateSampler as UniformCandidateSampler,
)
from runner.mindspore.ops.functional import (
    FastGelu as FastGelu,
    GatherV2 as GatherV2,
    Gelu as Gelu,
    Inv as Inv,
    Pack as Pack,
    SparseGatherV2 as SparseGatherV2,
    TensorAdd as TensorAdd,
    Unpack as Unpack,
    absolute as absolute,
    acos as acos,
    acosh as acosh,
    add as add,
    addn as addn,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitwise_and as bitwise_and,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    cast as cast,
    cos as cos,
    cosh as cosh,
    cumsum as cumsum,
    div as div,
    dtype as dtype,
    equal as equal,
    erf as erf,
    erfc as erfc,
    exp as exp,
    expand_dims as expand_dims,
    eye as eye,
    fill as fill,
    floor as floor,
    floordiv as floordiv,
    gather as gather,
    gather_d as gather_d,
    gather_nd as gather_nd,
    ge as ge,
    gt as gt,
    identity as identity,
    invert as invert,
    isfinite as isfinite,
    isinstance_ as isinstance_,
    isnan as isnan,
    issubclass_ as issubclass_,
    le as le,
    less as less,
    log as log,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    maximum as maximum,
    minimum as minimum,
    mul as mul,
    neg_tensor as neg_tensor,
    not_equal as not_equal,
    pack as pack,
    pows as pows,
    print_ as print_,
    rank as rank,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_sum as reduce_sum,
    reshape as reshape,
    same_type_shape as same_type_shape,
    scalar_cast as scalar_cast,
    scalar_to_array as scalar_to_array,
    scalar_to_tensor as scalar_to_tensor,
    scatter_nd as scatter_nd,
    scatter_nd_update as scatter_nd_update,
    scatter_update as scatter_update,
    select as select,
    shape as shape,
    sin as sin,
    sinh as sinh,
    size as size,
    sort as sort,
    sqrt as sqrt,
    square as square,
    squeeze as squeeze,
    stack as stack,
    strided_slice as strided_slice,
    sub as sub,
    tan as tan,
    tanh as tanh,
    tensor_add as tensor_add,
    tensor_div as tensor_div,
    tensor_exp as tensor_exp,
    tensor_expm1 as tensor_expm1,
    tensor_floordiv as tensor_floordiv,
    tensor_ge as tensor_ge,
    tensor_gt as tensor_gt,
    tensor_le as tensor_le,
    tensor_lt as tensor_lt,
    tensor_mod as tensor_mod,
    tensor_mul as tensor_mul,
    tensor_pow as tensor_pow,
    tensor_range as tensor_range,
    tensor_scatter_update as tensor_scatter_update,
    tensor_slice as tensor_slice,
    tensor_sub as tensor_sub,
    tile as tile,
    transpose as transpose,
    tuple_to_array as tuple_to_array,
)
from runner.mindspore.ops.images import LRN as LRN, DepthwiseConv2dNative as DepthwiseConv2dNative
from runner.mindspore.ops.indexing import (
    EmbeddingLookup as EmbeddingLookup,
    IndexAdd as IndexAdd,
    InplaceAdd as InplaceAdd,
    InplaceSub as InplaceSub,
    InplaceUpdate as InplaceUpdate,
    ScatterAdd as ScatterAdd,
    ScatterDiv as ScatterDiv,
    ScatterMax as ScatterMax,
    ScatterMin as ScatterMin,
    ScatterMul as ScatterMul,
    ScatterNdAdd as ScatterNdAdd,
    ScatterNdSub as ScatterNdSub,
    ScatterNdUpdate as ScatterNdUpdate,
    ScatterNonAliasingAdd as ScatterNonAliasingAdd,
    ScatterSub as ScatterSub,
    ScatterUpdate as ScatterUpdate,
    Unique as Unique,
    UnsortedSegmentMax as UnsortedSegmentMax,
    UnsortedSegmentMin as UnsortedSegmentMin,
    UnsortedSegmentProd as UnsortedSegmentProd,
)
from runner.mindspore.ops.losses import (
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    BinaryCrossEntropy as BinaryCrossEntropy,
    KLDivLoss as KLDivLoss,
    L2Loss as L2Loss,
    L2Normalize as L2Normalize,
    NLLLoss as NLLLoss,
    SigmoidCrossEntropyWithLogits as SigmoidCrossEntropyWithLogits,
    SmoothL1Loss as SmoothL1Loss,
)
from runner.mindspore.ops.python_values import (
    DType as DType,
    InvertPermutation as InvertPermutation,
    IsInstance as IsInstance,
    IsSubClass as IsSubClass,
    Rank as Rank,
    SameTypeShape as SameTypeShape,
    ScalarCast as ScalarCast,
    ScalarToArray as ScalarToArray,
    ScalarToTensor as ScalarToTensor,
    Shape as Shape,
    Size as Size,
    TupleToArray as TupleToArray,
    add_flags as add_flags,
    array_to_scalar as array_to_scalar,
    bool_and as bool_and,
    bool_eq as bool_eq,
    bool_not as bool_not,
    bool_or as bool_or,
    constexpr as constexpr,
    core as core,
    dict_getitem as dict_getitem,
    dict_setitem as dict_setitem,
    hastype as hastype,
    in_dict as in_dict,
    is_ as is_,
    is_not as is_not,
    list_equal as list_equal,
    list_getitem as list_getitem,
    list_len as list_len,
    list_setitem as list_setitem,
    make_dict as make_dict,
    make_list as make_list,
    make_range as make_range,
    make_slice as make_slice,
    make_tuple as make_tuple,
    mixed_precision_cast as mixed_precision_cast,
    not_in_dict as not_in_dict,
    ones_like as ones_like,
    reduced_shape as reduced_shape,
    scalar_add as scalar_add,
    scalar_div as scalar_div,
    scalar_eq as scalar_eq,
    scalar_floordiv as scalar_floordiv,
    scalar_ge as scalar_ge,
    scalar_gt as scalar_gt,
    scalar_le as scalar_le,
    scalar_log as scalar_log,
    scalar_lt as scalar_lt,
    scalar_mod as scalar_mod,
    scalar_mul as scalar_mul,
    scalar_ne as scalar_ne,
    scalar_pow as scalar_pow,
    scalar_sub as scalar_sub,
    scalar_uadd as scalar_uadd,
    scalar_usub as scalar_usub,
    shape_mul as shape_mul,
    string_concat as string_concat,
    string_eq as string_eq,
    tuple_div as tuple_div,
    tuple_equal as tuple_equal,
    tuple_getitem as tuple_getitem,
    tuple_len as tuple_len,
    tuple_reversed as tuple_reversed,
    tuple_setitem as tuple_setitem,
    typeof as typeof,
    zeros_like as zeros_like,
)
from runner.mindspore.ops.reductions import (
    AccumulateNV2 as AccumulateNV2,
    AddN as AddN,
    ArgMaxWithValue as ArgMaxWithValue,
    ArgMinWithValue as ArgMinWithValue,
    ConfusionMatrix as ConfusionMatrix,
    EqualCount as EqualCount,
    InTopK as InTopK,
    ReduceAll as ReduceAll,
    ReduceAny as ReduceAny,
    SquareSumAll as SquareSumAll,
)
from runner.mindspore.ops.update_rules import (
    ApplyAdadelta as ApplyAdadelta,
    ApplyAdagrad as ApplyAdagrad,
    ApplyAdagradV2 as ApplyAdagradV2,
    ApplyAdaMax as ApplyAdaMax,
    ApplyAddSign as ApplyAddSign,
    ApplyCenteredRMSProp as ApplyCenteredRMSProp,
    ApplyFtrl as ApplyFtrl,
    ApplyGradientDescent as ApplyGradientDescent,
    ApplyPowerSign as ApplyPowerSign,
    ApplyProximalAdagrad as ApplyProximalAdagrad,
    ApplyProximalGradientDescent as ApplyProximalGradientDescent,
    ApplyRMSProp as ApplyRMSProp,
)
from runner.ops.activation import *
from runner.ops.activation_smooth import *
from runner.ops.activation_variants import *
from runner.ops.arrangement import *
from runner.ops.array import *
from runner.ops.assignment import *
from runner.ops.batchnorm import *
from runner.ops.bits import *
from runner.ops.collective import *
from runner.ops.compare import *
from runner.ops.composite import *
from runner.ops.conv import *
from runner.ops.creation import *
from runner.ops.cumulative import *
from runner.ops.cumulative_sum import *
from runner.ops.division import *
from runner.ops.dropout import *
from runner.ops.elementwise import *
from runner.ops.floor_division import *
from runner.ops.gather_elements import *
from runner.ops.grad_operation import *
from runner.ops.gradient import *
from runner.ops.handle import *
from runner.ops.insert_gradient import *
from runner.ops.layernorm import *
from runner.ops.loss import *
from runner.ops.math import *
from runner.ops.matrices import *
from runner.ops.multitype import *
from runner.ops.observe_step import *
from runner.ops.optimizer import *
from runner.ops.pool import *
from runner.ops.pool_positions import *
from runner.ops.print.operator import *
from runner.ops.random_choices import *
from runner.ops.random_counts import *
from runner.ops.random_numbers import *
from runner.ops.reduce import *
from runner.ops.resize import *
from runner.ops.rounding import *
from runner.ops.rows import *
from runner.ops.scatter import *
from runner.ops.scatter_nd import *
from runner.ops.special import *
from runner.ops.split import *
from runner.ops.strided_slice import *
from runner.ops.summary import *
from runner.ops.sync_batchnorm import *
from runner.ops.trigonometry import *
