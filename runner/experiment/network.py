"""The network of a checked config: implementations of its operators, a new head, frozen parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from runner import nn
from runner.config.groups.entries import NetworkSettings
from runner.config.groups.services import SessionSettings
from runner.config.schema import RunConfig
from runner.core.values import Parameter
from runner.errors import ConfigError, collect_errors, raise_all
from runner.host.console import LOG
from runner.nn.pooling import set_impl_mode
from runner.types import TensorType
from runner.validation.rules import Frozen

FREEZE, HEAD = {"key": "network.freeze"}, {"key": "network.head"}


class ParameterRoles(Frozen):
    """The parameters of a new head, and those that are frozen and would be trained otherwise."""

    head: tuple[Parameter, ...] = ()
    frozen: tuple[Parameter, ...] = ()


NO_ROLES = ParameterRoles()


def create_network(config: RunConfig, facts: Mapping[str, Any]) -> nn.Cell:
    """The network for data with these facts, as it is registered. Raises ConfigError."""
    network = config.network.create(nn.Cell, **facts)
    _select_implementations(network, config.session)
    return network


def adapt_network(
    network: nn.Cell, settings: NetworkSettings, facts: Mapping[str, Any], types: Sequence[TensorType]
) -> ParameterRoles:
    """Replace the head and freeze parameters as the keys say; `types` are those of the inputs of a batch.

    Raises ConfigError, or ConfigErrors for several keys.
    """
    head: tuple[Parameter, ...] | None = ()
    errors: list[ConfigError] = []
    if settings.head == "replace":
        head, errors = collect_errors(lambda: nn.replace_head(network, types, _outputs(settings, facts), HEAD))
    frozen, of_freeze = collect_errors(lambda: nn.freeze(network, settings.freeze, head or (), FREEZE))
    raise_all([*errors, *of_freeze])
    return ParameterRoles(head=head or (), frozen=tuple(frozen or ()))


def _outputs(settings: NetworkSettings, facts: Mapping[str, Any]) -> int:
    """The number of classes: the key of the network, or of the dataset, or the default of the network's parameter."""
    parameter = settings.entry.parameters.get("num_classes")
    default = None if parameter is None else parameter.default
    for given in (getattr(settings, "num_classes", None), facts.get("num_classes"), default):
        if isinstance(given, int):
            return given
    rows = {"value": "replace", "network": settings.entry.place}
    hint = "network.num_classes=..." if parameter is not None else "a dataset with classes, or a parameter num_classes"
    raise ConfigError("the dataset does not determine num_classes", **HEAD, **rows, hint=hint)


def _select_implementations(network: nn.Cell, session: SessionSettings) -> None:
    if session.optypelist_for_implmode is None:
        if session.op_select_implmode != SessionSettings.op_select_implmode:
            LOG.warning("session.op_select_implmode has no effect without session.optypelist_for_implmode=Pooling")
    elif not set_impl_mode(network, session.op_select_implmode):
        LOG.warning("session.optypelist_for_implmode has no effect: the network has no layer AvgPool2d")
