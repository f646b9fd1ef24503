"""The identity of a process, by which it is recognised later: machine, process id and start time.

A process id alone may be that of another process, later or on another machine.
"""

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

START_FIELD = 19  # of /proc/PID/stat, counted from the state, which follows the name in parentheses
ZOMBIE = "Z"  # it has ended, and its parent has not noticed


def own_identity() -> dict[str, Any]:
    """`pid`, `host` and `process_start` (clock ticks since the machine started) of this process."""
    return {"pid": os.getpid(), "host": platform.node(), "process_start": _state(os.getpid())[1]}


def is_of_this_machine(identity: Mapping[str, Any]) -> bool:
    """Whether the process is or was one of this machine, as far as that is known."""
    host = identity.get("host")
    return not isinstance(host, str) or host == platform.node()


def may_be_alive(identity: Mapping[str, Any]) -> bool:
    """Whether the process may still exist. False is certain; on another machine it cannot be examined.

    Missing entries, as in files of older versions, are not compared.
    """
    pid, start = identity.get("pid"), identity.get("process_start")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    if not is_of_this_machine(identity):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, found = _state(pid)
    return state != ZOMBIE and (start is None or found in (None, start))


def _state(pid: int) -> tuple[str, int | None]:
    """State and start of a process; "" and None where the system does not provide them."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[START_FIELD])
    return "", None
