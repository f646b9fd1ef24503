"""The version of runner: `runner.__version__`, `runner --version`, and that of the distribution."""

__version__ = "0.1.0"
