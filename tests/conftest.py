"""For all tests: each starts from the state that a fresh process has, whatever ran before it, in whatever order."""

import logging
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from process_state import Generators, ModuleState
from soak import SOAK

from runner import context
from runner.host import seed

# The same examples in every run, which may take what they take; `make soak` looks for new ones.
settings.register_profile("suite", derandomize=not SOAK, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
_STATE = ModuleState()  # made before the first test file is loaded: what these register is gone when tests run


@pytest.fixture(autouse=True, scope="session")
def _signals_of_a_foreground_process() -> Iterator[None]:
    """Ctrl-C reaches tests and the processes that they start, also where the suite runs as a background job.

    A shell starts background jobs with SIGINT ignored, and their children inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _registries_without_tests() -> None:
    """Operators that test files declare when they are loaded are none that `runner` has."""
    _STATE.restore()


@pytest.fixture(scope="module")
def _generators(request: pytest.FixtureRequest) -> Generators:
    return Generators(request.module, *filter(None, [sys.modules.get("operands")]))


@pytest.fixture(autouse=True)
def _fresh_state(_generators: Generators) -> Iterator[None]:
    _generators.restore()
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
