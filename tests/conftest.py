"""For all tests: each starts from the defaults of the process, and in the log handlers that the first one had."""

import logging
from collections.abc import Iterator

import pytest

from runner import context
from runner.host import seed


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    context.reset_context()
    seed.set_seed(1)
    root = logging.getLogger()
    before = [*root.handlers]
    yield
    for handler in [*root.handlers]:  # Hydra's, which write to what was the screen of this test
        if handler not in before and type(handler) is logging.StreamHandler:
            root.removeHandler(handler)
    context.reset_context()
    seed.set_seed(1)
