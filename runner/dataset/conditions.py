"""`sync_wait` and `sync_update`: a training script that changes what a pipeline does next. Source: r1.2.

Where the reference blocks a pipeline until the script has reported back, a pipeline with a condition prepares nothing
ahead here: an item is computed when it is requested, so after every `sync_update` that preceded the request.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from runner.dataset.arrangement import Arrangement
from runner.errors import ConfigError, known_names
from runner.validation.arguments import whole_number


class Synchronized(Arrangement):
    """A pipeline that a script may update while it iterates over it."""

    def sync_wait(
        self, condition_name: str, num_batch: int = 1, callback: Callable[[Any], object] | None = None
    ) -> Self:
        """Let `sync_update(condition_name, data=...)` call `callback(data)` before the items that are requested later.

        `num_batch` has no effect: nothing is prepared ahead. Raises ConfigError for a name that is in use.
        """
        whole_number("num_batch", num_batch, 1)
        if callback is not None and not callable(callback):
            raise ConfigError("not a function", argument="callback", value=callback, allowed="something callable")
        if condition_name in self.conditions:
            raise ConfigError("the name of a condition is in use", argument="condition_name", value=condition_name)
        made = self.with_order(lambda order: order)
        made.conditions = {**self.conditions, condition_name: callback}
        return made

    def sync_update(self, condition_name: str, num_batch: int | None = None, data: Any = None) -> None:
        """Call the function of a condition with `data`. Raises ConfigError for an unknown name."""
        if num_batch is not None:
            whole_number("num_batch", num_batch, 1)
        if condition_name not in self.conditions:
            rows = known_names(condition_name, self.conditions)
            raise ConfigError("no such condition", argument="condition_name", value=condition_name, **rows)
        callback = self.conditions[condition_name]
        if callback is not None:
            callback(data)

    def disable_sync(self) -> None:
        """Nothing: a pipeline never waits."""

    def shuffle(self, buffer_size: int) -> Self:
        """As for every dataset; raises ConfigError after `sync_wait`, since a shuffle reads ahead."""
        if self.conditions:
            raise ConfigError("shuffle after sync_wait reads ahead", argument="shuffle", repair="shuffle before it")
        return super().shuffle(buffer_size)

    def observed_as(self, parts: "Sequence[Synchronized]") -> Self:
        """This dataset with the conditions and events of all datasets that it was made of.

        Raises ConfigError for one name of two conditions.
        """
        found: dict[str, Any] = {}
        for part in parts:
            for name, callback in part.conditions.items():
                if found.setdefault(name, callback) is not callback:
                    raise ConfigError("the name of a condition is in use", argument="condition_name", value=name)
        self.conditions = found
        self.row_events = tuple(dict.fromkeys(events for part in parts for events in part.row_events))
        return self
