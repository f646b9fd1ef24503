"""What onnxruntime says: catching what it only prints, and finding the one useful sentence in its messages."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

_OPERATOR = re.compile(r"""Name:'([^']+)'|node with name '([^']+)'|[Nn]ode \(([^)]+)\)|Node, \("([^"]+)\"""")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SIGNATURE = re.compile(r"/\S+\.(?:cc|h|cpp|cu):\d+ .*\) (?=\S)")  # C++ file, line and function


class Heard:
    """What native code wrote while nobody should see it; `text` is filled when the listening ends."""

    text = ""


@contextmanager
def listening() -> Iterator[Heard]:
    """Keep what is printed from the terminal, and remember it without colours.

    Device libraries print why they fail instead of raising it: native code to file descriptors 1 and 2, onnxruntime's
    Python part to `sys.stdout`, which in a notebook is something else.
    """
    heard = Heard()
    with tempfile.TemporaryFile() as file:
        try:
            with (
                _descriptors(file.fileno()),
                open(os.dup(file.fileno()), "w", buffering=1) as text,
                redirect_stdout(text),
                redirect_stderr(text),
            ):
                yield heard
        finally:
            file.seek(0)
            heard.text = _COLOUR.sub("", file.read().decode(errors="replace"))


@contextmanager
def _descriptors(target: int) -> Iterator[None]:
    """Send descriptors 1 and 2 to another one."""
    kept = [(number, os.dup(number)) for number in (1, 2)]
    for number, _ in kept:
        os.dup2(target, number)
    try:
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)


def device_reason(text: str, error: Exception | None = None) -> str:
    """The sentence in onnxruntime's output, or else in its exception, that says why a device failed."""
    if library := re.search(r"Failed to load library (?:\S*/)?(\S+) with error: (.+)", text):
        return f"Failed to load library {library[1]} with error: {library[2].strip()}"
    if error is not None:
        return first_line(error)
    for level in "EW":
        if line := re.search(rf"\[{level}:onnxruntime:[^\]]*\] (.+)", text):
            return line[1].strip()
    return "onnxruntime opened the session without the provider and gave no reason"


def import_reason(text: str, error: Exception) -> str:
    """Why `import onnxruntime` failed; a wheel that was built for NumPy 1 only prints it."""
    if "_ARRAY_API not found" in text:
        return "onnxruntime cannot be imported: it was built for NumPy 1 and finds NumPy 2 (_ARRAY_API not found)"
    return f"onnxruntime cannot be imported: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an onnxruntime exception, without its error number and without C++ signatures."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _SIGNATURE.sub("", _CODE.sub("", line))


def operator_name(error: Exception) -> str | None:
    """The full name of the operator that an exception is about, or None when it names none."""
    found = _OPERATOR.search(str(error))
    return next(filter(None, found.groups()), None) if found else None
