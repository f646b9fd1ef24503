"""A picture of what the first layer has learned, after each epoch."""

from pathlib import Path
from typing import Annotated

import numpy as np
from PIL import Image

import runner
from runner.train.callback import Callback


@runner.register.callback("filters")
class Filters(Callback):
    """Write the filters of the first convolution as filters/epoch_NNN.png into the run directory.

    Args:
        zoom: pixels for each number of a filter, in both directions
    """

    def __init__(self, run_dir: Path, zoom: Annotated[int, runner.key(low=1, high=64)] = 8) -> None:
        self.folder, self.zoom = Path(run_dir) / "filters", zoom

    def epoch_end(self, run_context):
        run = run_context.original_args()
        weight = next(p for p in run.network.trainable_params() if p.ndim == 4).asnumpy()
        low, high = weight.min(), weight.max()
        tiles = np.uint8(255.0 * (weight - low) / max(high - low, 1e-9)).transpose(0, 2, 3, 1)
        tiles = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)))  # a dark line between two
        picture = np.concatenate(list(tiles), axis=1).repeat(self.zoom, 0).repeat(self.zoom, 1)
        self.folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(self.folder / f"epoch_{run.cur_epoch_num:03d}.png")
