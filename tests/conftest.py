"""For all tests: each starts from the defaults of the process."""

from collections.abc import Iterator

import pytest

from runner import context, seed


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    context.reset_context()
    seed.set_seed(1)
    yield
    context.reset_context()
    seed.set_seed(1)
