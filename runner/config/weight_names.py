"""The key `checkpoint.names`: how other programs name the weights that `checkpoint.load` reads.

A naming is a table of patterns of our names and of theirs. `*` stands for any text, which is the same in both.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.config import read
from runner.errors import ConfigError, nearest
from runner.validation.rules import FILE_PATH, Invalid, Names, validate

MOST_STARS = 4
# Layers of torch.nn: linear layers, convolutions and their biases have our names.
TORCH = {
    "*.gamma": "*.weight",
    "*.beta": "*.bias",
    "*.moving_mean": "*.running_mean",
    "*.moving_variance": "*.running_var",
    "*.embedding_table": "*.weight",
}
SCHEMES: Mapping[str, Mapping[str, str]] = {
    "torch": TORCH,
    "torchvision": {  # of its ResNets; names that no pattern matches are equal
        "*.down_sample_layer.0.weight": "*.downsample.0.weight",
        "*.down_sample_layer.1.gamma": "*.downsample.1.weight",
        "*.down_sample_layer.1.beta": "*.downsample.1.bias",
        "*.down_sample_layer.1.moving_mean": "*.downsample.1.running_mean",
        "*.down_sample_layer.1.moving_variance": "*.downsample.1.running_var",
        "linear.*": "fc.*",
        **TORCH,
    },
}
ALLOWED = f"{', '.join(SCHEMES)}, or a file {' or '.join(f'*{suffix}' for suffix in read.SUFFIXES)}"


def checked(value: object) -> str:
    """The name of a scheme, or the absolute path of a file with a table. Raises Invalid."""
    name: str = validate(str, FILE_PATH, value)
    if name in SCHEMES:
        return name
    path = Path(name).absolute()
    if path.suffix not in read.SUFFIXES:
        raise Invalid("no naming of weights", ALLOWED, nearest(name, SCHEMES))
    if not path.exists():
        raise Invalid("no such file", ALLOWED, nearest(path.name, [other.name for other in path.parent.glob("*")]))
    try:
        names_of(str(path))
    except ConfigError as error:
        rows = "; ".join(f"{label} {row}" for label, row in error.rows.items())
        allowed = "`our name: their name` in each line; null for what is not loaded"
        raise Invalid(error.what, allowed, hint=rows or None) from None
    return str(path)


def names_of(name: str) -> Names:
    """The naming that a valid value of the key selects. Raises ConfigError for the content of a file."""
    if name in SCHEMES:
        return Names(rules=tuple(SCHEMES[name].items()), is_scheme=True)
    values, _ = read.read(Path(name))
    if not isinstance(values, dict) or not values:
        raise ConfigError("the file has no table of names")
    for ours, theirs in values.items():
        _check_rule(ours, theirs)
    return Names(rules=tuple(values.items()))


def _check_rule(ours: Any, theirs: Any) -> None:
    rule = {"rule": f"{ours}: {theirs}"}
    if not isinstance(ours, str) or not isinstance(theirs, str | None):
        raise ConfigError("a name of a parameter is a text", **rule)
    if theirs is not None and theirs.count("*") != ours.count("*"):
        raise ConfigError("both patterns of a rule have equally many *", **rule)
    if ours.count("*") > MOST_STARS:
        raise ConfigError(f"a pattern has at most {MOST_STARS} *", **rule)
