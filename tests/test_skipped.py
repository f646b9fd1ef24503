"""The list of skipped tests at the end of the suite: every reason has something that would enable the test."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from skipped import how_to_enable, summary

HERE = Path(__file__).parent
# Reasons that say what is missing by a value, and what they say.
BY_VALUE = {
    "needs …": ("needs submitit", "needs optuna", "needs hydra_plugins.hydra_ray_launcher"),
    "… is not set": ("RUNNER_ORT_GPU_PYTHON is not set",),
    "hydra_plugins.hydra_…_launcher": ("could not import 'hydra_plugins.hydra_joblib_launcher'",),
    "onnx": ("could not import 'onnx'",),
}
OWN_TESTS = ("test_table_decorator.py", "test_skipped.py")  # they test skipping itself


def text_of(node: ast.expr) -> str | None:
    """A text in the source, with … for the values in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return None


def reasons() -> Iterator[str]:
    """The reasons of all skips that the source of the tests says."""
    for path in HERE.rglob("*.py"):
        calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        for call in calls if path.name not in OWN_TESTS else ():
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
            if name in ("skip", "importorskip") and ast.unparse(call.func).startswith("pytest."):
                given = given or call.args[:1]
            elif name != "skipif":
                continue
            yield from filter(None, map(text_of, given))


def test_every_reason_says_what_would_enable_the_test():
    found = {*reasons()}
    assert len(found) > 30
    assert sorted(reason for reason in found - BY_VALUE.keys() if how_to_enable(reason) is None) == []
    assert BY_VALUE.keys() <= found
    assert all(how_to_enable(said) for values in BY_VALUE.values() for said in values)


def test_the_list_counts_tests_by_what_enables_them():
    def report(nodeid: str, reason: str) -> pytest.TestReport:
        skip = ("file.py", 3, f"Skipped: {reason}")
        return pytest.TestReport(nodeid, ("file.py", 3, "t"), {}, "skipped", skip, "setup")  # type: ignore[arg-type]

    reports = [
        report("a", "no Chromium here"),
        report("b", "could not import 'mpi4py': No module named 'mpi4py'"),
        report("c", "could not import 'mpi4py': No module named 'mpi4py'"),
        report("c", "could not import 'mpi4py': No module named 'mpi4py'"),  # a file, of two processes
        report("d", "the moon is not full"),
    ]
    assert summary(reports) == [
        "   2  pip install \"runner-ml[mpi]\"\n      (could not import 'mpi4py': No module named 'mpi4py')",
        "   1  see the reason\n      (the moon is not full)",
        "   1  apt install chromium\n      (no Chromium here)",
    ]
