"""The command that started a script, and its record in the run directory, signed with a key of the user.

A run directory may be that of someone else, and `runner resume` starts the recorded program. So the record is signed
with a key that only this user's account has, and nothing else is ever started.
"""

import hashlib
import hmac
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from runner.errors import DataError, StorageError
from runner.host import files, json as json_data
from runner.validation.rules import Frozen

SCRIPT_FILE = "script.json"
KEY_BYTES = 32
MAX_SCRIPT_BYTES = 16 << 20


class ScriptCommand(Frozen):
    """A script, the sha256 (hex) of its file, the words after the interpreter, and the working directory.

    `script` is None where there is no file: in a notebook, and in `python -c`.
    """

    script: str | None
    sha256: str | None
    words: tuple[str, ...]
    directory: str

    @property
    def name(self) -> str:
        """The name of the script, without its ending."""
        return Path(self.script).stem if self.script else "script"

    @property
    def shown(self) -> str:
        """The command as a user types it."""
        return f"cd {shlex.quote(self.directory)} && {shlex.join(['python', *self.words])}"


def own_command() -> ScriptCommand:
    """The command of this process."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    script = os.path.abspath(file) if file else None
    return ScriptCommand(script, sha256_of(script), tuple(sys.orig_argv[1:]), os.getcwd())


def sha256_of(script: str | None) -> str | None:
    """The sha256 (hex) of a script; None without a file that can be read."""
    try:
        content = None if script is None else files.read_bytes(Path(script), MAX_SCRIPT_BYTES)
    except (DataError, StorageError):
        return None
    return None if content is None else hashlib.sha256(content).hexdigest()


def write(folder: Path, command: ScriptCommand) -> None:
    """Write the signed record of a command; unsigned where there is no place for a key. Raises StorageError."""
    record = _record(command)
    try:
        key = _own_key()
    except (StorageError, RuntimeError):  # RuntimeError: no home directory
        key = None
    files.write_json(folder / SCRIPT_FILE, {**record, "signature": None if key is None else _signature(key, record)})


def read(folder: Path) -> tuple[ScriptCommand, bool]:
    """The recorded command, and whether this user has signed it.

    Raises DataError for a damaged record, StorageError.
    """
    path = folder / SCRIPT_FILE
    values = json_data.read_object(path)
    script, sha256, words, directory = (values.get(name) for name in ("script", "sha256", "words", "directory"))
    if not isinstance(directory, str) or not isinstance(words, list) or not all(isinstance(w, str) for w in words):
        raise DataError("the record of a script is damaged", file=path)
    if not all(value is None or isinstance(value, str) for value in (script, sha256)):
        raise DataError("the record of a script is damaged", file=path)
    command = ScriptCommand(script, sha256, tuple(words), directory)
    key, signature = _known_key(), values.get("signature")
    if key is None or not isinstance(signature, str):
        return command, False
    return command, hmac.compare_digest(_signature(key, _record(command)).encode(), signature.encode())


def _record(command: ScriptCommand) -> dict[str, Any]:
    values = {"script": command.script, "sha256": command.sha256}
    return {**values, "words": list(command.words), "directory": command.directory}


def _signature(key: bytes, record: dict[str, Any]) -> str:
    return hmac.new(key, json.dumps(record, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key_file() -> Path:
    """`$XDG_STATE_HOME/runner/key`, or `~/.local/state/runner/key`. Raises RuntimeError without a home directory."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "runner" / "key"


def _known_key() -> bytes | None:
    try:
        content = files.read_bytes(_key_file(), 2 * KEY_BYTES)
    except (DataError, StorageError, RuntimeError):
        return None
    return content if len(content) == 2 * KEY_BYTES else None


def _own_key() -> bytes | None:
    """The key of this user, which is created by the first script. Raises StorageError and RuntimeError."""
    path = _key_file()
    if not path.exists():
        files.make_directory(path.parent)
        files.write_exclusively(path, os.urandom(KEY_BYTES).hex(), 0o600)
    return _known_key()
