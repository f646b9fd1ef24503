"""Messages of onnxruntime: capturing printed ones, and extracting the one useful sentence."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

_OPERATOR = re.compile(r"""Name:'([^']+)'|node with name '([^']+)'|[Nn]ode \(([^)]+)\)|Node, \("([^"]+)\"""")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SIGNATURE = re.compile(r"/\S+\.(?:cc|h|cpp|cu):\d+ .*\) (?=\S)")  # C++ file, line and function


class CapturedOutput:
    """Output of native code and of Python; `text` is set when the capture ends."""

    text = ""


@contextmanager
def capture_output() -> Iterator[CapturedOutput]:
    """Capture standard output and standard error, without colour codes, instead of printing them.

    Device libraries print the reason of a failure instead of raising it: native code to file descriptors 1 and 2,
    onnxruntime's Python code to `sys.stdout`, which differs from descriptor 1 in a notebook.
    """
    captured = CapturedOutput()
    with tempfile.TemporaryFile() as file:
        try:
            with (
                _descriptors(file.fileno()),
                open(os.dup(file.fileno()), "w", buffering=1) as text,
                redirect_stdout(text),
                redirect_stderr(text),
            ):
                yield captured
        finally:
            file.seek(0)
            captured.text = _COLOUR.sub("", file.read().decode(errors="replace"))


@contextmanager
def _descriptors(target: int) -> Iterator[None]:
    """Redirect descriptors 1 and 2 to `target`."""
    saved = [(number, os.dup(number)) for number in (1, 2)]
    for number, _ in saved:
        os.dup2(target, number)
    try:
        yield
    finally:
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)


def device_reason(text: str, error: Exception | None = None) -> str:
    """The reason for the failure of a device, from onnxruntime's output or else from its exception."""
    if library := re.search(r"Failed to load library (?:\S*/)?(\S+) with error: (.+)", text):
        return f"Failed to load library {library[1]} with error: {library[2].strip()}"
    if error is not None:
        return first_line(error)
    for level in "EW":
        if line := re.search(rf"\[{level}:onnxruntime:[^\]]*\] (.+)", text):
            return line[1].strip()
    return "onnxruntime opened the session without the provider and gave no reason"


def import_reason(text: str, error: Exception) -> str:
    """Why `import onnxruntime` failed; a wheel that was built for NumPy 1 only prints the reason."""
    if "_ARRAY_API not found" in text:
        return "onnxruntime cannot be imported: it was built for NumPy 1 and finds NumPy 2 (_ARRAY_API not found)"
    return f"onnxruntime cannot be imported: {first_line(error)}"


def first_line(error: Exception) -> str:
    """The first line of an onnxruntime exception, without error code and C++ signatures."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _SIGNATURE.sub("", _CODE.sub("", line))


def operator_name(error: Exception) -> str | None:
    """The name of the node that an exception mentions, or None."""
    found = _OPERATOR.search(str(error))
    return next(filter(None, found.groups()), None) if found else None
