"""The queue never holds more than its limit, keeps the order, and its first error is raised by the next call."""

import errno
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE, SlowDisk, is_blocked, wait_until

from runner.errors import InternalError, StorageError
from runner.host import files
from runner.observe.dump.writers import ITEM_BYTES, WriteQueue

ROOT = Path(__file__).parents[3]
SIZE = 4096
LIMIT = 3 * (SIZE + ITEM_BYTES)  # room for three arrays


class Gate:
    """A disk that writes nothing until it is opened; it knows which thread wrote what."""

    def __init__(self):
        self.is_open, self.writers = threading.Event(), []

    def __call__(self, operation, path):
        if operation == "write":
            self.writers.append((path.name, threading.current_thread().name))
            assert self.is_open.wait(PATIENCE)


class Broken:
    """A disk that is full when a file of this name comes."""

    def __init__(self, name, number=errno.ENOSPC):
        self.name, self.number = name, number

    def __call__(self, operation, path):
        if operation == "write" and path.name == self.name:
            raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setattr(files, "before_operation", gate)
    yield gate
    gate.is_open.set()


def some(number, size=SIZE):
    return np.full(size, number, np.uint8)


def give_much(queue, folder):
    """More than there is room for, so that the queue has to write before it takes the last one."""
    for number in range(1000):
        queue.put(folder / str(number), [some(number % 256)])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_everything_is_written(tmp_path):
    queue = WriteQueue(LIMIT)
    for number in range(20):
        queue.put(tmp_path / f"{number:02}", [b"head", some(number), some(100 + number, 5)])
    queue.close()
    assert names(tmp_path) == [f"{number:02}" for number in range(20)]
    for number in range(20):
        expected = b"head" + bytes([number]) * SIZE + bytes([100 + number]) * 5
        assert (tmp_path / f"{number:02}").read_bytes() == expected


def test_a_slow_disk_holds_back_who_gives(tmp_path, gate):
    queue = WriteQueue(LIMIT)
    given = []

    def give():
        for number in range(8):
            queue.put(tmp_path / str(number), [some(number)])
            given.append(number)

    giver = threading.Thread(target=give)
    giver.start()
    wait_until(lambda: len(given) == 3 and is_blocked(giver), alive=giver.is_alive)
    assert given == [0, 1, 2]  # the fourth waits
    assert names(tmp_path)[1:] == []  # one at most, under a temporary name
    gate.is_open.set()
    giver.join()
    queue.close()
    assert given == list(range(8))
    assert names(tmp_path) == list(map(str, range(8)))
    assert 3 * SIZE <= queue.peak <= LIMIT


def test_what_is_given_and_not_written_stays_below_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "before_operation", SlowDisk())
    rng = np.random.default_rng(0)
    limit = 40_000
    queue, given, worst = WriteQueue(limit), {}, 0
    for number in range(150):
        array = rng.integers(0, 255, rng.integers(1, 12_000), np.uint8)
        queue.put(tmp_path / str(number), [array])
        given[str(number)] = array.nbytes
        there = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
        worst = max(worst, sum(size for name, size in given.items() if name not in there))
    queue.close()
    assert limit / 2 < worst <= queue.peak <= limit
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == given


def test_what_is_larger_than_the_limit_is_written_by_the_caller_when_all_else_is(tmp_path, gate):
    queue, result = WriteQueue(LIMIT), []

    def give():
        queue.put(tmp_path / "small", [some(1)])
        queue.put(tmp_path / "large", [some(2, 2 * LIMIT)])
        result.append(names(tmp_path))

    giver = threading.Thread(target=give, name="giver")
    giver.start()
    wait_until(lambda: gate.writers and is_blocked(giver), alive=giver.is_alive)
    assert gate.writers == [("small", "dump")]  # the large one waits for it
    gate.is_open.set()
    giver.join()
    assert gate.writers == [("small", "dump"), ("large", "giver")]
    assert result == [["large", "small"]]
    queue.put(tmp_path / "after", [some(3)])
    queue.close()
    assert queue.peak <= LIMIT
    assert (tmp_path / "large").stat().st_size == 2 * LIMIT


def test_many_small_things_are_not_held_for_nothing(gate, tmp_path):
    queue, given = WriteQueue(10 * ITEM_BYTES), []

    def give():
        for number in range(12):
            queue.put(tmp_path / str(number), [b""])
            given.append(number)

    giver = threading.Thread(target=give)
    giver.start()
    wait_until(lambda: len(given) == 10 and is_blocked(giver), alive=giver.is_alive)
    assert len(given) == 10
    gate.is_open.set()
    giver.join()
    queue.close()


def test_work_is_done_in_order():
    queue, done = WriteQueue(LIMIT), []
    for number in range(50):
        queue.submit(lambda number=number: done.append(number), 2 * LIMIT if number % 7 == 0 else 10)
    queue.close()
    assert done == list(range(50))


def test_memory_is_free_before_there_is_room_for_more():
    queue, late = WriteQueue(SIZE + ITEM_BYTES), 0
    alive = lambda: None  # noqa: E731
    for number in range(300):
        array = some(number % 256)
        queue.submit(array.sum, array.nbytes)
        late += alive() is not None
        alive = weakref.ref(array)
        del array
    queue.close()
    assert (late, alive()) == (0, None)


@pytest.mark.parametrize("broken", [0, 3, 9])
def test_the_first_error_ends_all(tmp_path, monkeypatch, broken):
    monkeypatch.setattr(files, "before_operation", Broken(str(broken)))
    queue = WriteQueue(1 << 20)
    reason = rf"cannot write a file\n  path +{tmp_path}/{broken}\n  reason +No space left"
    with pytest.raises(StorageError, match=reason):
        give_much(queue, tmp_path)
    for ask in (queue.check, queue.close, queue.close, lambda: queue.put(tmp_path / "more", [b""])):
        with pytest.raises(StorageError, match=f"{tmp_path}/{broken}\n"):
            ask()
    assert names(tmp_path) == [str(number) for number in range(broken)]
    assert all((tmp_path / str(number)).read_bytes() == bytes([number]) * SIZE for number in range(broken))


def test_an_error_wakes_who_waits(tmp_path, gate, monkeypatch):
    queue, errors = WriteQueue(LIMIT), []

    def give():
        try:
            for number in range(8):
                queue.put(tmp_path / str(number), [some(number)])
        except StorageError as error:
            errors.append(error)

    def fails(operation, path):
        gate(operation, path)  # it waits at a write, and so does who gives when there is no more room
        if operation == "write" and path.name == "0":
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(files, "before_operation", fails)
    giver = threading.Thread(target=give)
    giver.start()
    wait_until(lambda: is_blocked(giver), alive=giver.is_alive)
    gate.is_open.set()
    giver.join()
    assert [error.rows["path"] for error in errors] == [str(tmp_path / "0")]
    with pytest.raises(StorageError):
        queue.close()
    assert names(tmp_path) == []  # what waited is dropped


def test_an_error_of_a_large_one_ends_all_too(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "before_operation", Broken("large"))
    queue = WriteQueue(LIMIT)
    with pytest.raises(StorageError, match="large"):
        queue.put(tmp_path / "large", [some(2, 2 * LIMIT)])
    with pytest.raises(StorageError, match="large"):
        queue.put(tmp_path / "small", [some(1)])
    with pytest.raises(StorageError, match="large"):
        queue.close()
    assert names(tmp_path) == []


def test_a_defect_stays_what_it_is():
    queue = WriteQueue(LIMIT)
    queue.submit(lambda: 1 / 0, 0)
    with pytest.raises(ZeroDivisionError):
        queue.close()


def test_ctrl_c_while_waiting_for_room(tmp_path, gate):
    queue = WriteQueue(LIMIT)
    for number in range(3):
        queue.put(tmp_path / str(number), [some(number)])
    main, begun = threading.main_thread(), threading.Event()

    def ctrl_c():
        begun.wait()
        wait_until(lambda: is_blocked(main))
        signal.pthread_kill(main.ident, signal.SIGINT)

    presser = threading.Thread(target=ctrl_c)
    presser.start()
    begun.set()
    with pytest.raises(KeyboardInterrupt):
        queue.put(tmp_path / "3", [some(3)])
    presser.join()
    gate.is_open.set()
    queue.close()
    assert names(tmp_path) == ["0", "1", "2"]


def test_after_the_end(tmp_path):
    queue = WriteQueue(LIMIT)
    queue.close()
    queue.close()
    with pytest.raises(InternalError, match="received work after close"):
        queue.put(tmp_path / "file", [b"late"])
    assert names(tmp_path) == []


def test_a_process_that_dies_does_not_wait_for_the_disk(tmp_path):
    code = """
import sys, threading
from pathlib import Path
from runner.host import files
from runner.observe.dump.writers import WriteQueue
files.before_operation = lambda *_: threading.Event().wait()
WriteQueue(10000).put(Path(sys.argv[1], "file"), [b"x"])
raise RuntimeError("the network failed")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: the network failed\n")
    assert names(tmp_path) == []
