"""A process is recognised by machine, process id and start time."""

import subprocess
import sys

import pytest
from patience import wait_until

from runner.host.process import may_be_alive, own_identity

NO_PROCESS = (1 << 31) - 2


def test_this_process():
    own = own_identity()
    assert may_be_alive(own)
    assert may_be_alive({"pid": own["pid"]})  # of an older version


@pytest.mark.parametrize(
    ("change", "alive"),
    [
        ({"process_start": 1}, False),  # the id was given to another process
        ({"pid": NO_PROCESS}, False),
        ({"pid": True}, False),
        ({"pid": "x"}, False),
        ({"pid": None}, False),
        ({"pid": NO_PROCESS, "host": "elsewhere.invalid"}, True),  # cannot be examined here
        ({"pid": 1, "process_start": None}, True),  # of another user
    ],
)
def test_others(change, alive):
    assert may_be_alive(own_identity() | change) is alive


def test_a_process_that_has_ended_before_its_parent_notices():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        wait_until(lambda: not may_be_alive({"pid": child.pid}))
