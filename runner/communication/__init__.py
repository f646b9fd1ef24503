"""Floor 0: the processes that train one network together. Where the reference's scripts look: `management`."""

from runner.communication.management import get_group_size, get_rank, init, release

__all__ = ["get_group_size", "get_rank", "init", "release"]
