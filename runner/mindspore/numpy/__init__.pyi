from runner.mindspore.numpy.array_creations import *
from runner.mindspore.numpy.array_ops import *
from runner.mindspore.numpy.concatenation import *
from runner.mindspore.numpy.dtypes import (
    NINF as NINF,
    PINF as PINF,
    bool_ as bool_,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    float_ as float_,
    inf as inf,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    int_ as int_,
    nan as nan,
    pi as pi,
    promote_types as promote_types,
    uint as uint,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from runner.mindspore.numpy.elementwise import *
from runner.mindspore.numpy.logic_ops import *
from runner.mindspore.numpy.math_ops import *
from runner.mindspore.numpy.reductions import *
