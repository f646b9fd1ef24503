"""Two namings of the same things, as pairs of patterns (`checkpoint.names`)."""

import re
from collections.abc import Collection

from runner.validation.records import Frozen


class Names(Frozen):
    """Pairs of patterns, ours and theirs; the first that matches one of our names determines theirs.

    `*` stands for any text, the first one of both for the same text, and so on; None is no name of theirs. A name that
    no pattern matches is theirs too. Rules of a scheme may match nothing.
    """

    rules: tuple[tuple[str, str | None], ...]
    is_scheme: bool = False

    def unused(self, names: Collection[str]) -> list[str]:
        """The patterns of a file that match none of our names."""
        patterns = [] if self.is_scheme else [ours for ours, _ in self.rules]
        return [ours for ours in patterns if not any(map(_expression(ours).fullmatch, names))]

    def theirs(self, name: str) -> str | None:
        """Their name for one of ours.

        >>> Names(rules=(("*.gamma", "*.weight"), ("linear.*", "fc.*"))).theirs("linear.bias")
        'fc.bias'
        """
        for ours, theirs in self.rules:
            if found := _expression(ours).fullmatch(name):
                return None if theirs is None else _filled(theirs, found.groups())
        return name


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _filled(pattern: str, texts: tuple[str, ...]) -> str:
    first, *rest = pattern.split("*")
    return first + "".join(text + after for text, after in zip(texts, rest, strict=True))
