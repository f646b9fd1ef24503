"""The module paths of MindSpore r1.2 that are no files of runner, and what is found there.

`import runner.nn.optim.rules` and `from runner.ops import functional as F` work for every path of the table: such a
module has the names of the packages that serve it. `runner.host.lazy` calls this module when an import or an attribute
is found nowhere else.
"""

import dis
import importlib
import sys
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from runner.errors import MissingModule, MissingName, nearest
from runner.mindspore.names import PACKAGE, modules_with, public_names, reason

_NN = (
    *("layer", "layer.activation", "layer.basic", "layer.combined", "layer.container", "layer.conv"),
    *("layer.embedding", "layer.image", "layer.lstm", "layer.math", "layer.normalization", "layer.pooling"),
    *("loss.loss",),
    *("optim.proximal_ada_grad", "optim.lazyadam"),
    *("wrap.cell_wrapper", "wrap.loss_scale", "wrap.grad_reducer", "learning_rate_schedule"),
    *("metrics.metric", "metrics.accuracy", "metrics.error", "metrics.precision", "metrics.recall", "metrics.fbeta"),
    *("metrics.topk", "metrics.evaluation", "metrics.auc", "metrics.roc", "metrics.dice", "metrics.perplexity"),
    *("metrics.bleu_score", "metrics.cosine_similarity", "metrics.hausdorff_distance"),
    *("metrics.mean_surface_distance", "metrics.root_mean_square_surface_distance"),
)
_OPS = (
    *("primitive", "operations.array_ops", "operations.math_ops", "operations.nn_ops", "operations.control_ops"),
    *("operations.comm_ops", "operations.debug_ops", "operations.image_ops", "operations.inner_ops"),
    *("operations.random_ops", "operations.other_ops", "operations._grad_ops", "operations._inner_ops"),
    *("composite.base", "composite.clip_ops", "composite.math_ops", "composite.array_ops", "composite.random_ops"),
)
_NUMPY = ".array_ops", ".array_creations", ".math_ops", ".logic_ops", ".dtypes"
_CALLBACKS = "callback", "checkpoint", "loss_monitor", "time_monitor", "lr_scheduler_callback", "summary_collector"
# Path without the package: the modules whose names it has, the first one that has a name first.
ADDRESSES: dict[str, tuple[str, ...]] = {
    **{f"common.{name}": ("runner", "runner.core.values") for name in ("parameter", "seed", "tensor")},
    "common.api": ("runner", "runner.core.values", "runner.mindspore.networks"),
    "common.dtype": ("runner.dtype",),
    **{f"nn.{name}": ("runner.nn",) for name in _NN},
    **{f"ops.{name}": ("runner.ops",) for name in _OPS},
    "nn.loss.loss": ("runner.nn", "runner.nn.loss.losses"),  # scripts subclass its `_Loss`
    "ops.functional": ("runner.ops",),
    "ops.operations": ("runner.ops",),
    "train.serialization": ("runner",),
    "amp": ("runner.train.amp",),
    "train.dataset_helper": ("runner",),
    **{f"train.callback._{name}": ("runner.train.callback",) for name in _CALLBACKS},
    "train.loss_scale_manager": ("runner.train.amp",),
    "train.summary.summary_record": ("runner.train.summary",),
    "train.train_thor": (),
    "log": ("runner.mindspore.log",),
    "profiler": ("runner.mindspore.profiler",),
    "profiler.profiling": ("runner.mindspore.profiler",),
    "parallel": ("runner.mindspore.parallel",),
    "parallel._utils": ("runner.mindspore.parallel",),
    "parallel._auto_parallel_context": ("runner.mindspore.parallel",),
    "nn.dynamic_lr": ("runner.mindspore.nn.dynamic_lr",),
    "dataset.config": ("runner.mindspore.dataset.config",),
    "dataset.engine": ("runner.dataset",),
    "dataset.engine.datasets": ("runner.dataset",),
    "dataset.engine.samplers": ("runner.dataset",),
    "dataset.engine.iterators": ("runner.dataset",),
    "dataset.callback": ("runner.mindspore.dataset.callback",),
    "dataset.callback.ds_callback": ("runner.mindspore.dataset.callback",),
    "dataset.core": ("runner.dataset",),
    "dataset.vision.utils": ("runner.dataset.vision",),
    "mindrecord": ("runner.mindspore.mindrecord",),
    "_checkparam": ("runner.mindspore.checkparam",),
    **{f"numpy{name}": ("runner.mindspore.numpy",) for name in ("", *_NUMPY)},
}
# Those that are files here, and attributes of their packages too.
_FILES = (
    *("common.initializer", "communication.management", "dataset.transforms", "dataset.vision", "nn.cell"),
    *("nn.loss", "nn.metrics", "nn.optim", "nn.wrap", "ops.composite"),
    *("train.amp", "train.callback", "train.model", "train.summary"),
)
# Missing names that scripts import and few of their configs use, those of the optimizer THOR: what stands for them
# raises when it is called.
STAND_INS = {
    "thor": "nn.thor",
    "ConvertModelUtils": "train.train_thor.ConvertModelUtils",
    "ConvertNetUtils": "train.train_thor.ConvertNetUtils",
}
# Modules of r1.2 that scripts cannot have here, beyond those whose names are in `names.txt`.
_MISSING_MODULES = ("nn.probability", "compression", "explainer", "hub", "boost", "dataset.text", "nn.sparse")
_LOADERS = (__name__, "runner.host.lazy")
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class _Loader:
    """Makes the module of an address: its attributes are those of the modules that serve it."""

    def create_module(self, spec: ModuleSpec) -> None:
        """The default module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its attributes."""
        path = module.__name__.removeprefix(f"{PACKAGE}.")
        homes = ADDRESSES[path]

        def load(name: str) -> Any:
            for home in homes if not name.startswith("__") else ():
                found = getattr(importlib.import_module(home), name, None)
                if found is not None:
                    setattr(module, name, found)
                    return found
            return attribute(module.__name__, name)

        module.__dict__["__getattr__"] = load
        module.__dict__["__all__"] = sorted({name for home in homes for name in _public(importlib.import_module(home))})
        module.__dict__["__dir__"] = lambda: module.__dict__["__all__"]


def _public(served: ModuleType) -> list[str]:
    """The public names: `__all__` of a package, and of a module that no stub declares; else what a module defines."""
    if "__all__" in vars(served):
        return list(served.__all__)
    own = {name for name, value in vars(served).items() if getattr(value, "__module__", None) == served.__name__}
    return [name for name in own if not name.startswith("_")]


def find_spec(fullname: str) -> ModuleSpec | None:
    """The module at an address of r1.2; None for a path that r1.2 does not have. Raises MissingModule."""
    path = fullname.removeprefix(f"{PACKAGE}.")
    if path in ADDRESSES:
        return ModuleSpec(fullname, _Loader(), is_package=True)  # type: ignore[arg-type]
    known = (*public_names(), *_MISSING_MODULES)
    if path and path in known:
        raise _missing_module(path)
    return None


def _missing_module(path: str) -> MissingModule:
    found = reason(path, "*") or reason("", path)
    rows = {"module": f"mindspore.{path}", "why": found and found.why, "use": found and found.alternative}
    return MissingModule("a module of MindSpore r1.2 that runner does not have", **rows)


def attribute(module: str, name: str) -> Any:
    """What a module of r1.2 has under a name that the module of runner at this path does not have.

    That is a module below it, or a name that runner has in another place. Raises MissingName, in an import
    MissingModule, for a public name of r1.2, and AttributeError for any other.
    """
    place = module.removeprefix(PACKAGE).removeprefix(".")
    if name in STAND_INS and STAND_INS[name].partition(".")[0] == place.partition(".")[0]:
        return partial(_stand_in, name)
    if _joined(place, name) in (*ADDRESSES, *_FILES):
        return importlib.import_module(f"{PACKAGE}.{_joined(place, name)}")
    home = next((one for one in _with_ancestors(place) if name in public_names().get(one, ())), None)
    if home is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
    for other in (one for one in modules_with(name) if _is_alike(home, one)):
        served = module_at(other)
        if served is not None and name in _public(served):
            return getattr(served, name)
    raise _missing_name(home, name)


def _is_alike(home: str, other: str) -> bool:
    """Whether a name of both modules is the same thing: an operator, a layer and a dataset of one name are three."""
    roots = {path.partition(".")[0] for path in (home, other)}
    return len(roots & {"ops", "nn", "dataset"}) < 2


def module_at(path: str) -> ModuleType | None:
    """The module of runner at a path of r1.2; None when there is none."""
    try:
        return importlib.import_module(_joined(PACKAGE, path))
    except MissingModule:
        return None


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _with_ancestors(place: str) -> Iterator[str]:
    while place:
        yield place
        place = place.rpartition(".")[0]
    yield ""


def _stand_in(name: str, *_: Any, **__: Any) -> NoReturn:
    """What stands for a missing name. Raises MissingName."""
    found = reason("nn", "thor")
    rows = {
        "name": _joined("mindspore", STAND_INS[name]),
        "why": found and found.why,
        "use": found and found.alternative,
    }
    raise MissingName("a public name of MindSpore r1.2 that runner does not have", **rows)


def _missing_name(home: str, name: str) -> Exception:
    found = reason(home, name)
    rows = {
        "name": _joined("mindspore", home, name),
        "why": found.why if found else "it is not implemented",
        "use": found.alternative if found else None,
        "nearest": nearest(name, _existing(home)) if not (found and found.alternative) else None,
    }
    kind = MissingModule if _is_import() else MissingName
    return kind("a public name of MindSpore r1.2 that runner does not have", **rows)


def _existing(home: str) -> list[str]:
    """The names that runner has at a module of r1.2."""
    served = module_at(home)
    return [] if served is None else _public(served)


def _is_import() -> bool:
    """Whether `from module import name` requests the attribute: it replaces an AttributeError by a text of its own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_LOADERS):
        frame = frame.f_back
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


# Which public names of MindSpore r1.2 runner has, by module, and why it does not have the others.


class Coverage(NamedTuple):
    """The names of a module of r1.2."""

    module: str  # without `mindspore.`; "" for the package itself
    present: tuple[str, ...]
    missing: dict[str, str]  # with the reasons

    @property
    def title(self) -> str:
        """The name of the module in MindSpore."""
        return f"mindspore.{self.module}".rstrip(".")


def coverage() -> Iterator[Coverage]:
    """The names of all modules."""
    for module, names in sorted(public_names().items()):
        served = module_at(module)
        present = tuple(sorted(name for name in names if name not in STAND_INS and hasattr(served, name)))
        reasons = {name: reason(module, name) for name in sorted(set(names) - set(present))}
        yield Coverage(module, present, {name: why.why if why else "" for name, why in reasons.items()})
