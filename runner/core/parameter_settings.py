"""Settings of a parameter: whether it is frozen, and those that belong to distributed training in the reference.

Here every rank has all parameters, so the latter are kept, and change nothing.
"""

from typing import Any

from runner.errors import ConfigError


class Flag:
    """A setting that is true or false. Raises ConfigError for other values."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, parameter: Any, owner: type | None = None) -> Any:
        return self if parameter is None else parameter.settings.get(self.name, False)

    def __set__(self, parameter: Any, value: bool) -> None:
        if not isinstance(value, bool):
            rows = {"parameter": parameter.name, "given": value, "allowed": "True, False"}
            raise ConfigError(f"{self.name} is true or false", **rows)
        parameter.settings[self.name] = value


class ParameterSettings:
    """Base of parameters: what `settings` holds, under the names of the reference."""

    __slots__ = ()
    settings: dict[str, Any]
    name: str

    frozen = Flag()  # a training keeps its value (`network.freeze`); a normalization reads it too
    layerwise_parallel = Flag()
    parallel_optimizer = Flag()
    cache_enable = Flag()
    sliced = Flag()
    unique = Flag()
    is_init = Flag()
    is_param_ps = False  # there is no parameter server
    inited_param = None  # a parameter has its elements from the start

    @property
    def comm_fusion(self) -> int:
        """The number of the group whose gradients are reduced at once; here `all_reduce_fusion_config` chooses it."""
        return int(self.settings.get("comm_fusion", 1))

    @comm_fusion.setter
    def comm_fusion(self, number: int) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError("comm_fusion is a whole number", parameter=self.name, given=number, allowed="0 and more")
        self.settings["comm_fusion"] = number

    def set_param_ps(self, init_in_server: bool = False) -> None:
        """Raises ConfigError: there is no parameter server."""
        repair = "data parallel training: context.set_auto_parallel_context(parallel_mode='data_parallel')"
        raise ConfigError("runner has no parameter server", parameter=self.name, repair=repair)
