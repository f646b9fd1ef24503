"""The options of onnxruntime's providers for a device; no other place sets them."""

from runner.device import Device


def provider_options(device: Device) -> dict[str, str]:
    """The options of the provider of an accelerator, by onnxruntime's names (1.20 to 1.31).

    cuDNN's heuristic instead of onnxruntime's default, which times the algorithms of every convolution: another winner
    would be another rounding, so two runs could differ.
    """
    options = {"device_id": str(device.id)}
    if device.target == "GPU":
        options["cudnn_conv_algo_search"] = "HEURISTIC"
        options["use_tf32"] = _flag(device.tf32)
        options["prefer_nhwc"] = _flag(device.channels_last)
    return options


def _flag(value: bool) -> str:
    return "1" if value else "0"
