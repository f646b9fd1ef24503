"""The rule of Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.importer.broadcasting import reshaped, spread, swapped
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator

LOWEST = -1e30  # of scores that a mask leaves out: no share remains, and no NaN where all are left out


@onnx_operator("Attention")
def attention(
    call: NodeCall,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    lengths: Value | None = None,
) -> Any:
    """Scaled dot-product attention with masks, shared key heads and cached keys; nonpad_kv_seqlen and windows are not
    supported.
    """
    if lengths is not None:
        raise call.error("an input is not supported", input="nonpad_kv_seqlen", repair="a mask")
    for side in ("left_window_size", "right_window_size"):
        call.choice(side, -1, -1)
    flat = q.ndim == 3
    if flat:
        heads = call.attribute("kv_num_heads")
        q, k, v = _in_heads(q, call.attribute("q_num_heads")), _in_heads(k, heads), _in_heads(v, heads)
    before = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = ops.Concat(2)((past_key, k)), ops.Concat(2)((past_value, v))
    present = k, v
    k, v = (_repeated(x, q.shape[1]) for x in (k, v))
    scores = _scores(call, q, k)
    biased, allowed = _masked(call, scores, mask, before)
    shares: Value = ops.Softmax(-1)(biased)
    if allowed is not None:
        shares = ops.Select()(allowed, shares, ops.ZerosLike()(shares))
    y: Value = ops.BatchMatMul()(shares, v)
    if flat:
        y = reshaped(ops.Transpose()(y, (0, 2, 1, 3)), (y.shape[0], y.shape[2], y.shape[1] * y.shape[3]))
    if call.outputs < 4:
        return (y, *present)
    mode = call.choice("qk_matmul_output_mode", 0, 0, 1, 2, 3)
    return (y, *present, (_scores(call, q, k, capped=False), scores, biased, shares)[mode])


def _in_heads(x: Value, heads: int) -> Value:
    rows, length, features = x.shape
    result: Value = ops.Transpose()(reshaped(x, (rows, length, heads, features // heads)), (0, 2, 1, 3))
    return result


def _repeated(x: Value, heads: int) -> Value:
    """Heads of keys or values, each as often as heads of queries share it."""
    rows, own, length, features = x.shape
    if own == heads:
        return x
    wide = spread(reshaped(x, (rows, own, 1, length, features)), (rows, own, heads // own, length, features))
    return reshaped(wide, (rows, heads, length, features))


def _scores(call: NodeCall, q: Value, k: Value, capped: bool = True) -> Value:
    scale = call.attribute("scale", 1.0 / math.sqrt(q.shape[3]))
    scores: Value = ops.BatchMatMul()(q * scale, swapped(k))
    cap = call.attribute("softcap", 0.0)
    return ops.Tanh()(scores * (1.0 / cap)) * cap if cap and capped else scores


def _masked(call: NodeCall, scores: Value, mask: Value | None, before: int) -> tuple[Value, Value | None]:
    """Scores after the masks, and, for masks of truth values, which of them remain."""
    rows, columns = scores.shape[2:]
    allowed: Value | None = None
    if mask is not None and mask.shape[-1] != columns:
        raise call.error("a mask has another length than the keys", mask=mask.shape, keys=columns)
    if mask is not None and mask.dtype is dt.bool_:
        allowed = spread(mask, scores.shape)
    elif mask is not None:
        scores = scores + ops.Maximum()(mask, Tensor(np.asarray(LOWEST, mask.dtype.numpy)))
    if call.attribute("is_causal", 0):
        past = spread(Tensor(np.tri(rows, columns, before, dtype=np.bool_)), scores.shape)
        allowed = past if allowed is None else ops.LogicalAnd()(allowed, past)
    if allowed is None:
        return scores, None
    left_out = Tensor(np.full(scores.shape, LOWEST, scores.dtype.numpy))
    return ops.Select()(allowed, scores, left_out), allowed
