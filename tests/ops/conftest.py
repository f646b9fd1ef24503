"""Random operands that do not depend on which tests were run before."""

import operands
import pytest


@pytest.fixture(autouse=True)
def _fresh_operands() -> None:
    operands.RNG.bit_generator.state = operands.STATE
