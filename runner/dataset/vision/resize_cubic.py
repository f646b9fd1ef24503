"""Bicubic resampling of a stack of images, with the kernel and the fixed-point weights of OpenCV's `INTER_CUBIC`."""

import numpy as np

from runner.dataset.vision.warp import cubic_weights

BYTE_BITS = 11  # of the weights of bytes along each axis


def resize_cubic(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """[B, H, W, C] to [B, height, width, C] in the same element type, uint8 or float32; edge pixels are repeated."""
    is_bytes = images.dtype == np.uint8
    total: np.ndarray = images.astype(np.int64) if is_bytes else images
    for axis, new in ((2, width), (1, height)):
        low, weights = _axis(images.shape[axis], new, is_bytes)
        summed = np.zeros((), total.dtype)
        for k in range(4):
            places = np.clip(low + k - 1, 0, images.shape[axis] - 1)
            shape = [-1] + [1] * (images.ndim - 1 - axis)
            summed = summed + total.take(places, axis) * weights[:, k].reshape(shape)
        total = summed
    if not is_bytes:
        return total
    result: np.ndarray = np.clip((total + (1 << (2 * BYTE_BITS - 1))) >> (2 * BYTE_BITS), 0, 255).astype(np.uint8)
    return result


def _axis(old: int, new: int, is_bytes: bool) -> tuple[np.ndarray, np.ndarray]:
    """For each new position, the old one before it, and the weights of its four neighbours, [new, 4]."""
    positions = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    low = np.floor(positions)
    weights = cubic_weights(positions - low)
    if is_bytes:
        weights = np.rint(weights * np.float32(1 << BYTE_BITS)).astype(np.int64)
    return low.astype(np.int64), weights
