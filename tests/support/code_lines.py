"""Lines of code of a text, and those of each package: `make size`, and the ratchet of `tests/test_architecture.py`."""

import ast
import io
import sys
import tokenize
from pathlib import Path

LOOSE = "*.py"
ROOT = Path(__file__).parents[2]
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """How many lines of a module are code: no blank lines, no comments, no docstrings.

    >>> code_lines("x = 1  # one\\n\\n# two\\n'''three\\nfour'''\\ny = '''five\\n\\nseven'''\\n")
    4
    >>> code_lines('def f(a,\\n      b):\\n    \"\"\"Text.\"\"\"\\n\\n    return a  # a comment\\n')
    3
    """
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        # A text that stands alone, unless it is on the line of its class.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            alone = not lines[node.lineno - 1][: node.col_offset].strip()
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1) if alone else ())
    return len(code)


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Files and lines of code by package, the loose files of the folder last, as `*.py`, largest package first."""
    found: dict[str, tuple[int, int]] = {}
    for file in folder.rglob("*.py"):
        package = file.relative_to(folder).parts[0] if file.parent != folder else LOOSE
        files, lines = found.get(package, (0, 0))
        found[package] = files + 1, lines + code_lines(file.read_text())
    return dict(sorted(found.items(), key=lambda row: (row[0] == LOOSE, -row[1][1])))


def main() -> None:
    for name in ("runner", "models"):
        rows = sizes(ROOT / name)
        rows |= {"all": (sum(files for files, _ in rows.values()), sum(lines for _, lines in rows.values()))}
        for package, (files, lines) in rows.items():
            sys.stdout.write(f"{name + '/' + package:24}{files:5} files{lines:8,} lines\n")


if __name__ == "__main__":
    main()
