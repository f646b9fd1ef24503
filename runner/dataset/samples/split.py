"""The sizes of the parts of a dataset."""

from collections.abc import Sequence

from runner.errors import ConfigError
from runner.validation.arguments import finite_number, whole_number


def split_sizes(sizes: Sequence[int | float], count: int) -> list[int]:
    """The number of items of each part: `sizes` as they are, or shares of `count`, rounded.

    What rounding adds or leaves out is taken from the first parts or given to the first one, as in the reference.
    Raises ConfigError unless the sizes have the sum `count` or the shares the sum 1, and when a part would be empty.
    """
    if not isinstance(sizes, list | tuple) or not sizes:
        raise ConfigError("not a list of sizes", argument="sizes", value=sizes, allowed="numbers of items, or shares")
    if all(isinstance(size, int) for size in sizes):
        given = [whole_number("sizes", size, 1) for size in sizes]
        if sum(given) != count:
            raise ConfigError(
                "the sizes have another sum than the dataset", argument="sizes", value=given, allowed=count
            )
        return given
    shares = [finite_number("sizes", size) for size in sizes]
    if abs(sum(shares) - 1) > 1e-6 or min(shares) <= 0:
        raise ConfigError("not shares", argument="sizes", value=shares, allowed="numbers above 0 with the sum 1")
    parts = [round(share * count) for share in shares]
    left = count - sum(parts)
    if left > 0:
        parts[0] += left
    for k, part in enumerate(parts):
        if left < 0 and part + left > 0:
            parts[k], left = part + left, 0
    if min(parts) < 1:
        raise ConfigError("a share is too small for the dataset", argument="sizes", value=shares, items=count)
    return parts
