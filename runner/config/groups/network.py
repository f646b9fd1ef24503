"""Networks: those of `models/` are registered by the files that its table lists, which load when they are chosen."""

import importlib
import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import cast

from runner import register
from runner.config.groups.record import Records, Settings
from runner.errors import InternalError
from runner.host import files
from runner.validation.rules import key


class NetworkSettings(Settings):
    """The network. A key that the dataset determines, such as `num_classes`, is null for the dataset's value.

    `freeze` are patterns of names of parameters, as `[features/*, "*.bias"]`: `*` is any text, dots and slashes are
    equal. BatchNorm layers whose gamma and beta are frozen keep their moving statistics, and use them. `head` replace
    gives the last linear layer as many outputs as there are classes, and new values from the seed, also when
    `checkpoint.load` has some for it; patterns of `freeze` do not concern it.
    """

    freeze: tuple[str, ...] = key((), pattern=r"\S(.*\S)?")  # patterns of names of parameters that are not trained
    head: str = key("keep", choices=("keep", "replace"))  # the last linear layer: as it is, or a new one


def _register(file: str) -> None:
    importlib.import_module(f"{_package().__name__}.{file}")


def _package() -> ModuleType:
    """The package `models` under a name that leaves `models` to the user's program."""
    folder = files.folder("models")
    for name in ("runner_models", "models"):
        existing = sys.modules.get(name)
        if getattr(existing, "__file__", None) == str(folder / "__init__.py"):
            return cast(ModuleType, existing)
    return _load("runner_models", folder)


def _load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise InternalError("the table of networks cannot be loaded", folder=folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


for _name, _home in _package().NETWORKS.items():
    register.network.late(_name, partial(_register, _home))

register.network.late("onnx", partial(importlib.import_module, "runner.importer.network"))

NETWORKS = Records(register.network, NetworkSettings, "lenet5")
