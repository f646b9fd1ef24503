"""A console that cannot be written loses its text and nothing else."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.host.console import Console, ConsoleStream, open_standard_descriptors

ROOT = Path(__file__).parents[2]


def child(code, **options):
    """The exit code of a process with a program of runner."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=120, **options)
    return done.returncode


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_a_problem_and_the_streams_return_afterwards(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with Console() as console:
            print("lost", flush=True)
            print("also lost")
            assert console.problems() == {"stdout": "No space left on device"}
            assert not sys.stdout.isatty()
        assert sys.stdout is full
        full.flush()  # nothing is left that would fail again


def test_what_can_be_written_is_written(capsys):
    with Console() as console:
        print("out")
        sys.stdout.writelines(["a", "b\n"])
        print("err", file=sys.stderr)
        assert console.problems() == {}
    assert capsys.readouterr() == ("out\nab\n", "err\n")


def test_an_inner_console_has_the_streams_of_the_outer_one():
    with Console() as outer, Console() as inner:
        assert outer.streams == inner.streams
        with Console():
            pass
        assert sys.stdout is outer.streams["stdout"]


def test_text_before_the_problem_stays():
    class Breaks(io.StringIO):
        def write(self, text):
            if "x" in text:
                raise BrokenPipeError(32, "Broken pipe")
            return super().write(text)

    stream = ConsoleStream(breaks := Breaks())
    assert [stream.write(text) for text in ("one", "x", "two")] == [3, 1, 3]
    assert breaks.getvalue() == "one"
    assert stream.problem.strerror == "Broken pipe"


def test_a_missing_stream_takes_everything():
    stream = ConsoleStream(None)
    assert stream.write("text") == 4
    stream.flush()
    assert not stream.isatty()
    assert stream.problem.strerror == "closed"


def test_no_file_gets_the_number_of_a_closed_descriptor(tmp_path):
    """What C code prints to descriptor 2 would otherwise be in the file."""
    code = f"""
import os
os.close(1); os.close(2)
from runner.host.console import open_standard_descriptors
open_standard_descriptors()
with open({str(tmp_path / "data")!r}, "w") as file:
    os.write(1, b"out"); os.write(2, b"err")
    file.write("data")
"""
    assert child(code) == 0
    assert (tmp_path / "data").read_text() == "data"


def test_open_descriptors_stay():
    before = [os.fstat(number) for number in (0, 1, 2)]
    open_standard_descriptors()
    assert [os.fstat(number) for number in (0, 1, 2)] == before
