"""Conv2D batch last: a product where windows are single pixels, a dilated convolution, or a product with columns."""

import math
from collections.abc import Callable
from functools import partial

from runner.core.lowering import Builder, Form
from runner.ops.convolution import Convolution
from runner.ops.forms.columns import SHARED_BYTES, as_image, column_bytes, columns, dilated, thinned
from runner.types import TensorType


def forms(op: Convolution, x: TensorType) -> tuple[Form, ...]:
    """The forms for images of this type, the fastest first."""

    def form(lower: Callable[..., str]) -> Form:
        return Form(lower.__name__, partial(lower, op), (True, False), (True,))

    windows = op.windows(x.shape)
    if op.is_pointwise(windows):
        return (form(pointwise),)
    if windows.strides[1] > 1:
        return (form(gathered),)
    # Small columns are gathered once, for the filter's gradient too.
    shared = op.group == 1 and column_bytes(windows, x.shape, x.dtype.size) <= SHARED_BYTES
    return (form(gathered), form(convolved)) if shared else (form(convolved), form(gathered))


def pointwise(op: Convolution, b: Builder, x: str, w: str) -> str:
    """One product: (K, C) times (C, pixels)."""
    shape = b.type(x).shape
    return _product(op, b, x, w, thinned(b, x, op.windows(shape), shape))


def gathered(op: Convolution, b: Builder, x: str, w: str) -> str:
    """One product: (K, C*KH*KW) times the columns."""
    shape = b.type(x).shape
    return _product(op, b, x, w, columns(b, x, op.windows(shape), shape))


def convolved(op: Convolution, b: Builder, x: str, w: str) -> str:
    """A dilated convolution of one image that holds the batch."""
    shape = b.type(x).shape
    windows = op.windows(shape)
    made = b.node("Conv", (as_image(b, x, shape), w), group=op.group, **dilated(windows, shape[0]))
    return b.reshape(made, (op.out_channel, *windows.out, shape[0]))


def _product(op: Convolution, b: Builder, x: str, w: str, rows: str) -> str:
    shape, outs = b.type(x).shape, op.out_channel // op.group
    windows, ins = op.windows(shape), b.type(w).size // op.out_channel
    if op.group == 1:
        left, right = b.reshape(w, (outs, ins)), rows
    else:
        pixels = math.prod(windows.out) * shape[0]
        left, right = b.reshape(w, (op.group, outs, ins)), b.reshape(rows, (op.group, ins, pixels))
    return b.reshape(b.node("MatMul", (left, right)), (op.out_channel, *windows.out, shape[0]))
