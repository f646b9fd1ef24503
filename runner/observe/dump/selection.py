"""Selection of the dumped operators by full name, by type, or by a pattern with `*`."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

NEAREST = 3


class KernelSelection:
    """The entries that the setting `kernels` selects; None selects everything."""

    def __init__(self, kernels: Sequence[str] | None) -> None:
        self.kernels = kernels
        self._patterns = [re.compile(re.escape(kernel).replace(r"\*", ".*")) for kernel in kernels or ()]
        self._cache: dict[str, bool] = {}

    def selects_operator(self, name: str, op_type: str) -> bool:
        """Whether an operator with this full name and type is selected; the result is cached."""
        if name not in self._cache:
            self._cache[name] = self.kernels is None or any(
                p.fullmatch(name) or p.fullmatch(op_type) for p in self._patterns
            )
        return self._cache[name]

    def selects_value(self, name: str) -> bool:
        """Whether a parameter or constant is selected, by its name or a pattern that matches it."""
        return self.kernels is None or any(pattern.fullmatch(name) for pattern in self._patterns)

    def unmatched(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        """The kernels that select none of these operators, parameters and constants, with the nearest names."""
        names = list(dict.fromkeys(names))
        candidates = dict.fromkeys([*names, *(name.rpartition("/")[2].rpartition("-op")[0] for name in names)])
        unmatched = [
            kernel
            for kernel, pattern in zip(self.kernels or (), self._patterns, strict=True)
            if not any(map(pattern.fullmatch, candidates))
        ]
        return [(kernel, get_close_matches(kernel, candidates, NEAREST, 0.3)) for kernel in unmatched]
