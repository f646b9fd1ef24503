"""`runner parse-print FILE`: the strings and tensors of a print file, as the screen would have shown them."""

from runner.core.value import Tensor
from runner.ops.print.file import parse_print
from runner.ops.print.screen import text


def main(file: str) -> int:
    """Print what is in a file. Raises DataError when it is missing or damaged."""
    for part in parse_print(file):
        print(text([part.asnumpy() if isinstance(part, Tensor) else part]))  # noqa: T201  what the command is for
    return 0
