"""What the error about an argument says, made by `runner.validation.arguments` or by the owner of the argument."""

from runner.errors import ConfigError


def refused_argument(error: ConfigError) -> tuple[str, str]:
    """The name and the value of the argument. What is allowed must be in the error, too."""
    name, separator, allowed = error.what.partition(" must be ")
    if separator:
        assert allowed
        return name, error.rows["given"]
    if "given" in error.rows:
        assert error.what.endswith(" is not one of the choices")
        assert error.rows["allowed"]
        return error.what.split()[0], error.rows["given"]
    assert error.rows["allowed"]
    return error.rows["argument"], error.rows["value"]
