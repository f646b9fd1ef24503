"""Floor 0: the processes that train one network together. Where the reference's scripts look: `management`."""

from typing import TYPE_CHECKING

from runner.host.lazy import late_names

if TYPE_CHECKING:
    from runner.communication.management import get_group_size, get_rank, init, release
else:  # the words of a config need no arrays
    __getattr__, __dir__ = late_names(__name__, {"management": "get_group_size get_rank init release"})

__all__ = ["get_group_size", "get_rank", "init", "release"]
