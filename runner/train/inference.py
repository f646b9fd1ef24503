"""Inference mode of a network, for evaluation, prediction and export."""

from collections.abc import Iterator
from contextlib import contextmanager

from runner.core.precision import Policy, use_precision
from runner.nn.cell import Cell


@contextmanager
def inference(network: Cell, precision: Policy | None) -> Iterator[None]:
    """Inside, the network is in inference mode and operators have this precision; then training mode is set."""
    network.set_train(False)
    try:
        with use_precision(precision):
            yield
    finally:
        network.set_train(True)
