"""`runner.profiler.Profiler`: profiles of the trainings between its creation and `analyse()`."""

import json
from pathlib import Path
from typing import Any

from runner import context
from runner.errors import ConfigError, known_names
from runner.host.console import note_once
from runner.host.files import make_directory

__all__ = ["Profiler"]

# Arguments of MindSpore's class that select what its files contain; here they contain all of it.
_WITHOUT_EFFECT = (
    *("is_detail", "is_show_op_path", "optypes_not_deal", "optypes_to_deal", "job_id", "ascend_job_id"),
    *("profile_communication", "profile_memory", "aicore_metrics"),
)


class Profiler:
    """Profiles every training of a `Model` that is made before `analyse()`; create it before the model.

    `output_path` (default: `data` in the working directory) receives the files, as with
    `context.set_context(enable_profiling=True, profiling_options=...)`. Raises ConfigError for an unknown argument,
    StorageError for a folder that cannot be written.
    """

    def __init__(self, *, output_path: str = "./data", **kwargs: Any) -> None:
        for name in kwargs:
            if name not in _WITHOUT_EFFECT:
                raise ConfigError("unknown argument of Profiler", argument=name, **known_names(name, _WITHOUT_EFFECT))
            note_once(f"Profiler({name}=...) has no effect: the files contain all operators")
        self.output_path = str(make_directory(Path(output_path).absolute()))
        options = {"result_path": self.output_path, "training_trace": "on", "task_trace": "on"}
        self._before = {name: context.get_context(name) for name in ("enable_profiling", "profiling_options")}
        context.set_context(enable_profiling=True, profiling_options=json.dumps(options))

    def analyse(self) -> None:
        """End the profiles. The files of a training are complete when it ends."""
        context.set_context(**self._before)
