"""Text as the path of a file: what the operating system would refuse, found before anything is read or written.

A character of the system's encoding that Python cannot decode (a lone surrogate U+DC80..U+DCFF) is valid in a path.
"""

import os

MAX_NAME, MAX_PATH = 255, 4095  # bytes: NAME_MAX of Linux' file systems, PATH_MAX without its end
ALLOWED = f"a path without NUL, of names of at most {MAX_NAME} bytes and {MAX_PATH} bytes in all"


def path_problem(path: str) -> str | None:
    """Why a text cannot be the path of a file; None if it can.

    >>> path_problem("outputs/a"), path_problem("a" * 300), path_problem("a\\0")
    (None, 'a name of 300 bytes in a path', 'a path with a NUL character')
    """
    if "\0" in path:
        return "a path with a NUL character"
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return "a path that is not Unicode text"
    if len(encoded) > MAX_PATH:
        return f"a path of {len(encoded)} bytes"
    longest = max(map(len, encoded.split(b"/")))
    return f"a name of {longest} bytes in a path" if longest > MAX_NAME else None
