"""The arguments of `bucket_batch_by_length`."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.samples.batch import Padding
from runner.dataset.samples.samples import Sample
from runner.errors import ConfigError
from runner.validation.arguments import as_list, whole_number


class BucketLimits(NamedTuple):
    """Increasing boundaries, and a batch size for each bucket: one more than there are boundaries."""

    boundaries: list[int]
    sizes: list[int]

    def bucket_of(
        self, names: Sequence[str], inputs: Sequence[str], length: Callable[..., Any] | None
    ) -> Callable[[Sample], int]:
        """The bucket of a sample. Raises ConfigError unless one column has the length or a function computes it."""
        if length is None and len(inputs) != 1:
            repair = "one column, or element_length_function"
            raise ConfigError("several columns have no length", argument="column_names", value=inputs, repair=repair)
        places = [names.index(name) for name in inputs]

        def bucket(sample: Sample) -> int:
            values = [sample[place] for place in places]
            measured = values[0].shape[0] if length is None else int(np.asarray(length(*values)).item())
            return bisect_right(self.boundaries, measured)

        return bucket

    def padding(self, padding: Mapping[str, Padding], to_boundary: bool) -> Callable[[int], Mapping[str, Padding]]:
        """The padding of a bucket: lengths that are None become the largest of the bucket, if `to_boundary`."""

        def of_bucket(bucket: int) -> Mapping[str, Padding]:
            if not to_boundary:
                return padding
            if bucket == len(self.boundaries):
                rows = {"argument": "pad_to_bucket_boundary", "boundaries": self.boundaries}
                raise ConfigError("a row is longer than the last boundary", **rows, repair="a further boundary")
            most = self.boundaries[bucket] - 1
            return {
                name: (None if shape is None else tuple(most if n is None else n for n in shape), value)
                for name, (shape, value) in padding.items()
            }

        return of_bucket


def bucket_arguments(boundaries: Sequence[int], sizes: Sequence[int]) -> BucketLimits:
    """The checked arguments. Raises ConfigError."""
    limits = [whole_number("bucket_boundaries", limit, 1) for limit in as_list(boundaries)]
    if not limits or sorted(set(limits)) != limits:
        allowed = "increasing numbers"
        raise ConfigError("not boundaries", argument="bucket_boundaries", value=limits, allowed=allowed)
    batch_sizes = [whole_number("bucket_batch_sizes", size, 1) for size in as_list(sizes)]
    if len(batch_sizes) != len(limits) + 1:
        rows = {"argument": "bucket_batch_sizes", "value": batch_sizes, "allowed": f"{len(limits) + 1} numbers"}
        raise ConfigError("another number of batch sizes than of buckets", **rows)
    return BucketLimits(limits, batch_sizes)
