"""A small checkpoint, and whether it came back."""

from pathlib import Path

import numpy as np
import pytest

from runner.train.checkpoint import state

ARRAYS = {
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "learning_rate": np.array(0.1),
    "mask": np.array([True, False]),
    "none": np.zeros((0, 3), np.float16),
}
PROGRESS = {"global_step": 7, "epoch": 2, "step": 3, "loss": 0.1}
IDENTITY = {"config": "ab12", "data": ["cd", 34]}


def saved(folder: Path, step: int = 7, prefix: str = "CKP") -> Path:
    return state.save(folder / f"{prefix}-1_{step}", ARRAYS, {**PROGRESS, "global_step": step}, IDENTITY)


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    """Equal to the last bit, NaNs included."""

    def facts(arrays):
        return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}

    return facts(found) == facts(expected)


def is_what_was_saved(checkpoint: state.SavedCheckpoint) -> bool:
    return same(checkpoint.arrays, ARRAYS) and (checkpoint.progress, checkpoint.identity) == (PROGRESS, IDENTITY)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def text(error: pytest.ExceptionInfo, folder: Path) -> str:
    return str(error.value).replace(str(folder), "FOLDER")
