"""`repr` of a tensor as the reference prints it: elements in scientific notation, long axes abbreviated."""

from collections.abc import Iterator

import numpy as np

SHOWN = 6  # along each axis of a tensor with several axes; longer axes show the first and last three
PER_LINE = {"f": 12, "b": 12}  # elements in a line of a tensor with one axis; 24 whole numbers


def elements_text(array: np.ndarray) -> str:
    """The elements of an array of any type that tensors have."""
    if array.ndim == 0:
        return f"{float(array):g}" if array.dtype.kind == "f" else str(array)
    if array.size == 0:
        return ""
    if array.ndim == 1:
        return _line(array, _texts(array, array))
    return _block(array, array, 0)


def _shown(array: np.ndarray) -> np.ndarray:
    """The elements that are printed: the first and last three along each long axis."""
    half = SHOWN // 2
    for axis, length in enumerate(array.shape if array.ndim > 1 else ()):
        if length > SHOWN:
            array = np.take(array, [*range(half), *range(length - half, length)], axis)
    return array


def _texts(row: np.ndarray, whole: np.ndarray) -> list[str]:
    """Elements of equal width: that of the longest number shown, or that of any float of the type."""
    kind = row.dtype.kind
    if kind == "f":
        digits, width = (4, 11) if row.dtype == np.float16 else (8, 15)
        return [f"{float(x):{width}.{digits}e}" for x in row]
    if kind == "b":
        return [f"{x!s:>5}" for x in row.tolist()]
    width = max(len(str(x)) for x in _shown(whole).ravel().tolist())
    return [f"{x:>{width}}" for x in row.tolist()]


def _line(array: np.ndarray, texts: list[str]) -> str:
    """A tensor with one axis is printed whole."""
    most = PER_LINE.get(array.dtype.kind, 24)
    parts = list[str]()
    for k, text in enumerate(texts, start=1):
        parts.append(text if k == len(texts) else f"{text}, ")
        if k % most == 0:
            parts.append("\n ")
    return f"[{''.join(parts)}]"


def _block(array: np.ndarray, whole: np.ndarray, depth: int) -> str:
    half = SHOWN // 2
    is_long = len(array) > SHOWN
    if array.ndim == 1:
        texts = _texts(array[:half] if is_long else array, whole)
        tail = f" ... {', '.join(_texts(array[-half:], whole))}" if is_long else ""
        return f"[{', '.join(texts)}{tail}]"
    separator = ",\n" + " " * (depth + 1)
    if not is_long:
        return f"[{separator.join(_block(inner, whole, depth + 1) for inner in array)}]"
    first, last = (separator.join(_rows(part, whole, depth)) for part in (array[:half], array[-half:]))
    return f"[{first}{separator}...{separator[1:]}{last}]"


def _rows(part: np.ndarray, whole: np.ndarray, depth: int) -> Iterator[str]:
    return (_block(inner, whole, depth + 1) for inner in part)
