"""`runner parse-print FILE`: the strings and tensors of a print file, as the screen would have shown them."""

from collections.abc import Sequence

from runner.core.value import Tensor
from runner.errors import ConfigError
from runner.ops.print.file import parse_print
from runner.ops.print.screen import text


def main(words: Sequence[str]) -> int:
    """Show a file. Raises ConfigError for wrong words, and DataError for a damaged file."""
    if len(words) != 1 or words[0].startswith("-"):
        raise ConfigError("wrong usage", value=" ".join(words), hint="runner parse-print FILE")
    for part in parse_print(words[0]):
        print(text([part.asnumpy() if isinstance(part, Tensor) else part]))  # noqa: T201  what the command is for
    return 0
