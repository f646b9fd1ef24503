"""What torch computes: outputs, losses and gradients, and which initializer of a file is which parameter."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.fx.experimental.optimization import fuse
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval


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
        if isinstance(layer, nn.Embedding):
            layer.padding_idx = None  # ONNX has no row that is not trained
    in_file = sum(node.op_type == "BatchNormalization" for node in file.graph.node)
    if in_file == _normalizations(network):
        return network
    network = fuse(network.eval()).requires_grad_()
    return network if in_file == _normalizations(network) else _with_fused_transposes(network)


def _normalizations(network: nn.Module) -> int:
    return sum(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules())


def _with_fused_transposes(network: nn.Module) -> nn.Module:
    """Normalization in the transposed convolution before it too, as the dynamo exporter does it."""
    layers = dict(network.named_modules())
    for (name, layer), (after, norm) in pairwise(layers.items()):
        if isinstance(layer, nn.ConvTranspose2d) and isinstance(norm, nn.BatchNorm2d):
            network.set_submodule(name, fuse_conv_bn_eval(layer, norm, transpose=True).requires_grad_())
            network.set_submodule(after, nn.Identity())
    return network


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


def matches(file: onnx.ModelProto, network: nn.Module) -> dict[str, list[list[str]]]:
    """By parameter name: the initializers that have its values, and the layout of each.

    The same name first, otherwise equal values (within rounding of a fused normalization).
    """
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in file.graph.initializer}
    floats = {name: array for name, array in arrays.items() if array.dtype == np.float32 and array.ndim}
    found: dict[str, list[list[str]]] = {}
    for name, value in network.named_parameters():
        mine = value.detach().numpy()
        places = [[other, layout] for other, array in floats.items() if (layout := layout_of(array, mine))]
        named = [place for place in places if place[0] == name]
        tied = [place for place in places if place[1] == "transposed" and value.ndim == 2]
        if places:
            found[name] = [*named, *tied] if named else places
    return found


def layout_of(array: np.ndarray, parameter: np.ndarray) -> str:
    """How an array of a file has the values of a parameter, or nothing."""
    if array.size == parameter.size:
        if array.ndim == parameter.ndim == 2 and _close(array, parameter.T):
            return "transposed"
        return "same" if _close(array.reshape(parameter.shape), parameter) else ""
    if parameter.ndim == 3 and len(parameter) == 1 and _repeats(array, parameter):
        return "repeated"  # for each row of a batch whose size the file fixes
    rows = array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array
    if parameter.ndim == rows.ndim == 2 and len(rows) < len(parameter) and _close(rows, parameter[: len(rows)]):
        return "first rows"  # of positions, where the file fixes the length
    return ""


def _repeats(array: np.ndarray, wanted: np.ndarray) -> bool:
    return array.shape[1:] == wanted.shape[1:] and np.array_equal(array, np.repeat(wanted, len(array), 0))


def _close(array: np.ndarray, wanted: np.ndarray) -> bool:
    return array.shape == wanted.shape and np.allclose(array, wanted, rtol=1e-4, atol=1e-6)


def as_json(value: Any) -> np.ndarray:
    """Text in an array, since a .npz of plain arrays is read without unpickling."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
