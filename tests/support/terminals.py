"""Commands on a terminal of a given width."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

from patience import PATIENCE
from processes import ROOT

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(columns: int, *words: str) -> list[str]:
    """The lines that the command prints on a terminal with so many columns, without what controls the terminal."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "runner", *words]
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "env": environment, "close_fds": True}
    process = subprocess.Popen(command, **options)
    os.close(theirs)
    content = b""
    try:
        while part := os.read(ours, 1 << 16):
            content += part
    except OSError:  # all ends of the other side are closed
        pass
    os.close(ours)
    assert process.wait(PATIENCE) == 0, content
    return CONTROL.sub("", content.decode().replace("\r\n", "\n")).splitlines()
