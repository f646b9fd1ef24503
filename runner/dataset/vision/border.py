"""How images are padded, and the layouts of batches of images."""

from enum import IntEnum, StrEnum


class Border(StrEnum):
    """Values of padding: a constant, the edge, or the image mirrored without or with its edge.

    Source: `mindspore.dataset.vision.Border` r1.2.
    """

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


class ImageBatchFormat(IntEnum):
    """The order of axes of a batch of images. Source: `mindspore.dataset.vision.utils.ImageBatchFormat` r1.2."""

    NHWC = 0
    NCHW = 1
