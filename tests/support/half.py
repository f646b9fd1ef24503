"""Float16: the rows of the contract in half precision, and what PyNative mode computes for them."""

import dataclasses

import numpy as np
from contract import Arrays

from runner import dtype as dt, ops
from runner.core.interpreter import Eager
from runner.core.operators import Primitive
from runner.core.values import Tensor


def half(op: Primitive, arrays: Arrays) -> tuple[Primitive, Arrays]:
    """The sample in float16, with masters in float32; attributes that say Float32 say Float16."""
    changes = {n: dt.float16 for n, v in op.attributes().items() if v is dt.float32 and not isinstance(op, ops.Cast)}
    narrow = [a.dtype.kind == "f" and k not in op.masters for k, a in enumerate(arrays)]
    with np.errstate(over="ignore"):
        made = tuple(a.astype(np.float16) if is_narrow else a for a, is_narrow in zip(arrays, narrow, strict=True))
    if isinstance(op, ops.BatchNormGrad) and op.is_training:  # the mean and deviation of x as it is now
        dout, x, scale, *_ = made
        made = dout, x, scale, *in_eager(ops.BatchNorm(True, op.epsilon), (x, *(scale,) * 4))[3:]
    return dataclasses.replace(op, **changes), made


def in_eager(op: Primitive, arrays: Arrays) -> Arrays:
    with Eager():
        made = op(*map(Tensor, arrays))
    return tuple(y.array for y in (made if isinstance(made, tuple) else (made,)))
