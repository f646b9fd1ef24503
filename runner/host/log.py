"""The log of the package, for warnings and remarks to the user."""

import logging
from functools import cache

LOG = logging.getLogger("runner")


@cache
def note_once(text: str) -> None:
    """Report that something which a script of MindSpore requests has no effect here, once in a process."""
    LOG.warning(text)
