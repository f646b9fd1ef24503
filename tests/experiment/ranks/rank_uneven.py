"""A script whose ranks have shards of 3 and 2 rows, in a mode: each rank prints the error of its training."""

import sys

import numpy as np

from runner import Model, communication, context, nn
from runner.communication import get_group_size, get_rank
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError

if __name__ == "__main__":
    communication.init()
    mode = context.GRAPH_MODE if sys.argv[1] == "graph" else context.PYNATIVE_MODE
    context.set_context(mode=mode)
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    rows = np.ones((5, 3), np.float32), np.zeros(5, np.int32)
    data = NumpySlicesDataset(rows, num_shards=get_group_size(), shard_id=get_rank())
    net = nn.Dense(3, 2)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    try:
        model.train(2, data.batch(1), dataset_sink_mode=False)
    except ConfigError as error:
        counts = " and ".join(error.rows[f"steps of rank {rank}"] for rank in range(2))
        sys.stdout.write(f"rank {get_rank()}: {error.what}, {counts}\n")
    model.train(2, data.batch(2, drop_remainder=True), dataset_sink_mode=False)
    sys.stdout.write(f"rank {get_rank()}: trained\n")
