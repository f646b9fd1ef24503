"""Runs, sweeps and ranks that are killed (-9) at random moments, and resumed: their bytes are those of whole ones.

Each kind has two runs here, and fifty in `make soak`: 300.
"""

import random
from collections.abc import Mapping

import pytest
from random_kills import MPIRUN, check_kills
from soak import SOAK, thinned

KILLS = 50 if SOAK else 2
SMALL = (
    *(
        "dataset=synthetic",
        "dataset.num_samples=128",
        "callbacks=quiet",
        "device.threads=1",
        "checkpoint.every_steps=3",
    ),
    *("optimizer.learning_rate=0.05", "epochs=12"),
)
RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")
KINDS: Mapping[str, tuple[str, ...]] = {
    "graph": ("mode=graph", "dataset_sink_mode=false"),
    "sunk": ("mode=graph", "sink_size=7"),
    "pynative": ("mode=pynative", "dataset_sink_mode=false"),
    "augmented": ("mode=graph", "dataset.augment=true", "dataset.image_size=32", "dataset.num_parallel_workers=2"),
    "sweep": ("-m", "mode=graph", "seed=1,2,3", "hydra/launcher=pool"),
    "ranks": ("mode=graph", *RANKS),
}
LAST = "CKP-12_4"


def words_of(kind: str, folder: str) -> tuple[str, ...]:
    place = f"hydra.sweep.dir={folder}" if kind == "sweep" else f"hydra.run.dir={folder}"
    return (*KINDS[kind], *SMALL, place)


@pytest.mark.parametrize("kind", [*thinned(KINDS, every=3)])
def test_killed_at_random_and_resumed_to_the_same_bytes(tmp_path, kind, record_property):
    if kind == "ranks":
        pytest.importorskip("mpi4py")
    launcher = MPIRUN if kind == "ranks" else ()
    effective = check_kills(lambda folder: words_of(kind, folder), tmp_path, random.Random(kind), KILLS, LAST, launcher)
    record_property("kills", effective)
    print(f"{kind}: {effective} effective kills")
