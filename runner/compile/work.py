"""How much a graph computes, and what follows from it: its threads, its memory, and an upper estimate of its time."""

from dataclasses import replace

from runner.core.graph import Graph
from runner.device import Device
from runner.host.machine import keep_freed_memory, usable_cores

# Of an average operator. Threads wait for each other after every operator: one with less work saves little.
FLOPS_PER_THREAD = 5_000_000
# Of all values. The arena of onnxruntime is faster with less, and larger by a seventh with more (BENCHMARKS.md).
ARENA_BYTES = 256 << 20
# Of one slow core.
SECONDS_PER_OPERATOR, SECONDS_PER_ELEMENT, SECONDS_PER_FLOP = 20e-6, 1.5e-9, 1 / 30e9


def suited(device: Device, graph: Graph) -> Device:
    """The device with the threads and the memory that suit a graph."""
    return with_memory(with_threads(device, graph), graph)


def with_threads(device: Device, graph: Graph) -> Device:
    """The device with as many threads as the graph keeps busy, where neither the user nor a tuning has a number.

    They sleep while they wait: that costs an idle machine some per cent, and threads that spin cost twice the CPU time
    and, beside other processes, twice the time (BENCHMARKS.md, "A busy machine").
    """
    if device.target != "CPU" or device.threads or device.tuning.threads:
        return device
    operators = len({node.name for node in graph.nodes})  # one that computes a batch in parts counts once
    threads = max(1, min(usable_cores(), flops(graph) // (FLOPS_PER_THREAD * max(1, operators))))
    return replace(device, tuning=replace(device.tuning, threads=threads, spins="never"))


def with_memory(device: Device, graph: Graph) -> Device:
    """The device without an arena where the graph has many values, and the C library can keep freed memory itself."""
    if device.target != "CPU" or sum(y.type.nbytes for node in graph.all_nodes for y in node.outputs) < ARENA_BYTES:
        return device
    return replace(device, arena=not keep_freed_memory())


def flops(graph: Graph) -> int:
    """Floating-point operations of one execution."""
    return sum(node.op.flops([x.type for x in node.inputs], [y.type for y in node.outputs]) for node in graph.nodes)


def estimated_seconds(graph: Graph) -> float:
    """An upper estimate of the time of one execution, in seconds."""
    elements = sum(y.type.size for node in graph.nodes for y in node.outputs)
    return SECONDS_PER_OPERATOR * len(graph.nodes) + SECONDS_PER_ELEMENT * elements + SECONDS_PER_FLOP * flops(graph)
