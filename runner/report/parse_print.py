"""`runner parse-print FILE`: prints the strings and tensors of a print file as the operator Print would."""

from runner.core.values import Tensor
from runner.ops.print_file import print_entries, text


def main(file: str) -> int:
    """Print the content of a file. Raises DataError if it is missing, or after all that precedes its damage."""
    for part in print_entries(file):
        print(text([part.asnumpy() if isinstance(part, Tensor) else part]))  # noqa: T201  output of the command
    return 0
