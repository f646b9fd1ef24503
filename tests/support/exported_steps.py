"""What Python makes of an exported step on the digits: batches, losses with onnxruntime, accuracy with runner."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file

from runner.dataset.catalog import image_dataset

ROOT = Path(__file__).parents[2]
STEPS, BATCH = 200, 32
TOLERANCE = 1e-4  # of losses, absolute


def order(count: int) -> Iterator[np.ndarray]:
    """The rows of each batch: a shuffle per epoch with the numbers of a xorshift generator, without short batches."""
    state = 2463534242
    while True:
        rows = list(range(count))
        for k in range(count - 1, 0, -1):
            state ^= (state << 13) & 0xFFFFFFFF
            state ^= state >> 17
            state ^= (state << 5) & 0xFFFFFFFF
            rows[k], rows[state % (k + 1)] = rows[state % (k + 1)], rows[k]
        yield from np.array(rows)[: count // BATCH * BATCH].reshape(-1, BATCH)


def samples(split: str) -> tuple[np.ndarray, np.ndarray]:
    """All images of a split as the network of a run receives them, and their labels."""
    data = image_dataset("digits", split)
    (columns,) = data.batch(data.get_dataset_size()).create_dict_iterator(num_epochs=1, output_numpy=True)
    return columns["image"], columns["label"]


def losses_of(exported: Path) -> list[float]:
    """Of 200 steps with nothing but onnxruntime and numpy."""
    signature = json.loads((exported / "signature.json").read_text())
    step = signature["models"]["train_step"]
    session = ort.InferenceSession(exported / step["file"], providers=["CPUExecutionProvider"])
    arrays = load_file(exported / signature["initial"]["file"])
    names = {one["role"]: one["name"] for one in step["inputs"]}
    state = {one["feeds"]: arrays[one["feeds"]] for one in step["outputs"] if one["feeds"]}
    images, labels = samples("train")
    found = []
    for number, rows in enumerate(islice(order(len(labels)), STEPS)):
        feeds = state | {names["data"]: images[rows], names["target"]: labels[rows]}
        given = {"learning_rate": np.array(signature["learning_rate"], np.float32), "step": np.array(number)}
        feeds |= {names[role]: value for role, value in given.items() if role in names}
        results = dict(zip([one["name"] for one in step["outputs"]], session.run(None, feeds), strict=True))
        found.append(float(next(results[one["name"]] for one in step["outputs"] if one["role"] == "loss")))
        state = {one["feeds"]: results[one["name"]] for one in step["outputs"] if one["feeds"]}
    return found


def evaluated(run: Path, weights: Path, place: Path) -> float:
    """The accuracy that `runner eval` finds with these weights."""
    words = ["eval", run, f"checkpoint.load={weights}", f"hydra.run.dir={place}"]
    subprocess.run([sys.executable, "-m", "runner", *words], cwd=ROOT, check=True)
    return json.loads((place / "summary.json").read_text())["metrics"]["accuracy"]
