"""`Cell`, the base of all networks and layers: a computation, `construct`, with parameters and child cells.

A cell that another one calls is part of its step. One that is called by itself is executed as a step of its own, in the
mode of the context, by `runner/nn/steps.py`. In the class: the computation, parameters, child cells, attributes, flags,
names, and what r1.2 has for distributed training. Below it, how `to_float` and a backward hook change the computation.
"""

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from runner import context, dtype as dt
from runner.core.interpreter import Call, Eager, current, execution, is_nested
from runner.core.operators import Primitive
from runner.core.precision import OF_CELL
from runner.core.source import user_line, users_line
from runner.core.values import Parameter, ParameterTuple, Value
from runner.errors import ConfigError, nearest
from runner.ops.gradient import InsertGradientOf, with_bprop
from runner.types import TensorType
from runner.validation.rules import KeywordNames

FLOATS = {dt.float16: "fp16", dt.float32: "fp32"}  # the types of `to_float`, each with its flag


class Cell(KeywordNames):
    """Base of all networks and layers. Most methods that change settings return the cell.

    Parameters are named by the path of attributes (`conv1.weight`), scopes by attributes and classes
    (`Default/conv1-Conv2d`). A cell with `auto_prefix=False` does not prefix the parameters of its children. `flags`
    are those of `add_flags`.
    """

    # A cell that computes its own gradient defines `bprop(self, *inputs, out, dout)`: one gradient for each input.
    bprop: ClassVar[Callable[..., Any] | None] = None

    training: bool
    requires_grad: bool
    float_type: dt.DType | None  # of `to_float`; None when the operands decide
    _flags: dict[str, Any]
    _phase: str
    _bprop_debug: bool

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None) -> None:
        self.__dict__.update(_params={}, _cells={}, _auto_prefix=auto_prefix, _attribute="", training=False)
        self.__dict__.update(_flags={}, _hook=None, _phase="train", _bprop_debug=False, requires_grad=False)
        self.__dict__["_param_prefix"] = ""
        self.__dict__["_built"] = users_line(sys._getframe(1))  # for errors where no `construct` is the user's
        self.add_flags(**flags or {})

    def construct(self, *inputs: Any) -> Any:
        """The computation of the cell, in operators and other cells."""
        raise NotImplementedError(f"{type(self).__name__} must define construct")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if options:
            bound = inspect.signature(self.construct).bind(*inputs, **options)
            inputs, options = bound.args, bound.kwargs
        if not is_nested():
            if options:
                what = "the outermost cell takes no arguments that can only be given by name"
                raise ConfigError(what, given=", ".join(options), cell=self.cls_name, repair="arguments by position")
            return execution.cell(self, inputs, context.get_context("mode"))
        interpreter = current()
        begin = interpreter.mark()
        interpreter.scope.append(self.scope_name)
        try:
            is_plain = self.float_type is None and self._hook is None and self.bprop is None
            outputs = self.construct(*inputs, **options) if is_plain else self.compute(*inputs, **options)
        finally:
            interpreter.scope.pop()
        if interpreter.tape.is_on and not options:
            interpreter.tape.calls[self] = Call(inputs, outputs, begin, interpreter.mark())
        return outputs

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

    def compile(self, *inputs: Any) -> None:
        """Compile the cell for inputs of these types as for graph mode; nothing is executed."""
        execution.compile(self, inputs)

    def compile_and_run(self, *inputs: Any) -> Any:
        """The outputs in graph mode, whatever mode the context has."""
        return execution.cell(self, inputs, context.GRAPH_MODE)

    def register_backward_hook(self, fn: Callable[..., Any]) -> None:
        """Call `fn(cell_id, grad_input, grad_output)` with the gradients of outputs and input, in PyNative mode.

        What `fn` returns replaces the gradient of the input, unless it is None.
        """
        self.__dict__["_hook"] = BackwardHook(f"{self.cls_name}({id(self)})", fn)

    # Parameters

    def get_parameters(self, expand: bool = True) -> list[Parameter]:
        """All parameters, in order of definition, each once; without `expand`, those of this cell alone."""
        parameters = dict.fromkeys(self._params.values())
        for cell in self._cells.values() if expand else ():
            parameters |= dict.fromkeys(cell.get_parameters())
        return list(parameters)

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters with `requires_grad`, which optimizers update."""
        return [p for p in self.get_parameters(recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters without `requires_grad`."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """All parameters by name. Raises ConfigError when two share a name."""
        named: OrderedDict[str, Parameter] = OrderedDict()
        for parameter in self.get_parameters(recurse):
            if parameter.name in named:
                raise ConfigError("two parameters have the same name", name=parameter.name, cell=type(self).__name__)
            named[parameter.name] = parameter
        return named

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Pairs of the path of attributes below `name_prefix` and the parameter, each once."""
        seen = set[Parameter]()
        for path, cell in self.cells_and_names(None, name_prefix) if expand else [(name_prefix, self)]:
            for name, parameter in cell._params.items():
                if parameter not in seen:
                    seen.add(parameter)
                    yield f"{path}.{name}" if path else name, parameter

    def check_names(self) -> None:
        """Raise ConfigError when two parameters share a name."""
        self.parameters_dict()

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Name the parameters by their paths of attributes after `prefix`, which includes its dot."""
        for name, parameter in list(self.parameters_and_names(expand=recurse)):
            parameter.name = prefix + name

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Each parameter by itself: all have their elements from the start."""
        return {parameter: parameter for parameter in self.get_parameters()}

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Assign a parameter a new value: operators of the same step that come later read it, in both modes."""
        current().assign(parameter, value)

    # Child cells

    def cells(self) -> Iterator["Cell"]:
        """Child cells."""
        return iter(self._cells.values())

    def name_cells(self) -> dict[str, "Cell"]:
        """Child cells by attribute."""
        return dict(self._cells)

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

    # Attributes: parameters and cells among them become part of the network

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
        elif isinstance(value, Primitive):
            value.set_prim_instance_name(name)
        elif isinstance(value, list | tuple | dict):
            self._refuse_hidden(name, list(value.values()) if isinstance(value, dict) else value)
        object.__setattr__(self, name, value)

    def _set_parameter(self, parameter: Parameter, value: Value) -> None:
        """`self.weight = tensor`: a new value of the parameter; in `construct`, from the end of the step."""
        if is_nested():
            self.assign(parameter, value)
        else:
            parameter.set_data(value)

    def _adopt(self, name: str, cell: "Cell") -> None:
        if self._auto_prefix and not cell._attribute:
            shared = set(self.get_parameters())  # these are named already
            for parameter in cell.get_parameters():
                if parameter not in shared:
                    parameter.name = f"{name}.{parameter.name}"
        cell.__dict__["_attribute"] = cell._attribute or name  # a shared cell keeps its first name
        self._cells[name] = cell

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

    # Training, precision and other flags, of a cell and of those below it

    def set_train(self, mode: bool = True) -> Self:
        """Switch this cell and all below it between training and inference."""
        self.phase = "train" if mode else "predict"
        return self.add_flags_recursive(training=mode)

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Mark a cell of which gradients are computed. Every operator is recorded anyway."""
        self.__dict__["requires_grad"] = requires_grad
        return self

    def to_float(self, dst_type: dt.DType) -> Self:
        """Compute this cell and all below it in Float16 or Float32: floats among inputs and operands are cast.

        Parameters keep their type. Raises ConfigError for other types.
        """
        if dst_type not in FLOATS:
            allowed = ", ".join(map(str, FLOATS))
            raise ConfigError("a cell computes in Float16 or Float32", given=dst_type, allowed=allowed)
        return self.add_flags_recursive(**{flag: dst_type is dtype for dtype, flag in FLOATS.items()})

    def add_flags(self, **flags: Any) -> Self:
        """Set attributes of this cell that `get_flags` lists."""
        self._flags.update(flags)
        self.__dict__.update(flags, float_type=next((t for t, flag in FLOATS.items() if self._flags.get(flag)), None))
        return self

    def add_flags_recursive(self, **flags: Any) -> Self:
        """`add_flags` for this cell and all below it."""
        self.add_flags(**flags)
        for cell in self.cells():
            cell.add_flags_recursive(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """The flags of this cell."""
        return self._flags

    @property
    def phase(self) -> str:
        """`train` or `predict`, or a text of the user."""
        return self._phase

    @phase.setter
    def phase(self, value: str) -> None:
        if not isinstance(value, str):
            raise ConfigError("phase is a text", given=value, cell=self.cls_name)
        self.__dict__["_phase"] = value

    @property
    def bprop_debug(self) -> bool:
        """A mark of cells whose `bprop` is debugged; PyNative mode always runs `bprop` as Python."""
        return self._bprop_debug

    @bprop_debug.setter
    def bprop_debug(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ConfigError("bprop_debug is true or false", given=value, cell=self.cls_name)
        self.__dict__["_bprop_debug"] = value

    # Names and text

    @property
    def cls_name(self) -> str:
        """Name of the class."""
        return type(self).__name__

    @property
    def scope_name(self) -> str:
        """The cell's part of a scope: attribute and class, or only the attribute (`reserve_class_name_in_scope`)."""
        name = type(self).__name__
        if not self._attribute:
            return name
        return f"{self._attribute}-{name}" if context.reserves_class_names() else str(self._attribute)

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

    @property
    def cell_init_args(self) -> str:
        """The class as text, or what was set."""
        return str(self.__dict__.get("_cell_init_args", f"<class '{type(self).__module__}.{self.cls_name}'>"))

    @cell_init_args.setter
    def cell_init_args(self, value: str) -> None:
        if not isinstance(value, str):
            raise ConfigError("cell_init_args is a text", given=value, cell=self.cls_name)
        self.__dict__["_cell_init_args"] = value

    def update_cell_type(self, cell_type: str) -> None:
        """Set `cell_type`, a text that only its owner reads."""
        self.__dict__["cell_type"] = cell_type

    # What runner asks of a network: its files, its head (runner/nn/head.py), and that it suits loss and data

    @property
    def source_files(self) -> Sequence[Path]:
        """Files that the network was made from, besides code; a run records what they contain."""
        return ()

    def head_parameters(self) -> Mapping[Parameter, int] | None:
        """The parameters of the last linear layer, the weight first, each with its axis of outputs.

        None: they are found in what is executed. A network that has several heads, or whose head is no matrix product
        or convolution with a parameter, may override it.
        """
        return None

    def change_outputs(self, weight: Parameter, before: int, now: int) -> None:
        """Adapt what the cell, which has the weight of the new head, derives from its number of outputs."""

    def attach_loss(self, loss_fn: "Cell") -> None:
        """Adapt outputs to the loss that is computed of them. Raises ConfigError when they cannot suit it."""

    def attach_data(self, types: Sequence[TensorType]) -> None:
        """Adapt the cell to inputs of these types, rows of a dataset: the first axis is the batch."""

    # Distributed training, and what has no effect here

    def set_broadcast_flag(self, mode: bool = True) -> Self:
        """Set the flag `broadcast_flag`. Data parallel training broadcasts parameters with `parameter_broadcast`."""
        return self.add_flags_recursive(broadcast_flag=mode)

    def set_auto_parallel(self) -> None:
        """Set the flag `auto_parallel`, which changes nothing: networks are not split."""
        self.add_flags(auto_parallel=True)

    def set_comm_fusion(self, fusion_type: int, recurse: bool = True) -> Self:
        """Set `comm_fusion` of the trainable parameters, which changes nothing: `all_reduce_fusion_config` does."""
        for parameter in self.trainable_params(recurse):
            parameter.comm_fusion = fusion_type
        return self

    def set_param_ps(self, recurse: bool = True, init_in_server: bool = False) -> None:
        """Raises ConfigError: there is no parameter server."""
        for parameter in self.trainable_params(recurse):
            parameter.set_param_ps(init_in_server)

    def load_parameter_slice(self, params: Any) -> None:
        """Nothing: every rank has all elements of its parameters."""

    def set_parallel_input_with_inputs(self, *inputs: Any) -> None:
        """Nothing: inputs are not split by the network."""

    def recompute(self, mode: bool = True) -> None:
        """Nothing: PyNative mode and onnxruntime free activations when they are no longer needed."""

    def exec_checkpoint_graph(self) -> None:
        """Nothing: parameters can be read at any time."""


# How a cell with a precision or a hook of its own computes: `to_float`, `register_backward_hook`.

Construct = Callable[..., Any]


def in_precision(dtype: dt.DType, construct: Construct) -> Construct:
    """`construct` with its inputs and the parameters that it uses cast to Float16 or Float32.

    Under force_fp16 and force_fp32 it computes as all other cells.
    """

    def cast(given: Any) -> Any:
        if isinstance(given, tuple | list):
            return type(given)([cast(each) for each in given])
        is_cast = isinstance(given, Value) and given.dtype.is_float and given.dtype is not dtype
        return current().with_dtype(current().lift(given), dtype) if is_cast else given

    def computed(*inputs: Any, **options: Any) -> Any:
        if (policy := current().precision) is not None and policy.is_forced:
            return construct(*inputs, **options)
        inputs = tuple(map(cast, inputs))
        with current().use_precision(OF_CELL[dtype]):
            return construct(*inputs, **options)

    return computed


class BackwardHook:
    """Calls `function(cell_id, grad_input, grad_output)` when gradients have passed through a cell, in PyNative mode.

    `grad_input` has the gradients of the cell's outputs, `grad_output` that of its input. The function may return
    another gradient of the input; None keeps it. Raises ConfigError in graph mode, where no Python runs in a step.
    """

    def __init__(self, cell_id: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ConfigError("a hook is a function", given=type(function).__name__, cell=cell_id)
        self.cell_id, self.function = cell_id, function

    def around(self, construct: Construct) -> Construct:
        """`construct` whose gradients the hook receives."""

        def computed(*inputs: Any, **options: Any) -> Any:
            if not isinstance(current(), Eager):
                repair = "context.set_context(mode=context.PYNATIVE_MODE)"
                raise ConfigError("graph mode does not support hooks", cell=self.cell_id, repair=repair)
            passed: list[Value] = []
            watched = [_with_gradient(x, lambda dx: self._called(passed, dx)) for x in inputs]
            outputs = construct(*watched, **options)

            def remember(dout: Value) -> Value:
                passed.append(dout)
                return dout

            if isinstance(outputs, tuple | list):
                return type(outputs)([_with_gradient(y, remember) for y in outputs])
            return _with_gradient(outputs, remember)

        return computed

    def _called(self, passed: list[Value], gradient: Value) -> Value:
        other = self.function(self.cell_id, tuple(passed), (gradient,))
        other = other[0] if isinstance(other, tuple | list) and len(other) == 1 else other
        return other if isinstance(other, Value) else gradient


def _with_gradient(x: Any, function: Callable[[Value], Value]) -> Any:
    return InsertGradientOf(function)(x) if isinstance(x, Value) and x.dtype.is_float else x
