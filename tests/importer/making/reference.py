"""What torch computes: outputs, losses and gradients, and which initializer of a file is which parameter."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.fx.experimental.optimization import fuse
from torch.nn import functional as F


def randomize(network: nn.Module, seed: int) -> None:
    """Every parameter and statistic gets values of its own: zeros and ones would hide what is mixed up."""
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        normalizes = hasattr(layer, "running_var") or isinstance(layer, (nn.LayerNorm, nn.GroupNorm))
        for name, value in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
            if name == "running_var" or (normalizes and name == "weight") or name == "gamma":
                value.data.uniform_(0.5, 1.5, generator=generator)
            elif name == "running_mean" or value.ndim == 1:
                if value.dtype == torch.float32:
                    value.data.normal_(0.0, 0.1, generator=generator)
            elif value.dtype == torch.float32 and value.numel() > 1 and value.min() == value.max():
                value.data.normal_(0.0, 0.1, generator=generator)
            elif name == "layer_scale":
                value.data.uniform_(0.2, 0.8, generator=generator)


def without_dropout(network: nn.Module) -> nn.Module:
    """The network without the draws that the modes could not share."""
    for layer in network.modules():
        for name in ("p", "dropout", "attention_dropout"):
            if isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.0)
    return network


def loss_of(outputs: torch.Tensor, targets: torch.Tensor, kind: str) -> torch.Tensor:
    """Mean squared error, or softmax cross-entropy over the last axis."""
    if kind == "mse":
        return F.mse_loss(outputs, targets)
    return F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1).long())


def take_statistics(network: nn.Module, file: onnx.ModelProto) -> None:
    """Moving statistics as in the file: an export in training mode runs a step, which changes them."""
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in file.graph.initializer}
    for name, value in network.named_buffers():
        if name in arrays and value.dtype == torch.float32:
            value.data.copy_(torch.from_numpy(arrays[name].copy()))


def as_exported(network: nn.Module, file: onnx.ModelProto) -> nn.Module:
    """The network as it is in the file, where exporters compute what does not depend on inputs.

    Normalization is in the convolution before it, that of weights in the weights, and the bias of Swin's windows is
    a table by pairs of positions.
    """
    names = {entry.name for entry in file.graph.initializer}
    for name, layer in [*network.named_modules()]:
        if hasattr(layer, "weight_g") and f"{name}.weight_g" not in names:
            nn.utils.remove_weight_norm(layer)
        if hasattr(layer, "relative_position_bias_table"):
            table = nn.Parameter(layer.get_relative_position_bias().detach().clone())
            layer.register_parameter("relative_position_bias", table)
            layer.get_relative_position_bias = partial(getattr, layer, "relative_position_bias")
    normalized = sum(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules())
    if sum(node.op_type == "BatchNormalization" for node in file.graph.node) == normalized:
        return network
    return fuse(network.eval())


def gradients_of(
    network: nn.Module, inputs: dict[str, torch.Tensor], targets: torch.Tensor, kind: str
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of one step in training mode."""
    network.train()
    network.zero_grad()
    loss = loss_of(first(network(**inputs)), targets, kind)
    loss.backward()
    grads = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
    return float(loss.detach()), {name: grad.numpy().copy() for name, grad in grads.items()}


def first(outputs: Any) -> torch.Tensor:
    """The logits of what a network returns."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    return outputs.logits if hasattr(outputs, "logits") else outputs[0]


def matches(file: onnx.ModelProto, network: nn.Module) -> dict[str, dict[str, Any]]:
    """By parameter name: the initializers that have its values, and whether they are transposed.

    The same name first, otherwise equal values (within rounding of a fused normalization).
    """
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in file.graph.initializer}
    found: dict[str, dict[str, Any]] = {}
    for name, value in network.named_parameters():
        mine = value.detach().numpy()
        for form, wanted in forms(mine).items():
            same = [n for n, array in arrays.items() if array.dtype == mine.dtype and _close(array, wanted)]
            if name in same:
                same = [name]
            if not same and wanted.ndim == 3:  # repeated for each row of a fixed batch
                same = [n for n, array in arrays.items() if array.ndim == 3 and _repeats(array, wanted)]
                form = "repeated"
            if same:
                found[name] = {"initializers": same, "form": form}
                break
    return found


def forms(array: np.ndarray) -> dict[str, np.ndarray]:
    """The array as it may stand in a file."""
    return {"same": array, "transposed": array.T, "flat": array.reshape(-1)}


def _repeats(array: np.ndarray, wanted: np.ndarray) -> bool:
    return len(wanted) == 1 and array.shape[1:] == wanted.shape[1:] and np.array_equal(array, np.repeat(wanted, len(array), 0))


def _close(array: np.ndarray, wanted: np.ndarray) -> bool:
    if wanted.ndim == 1 and array.size == wanted.size:
        array = array.reshape(-1)
    return array.shape == wanted.shape and np.allclose(array, wanted, rtol=1e-4, atol=1e-6)


def as_json(value: Any) -> np.ndarray:
    """Text in an array, since a .npz of plain arrays is read without unpickling."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
