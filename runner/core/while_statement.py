"""`while` statements whose test depends on data: found where a trace meets one, and rewritten as calls.

A branch has two outcomes, and both can be traced; a loop would have a path for each number of iterations. So the
function with the statement gets new code, in which

    while test:                      def test(a, b): return <test>
        a, b = b, a * b              def body(a, b): <body>; return a, b
                                     a, b = loop(test, body, (a, b), ...)

The names are those that the body assigns. `loop` (`runner/core/loops.py`) executes Python's loop wherever the test
is known, so the new code means the same in PyNative mode and outside of networks.
"""

import ast
import linecache
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any

from runner.core.source import SourceLine
from runner.errors import PACKAGE, ConfigError

UNBOUND = object()  # the value of a name that has none
IMPORTED = "UNBOUND as __unbound__, loop as __loop__, state_of as __state_of__"
REPAIR = "ops.Select, a for loop with a fixed number of iterations, or run this network with mode=pynative"
_CONVERTED: set[CodeType] = set()


class WhileFound(BaseException):
    """A trace has come to the test of a `while`, in this frame."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame


def user_frame() -> FrameType | None:
    """The frame that made Python evaluate the truth of a value, if it is not one of runner."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE + "core"):
        frame = frame.f_back
    return frame


def is_in_while_test(frame: FrameType) -> bool:
    """Whether a frame is executing the test of a `while`."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, _, column, _ = positions
    function = _function_of(frame.f_code)
    if function is None or line is None or column is None:
        return False
    tests = [node.test for node in ast.walk(function) if isinstance(node, ast.While)]
    ends = [(t.end_lineno or t.lineno, t.end_col_offset or 0) for t in tests]
    return any((t.lineno, t.col_offset) <= (line, column) < end for t, end in zip(tests, ends, strict=True))


def convert(frame: FrameType) -> None:
    """Give the function of a frame its new code. Raises ConfigError, with the line, where that is not possible."""
    code, line = frame.f_code, SourceLine(frame.f_code.co_filename, frame.f_lineno)
    syntax, function = _function_of(code), _function_object(frame)
    if code in _CONVERTED:
        raise _refused("it has break, continue, return, global or nonlocal", line)
    if syntax is None or function is None:
        raise _refused("its function is no method of a cell and no function of a module with a source file", line)
    made = _compiled(syntax, code)
    if made.co_freevars != code.co_freevars:
        raise _refused(f"its function shares names with others: {', '.join(code.co_freevars)}", line)
    _CONVERTED.add(made)
    function.__code__ = made


def _refused(reason: str, line: SourceLine) -> ConfigError:
    what = "graph mode has no loop for this while, whose test is only known when the graph runs"
    return ConfigError(what, line=line, reason=reason, repair=REPAIR)


@lru_cache(maxsize=256)
def _function_of(code: CodeType) -> ast.FunctionDef | None:
    """The syntax of a function, from its file."""
    text = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def _function_object(frame: FrameType) -> FunctionType | None:
    """The function that a frame executes: a method of its first argument, or a function of its module."""
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    places = [vars(cls) for cls in type(owner).__mro__] + [frame.f_globals]
    for place in places:
        function: Any = place.get(code.co_name)
        while function is not None:
            if getattr(function, "__code__", None) is code:
                return function  # type: ignore[no-any-return]
            function = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
    return None


def _compiled(syntax: ast.FunctionDef, code: CodeType) -> CodeType:
    function = deepcopy(syntax)
    arguments = function.args
    owner = arguments.args[0].arg if arguments.args else ""
    private = re.match(r"(?:.*\.)?_*(\w+)\.\w+$", code.co_qualname)
    start = ast.parse(f"from runner.core.loops import {IMPORTED}").body
    body = _Whiles(owner, private[1] if private else "", function.name).visit_body(function.body)
    function.body, function.decorator_list, function.returns = [*start, *body], [], None
    arguments.defaults, arguments.kw_defaults = [], [None for _ in arguments.kwonlyargs]  # the function has its own
    for argument in (x for x in ast.walk(arguments) if isinstance(x, ast.arg)):
        argument.annotation = None
    outer = ast.parse(f"def outer({', '.join(code.co_freevars)}): pass")
    assert isinstance(outer.body[0], ast.FunctionDef)
    outer.body[0].body = [function]
    ast.fix_missing_locations(outer)
    flags = code.co_flags & 0x1FF0000  # of `from __future__`
    made = compile(outer, code.co_filename, "exec", flags=flags, dont_inherit=True)
    return _constant(_constant(made, "outer"), code.co_name).replace(co_qualname=code.co_qualname)


def _constant(code: CodeType, name: str) -> CodeType:
    return next(x for x in code.co_consts if isinstance(x, CodeType) and x.co_name == name)


class _Whiles(ast.NodeTransformer):
    """Rewrites the statements of a function; `owner` is its first argument, `private` the name of its class."""

    def __init__(self, owner: str, private: str, function: str) -> None:
        self.owner, self.private, self.function = owner, private, function
        self.count = 0

    def visit_body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a function."""
        made: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            made += new if isinstance(new, list) else [new]
        return made

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Private names are those of the class, which the new code is not inside of."""
        self.generic_visit(node)
        if self.private and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.private}{node.attr}"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`super()` has arguments, since the body of a loop is another function."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [ast.Name("__class__", ast.Load()), ast.Name(self.owner, ast.Load())]
        return node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        """The call of `loop`, if nothing leaves the body early."""
        if node.orelse or any(map(_leaves, node.body)):
            self.generic_visit(node)
            return node
        names = sorted({name for part in (node.test, *node.body) for name in _assigned(part)})
        self.generic_visit(node)
        self.count += 1
        made = ast.parse(self._text(names)).body
        for inner in (inner for statement in made for inner in ast.walk(statement)):
            ast.copy_location(inner, node.test)
        test, body = (x for x in made if isinstance(x, ast.FunctionDef))
        test.body = [ast.copy_location(ast.Return(node.test), node.test)]
        body.body[-1:-1] = node.body
        return made

    def _text(self, names: list[str]) -> str:
        # With the name `construct`, lines of the body are lines of the network (`runner/core/source.py`).
        kinds = [self.function if self.function == "construct" else f"__{kind}__" for kind in ("test", "body")]
        test, body = (f"__{kind}{self.count}__" for kind in ("test", "body"))
        arguments, state = ", ".join(names), f"({''.join(f'{name}, ' for name in names)})"
        unbinding = [f"if {name} is __unbound__: del {name}" for name in names]
        lines = [
            f"def {kinds[0]}({arguments}): pass",
            f"{test} = {kinds[0]}",
            f"def {kinds[1]}({arguments}):",
            *[f"  {line}" for line in unbinding],
            f"  return __state_of__(locals(), {names!r})",
            f"{body} = {kinds[1]}",
            f"__state__ = __loop__({test}, {body}, __state_of__(locals(), {names!r}), {names!r})",
            f"{state} = __state__" if names else "",
            *unbinding,
        ]
        return "\n".join(lines)


def _leaves(node: ast.AST, in_loop: bool = False) -> bool:
    """Whether a statement ends a loop or a function early, or shares names with an outer function."""
    if isinstance(node, ast.Return | ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, ast.Break | ast.Continue):
        return not in_loop
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return False
    in_loop = in_loop or isinstance(node, ast.For | ast.While)
    return any(_leaves(child, in_loop) for child in ast.iter_child_nodes(node))


def _assigned(node: ast.AST) -> Iterator[str]:
    """The names that a statement or an expression assigns in its function."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
        yield node.value.id  # a tensor, of which elements are assigned
    elif not isinstance(node, ast.Lambda | ast.comprehension):
        for child in ast.iter_child_nodes(node):
            yield from _assigned(child)
