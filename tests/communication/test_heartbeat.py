"""Signs of life between ranks, with a communicator that the test plays; real ones are in `tests/experiment/ranks`."""

import queue
from types import SimpleNamespace

import pytest
from patience import wait_until

from runner.communication.heartbeat import Heartbeat


class Broken(Exception):
    """A connection is lost."""


class Ranks:
    """Rank 0 of 3. Rank 1 sends what is put into `messages`; rank 2 sends and receives nothing."""

    def __init__(self):
        self.messages, self.sent, self.cancelled, self.is_broken = queue.Queue(), {1: 0, 2: 0}, 0, False
        self.Get_size, self.Get_rank = lambda: 3, lambda: 0

    def Isend(self, buffer, dest):
        if self.is_broken:
            raise Broken
        self.sent[dest] += 1
        return SimpleNamespace(Test=lambda: dest == 1)

    def Irecv(self, buffer, source):
        return SimpleNamespace(Test=lambda: source == 1 and self.has_arrived(), Cancel=self.cancel)

    def has_arrived(self):
        try:
            return self.messages.get_nowait()
        except queue.Empty:
            return False

    def cancel(self):
        self.cancelled += 1


@pytest.fixture
def ranks():
    return Ranks()


def test_a_silent_rank_is_named_and_one_that_sends_is_not(ranks):
    heartbeat = Heartbeat(ranks, 600.0, Broken)
    assert heartbeat.silent() == {}
    heartbeat.allow(0.05)

    def names_the_second() -> bool:
        ranks.messages.put(True)
        return 2 in heartbeat.silent()

    wait_until(names_the_second)
    wait_until(lambda: 1 in heartbeat.silent())  # once it does not send any more
    heartbeat.allow(600.0)
    assert heartbeat.silent() == {}
    heartbeat.close()
    assert ranks.cancelled == 2  # nothing is left for the end of MPI


def test_messages_do_not_pile_up_for_one_that_receives_none(ranks):
    heartbeat = Heartbeat(ranks, 0.01, Broken)
    wait_until(lambda: ranks.sent[1] > 5)
    heartbeat.close()
    assert ranks.sent[2] == 1


def test_a_broken_connection_is_silence(ranks, capsys):
    heartbeat = Heartbeat(ranks, 0.01, Broken)
    ranks.is_broken = True
    wait_until(lambda: {1, 2} <= heartbeat.silent().keys())
    heartbeat.close()
    assert capsys.readouterr().err == ""
