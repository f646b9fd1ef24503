"""How long a training step would take if it were nothing but its products, as fast as numpy multiplies matrices.

    python benchmarks/floor.py resnet50 --batch 32 --threads 2

Counts the multiplications and additions of all convolutions and products in the graph of the step (by the definition:
no Winograd, no FFT), measures the peak of numpy's single precision product with as many threads, and prints one JSON
object: gflop per step, gflop per second, and their quotient in milliseconds.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers.timing import MORE_NETS, arguments, parsed, report, shape_of
from threadpoolctl import threadpool_limits
from training import model_of

from runner import dtype, ops
from runner.compile.passes import optimize
from runner.core.graph import Graph
from runner.core.operators import Node
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType

SIZE, REPEATS = 1024, 9  # of the matrices: larger ones are not faster


def step_graph(net: str, batch: int, onnx: Path | None = None) -> Graph:
    """One training step, optimised as on any device."""
    types = [TensorType(dtype.float32, (batch, *shape_of(net))), TensorType(dtype.int32, (batch,))]
    return optimize(trace(model_of(net, "graph", Device(threads=1), onnx).train_network.construct, types, "train_step"))


def _convolution(out: tuple[int, ...], filters: tuple[int, ...]) -> int:
    """Multiplications for an output (N, K, H, W) of filters (K, C/group, KH, KW); the two gradients have as many."""
    return math.prod(out) * math.prod(filters[1:])


def _product(node: Node) -> int:
    """Multiplications of (..., M, K) by (..., K, N), either of which may be given transposed."""
    x, made = node.inputs[0].shape, node.outputs[0].shape
    return math.prod(made) * math.prod(x[-2:]) // made[-2]


MULTIPLICATIONS: dict[type, Callable[[Node], int]] = {
    ops.Conv2D: lambda node: _convolution(node.outputs[0].shape, node.inputs[1].shape),
    ops.Conv2DBackpropInput: lambda node: _convolution(node.inputs[0].shape, node.inputs[1].shape),
    ops.Conv2DBackpropFilter: lambda node: _convolution(node.inputs[0].shape, node.outputs[0].shape),
    ops.MatMul: _product,
    ops.BatchMatMul: _product,
}


def flops(graph: Graph) -> int:
    """Multiplications and additions of the convolutions and products of a graph."""
    return 2 * sum(MULTIPLICATIONS[type(node.op)](node) for node in graph.nodes if type(node.op) in MULTIPLICATIONS)


def peak_flops(threads: int, size: int = SIZE) -> float:
    """Multiplications and additions in a second of numpy's quickest product of square matrices, single precision."""
    a = np.random.default_rng(0).standard_normal((size, size), np.float32)
    made, seconds = np.empty_like(a), []
    with threadpool_limits(threads, "blas"):
        for _ in range(REPEATS):
            start = time.perf_counter()
            np.matmul(a, a, out=made)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def main() -> None:
    """Command line."""
    o = parsed(arguments(__doc__, MORE_NETS))
    work, peak = flops(step_graph(o.net, o.batch, o.onnx)), peak_flops(o.threads)
    row = {"gflop_per_step": round(work / 1e9, 4), "peak_gflop_per_second": round(peak / 1e9, 1)}
    report("floor", o, **row, ms_per_step=round(work / peak * 1e3, 4))


if __name__ == "__main__":
    main()
