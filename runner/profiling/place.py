"""Where a profile comes from: what the files are called after, and what the summary may advise."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """The mode (`graph` or `pynative`), the device's kind as in file names (`cpu`, `gpu`, `ascend`), threads of one
    operator, and whether many steps go down in one call.
    """

    mode: str = "graph"
    device: str = "cpu"
    threads: int = 1
    sunk: bool = False
