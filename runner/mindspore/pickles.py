"""The values in a pickle file of dicts, lists, text, numbers and arrays, read without executing anything.

A pickle is a program for a stack machine. `read_pickle` has the part of its instructions that builds plain values, and
recognizes the calls by which numpy writes an array; any other call is an error. A small file can name one value many
times, so no value of a file is compared, hashed or printed but texts, bytes and numbers. Source: Lib/pickletools.py of
Python.
`read_batches` reads the Python version of CIFAR-10 and CIFAR-100, which converters into MindRecord take.
"""

import pickletools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.dataset.readers.mnist_cifar import MAX_RECORDS, SIDE, Content, damaged
from runner.errors import DataError

MAX_DEPTH = 32  # of containers inside each other
MOST_INSTRUCTIONS = 2_000_000  # six times those of CIFAR-100; each makes one value of some 60 bytes
MOST_BITS = 256  # of a whole number
_REPAIR = "unpack the file again from the archive of its publisher"
_ELEMENTS = ("u1", "i1", "i2", "i4", "i8")
_NUMPY = ("numpy.core.", "numpy._core.")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE")
_OLD_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING")  # of Python 2, where they are bytes
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_KEYS = str, bytes, int, float, bool
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")


class _Mark:
    """Where the elements of a container begin on the stack."""


class _Function(str):
    """What a file wants to call, as `module.name`."""


class _Array:
    """An array, whose elements may follow in a later instruction."""

    values: np.ndarray | None = None


def read_pickle(path: Path) -> Any:
    """The value in a pickle file; texts of Python 2 are bytes.

    Raises DataError for a damaged file, and for one with anything but dicts, lists, tuples, text, bytes, numbers and
    arrays of whole numbers.
    """
    content = Content.of_file(path, _REPAIR)
    try:
        data = bytes(content.rest(MAX_RECORDS))
        machine = _Machine(content.error, len(data))
        for code, argument, _ in pickletools.genops(data):
            machine.step(code.name, argument)
        return machine.result()
    except DataError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as reason:
        raise content.error("a whole pickle file", f"a damaged one ({reason})"[:200]) from None


class _Machine:
    """The stack, the values that instructions can refer to again, and the marks of containers."""

    def __init__(self, error: Callable[[str, str], DataError], size: int) -> None:
        self._error = error
        self._instructions_left = MOST_INSTRUCTIONS
        self._bytes_left = size  # of texts that are encoded: each is one of the file
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        """The value on the stack."""
        (value,) = self._stack
        return _plain(value, {})

    def step(self, name: str, argument: Any) -> None:
        """One instruction."""
        stack = self._stack
        self._instructions_left -= 1
        if self._instructions_left < 0:
            raise self._error(f"a file of at most {MOST_INSTRUCTIONS} values", "more")
        if isinstance(argument, int) and argument.bit_length() > MOST_BITS:
            raise self._error(f"numbers of at most {MOST_BITS} bits", f"one of {argument.bit_length()} bits")
        if name in ("PROTO", "FRAME", "STOP"):
            return
        if name in _NUMBERS or name in _TEXTS or name in _BYTES:
            stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
        elif name in _OLD_TEXTS:
            stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _PUTS:
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"):
            self._call(name, argument)
        else:
            self._container(name)

    def _container(self, name: str) -> None:
        stack = self._stack
        if name == "MARK":
            stack.append(_Mark())
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name in ("TUPLE", "LIST", "DICT"):
            values = self._since_mark()
            pairs = name == "DICT"
            stack.append(_pairs(values) if pairs else tuple(values) if name == "TUPLE" else values)
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name in ("APPEND", "APPENDS"):
            values = self._since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = self._since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(_pairs(values))
        else:
            raise self._error("plain values and arrays", f"the instruction {name}, which is not executed")

    def _since_mark(self) -> list[Any]:
        places = range(len(self._stack) - 1, -1, -1)
        start = next((place for place in places if isinstance(self._stack[place], _Mark)), None)
        if start is None:
            raise ValueError("a container without its mark")
        values = self._stack[start + 1 :]
        del self._stack[start:]
        return values

    def _call(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "GLOBAL":
            stack.append(_Function(".".join(argument.split(" "))))
        elif name == "STACK_GLOBAL":
            function = stack.pop()
            if not type(function) is type(stack[-1]) is str:  # names of names would double
                raise ValueError("a function whose name is no text")
            stack[-1] = _Function(f"{stack[-1]}.{function}")
        elif name == "REDUCE":
            arguments = stack.pop()
            stack[-1] = self._applied(stack[-1], arguments)
        else:
            state = stack.pop()
            if isinstance(stack[-1], _Array):
                _, shape, kind, is_fortran, content = state
                stack[-1].values = _array(content, kind, shape, "F" if is_fortran else "C")
            elif not isinstance(stack[-1], np.dtype) or _text(state[1]) not in "<|=":
                raise self._error("plain values and arrays", f"the state of {_described(stack[-1])}")

    def _applied(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """The value of the calls that numpy and Python 3 write; no function of this name is called."""
        name = str(function) if isinstance(function, _Function) else ""
        for prefix in _NUMPY:
            name = name.replace(prefix, "numpy:")
        if name == "numpy:multiarray._reconstruct":
            return _Array()
        if name == "numpy:numeric._frombuffer":
            made = _Array()
            made.values = _array(*arguments)
            return made
        if name == "numpy.dtype" and _text(arguments[0]) in _ELEMENTS:
            return np.dtype(_text(arguments[0]))
        if name == "_codecs.encode" and arguments[1] == "latin1":
            self._bytes_left -= len(arguments[0])
            if self._bytes_left < 0:
                raise ValueError("texts that are encoded again and again")
            return arguments[0].encode("latin-1")
        raise self._error("plain values and arrays of whole numbers", f"a call of {_described(function)}")


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _described(value: Any) -> str:
    return str(value)[:80] if isinstance(value, _Function) else f"a {type(value).__name__}"


def _array(content: bytes, kind: np.dtype, shape: tuple[int, ...], order: Any) -> np.ndarray:
    if not isinstance(kind, np.dtype):
        raise ValueError("an array without an element type")
    return np.frombuffer(content, kind).reshape(shape, order=order)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    keys = values[::2]
    if wrong := [key for key in keys if type(key) not in _KEYS]:
        raise ValueError(f"a key of a dict is {_described(wrong[0])}, and no text, bytes or number")
    return dict(zip(keys, values[1::2], strict=True))


def _plain(value: Any, made: dict[int, Any], depth: int = 0) -> Any:
    """The value with arrays in place of what stands for them.

    `made` has the containers so far: one that a file names many times is one. A container in itself has no end.
    """
    if isinstance(value, _Array):
        if value.values is None:
            raise ValueError("an array without elements")
        return value.values
    if not isinstance(value, dict | list | tuple):
        return value
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} containers inside each other")
    if id(value) not in made:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        plain = [_plain(part, made, depth + 1) for part in parts]
        half = len(plain) // 2
        made[id(value)] = (
            dict(zip(plain[:half], plain[half:], strict=True)) if isinstance(value, dict) else type(value)(plain)
        )
    return made[id(value)]


# The Python version of CIFAR-10 and CIFAR-100: pickles of dicts, with images [N, 3072] and lists of class numbers.


Labels = Mapping[str, tuple[str, int]]  # field: the name in the files, the number of classes
BATCHES_10 = {"train": "data_batch_*", "test": "test_batch"}
BATCHES_100 = {"train": "train", "test": "test"}
LABELS_10: Labels = {"label": ("labels", 10)}
LABELS_100: Labels = {"fine_label": ("fine_labels", 100), "coarse_label": ("coarse_labels", 20)}
PIXELS = 3 * SIDE * SIDE
_REPAIR_CIFAR = "unpack it again from the archive with the Python version of the data set"


def read_batches(paths: Sequence[Path], labels: Labels) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Images uint8 [N, 32, 32, 3] and, by field, class numbers int64 [N], of several files.

    `labels` gives for each field its key in the files and the number of classes. Raises DataError for another layout.
    """
    batches = [_batch(path, labels) for path in paths]
    images = np.concatenate([planes for planes, _ in batches]).reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), {name: np.concatenate([own[name] for _, own in batches]) for name in labels}


def _batch(path: Path, labels: Labels) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    content = read_pickle(path)
    planes = _entry(path, content, "data")
    if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (PIXELS,):
        found = f"{planes.dtype} {list(planes.shape)}" if isinstance(planes, np.ndarray) else _described(planes)
        raise damaged(path, f"data of UInt8 [N, {PIXELS}]", found, _REPAIR_CIFAR)
    columns = {}
    for name, (key, classes) in labels.items():
        given = _entry(path, content, key)
        is_flat = isinstance(given, list | tuple) and all(isinstance(number, int) for number in given)
        numbers = given if isinstance(given, np.ndarray) else np.asarray(given if is_flat else None)
        if numbers.shape != (len(planes),) or numbers.dtype.kind not in "iu":
            expected = f"{key}: {len(planes)} whole numbers"
            raise damaged(path, expected, f"{numbers.dtype} {list(numbers.shape)}", _REPAIR_CIFAR)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
            raise damaged(path, f"{key} from 0 to {classes - 1}", f"{numbers.min()} to {numbers.max()}", _REPAIR_CIFAR)
        columns[name] = numbers.astype(np.int64)
    return planes, columns


def _entry(path: Path, content: Any, name: str) -> Any:
    keys = (name.encode(), name)  # bytes in files of Python 2, which the published ones are
    if isinstance(content, dict):
        for key in keys:
            if key in content:
                return content[key]
    found = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
    raise damaged(path, f"a dict with {name}", found[:200], _REPAIR_CIFAR)
