"""`Cell`: a part of a network, with parameters, child cells, and `construct`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from runner import context
from runner.communication import auto_parallel
from runner.core.primitive import current, is_nested
from runner.core.source import user_line, users_line
from runner.core.value import Parameter, Value
from runner.core.tape import Call
from runner.errors import ConfigError, nearest
from runner.ops.gradient import with_bprop

__all__ = ["Cell"]

# Executes a cell that is called outside of a network, by context mode; runner/nn/calls.py registers both modes.
EXECUTORS: dict[int, Callable[["Cell", tuple[Any, ...]], Any]] = {}


class Cell:
    """Base of all networks and layers.

    Parameters are named by the path of attributes (`conv1.weight`), scopes by attributes and classes
    (`Default/conv1-Conv2d`). A cell with `auto_prefix=False` does not prefix the parameters of its children.
    """

    # A cell that computes its own gradient defines `bprop(self, *inputs, out, dout)`: one gradient for each input.
    bprop: ClassVar[Callable[..., Any] | None] = None

    def __init__(self, auto_prefix: bool = True) -> None:
        self.__dict__.update(_params={}, _cells={}, _auto_prefix=auto_prefix, _attribute="", training=False)
        self.__dict__["_built"] = users_line(sys._getframe(1))  # for errors where no `construct` is the user's
        auto_parallel.note_network(self)

    def construct(self, *inputs: Any) -> Any:
        """The computation of the cell, in operators and other cells."""
        raise NotImplementedError(f"{type(self).__name__} must define construct")

    def __call__(self, *inputs: Any) -> Any:
        if not is_nested():
            return EXECUTORS[context.get_context("mode")](self, inputs)
        interpreter = current()
        begin = interpreter.mark()
        interpreter.scope.append(self.scope_name)
        try:
            outputs = self.construct(*inputs) if self.bprop is None else with_bprop(self.construct, self.bprop, inputs)
        finally:
            interpreter.scope.pop()
        if interpreter.tape:
            interpreter.calls[self] = Call(inputs, outputs, begin, interpreter.mark())
        return outputs

    @property
    def scope_name(self) -> str:
        """The cell's part of a scope: attribute and class, or only the attribute (`reserve_class_name_in_scope`)."""
        name = type(self).__name__
        if not self._attribute:
            return name
        return f"{self._attribute}-{name}" if context.reserves_class_names() else str(self._attribute)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_cells" not in self.__dict__:
            raise ConfigError(
                "call super().__init__() before setting attributes", cell=type(self).__name__, attribute=name
            )
        self._params.pop(name, None)
        self._cells.pop(name, None)
        if isinstance(value, Cell):
            self._adopt(name, value)
        elif isinstance(value, Parameter):
            if is_nested():
                where = {"layer": type(self).__name__, "parameter": name, "line": user_line(current().source())}
                repair = "create it once, in __init__"
                raise ConfigError(
                    "a layer created in construct is new in each step, not trained", **where, repair=repair
                )
            value.name = value.name or name
            self._params[name] = value
        elif isinstance(value, list | tuple | dict):
            self._refuse_hidden(name, list(value.values()) if isinstance(value, dict) else value)
        object.__setattr__(self, name, value)

    def _refuse_hidden(self, name: str, values: Sequence[object]) -> None:
        """Raise ConfigError for cells and parameters in a list that are no attributes, and so would not be trained."""
        for value in values:
            if (isinstance(value, Cell) and not value._attribute) or (isinstance(value, Parameter) and not value.name):
                kind = "cells" if isinstance(value, Cell) else "parameters"
                repair = "nn.CellList([...])" if kind == "cells" else "one attribute for each, or a name for each"
                where = {"cell": type(self).__name__, "attribute": name, "repair": repair}
                raise ConfigError(f"{kind} in a list are not part of the network, and would not be trained", **where)

    def _adopt(self, name: str, cell: "Cell") -> None:
        if self._auto_prefix and not cell._attribute:
            shared = set(self.get_parameters())  # these are named already
            for parameter in cell.get_parameters():
                if parameter not in shared:
                    parameter.name = f"{name}.{parameter.name}"
        cell.__dict__["_attribute"] = cell._attribute or name  # a shared cell keeps its first name
        self._cells[name] = cell

    def __getattr__(self, name: str) -> Any:
        close = nearest(name, [k for k in self.__dict__ if not k.startswith("_")])
        hint = f"; did you mean {close}?" if close else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name}{hint}")

    def insert_param_to_cell(self, name: str, parameter: Parameter) -> None:
        """Register a parameter that is not an attribute."""
        self._params[name] = parameter

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Assign a parameter a new value: operators of the same step that come later read it, in both modes."""
        current().assign(parameter, value)

    def name_cells(self) -> dict[str, "Cell"]:
        """Child cells by attribute."""
        return dict(self._cells)

    def cells(self) -> Iterator["Cell"]:
        """Child cells."""
        return iter(self._cells.values())

    def cells_and_names(self, prefix: str = "") -> Iterator[tuple[str, "Cell"]]:
        """This cell and all cells below it, with dotted names; shared cells once for each of their paths."""
        yield prefix, self
        for name, cell in self._cells.items():
            yield from cell.cells_and_names(f"{prefix}.{name}" if prefix else name)

    def get_parameters(self) -> list[Parameter]:
        """All parameters, in order of definition, each once."""
        parameters = dict.fromkeys(self._params.values())
        for cell in self._cells.values():
            parameters |= dict.fromkeys(cell.get_parameters())
        return list(parameters)

    def parameters_dict(self) -> dict[str, Parameter]:
        """All parameters by name. Raises ConfigError when two share a name."""
        named: dict[str, Parameter] = {}
        for parameter in self.get_parameters():
            if parameter.name in named:
                raise ConfigError("two parameters have the same name", name=parameter.name, cell=type(self).__name__)
            named[parameter.name] = parameter
        return named

    def parameters_and_names(self) -> Iterator[tuple[str, Parameter]]:
        """Pairs of name and parameter."""
        return iter(self.parameters_dict().items())

    def trainable_params(self) -> list[Parameter]:
        """Parameters with `requires_grad`, which optimizers update."""
        return [p for p in self.get_parameters() if p.requires_grad]

    def untrainable_params(self) -> list[Parameter]:
        """Parameters without `requires_grad`."""
        return [p for p in self.get_parameters() if not p.requires_grad]

    def set_train(self, mode: bool = True) -> "Cell":
        """Switch this cell and all below it between training and inference."""
        self.__dict__["training"] = mode
        for cell in self._cells.values():
            cell.set_train(mode)
        return self

    def __repr__(self) -> str:
        inner = "".join(f"\n({k}): {v!r}".replace("\n", "\n  ") for k, v in self._cells.items())
        return f"{type(self).__name__}<{inner}\n>" if inner else f"{type(self).__name__}<>"
