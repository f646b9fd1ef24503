"""Networks with fewer channels, where a constructor has no argument for it."""

from torch import nn


def narrow(network: nn.Module, by: int, linear_by: int | None = None, groups: int | None = None) -> nn.Module:
    """The network with channels divided by `by` and features by `linear_by`; images keep three channels.

    Grouped convolutions get `groups` groups. The last linear layer keeps its outputs.
    """
    linears = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    channels = 3
    for name, layer in [*network.named_modules()]:
        parent, last = network.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        if isinstance(layer, nn.Conv2d):
            channels = _divided(layer.out_channels, by)
            setattr(parent, last, _convolution(layer, by, groups))
        elif isinstance(layer, nn.BatchNorm2d):
            setattr(parent, last, nn.BatchNorm2d(_divided(layer.num_features, by)))
        elif isinstance(layer, nn.Linear):
            before = channels * _area(layer, network) if name == linears[0] else layer.in_features // (linear_by or by)
            after = layer.out_features if name == linears[-1] else layer.out_features // (linear_by or by)
            setattr(parent, last, nn.Linear(before, after))
    return network


def _divided(channels: int, by: int) -> int:
    return max(2, round(channels / by)) if channels > 3 else channels


def _convolution(layer: nn.Conv2d, by: int, groups: int | None) -> nn.Conv2d:
    return nn.Conv2d(
        _divided(layer.in_channels, by),
        _divided(layer.out_channels, by),
        layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=1 if layer.groups == 1 else groups or layer.groups,
        bias=layer.bias is not None,
    )


def _area(layer: nn.Linear, network: nn.Module) -> int:
    pool = getattr(network, "avgpool", None)
    size = getattr(pool, "output_size", 1)
    high, wide = size if isinstance(size, tuple) else (size, size)
    return high * wide
