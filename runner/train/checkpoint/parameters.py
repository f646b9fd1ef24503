"""Saving and loading parameters, with the function names of the reference (spec section 6.3)."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, DataError, nearest, some
from runner.host import files
from runner.host.machine import require_memory
from runner.nn.cell import Cell
from runner.train.checkpoint import ckpt, state
from runner.train.checkpoint.arrays import decode
from runner.validation.arguments import flag, scalar

SUFFIX, SAFETENSORS = ".ckpt", ".safetensors"
PICKLES = (".pt", ".pth", ".bin", ".pkl")  # which can contain code
MAX_NAMES = 8  # names listed in an error; the rest is counted


def save_checkpoint(
    save_obj: Cell | Sequence[Mapping[str, Any]],
    ckpt_file_name: str | Path,
    integrated_save: bool = True,
    async_save: bool = False,
    append_info: Mapping[str, int | float | bool] | None = None,
    *,
    crc_check: bool = True,
) -> None:
    """Save the parameters of a cell, or a list of `{"name": ..., "data": tensor}`, and the numbers of `append_info`.

    A name that ends with `/` selects a directory in runner's format; any other one a file of the reference's format,
    with `.ckpt` appended if missing. The file is complete when the call returns, also with `async_save`.
    `crc_check=False` omits the checksum, by which damage is detected: MindSpore before 2.3 cannot read files that have
    one. `append_info` has numbers by name, which `load_checkpoint` returns as parameters without axes (Int64, Float64
    or Bool). `integrated_save` has no effect, since runner does not split parameters. Raises ConfigError, or
    StorageError.
    """
    name = _checked_name(ckpt_file_name)
    flag({}, integrated_save=integrated_save, async_save=async_save, crc_check=crc_check)
    if isinstance(save_obj, Cell):
        arrays = {key: parameter.array for key, parameter in save_obj.parameters_dict().items()}
    else:
        arrays = _listed(save_obj)
    if not arrays:
        raise ConfigError("there are no parameters to save", file=name)
    numbers = appended_numbers(append_info)
    if both := [key for key in numbers if key in arrays]:
        raise ConfigError("append_info has the name of a parameter", file=name, name=both[0])
    arrays |= numbers
    if name.endswith("/"):
        state.save(Path(name), arrays, progress={}, identity={})
    else:
        ckpt.write(Path(name if name.endswith(SUFFIX) else name + SUFFIX), arrays, crc_check=crc_check)


def load_checkpoint(
    ckpt_file_name: str | Path,
    net: Cell | None = None,
    strict_load: bool = False,
    filter_prefix: str | Sequence[str] | None = None,
) -> dict[str, Parameter]:
    """The parameters of a `.ckpt` or `.safetensors` file, or of a directory in runner's format, by name.

    Parameters whose names start with `filter_prefix` (or one of several) are omitted. With `net` they are also loaded
    into it, like by `load_param_into_net`, and a warning names parameters of `net` missing in the checkpoint. Raises
    ConfigError for invalid arguments, DataError for a missing or damaged checkpoint.
    """
    path = Path(_checked_name(ckpt_file_name))
    if net is not None:
        _check_cell(net)
    prefixes = _checked_prefixes(filter_prefix)
    arrays = _read(path)
    if not arrays:
        raise DataError("a checkpoint without parameters", file=path)
    kept = {name: array for name, array in arrays.items() if not name.startswith(prefixes)}
    if not kept:
        raise ConfigError("filter_prefix excludes all parameters", file=path, given=", ".join(prefixes))
    parameters = {name: Parameter(array, name) for name, array in kept.items()}
    if net is not None:
        try:
            missing = load_param_into_net(net, parameters, strict_load)
        except ConfigError as error:
            raise error.add(checkpoint=path) from None
        if missing:
            warnings.warn(f"parameters that {path} does not have: {some(missing, MAX_NAMES)}", stacklevel=2)
    return parameters


def load_param_into_net(net: Cell, parameter_dict: Mapping[str, Tensor], strict_load: bool = False) -> list[str]:
    """Set the parameters of a network by name, and return the names missing in `parameter_dict`.

    Raises ConfigError, before any value is changed, when a parameter has another shape or type, when no name matches,
    and with `strict_load` when a name is missing or surplus.
    """
    _check_cell(net)
    flag({}, strict_load=strict_load)
    if not isinstance(parameter_dict, Mapping) or not all(isinstance(v, Tensor) for v in parameter_dict.values()):
        raise ConfigError("parameter_dict must have tensors by name", given=_brief(parameter_dict))
    wanted = net.parameters_dict()
    missing = [name for name in wanted if name not in parameter_dict]
    surplus = [name for name in parameter_dict if name not in wanted]
    common = [name for name in wanted if name in parameter_dict]
    if not common or (strict_load and (missing or surplus)) or other_types(net, parameter_dict):
        raise other_network(net, parameter_dict, missing, surplus)
    for name in common:
        wanted[name].set_data(np.array(parameter_dict[name].array))
    return missing


def other_network(
    net: Cell,
    parameter_dict: Mapping[str, Tensor],
    missing: Sequence[str],
    surplus: Sequence[str],
    most: int = MAX_NAMES,
) -> ConfigError:
    """The error for a checkpoint of another network, with the parameters that are missing, surplus or differ.

    It lists `most` names of each.
    """
    return ConfigError(
        "the checkpoint is of another network",
        network=type(net).__name__,
        other_type=_lines(other_types(net, parameter_dict), most),
        missing=_lines([_with_nearest(name, surplus) for name in missing[:most]], most, len(missing)),
        surplus=_lines([_with_nearest(name, missing) for name in surplus[:most]], most, len(surplus)),
    )


def other_types(net: Cell, parameter_dict: Mapping[str, Tensor]) -> list[str]:
    """A line about each parameter whose shape or element type is another one in the checkpoint."""
    wanted = net.parameters_dict()
    pairs = [(name, wanted[name].type, parameter_dict[name].type) for name in wanted if name in parameter_dict]
    return [f"{name}: {own}, in the checkpoint {saved}" for name, own, saved in pairs if own != saved]


def _read(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        return state.load(path).arrays
    if not path.exists():
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError("there is no such checkpoint", file=path, nearest=nearest(path.name, names))
    if path.suffix == SAFETENSORS:
        require_memory(2 * path.stat().st_size, file=path)
        return decode(files.read_bytes(path, sys.maxsize), path)
    if path.suffix != SUFFIX:
        repair = "a .safetensors file: safetensors.torch.save_file(model.state_dict(), ...)"
        rows = {"given": path, "allowed": f"a file *{SUFFIX} or *{SAFETENSORS}, or a directory"}
        is_pickle = path.suffix in PICKLES
        raise ConfigError("not the name of a checkpoint", **rows, repair=repair if is_pickle else None)
    return ckpt.read(path)


def appended_numbers(append_info: Mapping[str, int | float | bool] | None) -> dict[str, np.ndarray]:
    """The numbers of `append_info` as arrays. Raises ConfigError for anything else."""
    if append_info is not None and not isinstance(append_info, Mapping):
        raise ConfigError("append_info must be a dict", given=_brief(append_info))
    numbers: dict[str, np.ndarray] = {}
    for name, given in (append_info or {}).items():
        array = np.asarray(scalar(given))
        if not isinstance(name, str) or not name or array.ndim or array.dtype.kind not in "bif":
            rows = {"name": repr(name), "given": _brief(given), "allowed": "numbers by name, of 64 bits at most"}
            raise ConfigError("append_info has something that is no number with a name", **rows)
        numbers[name] = array
    return numbers


def _listed(save_obj: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    allowed = 'a Cell, or a list of {"name": str, "data": Tensor}'
    if not isinstance(save_obj, list | tuple):
        raise ConfigError("not something to save", given=_brief(save_obj), allowed=allowed)
    arrays: dict[str, np.ndarray] = {}
    for position, item in enumerate(save_obj):
        if not isinstance(item, Mapping) or set(item) != {"name", "data"} or not isinstance(item["data"], Tensor):
            raise ConfigError("not something to save", given=_brief(item), at=position, allowed=allowed)
        if item["name"] in arrays:
            raise ConfigError("two parameters have one name", name=item["name"], at=position)
        arrays[item["name"]] = item["data"].array
    return arrays


def _checked_name(name: str | Path) -> str:
    """The name as text. `Path` drops a trailing `/`, so only text can select a directory."""
    if not isinstance(name, str | Path) or not str(name):
        raise ConfigError("ckpt_file_name must be the name of a file", given=repr(name))
    return str(name)


def _checked_prefixes(prefix: str | Sequence[str] | None) -> tuple[str, ...]:
    if prefix is None:
        return ()
    prefixes = (prefix,) if isinstance(prefix, str) else tuple(prefix) if isinstance(prefix, list | tuple) else ()
    if not prefixes or not all(isinstance(one, str) and one for one in prefixes):
        raise ConfigError("filter_prefix must be a text or a list of texts, none empty", given=repr(prefix))
    return prefixes


def _check_cell(net: Cell) -> None:
    if not isinstance(net, Cell):
        raise ConfigError("net must be a Cell", given=_brief(net))


def _with_nearest(name: str, others: Sequence[str]) -> str:
    close = nearest(name, others)
    return f"{name} (nearest: {close})" if close else name


def _lines(texts: Sequence[str], most: int, count: int | None = None) -> str | None:
    """One text per line, at most `most` of `count`; None when there is none."""
    count = len(texts) if count is None else count
    rest = [f"and {count - most} more"] if count > most else []
    return "\n".join([*texts[:most], *rest]) or None


def _brief(value: object) -> str:
    """A short representation: the type only for networks and arrays, which would be too long."""
    return f"{value!r:.60}" if isinstance(value, str | int | float | None) else type(value).__name__
