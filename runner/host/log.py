"""The log of the package, for warnings and remarks to the user."""

import logging

LOG = logging.getLogger("runner")
