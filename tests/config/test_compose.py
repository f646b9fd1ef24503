"""Every option and experiment composes; YAML and JSON mix; defaults stand in Python only; records are Hydra's."""

import json
import sys

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from tables import table

from runner import register
from runner.config import check, read, schema
from runner.config.compose import CommandLine, Loader, compose
from runner.config.groups import entries as networks
from runner.config.groups.entries import CALLBACKS, default_callbacks
from runner.config.options import TABLES, all_options
from runner.dataset.catalog import CATALOG
from runner.errors import ConfigError
from runner.host import files

CONF = files.folder("conf")
FILES = sorted((group.name, file.stem) for group in CONF.iterdir() if group.is_dir() for file in group.iterdir())
OPTIONS = [(group, option) for group, names in all_options().items() for option in names]
CHOOSING = {"name", "target", "defaults"}
NEEDED = {"ge": (f"dump.dump_path={CONF}",), "onnx": ("network.path=network.onnx",)}  # without a default


@table(("group", "option"), OPTIONS)
def test_every_option_composes(group, option, monkeypatch):
    monkeypatch.setattr("runner.config.groups.services._is_installed", lambda name: True)
    sign = "+" if group == "experiment" else ""
    made = compose(CommandLine((f"{sign}{group}={option}", *NEEDED.get(option, ()))))
    if group in TABLES and group != "callbacks":
        assert getattr(made.config, group).name == option


def test_the_defaults_are_the_dataclass():
    assert compose(CommandLine()).config == schema.RunConfig()


def test_what_is_shown_and_saved_are_options():
    made = compose(CommandLine(("callbacks=quiet", "checkpoint=minutely"))).config
    assert made.callbacks == dict.fromkeys(("epoch_monitor", "progress"))
    assert made.checkpoint == schema.CheckpointSettings(every_seconds=60.0)
    made = compose(CommandLine(("callbacks=verbose",))).config
    shown = {name: CALLBACKS[name]() for name in ("loss_monitor", "time_monitor", "progress")}
    assert made.callbacks == {"epoch_monitor": None, **shown}
    made = compose(CommandLine(("callbacks=default", "checkpoint=last", "checkpoint.keep_max=2"))).config
    assert (made.callbacks, made.checkpoint) == (default_callbacks(), schema.CheckpointSettings(keep_max=2))


def test_everything_can_be_left_out():
    assert check.check({}) == schema.RunConfig()


def test_the_shown_config_has_every_key(tmp_path):
    made = compose(CommandLine())
    with made.activate(tmp_path) as request:
        shown = yaml.safe_load(dict(made.records())[".hydra/config.yaml"])
        assert shown.keys() == request.resolved.keys() == schema.defaults(schema.RunConfig).keys()


def test_a_resolved_config_composes_to_itself(tmp_path):
    with compose(CommandLine(("+experiment=lenet", "optimizer=adam", "mode=0"))).activate(tmp_path) as request:
        assert check.check(json.loads(json.dumps(request.resolved))) == request.config


def leaves(values, path=()):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        elif name not in CHOOSING:
            yield (*path, name), value


def test_all_files_are_options():
    assert {*FILES} < {*OPTIONS}


@pytest.mark.parametrize(("group", "option"), FILES)
def test_no_file_repeats_a_default(group, option):
    file = next((CONF / group).glob(f"{option}.*"))
    values, package = read.read(file)
    inside = () if package == "_global_" else (group,)
    for path, value in leaves(values or {}, inside):
        default = schema.defaults(schema.RunConfig)
        for name in path:
            default = default.get(name) if isinstance(default, dict) else None
        assert default != value, f"{file} repeats {'.'.join(path)}"


@pytest.mark.parametrize("spelling", ["GRAPH_MODE", "graph", "Graph", "graph_mode", 0])
def test_graph_mode_has_many_spellings(spelling):
    assert check.check({"mode": spelling}).mode == "graph"


@pytest.mark.parametrize("spelling", ["PYNATIVE_MODE", "pynative", "PyNative", 1])
def test_pynative_mode_has_many_spellings(spelling):
    assert check.check({"mode": spelling}).mode == "pynative"


@pytest.mark.parametrize(("spelling", "target"), [("cpu", "CPU"), ("gpu", "GPU"), ("ASCEND", "Ascend")])
def test_a_device_is_found_in_any_case(spelling, target):
    assert check.check({"device": {"target": spelling}}).device.target == target


@pytest.mark.parametrize("text", ["1e-2", "0.01", "1.0e-2", ".01", "1E-2"])
@pytest.mark.parametrize("suffix", ["yaml", "json", "override"])
def test_floats_are_floats_everywhere(text, suffix, tmp_path):
    (tmp_path / "experiment").mkdir()
    if suffix == "override":
        call = CommandLine((f"optimizer.learning_rate={text}",))
    else:
        text = "0" + text if suffix == "json" and text.startswith(".") else text
        line = {
            "yaml": f"# @package optimizer\nlearning_rate: {text}",
            "json": f'{{"@package": "optimizer", "learning_rate": {text}}}',
        }
        (tmp_path / "experiment" / f"x.{suffix}").write_text(line[suffix])
        call = CommandLine(("+experiment=x",), config_dir=tmp_path)
    assert compose(call).config.optimizer.learning_rate == 0.01


def test_yaml_and_json_mix(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "main.json").write_text(
        '{"defaults": ["/schema/run", {"dataset": "synthetic"}, {"optimizer": "mine"}, "_self_"], "epochs": 4}'
    )
    (tmp_path / "optimizer" / "mine.yaml").write_text("defaults:\n  - /optimizer/adam@_here_\n\nlearning_rate: 0.5\n")
    (tmp_path / "experiment" / "x.json").write_text(
        '{"@package": "_global_", "defaults": [{"override /dataset": "mnist"}], "seed": 9}'
    )
    made = compose(CommandLine(("+experiment=x", "max_steps=5"), config_name="main", config_dir=tmp_path)).config
    assert (made.dataset.name, made.optimizer.name, made.optimizer.learning_rate) == ("mnist", "adam", 0.5)
    assert (made.epochs, made.seed, made.max_steps) == (4, 9, 5)


def test_two_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "experiment").mkdir()
    for suffix in ("yaml", "json"):
        (tmp_path / "experiment" / f"x.{suffix}").write_text("{}")
    with pytest.raises(ConfigError, match="two files for one config"):
        compose(CommandLine(("+experiment=x",), config_dir=tmp_path))


def test_an_option_may_be_named_with_its_suffix():
    assert compose(CommandLine(("dataset=synthetic.json",))).config.dataset.name == "synthetic"


def test_a_network_gets_its_keys_and_the_facts_of_the_dataset():
    def recorder(num_classes: int, num_channels: int = 7, num_features: int = 9, depth: int = 2):
        return num_classes, num_channels, num_features, depth

    register.network("recorder")(recorder)
    facts = {"num_classes": 10, "num_channels": 1, "input_shape": (1, 32, 32), "image_size": 32}
    facts["depth"] = facts["name"] = 99  # no facts of networks
    given = ("network=recorder", "network.num_channels=3", "network.num_classes=100", "network.depth=4")
    assert compose(CommandLine(("network=recorder",))).config.network.create(tuple, **facts) == (10, 1, 9, 2)
    assert compose(CommandLine(given)).config.network.create(tuple, **facts) == (100, 3, 9, 4)
    with pytest.raises(ConfigError, match="the dataset does not determine num_classes"):
        compose(CommandLine(("network=recorder",))).config.network.create(tuple)
    words = ("network=resnet18", "network.width=8", "network.num_channels=null")
    network = compose(CommandLine(words)).config.network
    assert network.keywords() | {"num_channels": 3} == {
        "num_classes": None,
        "num_channels": 3,
        "width": 8,
        "stem": "cifar",
        "weight_init": "uniform",
    }


def test_networks_come_from_the_registry_only():
    assert register.network["lenet5"].source.__module__ in ("models.lenet", "runner_models.lenet")
    with pytest.raises(ConfigError, match="unknown network"):
        register.network.of("os")


def test_a_package_of_the_user_named_models_is_left_alone(monkeypatch):
    class Other:
        __file__ = "/elsewhere/models/__init__.py"

    for name in [name for name in sys.modules if name.split(".")[0] in ("models", "runner_models")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "models", Other)
    assert networks._package().__name__ == "runner_models"
    assert sys.modules["models"] is Other
    for name in [name for name in sys.modules if name.startswith("runner_models")]:
        del sys.modules[name]


def test_the_request_says_where_it_came_from(tmp_path):
    made = compose(CommandLine(("+experiment=lenet", "epochs=2", "hydra.verbose=false")))
    assert HydraConfig.instance().cfg is None
    with made.activate(tmp_path) as request:
        assert (request.experiment, request.overrides) == ("lenet", ("+experiment=lenet", "epochs=2"))
        assert request.folder == tmp_path
        assert HydraConfig.get().runtime.output_dir == str(tmp_path)
        assert HydraConfig.get().job.override_dirname == "+experiment=lenet,epochs=2"
        records = {name: yaml.safe_load(text) for name, text in made.records()}
    assert records.keys() == {".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml"}
    assert records[".hydra/overrides.yaml"] == ["+experiment=lenet", "epochs=2"]
    assert records[".hydra/hydra.yaml"]["hydra"]["runtime"]["choices"]["experiment"] == "lenet"
    assert HydraConfig.instance().cfg is None


def test_a_value_may_name_the_folder_of_the_run(tmp_path):
    made = compose(CommandLine(("dataset.data_dir='${hydra:runtime.output_dir}/data'",)))
    with made.activate(tmp_path) as request:
        assert request.overrides == ("dataset.data_dir='${hydra:runtime.output_dir}/data'",)
        assert request.config.dataset.data_dir == request.resolved["dataset"]["data_dir"] == f"{tmp_path}/data"


def test_a_key_can_be_put_back_to_its_default():
    assert compose(CommandLine(("+experiment=lenet", "~expect"))).config.expect == {}


def test_hydra_itself_is_left_as_it_was():
    from hydra.core.config_store import ConfigStore

    compose(CommandLine())
    usual = ConfigStore.instance().load("hydra/config.yaml").node
    assert {"job_logging": "default"} in usual.defaults


def test_the_loader_lists_what_the_folders_have():
    assert Loader().options("dataset") == sorted({*CATALOG, "csv", "image_folder", "npz"})
    groups = {"callbacks", "checkpoint", "dataset", "device", "dump", "experiment", "network", "optimizer"}
    assert {*groups, "profiling", "session"} <= set(Loader().list_groups(""))
