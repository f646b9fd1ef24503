"""The user's code: modules that register networks, datasets and others, loaded before a config is composed.

They come from the project file of the current directory, from `--code` and RUNNER_CODE, and from installed packages
with entry points in the group `runner.plugins`. No config, checkpoint or data file names code.
"""

import importlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from runner import register
from runner.errors import LIBRARY, PACKAGE, SITE_PACKAGES, ConfigError, RunnerError, known_names, user_lines
from runner.host import json
from runner.host.console import LOG
from runner.host.files import make_directory, read_bytes, write_json
from runner.register import NAME, Entry, Key, Kind, definition_of
from runner.validation.paths import path_problem
from runner.validation.rules import Frozen, show

# The project in the current directory: the table [tool.runner] of its `pyproject.toml`, or its `runner.toml`.

FILES = ("pyproject.toml", "runner.toml")
FILE = FILES[0]
TABLE = "tool.runner"
VARIABLE = "RUNNER_WRITABLE"
OUTPUTS, SWEEPS = "outputs", "multirun"  # where runs and sweeps go by default
KEYS = ("code", "conf", "outputs", "writable")


class Project(Frozen):
    """The settings of a project; paths are relative to its folder. `file` None: there is no project."""

    file: Path | None = None
    code: tuple[str, ...] = ()
    conf: str | None = None
    outputs: str | None = None
    writable: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the project file; the current directory without one."""
        return Path.cwd() if self.file is None else self.file.parent

    @property
    def conf_folder(self) -> Path | None:
        """The folder with configs. Raises ConfigError when it does not exist."""
        if self.conf is None:
            return None
        folder = self.folder / self.conf
        if not folder.is_dir():
            raise _error("conf", self.conf, "a folder that does not exist", f"mkdir {folder}", self.file)
        return folder


def project() -> Project:
    """The project of the current directory. Raises ConfigError for an invalid file."""
    folder = Path.cwd()
    found = [(file, table) for file in FILES if (table := _table(folder / file)) is not None]
    if not found:
        return Project()
    if len(found) > 1:
        raise ConfigError("two project files", value=" and ".join(FILES), folder=folder, hint="keep one of them")
    file, table = found[0]
    for name in table:
        if name not in KEYS:
            raise ConfigError("unknown key", key=f"{TABLE}.{name}", **known_names(name, KEYS)).add(
                **{"from": folder / file}
            )
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[name] = (_list if name in ("code", "writable") else _text)(name, value, folder / file)
    return Project(folder / file, **values)


def writable() -> list[Path]:
    """The folders that the user allows config files to write to. Raises ConfigError for an invalid list.

    Those of `RUNNER_WRITABLE` are relative to the working directory, those of the project file to its folder.
    """
    names = os.environ.get(VARIABLE, "").split(os.pathsep)
    here = project()
    given = [Path(name).expanduser().absolute() for name in names if name]
    return given + [here.folder / Path(root).expanduser() for root in here.writable]


def _table(file: Path) -> Mapping[str, Any] | None:
    """The table of a project file; None when there is no file, or no table in `pyproject.toml`."""
    if not os.path.lexists(file):
        return None
    import tomllib  # late: most runs have no project file

    try:
        text = json.decoded(json.config_bytes(file))
        if file.name == FILE and not all(name in text for name in TABLE.split(".")):
            return None  # of another tool, and none of runner's business
        values: Any = tomllib.loads(text)
        for name in TABLE.split(".") if file.name == FILE else ():
            values = values.get(name, {})
            if not isinstance(values, dict):
                raise ConfigError("not a table", key=name)
    except (tomllib.TOMLDecodeError, RecursionError) as reason:
        raise ConfigError("not TOML", reason=reason, **{"from": file}) from None
    except ConfigError as error:
        raise error.add(**{"from": file}) from None
    return dict(values)


def _text(name: str, value: object, file: Path) -> str:
    if not isinstance(value, str) or not value or path_problem(value):
        raise _error(name, value, "not a folder", f'such as {name} = "{name}"', file)
    return value


def _list(name: str, value: object, file: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one and not path_problem(one) for one in value):
        what, example = ("not a list of folders", "/data/runs") if name == "writable" else ("not a list", "orchard")
        raise _error(name, value, what, f'such as ["{example}"]', file)
    return tuple(value)


def _error(name: str, value: object, what: str, allowed: str, file: Path | None) -> ConfigError:
    return ConfigError(what, key=f"{TABLE}.{name}", value=show(value), allowed=allowed, **{"from": file})


# The modules, which are loaded before a config is composed.

GROUP = "runner.plugins"
CODE_VARIABLE, FLAG = "RUNNER_CODE", "--code"
_NOT_LOADED = ("__", "test", "conftest", "setup")
_LOADED: dict["Source", None] = {}
_CONTENTS: dict[str, tuple[object, bytes]] = {}  # of files, with the `__spec__` of the module: a reload has a new one
MAX_BYTES = 16 << 20  # of one file


class Source(Frozen):
    """A module or path of the user's code, the folder that it is relative to, and where it is named."""

    text: str
    folder: str
    origin: str

    @property
    def path(self) -> Path:
        """The file or folder, if it is one."""
        return Path(self.folder, self.text).expanduser()

    @property
    def is_path(self) -> bool:
        """Whether the text is a path, not the name of a module."""
        return self.text.endswith(".py") or os.sep in self.text or not all(map(str.isidentifier, self.text.split(".")))


def sources(given: Sequence[str] = ()) -> tuple[Source, ...]:
    """The code of the project, of RUNNER_CODE and of `--code`, in this order. Raises ConfigError."""
    here, folder = project(), os.getcwd()
    found = [Source(text, str(here.folder), f"{here.file}: {TABLE}.code") for text in here.code]
    variable = os.environ.get(CODE_VARIABLE, "").split(os.pathsep)
    found += [Source(text, folder, CODE_VARIABLE) for text in variable if text]
    found += [Source(text, folder, FLAG) for text in given]
    for source in found:
        if problem := path_problem(source.text):
            raise ConfigError(problem, value=source.text, **{"from": source.origin})
    return tuple(dict.fromkeys(found))


def load(wanted: Sequence[Source]) -> None:
    """Load plugins and code that this process has not loaded yet. Raises ConfigError with the lines of the user."""
    _load_plugins()
    for source in wanted:
        if source not in _LOADED:
            _load(source)
            _LOADED[source] = None
    loaded_files()  # remembers what they are, before anyone edits them


def loaded_sources() -> tuple[Source, ...]:
    """The code that this process has loaded, without plugins."""
    return tuple(_LOADED)


def loaded_files() -> dict[str, Path]:
    """The files of the code that this process has loaded, and of everything registered elsewhere, such as in a script.

    By their paths relative to the folder of their source, or by their names; sorted.
    """
    found = imported_files(source.folder for source in _LOADED)
    inside = {str(path) for path in found.values()}
    for entry in [entry for entry in register.registered() if not entry.is_own]:
        file = os.path.realpath(entry.file)
        if file not in inside and _is_users(file):
            _remember(file, sys.modules.get(definition_of(entry.source).__module__))
            found.setdefault(os.path.basename(file), Path(file))
    return dict(sorted(found.items()))


def imported_files(folders: Iterable[str]) -> dict[str, Path]:
    """The files of the modules below these folders that are imported, without installed packages, by relative path."""
    roots = sorted({os.path.realpath(folder) + os.sep for folder in folders}, key=len, reverse=True)
    found = {}
    for file, module in _modules_of_users().items() if roots else ():
        root = next((root for root in roots if file.startswith(root)), None)
        if root is not None and _is_users(file):
            _remember(file, module)
            found[file.removeprefix(root)] = Path(file)
    return found


def content(path: Path) -> bytes:
    """The bytes of a file; those that were loaded, if it is code of this process that has been edited since.

    Raises DataError for a file that does not exist, StorageError for one that cannot be read.
    """
    known = _CONTENTS.get(str(path))
    return known[1] if known else read_bytes(path, MAX_BYTES)


def _remember(file: str, module: object) -> None:
    """Keep the content of a file that has just been imported, or imported again."""
    spec = getattr(module, "__spec__", None)
    if file not in _CONTENTS or _CONTENTS[file][0] is not spec:
        _CONTENTS[file] = spec, read_bytes(Path(file), MAX_BYTES)


def _modules_of_users() -> dict[str, ModuleType]:
    """The imported modules that are neither Python's nor installed, by the real paths of their files."""
    found: dict[str, ModuleType] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if (
            isinstance(file, str)
            and file.endswith(".py")
            and not file.startswith(LIBRARY)
            and SITE_PACKAGES not in file
        ):
            found.setdefault(os.path.realpath(file), module)
    return found


def _is_users(file: str) -> bool:
    own = os.path.realpath(PACKAGE)
    others = (own + os.sep, os.path.join(os.path.dirname(own), "models") + os.sep)
    return (file in _CONTENTS or os.path.isfile(file)) and not file.startswith(others) and SITE_PACKAGES not in file


def _load(source: Source) -> None:
    try:
        for module in _modules(source):
            importlib.import_module(module)
    except RunnerError as error:
        raise error.add(**{"from": source.origin}) from None
    except (Exception, SystemExit) as error:  # a module that ends the program
        reason = f"{type(error).__name__}: {error}"
        lines = "\n".join(user_lines(error)) or None
        rows = {"value": source.text, "reason": reason, "at": lines, "from": source.origin}
        raise ConfigError("the code cannot be loaded", **rows, hint=_hint(source, error)) from error


def _hint(source: Source, error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError) and not source.is_path and error.name == source.text.partition(".")[0]:
        return f"the name of a module in {os.path.abspath(source.folder)}, or a path that ends with .py"
    return None


def _modules(source: Source) -> Iterator[str]:
    """The names of the modules to import: that of a file, or of a package and of everything in it."""
    folder, name = _place(source)
    if folder not in sys.path:
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
    _refuse_other(name, folder)
    yield name
    for folder in sorted({*getattr(sys.modules[name], "__path__", ())}):
        yield from _inside(Path(folder), name)


def _inside(folder: Path, package: str) -> Iterator[str]:
    """The modules in a package and in the folders below it, with or without `__init__.py`, except tests."""
    for path in sorted(folder.iterdir()):
        name = path.stem if path.suffix == ".py" else path.name
        if not name.isidentifier() or name.startswith(_NOT_LOADED):
            continue
        if path.is_dir():
            yield from _inside(path, f"{package}.{name}")
        elif path.suffix == ".py":
            yield f"{package}.{name}"


def _place(source: Source) -> tuple[str, str]:
    """The folder on the import path, and the name of the module. Raises ConfigError when there is none."""
    path = source.path.absolute()
    if not source.is_path and not path.is_file():
        return os.path.abspath(source.folder), source.text
    if not path.exists():
        hint = f"the file has to be there on {platform.node()} too" if source.origin != FLAG else None
        rows = {"value": source.text, "path": path, "host": platform.node(), "from": source.origin}
        raise ConfigError("the file with code does not exist", **rows, hint=hint)
    if path.is_file() and path.suffix != ".py":
        raise ConfigError("not a Python file", value=source.text, **{"from": source.origin})
    if not path.stem.isidentifier():
        rows = {"value": source.text, "allowed": "letters, digits and _", "from": source.origin}
        raise ConfigError("the name cannot be that of a module", **rows)
    return str(path.parent), path.stem


def _refuse_other(name: str, folder: str) -> None:
    """Raise ConfigError when a module of this name is already loaded from another place."""
    first = name.partition(".")[0]
    module = sys.modules.get(first)
    places = [] if module is None else [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    inside = [place for place in places if place and os.path.realpath(place).startswith(os.path.realpath(folder))]
    if places and not inside:
        rows = {"value": first, "loaded": places[0] or places[-1], "hint": "give the module or package another name"}
        raise ConfigError("another module has the name", **rows)


@cache
def _load_plugins() -> None:
    """Load the plugins of installed packages; one that fails is reported, and the others still work."""
    if not _has_plugins():
        return
    from importlib import metadata  # here: it costs as much as ten modules, and few environments have plugins

    for point in metadata.entry_points(group=GROUP):
        try:
            point.load()
        except (Exception, SystemExit) as error:
            package = point.dist.name if point.dist else "an installed package"
            LOG.warning(
                "the plugin %s of %s cannot be loaded: %s: %s", point.name, package, type(error).__name__, error
            )


def _has_plugins() -> bool:
    """Whether an installed package declares plugins; `importlib.metadata` takes ten times as long to find none."""
    marker = f"[{GROUP}]".encode()
    return any(marker in _entry_points(package) for folder in sys.path for package in _installed(folder or "."))


def _installed(folder: str) -> list[str]:
    """The records of installed packages in a folder of the import path."""
    with suppress(OSError):
        return [entry.path for entry in os.scandir(folder) if entry.name.endswith((".dist-info", ".egg-info"))]
    return []


def _entry_points(package: str) -> bytes:
    with suppress(OSError), open(os.path.join(package, "entry_points.txt"), "rb") as file:
        return file.read(1 << 20)
    return b""


# The names and keys of the user's code, as the last run in a directory found them, for shell completion.
#
# Completion never loads the user's code: a key press must not execute it.

NAME_CACHE_FILE = ".registered_names.json"


class CachedEntry(Entry):
    """An entry of which only the name, and the names and defaults of the keys, are known."""

    def __init__(self, kind: Kind, name: str, defaults: dict[str, Any]) -> None:
        super().__init__(kind, name, dict)
        self.__dict__["keys"] = {key: Key(object, default=default) for key, default in defaults.items()}

    def check(self) -> None:
        """Nothing: its parameters are not known, and were checked when the code was loaded."""


def write() -> None:
    """Write the names that the user's code has registered, if there is a project. Raises StorageError."""
    here = project()
    if here.file is None:
        return
    found: dict[str, dict[str, Any]] = {}
    for entry in register.registered():
        if not entry.is_own:
            defaults = {name: key.default for name, key in entry.keys.items()}
            found.setdefault(entry.kind.name, {})[entry.name] = defaults
    path = _path(here.outputs)
    if json.read_optional(path) != found:
        make_directory(path.parent)
        write_json(path, found)


def declare() -> None:
    """Declare the names of the cache in the registry; a damaged cache has none. Raises ConfigError."""
    for kind, entries in json.read_optional(_path(project().outputs)).items():
        for name, defaults in entries.items() if kind in register.KINDS and isinstance(entries, dict) else ():
            if NAME.fullmatch(name) and isinstance(defaults, dict):
                register.KINDS[kind].add(CachedEntry(register.KINDS[kind], name, defaults))


def _path(outputs: str | None) -> Path:
    return Path(outputs or OUTPUTS, NAME_CACHE_FILE)
