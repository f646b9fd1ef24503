"""What each operator computes, as digests: in numpy and in each of its lowerings, with one thread.

A script, so that another processor can execute it (`qemu-user`): OPERANDS.npz STEP, and JSON on standard output.
The operands are computed once, and read here: another processor may draw other random numbers.
"""

import runner  # noqa: F401, I001  before numpy: it chooses the class of machines

import json
import sys
from collections.abc import Iterator
from hashlib import sha256

import numpy as np
from contract import Arrays, computed, run_lowering
from operands import Sample, normal, positive, row
from samples import SAMPLES, WIDE

from runner import ops
from runner.types import TensorType

LONG = "Exp Log Sqrt Rsqrt Tanh Sigmoid Erf Sin Cos GeLU Softplus Elu Mish Square ReLU ReLU6 HSwish Softmax LogSoftmax"
WIDTHS = (2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 100, 255, 1000, 1003)
PRODUCTS = ((32, 400, 120), (32, 120, 84), (256, 512, 10), (7, 1000, 33), (1, 512, 512), (300, 3000, 17))
IMAGES = ((1, 6, 32, 5, 32), (6, 16, 14, 5, 32), (3, 64, 32, 3, 8), (64, 64, 16, 3, 8), (64, 128, 16, 1, 8))


def large() -> Iterator[Sample]:
    """Operands of the sizes that networks have: kernels of processors differ behind their first full vector."""
    for name in LONG.split():
        yield row(getattr(ops, name)(), positive(17, 1003), note="long")
    for width in WIDTHS:
        labels = np.arange(64, dtype=np.int32) % width
        for op in (ops.Softmax(), ops.LogSoftmax(), ops.Softmax(0)):
            shape = (64, width) if op.axis else (width, 64)
            for spread in (9, 40, 100):  # exponentials down to 0
                yield row(op, normal(*shape) * spread, note=f"{width} columns, axis {op.axis}, spread {spread}")
        for is_grad in (False, True):
            loss = ops.SparseSoftmaxCrossEntropyWithLogits(is_grad)
            yield row(loss, normal(64, width) * 40, labels, note=f"{width} classes, is_grad={is_grad}")
    yield row(ops.Softmax(), normal(4, 8, 256, 256), note="attention")
    for axis in ((0,), (1,), (0, 1)):
        for op in (ops.ReduceSum(False, axis), ops.ReduceMean(False, axis), ops.ReduceMax(False, axis)):
            yield row(op, normal(64, 1003), note=f"long, axis {axis}")
    for rows, length, columns in PRODUCTS:
        yield row(ops.MatMul(), normal(rows, length), normal(length, columns))
    for channels, filters, size, kernel, batch in IMAGES:
        op = ops.Conv2D(filters, kernel, pad_mode="same")
        x, weight = normal(batch, channels, size, size), normal(filters, channels, kernel, kernel)
        dout = normal(batch, filters, size, size)
        yield row(op, x, weight, note=f"{x.shape}")
        yield row(ops.Conv2DBackpropInput(**op.common_attributes(), input_size=x.shape), dout, weight)
        yield row(ops.Conv2DBackpropFilter(**op.common_attributes(), filter_size=weight.shape), dout, x)
    x, scale = normal(32, 64, 16, 16), positive(64)
    yield row(ops.BatchNorm(True, 1e-5, 0.1), x, scale, normal(64), normal(64), scale, note="images")
    yield row(ops.LayerNorm(1, 1), normal(64, 384), positive(384), normal(384), note="long")


ROWS = [*SAMPLES, *WIDE, *large()]


def write_operands(path: str) -> None:
    np.savez(path, **{f"{k}:{j}": array for k, one in enumerate(ROWS) for j, array in enumerate(one.arrays)})


def digest(arrays: Arrays) -> str:
    texts = (f"{a.dtype} {a.shape} ".encode() + np.ascontiguousarray(a).tobytes() for a in arrays)
    return sha256(b"".join(texts)).hexdigest()[:16]


def results(number: int, arrays: Arrays) -> Iterator[tuple[str, str]]:
    """The name of each way to compute a row, and its digest."""
    sample = ROWS[number]
    with np.errstate(all="ignore"):
        yield f"{number} {sample.name}, numpy", digest(computed(sample.op, arrays))
    types = tuple(map(TensorType.of, arrays))
    for form in (None, *sample.op.lowerings(*types)):
        yield f"{number} {sample.name}, lowered {form or 'plain'}", digest(run_lowering(sample.op, types, form)(arrays))


if __name__ == "__main__":
    operands = np.load(sys.argv[1])
    found: dict[str, str] = {}
    for k in range(0, len(ROWS), int(sys.argv[2])):
        found |= results(k, tuple(operands[f"{k}:{j}"] for j in range(len(ROWS[k].arrays))))
    print(json.dumps(found))
