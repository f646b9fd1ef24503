"""The configs that Hydra reads, with a limit of their number in one composition."""

from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository, IConfigRepository
from hydra.plugins.config_source import ConfigResult

from runner.errors import ConfigError

MAX_CONFIGS = 300  # of one composition; merging one takes some milliseconds


class CountingRepository(CachingConfigRepository):
    """The configs of one composition: defaults lists that name each other would be a tree without end."""

    def __init__(self, delegate: IConfigRepository) -> None:
        super().__init__(delegate)
        self._count = 0

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A config, which Hydra requests twice for every entry of a defaults list and once to merge it."""
        self._count += 1
        if self._count > 3 * MAX_CONFIGS:
            raise ConfigError(
                "too many configs in the defaults lists", value=config_path, allowed=f"{MAX_CONFIGS} in all"
            )
        return super().load_config(config_path)


class SharedRepository(ConfigRepository):
    """A repository without copies: Hydra copies it and the ConfigStore for added search paths, which are rejected."""

    def __deepcopy__(self, memo: object) -> "SharedRepository":
        return self
