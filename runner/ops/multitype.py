"""Functions over structures of tensors: `MultitypeFuncGraph`, a function with one body for each combination of types;
`Map` and `HyperMap`, which apply a function to the elements of sequences; and `Partial`.
"""

from collections.abc import Callable, Sequence
from functools import partial as bind_arguments
from typing import Any, ClassVar

from runner.core.values import Value
from runner.errors import ConfigError, ShapeError, known_names

# The kinds that `register` names, each with the kinds that contain it, the nearest one first.
KINDS: dict[str, tuple[str, ...]] = {
    "Tensor": (),
    "Number": (),
    "Bool": ("Number",),
    "Int": ("Number",),
    "Float": ("Number",),
    "String": (),
    "Tuple": (),
    "List": (),
    "Dict": (),
    "Function": (),
    "None": (),
    # Kinds of values that do not occur here; scripts register bodies for them.
    **dict.fromkeys(("RowTensor", "IndexedSlices", "SparseTensor", "Undetermined", "Slice", "Ellipsis"), ()),
}
WIDTHS = "Bool", "Int", "Float"  # with a width, such as Int32, in a name: scalars of Python have none


class MultitypeFuncGraph:
    """A function with one body for each combination of types of its arguments; names follow `MultitypeFuncGraph` of
    r1.2.

        add = MultitypeFuncGraph("add")

        @add.register("Tensor", "Number")
        def _add(x, y): ...

    The kinds are those in `KINDS`. A call takes the body with the most specific kinds that contain its arguments: for
    True that of "Bool" before that of "Number". `read_value` has no effect: a Parameter is a Tensor. Raises ConfigError
    for an unknown kind, two bodies of the same kinds, and calls that no body or no single one fits.
    """

    def __init__(self, name: str, read_value: bool = False) -> None:
        self.name = name
        self.entries: list[tuple[tuple[str, ...], Callable[..., Any]]] = []

    def register(self, *type_names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator for the body of these kinds, names or types such as `mstype.tensor`."""
        kinds = tuple([self._kind(each) for each in type_names])

        def declare(body: Callable[..., Any]) -> Callable[..., Any]:
            if kinds in [known for known, _ in self.entries]:
                raise ConfigError(f"{self.name}: two bodies have the same types", types=", ".join(kinds))
            self.entries.append((kinds, body))
            return body

        return declare

    def __call__(self, *args: Any) -> Any:
        own = [_kinds_of(arg) for arg in args]
        fitting = [
            (kinds, body)
            for kinds, body in self.entries
            if len(kinds) == len(args) and all(k in o for k, o in zip(kinds, own, strict=True))
        ]
        best = [(k, body) for k, body in fitting if all(_is_within(k, other) for other, _ in fitting)]
        if best:
            return best[0][1](*args)
        given = ", ".join(kinds[0] for kinds in own) or "nothing"
        registered = "; ".join(", ".join(kinds) or "nothing" for kinds, _ in fitting or self.entries) or "none"
        what = "more than one body fits these arguments" if fitting else "no body is registered for these arguments"
        repair = f"@{self.name}.register({', '.join(repr(kinds[0]) for kinds in own)})"
        raise ConfigError(f"{self.name}: {what}", given=given, registered=registered, repair=repair)

    def __repr__(self) -> str:
        return f"MultitypeFuncGraph({self.name})"

    def _kind(self, given: Any) -> str:
        name = given if isinstance(given, str) else _name_of_type(given)
        stripped = name.rstrip("0123456789")
        name = {"UInt": "Int"}.get(stripped, stripped) if stripped in (*WIDTHS, "UInt") else name
        name = name.split("[")[0]
        matched = next((kind for kind in KINDS if kind.lower() == name.lower()), None)
        if matched is None:
            raise ConfigError(f"{self.name}: unknown type of an argument", given=given, **known_names(name, KINDS))
        return matched


def _name_of_type(given: Any) -> str:
    """The name of a type of Python or of an element type, as `register` takes it."""
    name = given.__name__ if isinstance(given, type) else str(given)
    return {"str": "String", "NoneType": "None"}.get(name, name)


def _kinds_of(argument: Any) -> tuple[str, ...]:
    """The kinds that contain an argument, the most specific one first."""
    if isinstance(argument, Value):
        return ("Tensor",)
    pairs: tuple[tuple[type, str], ...] = (
        *((bool, "Bool"), (int, "Int"), (float, "Float"), (str, "String")),
        *((tuple, "Tuple"), (list, "List"), (dict, "Dict")),
    )
    for kind, name in pairs:
        if isinstance(argument, kind):
            return name, *KINDS[name]
    if argument is None:
        return ("None",)
    return ("Function",) if callable(argument) else (type(argument).__name__,)


def _is_within(kinds: Sequence[str], others: Sequence[str]) -> bool:
    """Whether each kind is the other one, or is contained in it."""
    return all(kind == other or other in KINDS[kind] for kind, other in zip(kinds, others, strict=True))


class StructureMap:
    """Base of Map and HyperMap: `recursive` is whether sequences in sequences are mapped, too."""

    recursive: ClassVar[bool]

    def __init__(self, ops: Callable[..., Any] | None = None) -> None:
        if ops is not None and not callable(ops):
            raise ConfigError(f"{type(self).__name__} needs a function", given=type(ops).__name__)
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        function, *sequences = (self.ops, *args) if self.ops is not None else args
        return self._mapped(function, sequences)

    def _mapped(self, function: Any, arguments: Sequence[Any]) -> Any:
        nested = [isinstance(each, tuple | list) for each in arguments]
        if not any(nested):
            return function(*arguments)
        lengths = [len(each) if is_nested else None for each, is_nested in zip(arguments, nested, strict=True)]
        if len(set(lengths)) > 1:
            given = ", ".join("no sequence" if length is None else str(length) for length in lengths)
            repair = "sequences of one length; bind other arguments with ops.Partial()(function, argument)"
            raise ShapeError(f"{type(self).__name__}: arguments have different lengths", lengths=given, repair=repair)
        each = zip(*arguments, strict=True)
        return tuple([self._mapped(function, x) if self.recursive else function(*x) for x in each])


class Map(StructureMap):
    """`Map(f)(xs, ys)` to (f(xs[0], ys[0]), ...), and `Map()(f, xs, ys)` too; for sequences of equal length.

    Raises ShapeError for sequences of different lengths, and for one sequence among arguments that are none.
    """

    recursive = False


class HyperMap(StructureMap):
    """`Map` that also maps the sequences in sequences: the function receives what is no tuple or list."""

    recursive = True


class Partial:
    """(function, *arguments) to the function with these first arguments."""

    def __call__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not callable(func):
            raise ConfigError("Partial needs a function as its first argument", given=type(func).__name__)
        return bind_arguments(func, *args, **kwargs)


partial = Partial()
