"""`Cell`: a part of a network, with parameters, child cells, and `construct`."""

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from runner import context
from runner.core.assignments import Call
from runner.core.operators import current, is_nested
from runner.core.source import user_line, users_line
from runner.core.values import Parameter, ParameterTuple, Value
from runner.errors import ConfigError, nearest
from runner.nn.cell_execution import BackwardHook, in_precision
from runner.nn.cell_settings import CellSettings
from runner.ops.gradient import with_bprop

__all__ = ["Cell"]

# Executes a cell that is called outside of a network, by context mode; runner/nn/calls.py registers both modes.
EXECUTORS: dict[int, Callable[["Cell", tuple[Any, ...]], Any]] = {}
COMPILERS: dict[int, Callable[["Cell", tuple[Any, ...]], None]] = {}  # only compiles it: graph mode


class Cell(CellSettings):
    """Base of all networks and layers.

    Parameters are named by the path of attributes (`conv1.weight`), scopes by attributes and classes
    (`Default/conv1-Conv2d`). A cell with `auto_prefix=False` does not prefix the parameters of its children. `flags`
    are those of `add_flags`.
    """

    # A cell that computes its own gradient defines `bprop(self, *inputs, out, dout)`: one gradient for each input.
    bprop: ClassVar[Callable[..., Any] | None] = None

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None) -> None:
        self.__dict__.update(_params={}, _cells={}, _auto_prefix=auto_prefix, _attribute="", training=False)
        self.__dict__.update(_flags={}, _hook=None, _phase="train", _bprop_debug=False, requires_grad=False)
        self.__dict__["_param_prefix"] = ""
        self.__dict__["_built"] = users_line(sys._getframe(1))  # for errors where no `construct` is the user's
        self.add_flags(**flags or {})

    def construct(self, *inputs: Any) -> Any:
        """The computation of the cell, in operators and other cells."""
        raise NotImplementedError(f"{type(self).__name__} must define construct")

    def compute(self, *inputs: Any, **options: Any) -> Any:
        """`construct`, in the precision of `to_float` and with the hook of this cell."""
        construct, dtype = self.construct, self.float_type
        if self.bprop is not None:
            construct = partial(with_bprop, self.construct, self.bprop)
        if dtype is not None:
            construct = in_precision(dtype, construct)
        if self._hook is not None:
            construct = self._hook.around(construct)
        return construct(*inputs, **options)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if options:
            bound = inspect.signature(self.construct).bind(*inputs, **options)
            inputs, options = bound.args, bound.kwargs
        if not is_nested():
            if options:
                what = "the outermost cell takes no arguments that can only be given by name"
                raise ConfigError(what, given=", ".join(options), cell=self.cls_name, repair="arguments by position")
            return EXECUTORS[context.get_context("mode")](self, inputs)
        interpreter = current()
        begin = interpreter.mark()
        interpreter.scope.append(self.scope_name)
        try:
            is_plain = self.float_type is None and self._hook is None and self.bprop is None
            outputs = self.construct(*inputs, **options) if is_plain else self.compute(*inputs, **options)
        finally:
            interpreter.scope.pop()
        if interpreter.tape and not options:
            interpreter.calls[self] = Call(inputs, outputs, begin, interpreter.mark())
        return outputs

    def compile(self, *inputs: Any) -> None:
        """Compile the cell for inputs of these types as for graph mode; nothing is executed."""
        COMPILERS[context.GRAPH_MODE](self, inputs)

    def compile_and_run(self, *inputs: Any) -> Any:
        """The outputs in graph mode, whatever mode the context has."""
        return EXECUTORS[context.GRAPH_MODE](self, inputs)

    def register_backward_hook(self, fn: Callable[..., Any]) -> None:
        """Call `fn(cell_id, grad_input, grad_output)` with the gradients of outputs and input, in PyNative mode.

        What `fn` returns replaces the gradient of the input, unless it is None.
        """
        self.__dict__["_hook"] = BackwardHook(f"{self.cls_name}({id(self)})", fn)

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
        if isinstance(value, Value) and not isinstance(value, Parameter) and name in self._params:
            self._set_parameter(self._params[name], value)
            return
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
        elif isinstance(value, ParameterTuple):
            self._add_parameters(value)
        elif isinstance(value, list | tuple | dict):
            self._refuse_hidden(name, list(value.values()) if isinstance(value, dict) else value)
        object.__setattr__(self, name, value)

    def _set_parameter(self, parameter: Parameter, value: Value) -> None:
        """`self.weight = tensor`: a new value of the parameter; in `construct`, from the end of the step."""
        if is_nested():
            self.assign(parameter, value)
        else:
            parameter.set_data(value)

    def _add_parameters(self, parameters: ParameterTuple) -> None:
        known = set(self.get_parameters())
        for parameter in parameters:
            if parameter not in known:
                self.insert_param_to_cell(parameter.name, parameter, check_name=False)

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
        for inserted in ("_params", "_cells"):
            if name in self.__dict__.get(inserted, ()):
                return self.__dict__[inserted][name]
        close = nearest(name, [k for k in self.__dict__ if not k.startswith("_")])
        hint = f"; did you mean {close}?" if close else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name}{hint}")

    def __delattr__(self, name: str) -> None:
        is_inserted = self._params.pop(name, None) is not None or self._cells.pop(name, None) is not None
        if name in self.__dict__ or not is_inserted:
            object.__delattr__(self, name)

    def insert_param_to_cell(self, param_name: str, param: Parameter | None, check_name: bool = True) -> None:
        """Register a parameter under a name, which is then also an attribute. None removes it.

        Names may have dots, whatever `check_name` is. Raises ConfigError for another value and a name that is taken.
        """
        self._check_insertion(param_name, param, Parameter, has_dots=True)
        if param is None:
            self._params.pop(param_name, None)
            return
        param.name = param.name or param_name
        self._params[param_name] = param

    def insert_child_to_cell(self, child_name: str, child_cell: "Cell | None") -> None:
        """Add a child cell, as an attribute would, but without prefixing the names of its parameters.

        Raises ConfigError for another value, and for a name that is taken or has a dot.
        """
        self._check_insertion(child_name, child_cell, Cell, has_dots=False)
        if child_cell is None:
            self._cells.pop(child_name, None)
            return
        child_cell.__dict__["_attribute"] = child_cell._attribute or child_name
        self._cells[child_name] = child_cell

    def _check_insertion(self, name: str, value: object, kind: type, has_dots: bool) -> None:
        what = kind.__name__.lower()
        rows = {"cell": self.cls_name, "name": name}
        if not isinstance(name, str) or not name or ("." in name and not has_dots):
            raise ConfigError(f"the name of a {what} is a text" + " without dots" * (not has_dots), **rows)
        if value is not None and not isinstance(value, kind):
            raise ConfigError(f"only a {what} can be inserted as one", **rows, given=type(value).__name__)
        is_inserted = name in self._params or name in self._cells
        if not is_inserted and (name in self.__dict__ or hasattr(type(self), name)):
            raise ConfigError(f"the name of a {what} is taken", **rows)

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Assign a parameter a new value: operators of the same step that come later read it, in both modes."""
        current().assign(parameter, value)

    def name_cells(self) -> dict[str, "Cell"]:
        """Child cells by attribute."""
        return dict(self._cells)

    def cells(self) -> Iterator["Cell"]:
        """Child cells."""
        return iter(self._cells.values())

    def cells_and_names(self, cells: set["Cell"] | None = None, name_prefix: str = "") -> Iterator[tuple[str, "Cell"]]:
        """This cell and all cells below it, with dotted names, each once; not those in `cells`, which grows."""
        seen = set[Cell]() if cells is None else cells
        if self in seen:
            return
        seen.add(self)
        yield name_prefix, self
        for name, cell in self._cells.items():
            yield from cell.cells_and_names(seen, f"{name_prefix}.{name}" if name_prefix else name)

    def update_cell_prefix(self) -> None:
        """Set `param_prefix` of this cell and all below it to their dotted names."""
        for name, cell in self.cells_and_names():
            cell.__dict__["_param_prefix"] = name

    @property
    def param_prefix(self) -> str:
        """The dotted name of the cell, once `update_cell_prefix` of the network has set it."""
        return str(self._param_prefix)

    def get_parameters(self, expand: bool = True) -> list[Parameter]:
        """All parameters, in order of definition, each once; without `expand`, those of this cell alone."""
        parameters = dict.fromkeys(self._params.values())
        for cell in self._cells.values() if expand else ():
            parameters |= dict.fromkeys(cell.get_parameters())
        return list(parameters)

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """All parameters by name. Raises ConfigError when two share a name."""
        named: OrderedDict[str, Parameter] = OrderedDict()
        for parameter in self.get_parameters(recurse):
            if parameter.name in named:
                raise ConfigError("two parameters have the same name", name=parameter.name, cell=type(self).__name__)
            named[parameter.name] = parameter
        return named

    def check_names(self) -> None:
        """Raise ConfigError when two parameters share a name."""
        self.parameters_dict()

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Pairs of the path of attributes below `name_prefix` and the parameter, each once."""
        seen = set[Parameter]()
        for path, cell in self.cells_and_names(None, name_prefix) if expand else [(name_prefix, self)]:
            for name, parameter in cell._params.items():
                if parameter not in seen:
                    seen.add(parameter)
                    yield f"{path}.{name}" if path else name, parameter

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Name the parameters by their paths of attributes after `prefix`, which includes its dot."""
        for name, parameter in list(self.parameters_and_names(expand=recurse)):
            parameter.name = prefix + name

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters with `requires_grad`, which optimizers update."""
        return [p for p in self.get_parameters(recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters without `requires_grad`."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Each parameter by itself: all have their elements from the start."""
        return {parameter: parameter for parameter in self.get_parameters()}

    def extend_repr(self) -> str:
        """What the printed form of the cell says besides its children; a layer may override it."""
        return ""

    def __repr__(self) -> str:
        own = self.extend_repr()
        if not self._cells:
            return f"{type(self).__name__}<{own}>"
        lines = [own, *(f"({name}): {cell!r}" for name, cell in self._cells.items())]
        inner = "\n".join(["", *filter(None, lines), ""]).replace("\n", "\n  ")
        return f"{type(self).__name__}<{inner}>"
