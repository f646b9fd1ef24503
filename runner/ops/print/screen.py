"""The text of printed strings and tensors, as in graph mode of the reference (spec section 4)."""

from collections.abc import Iterator, Sequence

import numpy as np

from runner import dtype as dt

Part = str | np.ndarray
# Enough digits to restore a Float32, in the column widths of the reference.
FORMATS = {dt.float16: "%11.4e", dt.float32: "%15.8e", dt.float64: "%15.8e", dt.bool_: "%5s"}


def text(parts: Sequence[Part]) -> str:
    """The lines of one Print: strings unchanged, tensors with all their elements.

    >>> print(text(["x is", np.ones((2, 1), np.int32), np.array([True, False]), np.array(0.5, np.float32)]))
    x is
    Tensor(shape=[2, 1], dtype=Int32, value=
    [[1]
     [1]])
    Tensor(shape=[2], dtype=Bool, value=[ True False])
    Tensor(shape=[], dtype=Float32, value=0.5)
    """
    return "\n".join(part if isinstance(part, str) else _tensor(part) for part in parts)


def _tensor(array: np.ndarray) -> str:
    kind = dt.of(array.dtype)
    elements = _nested(_cells(array, kind), array.shape, 1) if array.ndim else str(array[()])
    line_end = "\n" if array.ndim > 1 else ""
    return f"Tensor(shape={list(array.shape)}, dtype={kind}, value={line_end}{elements})"


def _cells(array: np.ndarray, kind: dt.DType) -> Iterator[str]:
    """The elements as texts of equal width, in row-major order."""
    values = array.ravel().tolist()
    if kind in FORMATS:
        return map(FORMATS[kind].__mod__, values)
    texts = list(map(str, values))
    width = max(map(len, texts), default=0)
    return (cell.rjust(width) for cell in texts)


def _nested(cells: Iterator[str], shape: tuple[int, ...], depth: int) -> str:
    """The next elements, in nested brackets."""
    length, *inner = shape
    if not inner:
        return f"[{' '.join([next(cells) for _ in range(length)])}]"
    rows = [_nested(cells, tuple(inner), depth + 1) for _ in range(length)]
    return f"[{(chr(10) + ' ' * depth).join(rows)}]"
