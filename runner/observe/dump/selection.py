"""Which operators are dumped: by full name, by type, or by a pattern with `*`."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

NEAREST = 3


class Selection:
    """What the list `kernels` means; None chooses everything."""

    def __init__(self, kernels: Sequence[str] | None) -> None:
        self.kernels = kernels
        self._patterns = [re.compile(re.escape(kernel).replace(r"\*", ".*")) for kernel in kernels or ()]
        self._known: dict[str, bool] = {}

    def operator(self, name: str, kind: str) -> bool:
        """Whether an operator with this full name and type is chosen; the answer is remembered."""
        if name not in self._known:
            self._known[name] = self.kernels is None or any(
                p.fullmatch(name) or p.fullmatch(kind) for p in self._patterns
            )
        return self._known[name]

    def held(self, name: str) -> bool:
        """Whether a parameter or constant is chosen: only by its own name or a pattern for it."""
        return self.kernels is None or any(pattern.fullmatch(name) for pattern in self._patterns)

    def unmatched(self, names: Iterable[str]) -> list[tuple[str, list[str]]]:
        """Kernels that choose none of these operators, parameters and constants, with the nearest names."""
        known = list(dict.fromkeys(names))
        everything = dict.fromkeys([*known, *(name.rpartition("/")[2].rpartition("-op")[0] for name in known)])
        without = [
            kernel
            for kernel, pattern in zip(self.kernels or (), self._patterns, strict=True)
            if not any(map(pattern.fullmatch, everything))
        ]
        return [(kernel, get_close_matches(kernel, everything, NEAREST, 0.3)) for kernel in without]
