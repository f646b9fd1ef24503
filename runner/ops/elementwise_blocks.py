"""Elementwise passes over large arrays in blocks, which threads compute."""

from collections.abc import Callable

import numpy as np

from runner.host.threads import block_length, compute_parts, slices

DIVIDED = 1 << 18  # elements; smaller arrays stay in the caches as they are
BLOCK = 1 << 16  # elements
ELEMENT_FLOPS = 25  # an element takes as long as so many operations of a matrix product: it waits for memory


def in_blocks(function: Callable[..., object], *arrays: np.ndarray) -> None:
    """Call `function` with the same block of each array, in any thread; it reads some and writes into others.

    The arrays have one shape. The function is elementwise: how they are divided changes no bit. Arrays whose elements
    are not in one order in memory are passed whole.
    """
    size = arrays[0].size
    flat = _flattened(arrays) if size > DIVIDED else None
    if flat is None:
        function(*arrays)
        return
    blocks = slices(size, block_length(BLOCK))
    compute_parts(lambda block: function(*[x[block] for x in flat]), blocks, ELEMENT_FLOPS * size)


def computed_in_blocks(function: Callable[..., object], *operands: np.ndarray) -> np.ndarray:
    """The result of a numpy function, in blocks if the operands are large and have one shape.

    Their element type is that of the result.
    """
    first = operands[0]
    if first.size <= DIVIDED or any(x.shape != first.shape for x in operands):
        return np.asarray(function(*operands))
    result = np.empty_like(first)
    in_blocks(lambda *arrays: function(*arrays[:-1], out=arrays[-1]), *operands, result)
    return result


def _flattened(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray] | None:
    """Views with one axis, of which equal positions belong to equal elements; None where there are none."""
    first = arrays[0]
    order = sorted(range(first.ndim), key=lambda axis: -first.strides[axis])
    views = [x.transpose(order) for x in arrays]
    if not all(view.flags.c_contiguous for view in views):
        return None
    return [view.reshape(-1) for view in views]
