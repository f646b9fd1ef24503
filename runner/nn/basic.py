"""Nonlinearities; the layers Dense, Flatten, Dropout and OneHot; containers of cells, as in r1.2.

`Activation` is the base of nonlinearities of one operator; `get_activation` knows those that layers take by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from runner import dtype as dt, ops
from runner.common.initializer import Initial, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError, known_names
from runner.host.seed import get_seed, next_number
from runner.nn.cell import Cell
from runner.types import resolve_axes
from runner.validation.arguments import at_least, whole

# Nonlinearities


class Activation(Cell):
    """Base: a layer of one operator with one operand and an output of the same type."""

    def __init__(self, operator: Primitive) -> None:
        super().__init__()
        self.operator = operator
        operator.set_prim_instance_name(operator.name.lower())  # the attribute of MindSpore's layers: `relu`

    def construct(self, x: Value) -> Value:
        return self.operator(x)


class ReLU(Activation):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__(ops.ReLU())


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    def __init__(self) -> None:
        super().__init__(ops.Sigmoid())


class Tanh(Activation):
    """Hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__(ops.Tanh())


class Softmax(Activation):
    """exp(x) / sum(exp(x)) along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__(ops.Softmax(axis))


class LogSoftmax(Activation):
    """Logarithm of Softmax along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__(ops.LogSoftmax(axis))


class ReLU6(Activation):
    """min(max(x, 0), 6)."""

    def __init__(self) -> None:
        super().__init__(ops.ReLU6())


class GELU(Activation):
    """x times the cumulative normal distribution at x, in the tanh approximation."""

    def __init__(self) -> None:
        super().__init__(ops.GeLU())


class FastGelu(Cell):
    """x times sigmoid(1.702 x), an approximation of GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()

    def construct(self, x: Value) -> Value:
        return x * self.sigmoid(x * 1.702)


class LogSigmoid(Cell):
    """Logarithm of 1 / (1 + exp(-x)), computed without overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.softplus = ops.Softplus()

    def construct(self, x: Value) -> Value:
        return -self.softplus(-x)


class ELU(Activation):
    """x where positive, else alpha (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        at_least({"layer": "ELU"}, 0.0, alpha=alpha)
        super().__init__(ops.Elu(float(alpha)))


class HSwish(Activation):
    """x ReLU6(x + 3) / 6."""

    def __init__(self) -> None:
        super().__init__(ops.HSwish())


class HSigmoid(Activation):
    """ReLU6(x + 3) / 6."""

    def __init__(self) -> None:
        super().__init__(ops.HSigmoid())


class LeakyReLU(Cell):
    """max(x, alpha x); for alpha above 1 min(x, alpha x), as in MindSpore."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        at_least({"layer": "LeakyReLU"}, 0.0, alpha=alpha)
        self.alpha = float(alpha)
        self.choose = ops.Maximum() if alpha <= 1 else ops.Minimum()

    def construct(self, x: Value) -> Value:
        return self.choose(x * self.alpha, x)


class PReLU(Cell):
    """x where positive, else w x, with a trainable w for each of `channel` channels (or one for all)."""

    def __init__(self, channel: int = 1, w: Initial = 0.25) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, channel=channel)
        self.w = Parameter(initializer(w, (channel,)), "a")  # the name in MindSpore's checkpoints
        self.prelu = ops.PReLU()

    def construct(self, x: Value) -> Value:
        return self.prelu(x, self.w)


_LAYERS = ReLU, Sigmoid, Tanh, Softmax, LogSoftmax, ReLU6, GELU, ELU, LeakyReLU, PReLU, HSwish, HSigmoid, LogSigmoid
ACTIVATIONS: dict[str, Callable[[], Cell]] = {layer.__name__.lower(): layer for layer in _LAYERS}
ACTIVATIONS["fast_gelu"] = FastGelu


def get_activation(name: str | None) -> Cell | None:
    """An activation layer by name, in any case; None for None. Raises ConfigError for an unknown one."""
    if name is None:
        return None
    if name.lower() not in ACTIVATIONS:
        raise ConfigError("unknown activation", given=name, **known_names(name.lower(), ACTIVATIONS))
    return ACTIVATIONS[name.lower()]()


def activation_of(owner: Cell, given: str | Cell | Primitive | None) -> Cell | Primitive | None:
    """The activation of a layer: by name, or a layer or operator as it is. Raises ConfigError for anything else."""
    if given is None or isinstance(given, Cell | Primitive):
        return given
    if not isinstance(given, str):
        allowed = "a name, a layer, an operator or None"
        raise ConfigError("not an activation", layer=type(owner).__name__, given=repr(given), allowed=allowed)
    return get_activation(given)


# Dense, Flatten, Dropout and OneHot


class Dense(Cell):
    """x W^T + b over the last axis, then `activation`; weight: (out_channels, in_channels).

    The activation is a name, a layer or an operator. Raises ConfigError for anything else.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bias: bool = True,
        activation: str | Cell | Primitive | None = None,
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels)), "weight")
        self.matmul, self.reshape = ops.MatMul(transpose_b=True), ops.Reshape()
        self.bias: Parameter | None = None
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()
        self.activation = activation_of(self, activation)

    def construct(self, x: Value) -> Value:
        lead = x.shape[:-1]
        flat = x if x.ndim == 2 else self.reshape(x, (-1, x.shape[-1]))
        output: Value = self.matmul(flat, self.weight)
        if self.has_bias:
            output = self.bias_add(output, self.bias)
        if self.activation is not None:
            output = self.activation(output)
        return output if x.ndim == 2 else self.reshape(output, (*lead, self.out_channels))

    def change_outputs(self, weight: Parameter, before: int, now: int) -> None:
        self.out_channels = now

    def extend_repr(self) -> str:
        shown = f"input_channels={self.in_channels}, output_channels={self.out_channels}"
        shown += f", has_bias={self.has_bias}" if self.has_bias else ""
        return shown + (f", activation={self.activation}" if self.activation is not None else "")


class Flatten(Cell):
    """(N, ...) to (N, product of the other axes)."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = ops.Flatten()

    def construct(self, x: Value) -> Value:
        return self.flatten(x)


class Dropout(Cell):
    """In training, keeps each element with probability `keep_prob` and divides it by `keep_prob`; otherwise returns x.

    Both modes drop the same elements. The parameter `counter` counts steps, so a resumed run drops the same elements.
    `dtype` is only shown: the result has the type of x.
    """

    def __init__(self, keep_prob: float = 0.5, dtype: dt.DType = dt.float32) -> None:
        super().__init__()
        self.keep_prob, self.dtype = keep_prob, dtype
        seed = get_seed() * 1_000_003 + next_number()
        self.dropout = ops.Dropout(float(keep_prob), seed % 2**31)
        self.counter = Parameter(Tensor(0, dt.int64), "counter", requires_grad=False)

    def construct(self, x: Value) -> Value:
        if not self.training or self.dropout.keep_prob == 1.0:
            return x
        output: Value = self.dropout(x, self.counter)[0]
        self.assign(self.counter, self.counter + 1)
        return output

    def extend_repr(self) -> str:
        return f"keep_prob={self.keep_prob}"


class OneHot(Cell):
    """Class numbers of any shape to vectors of length `depth` along a new axis: `on_value` at the class."""

    def __init__(
        self,
        axis: int = -1,
        depth: int = 1,
        on_value: float = 1.0,
        off_value: float = 0.0,
        dtype: dt.DType = dt.float32,
    ) -> None:
        super().__init__()
        self.axis, self.depth, self.on_value, self.off_value, self.dtype = axis, depth, on_value, off_value, dtype
        self.one_hot = ops.OneHot(depth=depth, on_value=on_value, off_value=off_value, dtype=dtype)
        self.transpose = ops.Transpose()

    def construct(self, indices: Value) -> Value:
        hot: Value = self.one_hot(indices)
        (at,), axes = resolve_axes(self.axis, hot.ndim), list(range(indices.ndim))
        return hot if at == indices.ndim else self.transpose(hot, (*axes[:at], indices.ndim, *axes[at:]))


# Containers of cells, `SequentialCell` and `CellList`: places of a list, whose numbers are names of parameters.


class CellContainer(Cell):
    """Base: child cells with the attribute names `0`, `1`, ..., and the operations of a list.

    Numbers out of range raise IndexError, as for a list. When a cell moves to another place, its parameters are
    renamed.
    """

    def __init__(self, *cells: Cell | Iterable[Cell] | Mapping[str, Cell], auto_prefix: bool = True) -> None:
        super().__init__(auto_prefix)
        single: Any = cells[0] if len(cells) == 1 else None
        several: Any = cells if single is None or isinstance(single, Cell) else single
        if isinstance(single, dict):
            for name, cell in single.items():
                self._add(cell, str(name))
        else:
            self.extend(several)

    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return self._part(list(self.name_cells().items())[number])
        return list(self.cells())[number]

    def __setitem__(self, number: int, cell: Cell) -> None:
        names, cells = list(self.name_cells()), list(self.cells())
        cells[number] = self._checked(cell, number)
        self._place(names, cells)

    def __delitem__(self, number: int | slice) -> None:
        names, cells = list(self.name_cells()), list(self.cells())
        numbered = [name == str(k) for k, name in enumerate(names)]
        for items in (names, cells, numbered):
            del items[number]
        self._place([str(k) if counts else names[k] for k, counts in enumerate(numbered)], cells)

    def __len__(self) -> int:
        return len(self.name_cells())

    def __iter__(self) -> Iterator[Cell]:
        return self.cells()

    def __iadd__(self, cells: Iterable[Cell]) -> Self:
        return self.extend(cells)

    def set_grad(self, flag: bool = True) -> Self:
        """As for every cell; the argument has MindSpore's name for containers."""
        return super().set_grad(flag)

    def append(self, cell: Cell) -> Self:
        """Add a cell at the end."""
        self._add(cell, str(len(self)))
        return self

    def extend(self, cells: Iterable[Cell]) -> Self:
        """Add cells at the end."""
        for cell in cells:
            self.append(cell)
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Add a cell before the one of this number. Raises ConfigError if the cells have names of their own."""
        cells, numbers = list(self.cells()), list(map(str, range(len(self) + 1)))
        if list(self.name_cells()) != numbers[:-1]:
            names = ", ".join(self.name_cells())
            raise ConfigError("a cell is inserted between numbered ones", cells=names, repair="append")
        cells.insert(index, self._checked(cell, index))
        self._place(numbers, cells)

    def _part(self, items: list[tuple[str, Cell]]) -> Cell:
        """A container of the same class with some of the cells, which keep the names of their parameters."""
        return type(self)(*[cell for _, cell in items])

    def _checked(self, cell: Any, at: int) -> Cell:
        if not isinstance(cell, Cell):
            raise ConfigError(f"{type(self).__name__} takes cells", given=repr(cell), at=at)
        return cell

    def _add(self, cell: Any, name: str) -> None:
        self._adopt_after(self._prefix(), cell, name)

    def _adopt_after(self, prefix: str, cell: Any, name: str) -> None:
        known = set(self.get_parameters())
        is_new = isinstance(cell, Cell) and not cell._attribute
        setattr(self, name, self._checked(cell, len(self)))
        if is_new and self._auto_prefix:
            for parameter in cell.get_parameters():
                if parameter not in known:
                    parameter.name = prefix + parameter.name

    def _prefix(self) -> str:
        """What the owners of the container have put before the names of its parameters."""
        for name, cell in self._cells.items():
            for parts, place, _ in _places(name, cell):
                return "".join(f"{part}." for part in parts[:place])
        return f"{self._attribute}." if self._attribute else ""

    def _place(self, names: list[str], cells: list[Cell]) -> None:
        """Set the children; those that get another name rename their parameters."""
        before, prefix = {cell: name for name, cell in self._cells.items()}, self._prefix()
        for name in before.values():
            object.__delattr__(self, name)
        self._cells.clear()
        for name, cell in zip(names, cells, strict=True):
            old = before.get(cell)
            if old is None:
                self._adopt_after(prefix, cell, name)
                continue
            if old != name and self._auto_prefix:
                for parts, place, parameter in list(_places(old, cell)):
                    parameter.name = ".".join([*parts[:place], name, *parts[place + 1 :]])
            if cell._attribute == old:
                cell.__dict__["_attribute"] = name
            self._cells[name] = cell
            object.__setattr__(self, name, cell)


def _places(name: str, cell: Cell) -> Iterator[tuple[list[str], int, Parameter]]:
    """The parameters of a child, each once, with the parts of their names and the place of the child's name there.

    Without those that are named after another place, as in a cell that belongs to two containers.
    """
    seen: set[Parameter] = set()
    for path, inner in cell.cells_and_names():
        sought = [name, *path.split(".")] if path else [name]
        for parameter in inner.get_parameters(False):
            parts = parameter.name.split(".")
            starts = [k for k in range(len(parts) - len(sought)) if parts[k : k + len(sought)] == sought]
            if starts and parameter not in seen:
                seen.add(parameter)
                yield parts, starts[-1], parameter


class SequentialCell(CellContainer):
    """Applies its cells in order. Takes cells, a list of cells, or a dict of cells by name."""

    def construct(self, x: Value) -> Value:
        for cell in self.cells():
            x = cell(x)
        return x

    def _part(self, items: list[tuple[str, Cell]]) -> Cell:
        return type(self)(dict(items))


class CellList(CellContainer):
    """A list of cells, which its owner applies. Raises ConfigError for elements that are not cells.

    With `auto_prefix=False` the numbers of the cells are not part of the names of their parameters.
    """
