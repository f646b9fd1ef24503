"""Run by mpirun: `runner` in which one rank gets a signal: `rank_signals.py PLACE RANK SIGNAL words...`.

`compose`: while it reads its config; `join`: while it waits for the others to start MPI; `end`: in its final wait,
which the other rank never reaches.
"""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Timer

from runner import cli
from runner.communication import world
from runner.experiment import launch, run
from runner.experiment.ranks import group
from runner.host.process import launched

SENT = Path("sent")


def send() -> None:
    os.kill(os.getpid(), signal.Signals[sys.argv[3]])
    time.sleep(0.2)
    SENT.touch()


def send_soon() -> None:
    Timer(0.2, send).start()


def before(owner: object, name: str, act: object) -> None:
    """From now on `act` is called before a function."""
    usual = getattr(owner, name)
    setattr(owner, name, lambda *values, **named: (act(), usual(*values, **named))[1])  # type: ignore[operator]


def wait() -> None:
    while not SENT.exists():
        time.sleep(0.01)


def hang() -> None:
    time.sleep(1e6)


if __name__ == "__main__":
    place, signalled, _, *words = sys.argv[1:]
    group.STOP_SECONDS = 2.0
    is_signalled = launched()[0] == int(signalled)
    if place == "compose" and is_signalled:
        before(launch, "compose", send)
    if place == "join":
        before(world, "_start", send_soon) if is_signalled else before(world, "_loaded", wait)
    if place == "end":
        if is_signalled:
            before(world.MpiWorld, "met", send_soon)
        elif launched()[0] == 0:
            before(run, "conclude", hang)
        else:
            follow = group.follow
            group.follow = lambda request: (follow(request), hang())
    sys.exit(cli.main(words))
