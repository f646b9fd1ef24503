"""What the running code belongs to: its interpreter, precision, ranks and random counter, each in a context variable.

Every piece has a value for the whole process, and may have another one inside of a `with`. A thread starts with the
values of the process; one that computes a part of a step runs in a copy of the context of the step
(`contextvars.copy_context().run`), so that the pieces of two parts never mix.

A piece is declared where its type is: `INTERPRETER` here, since operators and values call what stands above them,
the others beside their classes. `PIECES` has all of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")
PIECES: list["Current[Any]"] = []


class Current(Generic[T]):
    """A piece of state: `of_process` is its value where no `using` is active in this context."""

    __slots__ = ("_inside", "of_process")

    def __init__(self, name: str, of_process: T) -> None:
        self._inside: ContextVar[T] = ContextVar(name)
        self.of_process = of_process
        PIECES.append(self)

    def get(self) -> T:
        """The present value."""
        return self._inside.get(self.of_process)

    @contextmanager
    def using(self, value: T) -> Iterator[T]:
        """Context in which this is the value, in this thread."""
        token = self._inside.set(value)
        try:
            yield value
        finally:
            self._inside.reset(token)

    @property
    def is_inside(self) -> bool:
        """Whether the value is that of a `using`."""
        return self._inside.get(None) is not None


# The interpreter that receives the operators which are called: `runner.core.interpreter.current` is its typed form.
INTERPRETER: Current[Any] = Current("interpreter", None)
