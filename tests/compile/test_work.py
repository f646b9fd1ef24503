"""The number of threads that a graph gets, from its operations, and where its values are kept."""

import numpy as np
import pytest

from runner import dtype, ops
from runner.compile import Program, program as work
from runner.compile.program import ARENA_BYTES, estimated_seconds, flops, with_memory, with_threads
from runner.core.trace import trace
from runner.device import Device, Tuning
from runner.types import TensorType


def product(rows):
    """A product of 2 * rows * 1000 * 1000 operations."""
    kinds = [TensorType(dtype.float32, shape) for shape in ((rows, 1000), (1000, 1000))]
    return trace(lambda x, y: ops.MatMul()(x, y), kinds, "product")


@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (2, 1), (4, 1), (5, 2), (8, 3), (10_000, 8)])
def test_a_thread_has_work_enough(monkeypatch, rows, threads):
    monkeypatch.setattr(work, "usable_cores", lambda: 8)
    assert flops(product(rows)) == 2 * rows * 10**6
    found = with_threads(Device(), product(rows))
    assert (found.workers, found.tuning.spins) == (threads, "never")


def test_many_small_operators_are_small_work(monkeypatch):
    monkeypatch.setattr(work, "usable_cores", lambda: 8)
    kinds = [TensorType(dtype.float32, shape) for shape in ((5, 1000), (1000, 1000))]

    def function(x, y):
        for _ in range(4):
            x = ops.MatMul()(x, y)
            x = x + x
        return x

    graph = trace(function, kinds, "chain")
    assert flops(graph) > 8 * 5_000_000
    assert with_threads(Device(), graph).workers == 1  # 5,000,000 for each operator


@pytest.mark.parametrize("device", [Device(threads=3), Device(tuning=Tuning(threads=3))])
def test_a_number_that_was_chosen_remains(device):
    assert with_threads(device, product(1)) is device


def test_programs_have_it():
    kind = TensorType(dtype.float32, (4,))
    program = Program(lambda x: x + x, [kind], Device(), "sum")
    assert program.session.device.workers == 1
    assert np.array_equal(program([np.ones(4, np.float32)])[0], np.full(4, 2.0))


def test_the_estimate_of_a_step_counts_operators_elements_and_operations():
    kind = TensorType(dtype.float32, (1000,))
    graphs = [trace(function, [kind], "f") for function in (lambda x: x + x, lambda x: x + x + x)]
    small, larger = map(estimated_seconds, graphs)
    assert 20e-6 < small < larger < 2 * small * 1.01
    assert estimated_seconds(product(1000)) > 2e9 / 50e9


def sums(rows):
    """Three sums of vectors with so many elements."""
    return trace(lambda x: x + x + x + x, [TensorType(dtype.float32, (rows,))], "sums")


@pytest.mark.parametrize(
    ("device", "rows", "kept", "arena"),
    [
        (Device(), ARENA_BYTES // 12 - 1, True, True),
        (Device(), ARENA_BYTES // 12 + 1, True, False),
        (Device(), ARENA_BYTES // 12 + 1, False, True),
        (Device("GPU"), ARENA_BYTES // 12 + 1, True, True),
    ],
    ids=["few values", "many values", "another C library", "gpu"],
)
def test_large_graphs_have_no_arena(monkeypatch, device, rows, kept, arena):
    monkeypatch.setattr(work, "keep_freed_memory", lambda: kept)
    assert with_memory(device, sums(rows)).arena is arena


def test_a_program_without_arena_computes_the_same_bits(monkeypatch):
    kind, results = TensorType(dtype.float32, (64, 64)), []
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    for limit in (1 << 40, 0):
        monkeypatch.setattr(work, "ARENA_BYTES", limit)
        program = Program(lambda x: ops.MatMul()(x, x) + x, [kind], Device(), "f")
        assert program.session.device.arena is (limit > 0)
        results.append(program([x])[0].tobytes())
    assert results[0] == results[1]
