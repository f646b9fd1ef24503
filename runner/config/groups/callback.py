"""The callbacks of configs: `callbacks.NAME` is true, false, a group of keys, or the value of the first key."""

from collections.abc import Mapping
from typing import Any

from runner import register
from runner.config.groups.record import Records, Settings
from runner.train.callback import standard  # noqa: F401  registers them
from runner.validation.rules import Invalid

ENABLED = ("epoch_monitor", "progress")


class CallbackSettings(Settings):
    """A callback of the training, or how its keys are written."""

    @property
    def written(self) -> Any:
        """The value of `callbacks.NAME`: true without keys, the value of a single one, or a group of keys."""
        keys = {name: getattr(self, name) for name in self.entry.keys}
        return True if not keys else next(iter(keys.values())) if len(keys) == 1 else keys


CALLBACKS = Records(register.callback, CallbackSettings)


def default_callbacks() -> Mapping[str, CallbackSettings | None]:
    """The callbacks of a run that names no others."""
    return {name: CALLBACKS[name]() for name in ENABLED}


def keys_of_value(name: str, value: object) -> Mapping[str, Any] | None:
    """The keys that a value of `callbacks.NAME` stands for; None: the callback is off.

    Raises Invalid for the value of a key of a callback that has none.
    """
    if value is None or value is False:
        return None
    if isinstance(value, Mapping):
        return value
    keys = tuple(register.callback[name].keys)
    if value is not True and not keys:
        raise Invalid("this callback has no keys", "true or false")
    return {} if value is True else {keys[0]: value}
