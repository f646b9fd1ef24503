"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow MindSpore, so that its scripts run after replacing the package name `mindspore` by `runner`. A shell
that requests completions waits for this import, so names load when they are used; `__init__.pyi` lists them.
"""

import sys

if sys.platform == "win32":  # files are locked, and processes end, as POSIX has it
    raise ImportError("runner needs Linux or macOS; on Windows, install it in WSL: `wsl --install` (docs/install.md)")

from runner.host import arithmetic as _arithmetic
from runner.host.lazy import ReferencePaths, late_names
from runner.host.version import __version__ as __version__

_arithmetic.choose()  # before anything loads numpy
__getattr__, __dir__, __all__ = late_names(__name__, __file__)

ReferencePaths(__name__, "runner.mindspore.addresses").install()
