"""The layout of images on a GPU: channels last for graphs whose convolutions run on tensor cores."""

from dataclasses import replace

from runner import dtype
from runner.core.graph import Graph
from runner.device import Device


def with_channels_last(device: Device, graph: Graph) -> Device:
    """The device, with channels last where cuDNN prefers them: convolutions of Float16, or of Float32 as TF32.

    The kernels of tensor cores read channels last, and cuDNN transposes each operand that is not. Those of full Float32
    read channels first. The layout is one option of a session, so a graph with convolutions of both types has one.
    """
    if device.target != "GPU":
        return device
    kinds = {x.dtype for node in graph.all_nodes if node.op.convolves for x in node.inputs}
    on_tensor_cores = dtype.float16 in kinds or (dtype.float32 in kinds and device.tf32)
    return replace(device, channels_last=True) if on_tensor_cores else device
