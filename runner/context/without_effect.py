"""Settings of MindSpore's context that scripts set and that have no effect here (spec section 1.1).

They are checked, kept and returned; a setting that differs from its default is reported once, with what to use.
"""

from typing import Any, NamedTuple

from runner.host.console import note_once
from runner.validation.rules import FREE, Invalid, Rule, invalid_value_error, validate


class Setting(NamedTuple):
    """The default, why it has no effect, or what has this effect here, and the rule of its values."""

    default: Any
    remark: str
    rule: Rule = FREE


_DUMPS = "dumps: MINDSPORE_DUMP_CONFIG or runner.dump"
_PRECISION = "precision: precision_mode, or amp_level of Model"
_KERNELS = "onnxruntime combines operators itself"
_MEMORY = "memory is taken when it is needed"
_RUNTIME = "it is a choice of MindSpore's own runtime"
_SIZE = Rule(pattern=r"0|([1-9][0-9]*(\.[0-9]*)?|0\.[0-9]+)GB")
SETTINGS: dict[str, Setting] = {
    "enable_dump": Setting(False, _DUMPS),
    "save_dump_path": Setting(".", _DUMPS),
    "enable_reduce_precision": Setting(True, _PRECISION),
    "enable_auto_mixed_precision": Setting(False, _PRECISION),
    "enable_graph_kernel": Setting(False, _KERNELS),
    "graph_kernel_flags": Setting("", _KERNELS),
    "enable_sparse": Setting(False, "gradients are dense"),
    "check_bprop": Setting(False, "gradients of your own operators are always checked"),
    "max_call_depth": Setting(1000, "Python's recursion limit holds", Rule(low=1)),
    "variable_memory_max_size": Setting("0", _MEMORY, _SIZE),
    "max_device_memory": Setting("1024GB", _MEMORY, _SIZE),
    "auto_tune_mode": Setting(
        "NO_TUNE", "tuning: runner tune", Rule(choices=("NO_TUNE", "RL", "GA", "RL,GA", "GA,RL"))
    ),
    "env_config_path": Setting("", _RUNTIME, Rule(path=True)),
    "precompile_only": Setting(False, "graphs are compiled when a cell is called"),
    "grad_for_scalar": Setting(False, "gradients of Python numbers are not computed"),
    "enable_parallel_split": Setting(False, "runner trains data-parallel"),
    "enable_task_sink": Setting(True, "dataset_sink_mode of Model.train chooses it"),
    "enable_loop_sink": Setting(True, "dataset_sink_mode of Model.train chooses it"),
    "enable_mem_reuse": Setting(True, _MEMORY),
    "save_compile_cache": Setting(False, _RUNTIME),
    "load_compile_cache": Setting(False, _RUNTIME),
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items()}


def checked(name: str, value: object) -> Any:
    """The value of a setting, reported if it differs from the default. Raises ConfigError for an invalid one."""
    setting = SETTINGS[name]
    try:
        valid = validate(type(setting.default), setting.rule, value)
    except Invalid as invalid:
        raise invalid_value_error(name, value, invalid) from None
    if valid != setting.default:
        note_once(f"context setting {name} has no effect: {setting.remark}")
    return valid
