"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow the reference, so that its scripts run after replacing the package name `mindspore` by `runner`. A shell
that requests completions waits for this import, so names load when they are used; `__init__.pyi` lists them.
"""

from runner.host.lazy import ReferencePaths, late_names

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = late_names(__name__, __file__)

ReferencePaths(__name__, "runner.mindspore.addresses").install()
