"""Data-parallel training of networks with any inputs."""

import os
from pathlib import Path

import numpy as np
from column_networks import CASES, EPOCHS, MODES, dataset, model
from ranks import ROOT, environment, mpirun, needs_mpi

HERE = Path(__file__).parent
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))


@needs_mpi
def test_two_ranks_train_as_one_process(tmp_path):
    """Batches of five rows, and a last one of two."""
    code, _, err = mpirun(2, HERE / "rank_columns.py", tmp_path / "found.npz", env=environment(PYTHONPATH=PATHS))
    assert code == 0, err
    with np.load(tmp_path / "found.npz") as found:
        for name in CASES:
            for mode in MODES:
                training = model(name, mode)
                training.train(EPOCHS, dataset(name), None, False)
                for parameter in training.network.trainable_params():
                    array = found[f"{name} {mode} {parameter.name}"]
                    np.testing.assert_allclose(array, parameter.asnumpy(), rtol=1e-5, atol=1e-6)
