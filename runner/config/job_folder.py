"""The folders of a sweep's job, checked before a launcher creates them.

A launcher sets number and id of a job after its config is composed, and Hydra evaluates the folders after that. So they
are replaced by their values here: in what remains, only the number is open.
"""

import re
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from runner.config.containment import Typed, path_error
from runner.errors import ConfigError, raise_all
from runner.validation.rules import show

_NUMBER = re.compile(r"(\$\{\s*hydra[.:]job\.(?:num|id)\s*\})")
_SUBDIR = "hydra.sweep.subdir"


def fix_folders(config: DictConfig, typed: Typed) -> None:
    """Replace `hydra.sweep.subdir` and `hydra.output_subdir` of a job by their values, and check them.

    To be called while `HydraConfig` is this config. Raises ConfigError, ConfigErrors and the errors of OmegaConf.
    """
    settings = config.hydra
    with read_write(settings), open_dict(settings):
        name = settings.job.name = _constant(config, "hydra.job.name")
        if Path(name).name != name:  # joblib makes the id of a job from it
            raise ConfigError("not a name", key="hydra.job.name", value=show(name), allowed="text without /")
        subdir = settings.sweep.subdir = _with_number(config)
        if settings.output_subdir is not None:
            settings.output_subdir = _constant(config, "hydra.output_subdir")
    sweep = Path(str(settings.sweep.dir))
    folder = sweep / _NUMBER.sub("0", subdir)
    errors = path_error(_SUBDIR, subdir, folder, typed, [sweep])
    if (records := settings.output_subdir) is not None:
        errors += path_error("hydra.output_subdir", records, folder / records, typed, [sweep])
    raise_all(errors)


def _with_number(config: DictConfig) -> str:
    """The folder of a job with all parts replaced by their values, except for its number and id."""
    sweep = config.hydra.sweep
    parts = _NUMBER.split(str(sweep._get_node("subdir")._value()))
    for place in range(0, len(parts), 2):  # between the numbers
        sweep.subdir = parts[place]
        parts[place] = _constant(config, _SUBDIR)
    return "".join(parts)


def _constant(config: DictConfig, key: str) -> str:
    """The value of a key as it is before the job has a number. Raises ConfigError when it depends on the number."""
    text: object = OmegaConf.select(config, key.rpartition(".")[0])._get_node(key.rpartition(".")[2])._value()
    try:
        value = OmegaConf.select(config, key, throw_on_missing=True)
    except OmegaConfBaseException:
        value = None
    if not isinstance(value, str | int | float) or "${" in str(value):
        hint = f"{_SUBDIR} may have ${{hydra.job.num}} in its own text, and nothing else depends on the job's number"
        raise ConfigError("not a name that is known before the job starts", key=key, value=show(text), hint=hint)
    return str(value)
