"""Notes of operators that depend on the C library: what is noted where, and what is not."""

import threading

import numpy as np

from runner import Tensor, context, nn, ops
from runner.core.dependence import NOTES
from runner.core.operators import Effect, primitive


class Branching(nn.Cell):
    """Other operators for another sign, one of them on a constant."""

    def construct(self, x):
        if x.sum() > 0:
            return ops.Elu()(x) * ops.Log1p()(ops.Fill()(x.dtype, (1,), 0.5))
        return ops.Tan()(x)


def noted(mode: int, *signs: int) -> set[str]:
    context.set_context(mode=mode)
    with NOTES.apart():
        cell = Branching()
        for sign in signs:
            cell(Tensor(np.full((2, 3), 0.1 * sign, np.float32)))
        return NOTES.names


def test_pynative_mode_notes_what_each_step_computes():
    assert noted(context.PYNATIVE_MODE, 1) == {"Elu", "Log1p"}
    assert noted(context.PYNATIVE_MODE, 1, -1) == {"Elu", "Log1p", "Tan"}


def test_graph_mode_notes_both_branches_and_constants():
    """A constant is computed in numpy, when the graph is compiled. Of the lowerings of these, one depends on it."""
    assert noted(context.GRAPH_MODE, 1) == {"Log1p", "Tan"}


def test_threads_share_the_notes_of_a_run():
    with NOTES.apart():
        thread = threading.Thread(target=lambda: ops.Tan()(Tensor(np.ones(3, np.float32))))
        thread.start()
        thread.join()
        assert NOTES.names == {"Tan"}
        with NOTES.apart():
            ops.Sinh()(Tensor(np.ones(3, np.float32)))
        assert NOTES.names == {"Tan"}


@primitive
class Show(Effect):
    def infer(self, x):
        return ()

    def emit(self, array):
        pass


def test_an_effect_computes_nothing():
    with NOTES.apart():
        Show()(Tensor(np.ones(3, np.float32)))
        assert NOTES.names == set()
