"""Damage as disks, transfers and editors do it: equal seeds give equal damage."""

import random
import re
from collections.abc import Iterator

_HUGE = (*(byte * n for byte in (b"\xff", b"\x7f", b"\0") for n in (4, 8)), b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f")
_VALUES = (
    *b'-1 0 1e999 -1e999 1.5 NaN -Infinity null true "x" "" [] {} [[1]] {"a":{}} 99999999999999999999'.split(),
    *(b'"\\ud800"', b"9" * 400, b"9" * 5000, b"1" + b"0" * 310),
    *(b'"a\\u0000b"', b'"/dev/zero"', b'"../../.."', b'"' + b"a" * 300 + b'"'),
)
_TEXTS = (
    *(b"\xff\xfe", b"\0", b"\r\n", b"\n\n", b'"', b",", b"}", b"/../", b"\xe2\x80\xae"),
    *(b"[" * 100_000, b'{"a":' * 9999),
)


def damaged(content: bytes, seed: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Damaged contents with the kind of damage of each, in turn."""
    kinds = list(KINDS.items())
    for number in range(count):
        name, damage = kinds[number % len(kinds)]
        yield name, damage(content, random.Random(f"{seed} {number}"))


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 9))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(draw.choice((1, 4, 512))) + content[place:]


def _remove(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:begin] + content[end:]


def _clear(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:begin] + bytes(end - begin) + content[end:]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    begin, end = _block(content, draw)
    return content[:end] + content[begin:end] + content[end:]


def _exchange(content: bytes, draw: random.Random) -> bytes:
    a, b, c = sorted(draw.randrange(len(content) + 1) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def _enlarge(content: bytes, draw: random.Random) -> bytes:
    """Where there is a size, an absurd one."""
    size, place = draw.choice(_HUGE), draw.randrange(min(len(content), draw.choice((16, 256, 1 << 20))))
    return content[:place] + size + content[place + len(size) :]


def _replace(content: bytes, draw: random.Random) -> bytes:
    """Another value for a number or a quoted text, where there is one."""
    places = list(re.finditer(rb'-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|"[^"\n]*"|true|false|null', content))
    if not places:
        return _enlarge(content, draw)
    found = draw.choice(places)
    return content[: found.start()] + draw.choice(_VALUES) + content[found.end() :]


def _mix(content: bytes, draw: random.Random) -> bytes:
    """One of the values, names or words in the place of another one."""
    places = list(re.finditer(rb'"[^"\n]*"|[\w.+-]+|\{[^{}]*\}|\[[^][]*\]', content))
    if not places:
        return _exchange(content, draw)
    found, other = draw.choice(places), draw.choice(places)
    return content[: found.start()] + other[0] + content[found.end() :]


def _misplace(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.choice(_TEXTS) + content[place:]


def _block(content: bytes, draw: random.Random) -> tuple[int, int]:
    begin = draw.randrange(len(content))
    return begin, min(len(content), begin + draw.choice((1, 8, 64, 512, 4096)))


KINDS = {
    "cut": _cut,
    "flip": _flip,
    "insert": _insert,
    "remove": _remove,
    "clear": _clear,
    "repeat": _repeat,
    "exchange": _exchange,
    "enlarge": _enlarge,
    "replace": _replace,
    "mix": _mix,
    "misplace": _misplace,
}
