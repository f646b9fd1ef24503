"""Runs, sweeps and ranks that are killed (-9) at random moments, and resumed: their bytes are those of whole ones.

Each kind has two runs here, and fifty in `make soak`: 400.
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
STOPPED = ("callbacks.early_stopping=true", "eval.every=epoch")
RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")
KINDS: Mapping[str, tuple[str, ...]] = {
    "graph": ("mode=graph", "dataset_sink_mode=false"),
    "sunk": ("mode=graph", "sink_size=7"),
    "pynative": ("mode=pynative", "dataset_sink_mode=false"),
    "augmented": ("mode=graph", "dataset.augment=true", "dataset.image_size=32", "dataset.num_parallel_workers=2"),
    "sweep": ("-m", "mode=graph", "seed=1,2,3", "hydra/launcher=pool"),
    "ranks": ("mode=graph", *RANKS),
    "callbacks": ("mode=graph", *STOPPED),
    "callbacks of ranks": ("mode=graph", *RANKS, *STOPPED),
}
LAST = "CKP-12_4"
# The run stops behind its fifth epoch, at a step that no checkpoint is due at.
LAST_OF_STOPPED = "CKP-5_4"
CODE = '''
from runner import register
from runner.train.callback import Callback, EarlyStopping


@register.callback("early_stopping")
def early_stopping() -> Callback:
    """Stops after the fifth epoch."""
    return EarlyStopping(min_delta=10.0, patience=3)
'''


def words_of(kind: str, folder: str) -> tuple[str, ...]:
    place = f"hydra.sweep.dir={folder}" if kind == "sweep" else f"hydra.run.dir={folder}"
    return (*KINDS[kind], *SMALL, place)


@pytest.mark.parametrize("kind", [*thinned(KINDS, every=3)])
def test_killed_at_random_and_resumed_to_the_same_bytes(tmp_path, kind, record_property):
    if "ranks" in kind:
        pytest.importorskip("mpi4py")
    (tmp_path / "own.py").write_text(CODE)
    (tmp_path / "runner.toml").write_text('code = ["own.py"]\n')
    launcher, last = MPIRUN if "ranks" in kind else (), LAST_OF_STOPPED if "callbacks" in kind else LAST
    effective = check_kills(lambda folder: words_of(kind, folder), tmp_path, random.Random(kind), KILLS, last, launcher)
    record_property("kills", effective)
    print(f"{kind}: {effective} effective kills")
