"""For all tests: each starts from the state that a fresh process has, whatever ran before it, in whatever order."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from process_state import Environment, Generators, ModuleState
from skipped import summary
from soak import SOAK
from threadpoolctl import threadpool_limits

from runner import context
from runner.host import seed
from runner.observe import dump

# The same examples in every run, which may take what they take; `make soak` looks for new ones.
settings.register_profile("suite", derandomize=not SOAK, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
NOT_FOR_TESTS = (
    *(dump.VARIABLE, "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "COLUMNS", "NO_COLOR", "FORCE_COLOR"),
    "PYTHONDONTWRITEBYTECODE",  # with it, each of a thousand processes would compile all modules
)
_STATE = ModuleState()  # made before the first test file is loaded: what these register is gone when tests run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were skipped, by what would enable them."""
    if lines := summary(terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("skipped tests, and what enables them")
        terminalreporter.write_line("\n".join(lines))


def pytest_collection(session: pytest.Session) -> None:
    """Pause garbage collection while test files are loaded, which takes a third of that time."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect only what tests leave behind: what is loaded now stays."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _signals_of_a_foreground_process() -> Iterator[None]:
    """Ctrl-C reaches tests and the processes that they start, also where the suite runs as a background job.

    A shell starts background jobs with SIGINT ignored, and their children inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _neutral_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Variables set for other runs, by a user or by CI, have no effect on tests, and nor have cache and state."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*NOT_FOR_TESTS, *(name for name in os.environ if name.startswith("MLFLOW_"))):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for library in ("OPENBLAS", "MKL", "OMP"):
            patch.setenv(f"{library}_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread_of_blas() -> Iterator[None]:
    """Tests run in several processes already: where these use more threads than there are cores, threads wait for each
    other in loops, and a step takes ten times as long.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(autouse=True, scope="session")
def _registries_of_runner() -> None:
    """Operators that test files declare at their top are not operators of `runner`."""
    _STATE.restore()


@pytest.fixture(scope="module")
def _generators(request: pytest.FixtureRequest) -> Generators:
    return Generators(request.module, *filter(None, [sys.modules.get("operands")]))


@pytest.fixture(autouse=True)
def _fresh_state(_generators: Generators) -> Iterator[None]:
    _generators.restore()
    environment = Environment()
    context.reset_context()
    seed.set_seed(1)
    root = logging.getLogger()
    level, before = root.level, [*root.handlers]
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:  # Hydra's, which write to what was the screen of this test
        if handler not in before and type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    context.reset_context()  # closes the file of `print_file_path`
    _STATE.restore()
    environment.restore()
