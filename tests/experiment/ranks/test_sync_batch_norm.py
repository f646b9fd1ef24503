"""Batch normalization with the statistics of all ranks: the training of N ranks is that of one process."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ranks import losses, mpirun, needs_mpi
from soak import thinned

import runner
from runner.train.checkpoint import state

pytestmark = needs_mpi

HERE = Path(__file__).parent
RANKS = ("parallel=data_parallel", "parallel.gradients_mean=true")
QUIET = ("callbacks=quiet", "dataset_sink_mode=false", "eval.every=never")
# Rounding grows slowly in this network: after eight steps the losses of graph and PyNative mode differ by 1e-4.
SMALL = (
    *("+experiment=resnet50_tiny", "~expect", *QUIET, "network=resnet18", "network.width=8", "network.stem=cifar"),
    *(
        "dataset=synthetic",
        "dataset.batch_size=50",
        "optimizer=momentum",
        "optimizer.learning_rate=0.01",
        "max_steps=5",
    ),
)
# Here rounding grows to a tenth of the loss in three steps, in one process, too. Step 1 has a learning rate of 0.
DEEP = ("+experiment=resnet50_tiny", "~expect", *QUIET, "max_steps=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("batch-norm")

    @cache
    def made(ranks: int, *words: str) -> Path:
        folder = place / f"run-{len(list(place.iterdir()))}"
        if ranks == 1:
            runner.run([*words, "device.threads=1", f"hydra.run.dir={folder}"])
        else:
            code, _, err = mpirun(ranks, "-m", "runner", *words, *RANKS, f"hydra.run.dir={folder}")
            assert code == 0, err
        return folder

    return made


@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize("ranks", [*thinned([4, 2], every=2)])
def test_ranks_train_as_one_process_does(run, ranks, mode):
    """50 rows on 4 ranks are parts of different sizes."""
    one = run(1, *SMALL, f"mode={mode}")
    other = run(ranks, *SMALL, f"mode={mode}", "parallel.sync_batch_norm=true")
    np.testing.assert_allclose(losses(other), losses(one), rtol=5e-5)
    weights = [state.newest(folder / "checkpoints", "CKP")[0].arrays for folder in (one, other)]
    moving = [name for name in weights[0] if "moving_" in name]
    assert len(moving) == 40
    for name in moving:
        np.testing.assert_allclose(weights[1][name], weights[0][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", [*thinned(["graph", "pynative"], every=2)])
@pytest.mark.parametrize("ranks", [*thinned([2, 4], every=2)])
def test_the_losses_of_a_deep_network(run, ranks, mode):
    one = losses(run(1, *DEEP, f"mode={mode}"))
    other = losses(run(ranks, *DEEP, f"mode={mode}", "parallel.sync_batch_norm=true"))
    np.testing.assert_allclose(other, one, rtol=2e-5)
    separate = losses(run(ranks, *DEEP, f"mode={mode}", "parallel.sync_batch_norm=false"))
    assert abs(separate[0] - one[0]) > 0.01


@pytest.mark.parametrize("ranks", [2, 3])
def test_statistics_and_gradients(ranks):
    done = list(range(ranks))
    assert mpirun(ranks, HERE / "rank_batch_norm.py") == (0, f"done: {done}\n", "")


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_frozen_layers_keep_their_statistics_on_all_ranks(run, mode):
    """A new head is the same on all ranks, too."""
    words = (*SMALL, f"mode={mode}", "network.freeze=[conv1.*,bn1.*,layer1.*,layer2.*]", "network.head=replace")
    one, other = run(1, *words), run(2, *words, "parallel.sync_batch_norm=true")
    np.testing.assert_allclose(losses(other), losses(one), rtol=5e-5)
    weights = [state.newest(folder / "checkpoints", "CKP")[0].arrays for folder in (one, other)]
    frozen = [name for name in weights[0] if name.startswith(("conv1.", "bn1.", "layer1.", "layer2."))]
    assert len([name for name in frozen if "moving_" in name]) == 2 * (1 + 4 + 5)
    for name in frozen:
        assert np.array_equal(weights[0][name], weights[1][name]), name
        if "moving_mean" in name:
            assert not weights[0][name].any()  # as it was at the start
    assert weights[0]["layer3.0.bn1.moving_mean"].any()
    np.testing.assert_allclose(weights[1]["linear.weight"], weights[0]["linear.weight"], rtol=1e-3, atol=1e-5)
