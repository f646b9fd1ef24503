"""Which public names of MindSpore r1.2 runner has, by module, and why it does not have the others."""

from collections.abc import Iterator
from typing import NamedTuple

from runner.mindspore.addresses import STAND_INS, module_at
from runner.mindspore.names import public_names, reason


class Coverage(NamedTuple):
    """The names of a module of r1.2."""

    module: str  # without `mindspore.`; "" for the package itself
    present: tuple[str, ...]
    missing: dict[str, str]  # with the reasons

    @property
    def title(self) -> str:
        """The name of the module in MindSpore."""
        return f"mindspore.{self.module}".rstrip(".")


def coverage() -> Iterator[Coverage]:
    """The names of all modules."""
    for module, names in sorted(public_names().items()):
        served = module_at(module)
        present = tuple(sorted(name for name in names if name not in STAND_INS and hasattr(served, name)))
        reasons = {name: reason(module, name) for name in sorted(set(names) - set(present))}
        yield Coverage(module, present, {name: why.why if why else "" for name, why in reasons.items()})
