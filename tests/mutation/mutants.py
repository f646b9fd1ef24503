"""Whether the tests notice mistakes: seeded one-line mutations of runner and models, each tried against the suite.

    python tests/mutation/mutants.py [--seed 1] [--count 60] [--limit 4] [--list] [--only N ...]

Every package gets its share of the mutations, at least one. Each is made in a copy of the checkout, whose tests then
run until the first failure: those of the mutated package first, then all others. A mutation that no test notices
survives; more than `--limit` survivors are exit code 1. `--list` prints the mutations, `--only` tries some of them.

A mutation changes one token of one expression: a comparison, an arithmetic or boolean operator, a number, True or
False, a condition, or which of min and max is called. Annotations, text and `TYPE_CHECKING` blocks are left alone.
"""

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "+",
    ast.And: "or",
    ast.Or: "and",
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SECONDS = 1200  # of one test run
LEFT_OUT = (".git", "__pycache__", "outputs", "build", ".*_cache")  # of the copy


@dataclass(frozen=True)
class Mutation:
    """The text between two offsets of a file, and what stands there instead."""

    path: Path
    line: int
    start: int
    stop: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.old.strip()} -> {self.new.strip()}"

    def apply(self, root: Path) -> None:
        """Change the file below `root`."""
        content = (root / self.path).read_bytes()
        (root / self.path).write_bytes(content[: self.start] + self.new.encode() + content[self.stop :])


class _Finder:
    """All mutations of one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, (ROOT / path).read_bytes()
        self.lines = [0]
        for line in self.content.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def find(self) -> Iterator[Mutation]:
        yield from self._below(ast.parse(self.content))

    def _below(self, node: ast.AST) -> Iterator[Mutation]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases") or _is_unexecuted(node, name):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._of(child)
                    yield from self._below(child)

    def _of(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPS:
                yield self._between(left, right, SWAPS[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS and not _is_text(left, right):
                yield self._between(left, right, SWAPS[type(op)])
            case ast.BoolOp(op=op, values=[first, second]):
                yield self._between(first, second, SWAPS[type(op)])
            case ast.Constant(value=bool(value)):
                yield self._whole(node, str(not value))
            case ast.Constant(value=int(value)):
                yield self._whole(node, str(value + 1))
            case ast.If(test=test) | ast.IfExp(test=test) if not _is_type_checking(test):
                yield self._whole(test, f"not ({ast.unparse(test)})")
            case ast.Call(func=ast.Name(id=called) as func) if called in CALLS:
                yield self._whole(func, CALLS[called])

    def _whole(self, node: ast.expr, new: str) -> Mutation:
        return self._mutation(node, self._start(node), self._stop(node), new)

    def _between(self, left: ast.expr, right: ast.expr, new: str) -> Mutation:
        """The operator between two operands; brackets around them stay."""
        start, stop = self._stop(left), self._start(right)
        text = self.content[start:stop].decode()
        bare = text.strip("() \n\t")
        first = text.index(bare)
        return self._mutation(left, start + first, start + first + len(bare), new)

    def _mutation(self, node: ast.expr, start: int, stop: int, new: str) -> Mutation:
        return Mutation(self.path, node.lineno, start, stop, self.content[start:stop].decode(), new)

    def _start(self, node: ast.expr) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def _stop(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset


def _is_type_checking(test: ast.AST) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _is_unexecuted(node: ast.AST, name: str) -> bool:
    """Blocks that only type checkers read, assertions and `strict=True`, which fail only after a mistake elsewhere."""
    is_check = isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict")
    return is_check or (isinstance(node, ast.If) and name == "body" and _is_type_checking(node.test))


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(x, ast.JoinedStr) or (isinstance(x, ast.Constant) and isinstance(x.value, str)) for x in operands
    )


def place_of(path: Path) -> str:
    """The package that a file belongs to, as `runner/core`; loose files are together in `runner`."""
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]


def chosen(seed: int, count: int) -> list[Mutation]:
    """The mutations: from each package as many as its share of all that are possible, spread over its files.

    A hash of the seed, the file and the line selects them, so that a changed line changes only its own mutations.
    """
    found: dict[str, list[tuple[str, Mutation]]] = defaultdict(list)
    for path in sorted([*(ROOT / "runner").rglob("*.py"), *(ROOT / "models").rglob("*.py")]):
        found[place_of(path.relative_to(ROOT))] += _ranked(path.relative_to(ROOT), seed)
    sizes = {place: len(mutations) for place, mutations in found.items() if mutations}
    shares = {place: max(1, round(count * size / sum(sizes.values()))) for place, size in sizes.items()}
    while sum(shares.values()) != count:
        step = 1 if sum(shares.values()) < count else -1
        most = max(
            (place for place in shares if shares[place] + step > 0),
            key=lambda place: sizes[place] / shares[place] * step,
        )
        shares[most] += step
    return [mutation for place, share in shares.items() for mutation in _spread(found[place])[:share]]


def _ranked(path: Path, seed: int) -> list[tuple[str, Mutation]]:
    """The mutations of a file, each with a hash of the seed, the path and the mutated line."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    copies: Counter[str] = Counter()
    ranked = []
    for mutation in _Finder(path).find():
        text = f"{seed} {path} {lines[mutation.line - 1].strip()} {mutation.old} {mutation.new}"
        copies[text] += 1
        ranked.append((hashlib.sha256(f"{text} {copies[text]}".encode()).hexdigest(), mutation))
    return ranked


def _spread(ranked: list[tuple[str, Mutation]]) -> list[Mutation]:
    """The mutations in the order of their hashes, the first of every file before the second of any."""
    of_file: Counter[Path] = Counter()
    rounds = []
    for rank, mutation in sorted(ranked, key=lambda pair: pair[0]):
        rounds.append((of_file[mutation.path], rank, mutation))
        of_file[mutation.path] += 1
    return [mutation for _, _, mutation in sorted(rounds, key=lambda row: row[:2])]


def tests_of(path: Path) -> Path | None:
    """The folder of tests that mirrors the package of a file, the innermost that there is."""
    folder = Path("tests", *path.parts[1:-1])
    while len(folder.parts) > 1 and not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder if len(folder.parts) > 1 else None


def is_noticed(mutation: Mutation, copy: Path) -> str | None:
    """The first test that fails on the mutated copy, or None."""
    own = tests_of(mutation.path)
    for words in ([str(own)] if own else [], [f"--ignore={own}"] if own else []):
        if not words and own:
            continue
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "2",
            "--no-header",
            "-p",
            "no:cacheprovider",
            *words,
        ]
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "the tests did not end"
        if done.returncode not in (0, 5):
            lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return lines[0] if lines else f"pytest ends with {done.returncode}"
    return None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", type=int, nargs="+")
    words = parser.parse_args()
    mutations = dict(enumerate(chosen(words.seed, words.count), start=1))
    if words.only:
        mutations = {number: mutations[number] for number in words.only}
    if words.list:
        print("\n".join(f"{number:>3} {mutation}" for number, mutation in mutations.items()))
        return
    survivors = []
    for number, mutation in mutations.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, ROOT.name)
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
            mutation.apply(copy)
            start = time.perf_counter()
            noticed = is_noticed(mutation, copy)
        survivors += [] if noticed else [mutation]
        print(f"{number:>3} {mutation}\n    {noticed or 'SURVIVES'}  ({time.perf_counter() - start:.0f} s)", flush=True)
    print(f"{len(survivors)} of {len(mutations)} survive", *survivors, sep="\n  ")
    sys.exit(len(survivors) > words.limit)


if __name__ == "__main__":
    main()
