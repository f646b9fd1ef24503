"""The rule of Attention, against stock onnxruntime and differences."""

import numpy as np
import pytest
from one_node import RNG, check_gradients, check_outputs, node
from tables import table

from runner.errors import ConfigError

TRUE = np.tril(np.ones((5, 6), np.bool_), 1)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def attention(*inputs: object, opset: int = 23, outputs: int = 1, note: str = "", **attributes: object):
    return node("Attention", *inputs, opset=opset, outputs=outputs, note=note, **attributes)


HEADS = normal(2, 4, 5, 3), normal(2, 4, 6, 3), normal(2, 4, 6, 2)
SHARED = normal(2, 4, 5, 3), normal(2, 2, 6, 3), normal(2, 2, 6, 2)
FLAT = normal(2, 5, 12), normal(2, 6, 12), normal(2, 6, 8)
SQUARE = normal(2, 4, 5, 3), normal(2, 4, 5, 3), normal(2, 4, 5, 3)
ROWS = (
    attention(*HEADS),
    attention(*HEADS, scale=0.3, softcap=1.5),
    attention(*HEADS, TRUE, note="truth values"),
    attention(*HEADS, normal(2, 1, 5, 6), note="numbers"),
    attention(*SQUARE, is_causal=1),
    attention(*SQUARE, normal(5, 5), is_causal=1, note="causal with a mask"),
    attention(*SHARED, note="shared heads"),
    attention(*FLAT, q_num_heads=4, kv_num_heads=4),
)
CACHED = (
    attention(*HEADS, None, normal(2, 4, 3, 3), normal(2, 4, 3, 2), outputs=3, note="cached keys"),
    *(attention(*HEADS, None, None, None, outputs=4, qk_matmul_output_mode=mode) for mode in (0, 3)),
)


@table("one", [*ROWS, *CACHED], ids=str)
def test_outputs(one, tmp_path):
    check_outputs(one, tmp_path)


@table("one", ROWS, ids=str)
def test_gradients(one, tmp_path):
    check_gradients(one, tmp_path)


def test_a_query_that_may_read_nothing_gives_zeros(tmp_path):
    mask = TRUE.copy()
    mask[2] = False
    one = attention(*HEADS, mask)
    for mode in ("pynative", "graph"):
        made = one.network(one.write(tmp_path)).run(mode)
        assert not made[:, :, 2].any()
        assert np.isfinite(made).all()


@table(
    ("one", "what"),
    [
        (attention(*HEADS, TRUE[:, :4]), "another length than the keys"),
        (attention(*HEADS, None, None, None, np.array([3, 4]), opset=24), "nonpad_kv_seqlen"),
    ],
    ids=str,
)
def test_what_is_refused(one, what, tmp_path):
    with pytest.raises(ConfigError, match=what):
        one.network(one.write(tmp_path)).run("pynative")
