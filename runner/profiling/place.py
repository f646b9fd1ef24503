"""Where a profile comes from: what the files are called after, what the summary may advise, and whose it is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The mode (`graph` or `pynative`), the device's kind as in file names (`cpu`, `gpu`, `ascend`), threads of one
    operator, and which of how many ranks of a data-parallel training this is.
    """

    mode: str = "graph"
    device: str = "cpu"
    threads: int = 1
    rank: int = 0
    ranks: int = 1

    @property
    def whose(self) -> str:
        """What a profile of several is told apart by; empty for the only one."""
        return f"rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""
