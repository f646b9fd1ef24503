"""The language in which networks are written, under the names of `mindspore.nn` r1.2; `__init__.pyi` lists them."""

from runner.host.lazy import late_names
from runner.nn import steps  # noqa: F401  it registers how a cell is executed in each mode

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
