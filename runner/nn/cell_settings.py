"""Settings of a cell and of the cells below it: flags, precision, names, and those of distributed training."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from runner import dtype as dt
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.validation.keywords import KeywordNames

FLOATS = {dt.float16: "fp16", dt.float32: "fp32"}


class CellSettings(KeywordNames):
    """Base of cells: what does not belong to the computation. Most methods return the cell."""

    training: bool
    requires_grad: bool
    float_type: dt.DType | None  # of `to_float`; None when the operands decide
    _flags: dict[str, Any]
    _phase: str
    _bprop_debug: bool

    def cells(self) -> Iterable["CellSettings"]:
        """Child cells."""
        raise NotImplementedError

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Parameters with `requires_grad`."""
        raise NotImplementedError

    # Flags

    @property
    def source_files(self) -> Sequence[Path]:
        """Files that the network was made from, besides code; a run records what they contain."""
        return ()

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

    def to_float(self, dst_type: dt.DType) -> Self:
        """Compute this cell and all below it in Float16 or Float32: floats among inputs and operands are cast.

        Parameters keep their type. Raises ConfigError for other types.
        """
        if dst_type not in FLOATS:
            allowed = ", ".join(map(str, FLOATS))
            raise ConfigError("a cell computes in Float16 or Float32", given=dst_type, allowed=allowed)
        return self.add_flags_recursive(**{flag: dst_type is dtype for dtype, flag in FLOATS.items()})

    def set_train(self, mode: bool = True) -> Self:
        """Switch this cell and all below it between training and inference."""
        self.phase = "train" if mode else "predict"
        return self.add_flags_recursive(training=mode)

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Mark a cell of which gradients are computed. Every operator is recorded anyway."""
        self.__dict__["requires_grad"] = requires_grad
        return self

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

    # The head: runner/nn/head.py

    def head_parameters(self) -> Mapping[Parameter, int] | None:
        """The parameters of the last linear layer, the weight first, each with its axis of outputs.

        None: they are found in what is executed. A network that has several heads, or whose head is no matrix product
        or convolution with a parameter, may override it.
        """
        return None

    def change_outputs(self, weight: Parameter, before: int, now: int) -> None:
        """Adapt what the cell, which has the weight of the new head, derives from its number of outputs."""

    # Names

    @property
    def cls_name(self) -> str:
        """Name of the class."""
        return type(self).__name__

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

    # Distributed training

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
