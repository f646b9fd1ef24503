"""Validation of the keys of one source, such as a JSON text or the arguments of a call."""

from collections.abc import Mapping
from typing import Any

from runner.errors import ConfigError
from runner.validation.records import Frozen
from runner.validation.rules import Rule, rule_of
from runner.validation.validate import Invalid, invalid_value_error, unknown_key, validate

Keys = Mapping[str, tuple[Any, Rule]]  # type and rule of each key of a group


def keys_of(owner: type[Frozen]) -> dict[str, tuple[Any, Rule]]:
    """The keys that a record declares."""
    return {name: (field.type, rule_of(owner, name)) for name, field in owner.__dataclass_fields__.items()}


def validate_keys(
    values: Mapping[str, Any], keys: Keys, prefix: str = "", **rows: object
) -> tuple[dict[str, Any], list[ConfigError]]:
    """The valid values in their final form, and an error for each invalid value and each unknown key.

    An error names `prefix` + key; `rows` add where the group is, such as its file.
    """
    valid: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for name, value in values.items():
        try:
            if name not in keys:
                raise unknown_key(name, keys, prefix)
            valid[name] = validate(*keys[name], value)
        except Invalid as invalid:
            errors.append(invalid_value_error(prefix + name, value, invalid, **rows))
    return valid, errors
