"""A rank that trains networks with one, two and three inputs in both modes, each with its part of every batch."""

import sys

import numpy as np
from column_networks import CASES, EPOCHS, MODES, dataset, model

from runner import context
from runner.communication import get_group_size, get_rank, init
from runner.communication.world import world


def main(file: str) -> None:
    init()
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    found = {}
    for name in CASES:
        for mode in MODES:
            training = model(name, mode)
            data = dataset(name).divided(get_group_size(), get_rank())
            training.train_network.weighs_ranks = not data.is_even
            training.train(EPOCHS, data, None, False)
            for parameter in training.network.trainable_params():
                array = parameter.asnumpy()
                assert world().shared(array.tolist()) == array.tolist()
                found[f"{name} {mode} {parameter.name}"] = array
    if get_rank() == 0:
        np.savez(file, **found)


if __name__ == "__main__":
    main(sys.argv[1])
