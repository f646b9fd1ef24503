"""`ModelCheckpoint`: which files appear, which stay, and that training goes on from them."""

import re
from pathlib import Path

import numpy as np
import pytest
from tables import table

from runner import Model, context, nn, set_seed
from runner.dataset import open_dataset
from runner.device import Device
from runner.errors import ConfigError, StorageError
from runner.train.callback import (
    Callback,
    CheckpointConfig,
    LambdaCallback,
    ModelCheckpoint,
    RunContext,
    _InternalCallbackParam,
)
from runner.train.checkpoint import load_checkpoint, load_param_into_net

WAYS = {
    "sunk": {"mode": context.GRAPH_MODE, "sunk": True},
    "graph": {"mode": context.GRAPH_MODE, "sunk": False},
    "pynative": {"mode": context.PYNATIVE_MODE, "sunk": False},
}
PER_EPOCH = 5


def build(mode=context.PYNATIVE_MODE) -> Model:
    set_seed(5)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10, weight_init="he_uniform"))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9), mode=mode, device=Device(threads=1))


def train(model: Model, callbacks, sunk=False, epochs=2, **more) -> Model:
    data = open_dataset(image_size=8, num_samples=PER_EPOCH * 32, train=True)
    model.train(epochs, data, callbacks, sunk, **more)
    return model


def saved(folder: Path) -> list[str]:
    """Names without the suffix, in the order of the numbers in them."""
    names = [path.name.removesuffix(".ckpt") for path in folder.iterdir()]
    return sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def weights(model: Model) -> dict[str, bytes]:
    return {name: p.asnumpy().tobytes() for name, p in model.train_network.parameters_dict().items()}


class Minutes:
    """A clock that is put a minute forward before every step."""

    def __init__(self, checkpoint: ModelCheckpoint) -> None:
        self.now = 1000.0
        checkpoint._clock = lambda: self.now
        self.callback = LambdaCallback(step_begin=self.move)

    def move(self, run_context) -> None:
        self.now += 60.0


@pytest.mark.parametrize("way", WAYS)
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(way, tmp_path):
    mode, sunk = WAYS[way]["mode"], WAYS[way]["sunk"]
    whole = train(build(mode), None, sunk, epochs=3)
    checkpoint = ModelCheckpoint("net", tmp_path, CheckpointConfig(save_checkpoint_steps=PER_EPOCH))
    first = train(build(mode), checkpoint, sunk, epochs=2)
    assert saved(tmp_path) == ["net-1_5", "net-2_5"]
    assert checkpoint.latest_ckpt_file_name == str(tmp_path / "net-2_5.ckpt")
    parameters = load_checkpoint(checkpoint.latest_ckpt_file_name)
    assert {name: p.asnumpy().tobytes() for name, p in parameters.items()} == weights(first)
    again = build(mode)
    assert load_param_into_net(again.train_network, parameters, strict_load=True) == []
    train(again, None, sunk, epochs=3, first_step=2 * PER_EPOCH)
    assert weights(again) == weights(whole)


@pytest.mark.parametrize(
    ("append_info", "numbers"),
    [
        (["epoch_num", "step_num"], {"epoch_num": 2, "step_num": 10}),
        ([{"epoch_num": 3, "step_num": 100, "rate": 0.1, "done": True}], {"epoch_num": 5, "step_num": 110}),
        (["epoch_num", {"trial": np.int64(4)}], {"epoch_num": 2, "trial": 4}),
        ([], {}),
    ],
)
def test_numbers_in_the_files(append_info, numbers, tmp_path):
    """Those of the training are added: a training that continues with the numbers of a file counts on."""
    checkpoint = ModelCheckpoint("net", tmp_path, CheckpointConfig(PER_EPOCH, append_info=append_info))
    model = train(build(), checkpoint)
    found = load_checkpoint(checkpoint.latest_ckpt_file_name)
    assert load_param_into_net(build().network, found) == []
    added = {name: value for name, value in found.items() if name not in model.train_network.parameters_dict()}
    more = {"rate": 0.1, "done": True} if "rate" in str(append_info) else {}
    assert {name: value.asnumpy().item() for name, value in added.items()} == numbers | more
    first = load_checkpoint(tmp_path / "net-1_5.ckpt")
    if "epoch_num" in numbers:
        assert int(first["epoch_num"].asnumpy()) == numbers["epoch_num"] - 1


def test_a_training_loop_of_a_script(tmp_path):
    """Scripts of MindSpore call the hooks themselves."""
    cb_params = _InternalCallbackParam()
    cb_params.train_network, cb_params.epoch_num, cb_params.cur_epoch_num = build().network, 1, 1
    run_context = RunContext(cb_params)
    checkpoint = ModelCheckpoint("own", tmp_path, CheckpointConfig(2))
    checkpoint.begin(run_context)
    for step in range(1, 5):
        cb_params.cur_step_num, cb_params.batch_num = step, step + 1
        checkpoint.step_end(run_context)
    assert saved(tmp_path) == ["own-1_2", "own-1_4"]


def test_another_network_in_the_files(tmp_path):
    model = build()
    checkpoint = ModelCheckpoint("net", tmp_path, CheckpointConfig(PER_EPOCH, saved_network=model.network))
    assert checkpoint.config.get_checkpoint_policy() == {
        "save_checkpoint_steps": 5,
        "save_checkpoint_seconds": 0,
        "keep_checkpoint_max": 5,
        "keep_checkpoint_per_n_minutes": 0,
        "saved_network": model.network,
    }
    train(model, checkpoint)
    found = load_checkpoint(checkpoint.latest_ckpt_file_name)
    assert list(found) == list(model.network.parameters_dict())
    for name, parameter in model.network.parameters_dict().items():
        assert found[name].asnumpy().tobytes() == parameter.asnumpy().tobytes()


def test_the_network_alone_takes_its_parameters(tmp_path):
    checkpoint = ModelCheckpoint(directory=str(tmp_path))
    trained = train(build(), checkpoint, epochs=1)
    network = build().network
    assert load_param_into_net(network, load_checkpoint(checkpoint.latest_ckpt_file_name)) == []
    for mine, other in zip(network.get_parameters(), trained.network.get_parameters(), strict=True):
        np.testing.assert_array_equal(mine.asnumpy(), other.asnumpy())


@pytest.mark.parametrize(
    ("way", "steps", "names"),
    [
        ("graph", 1, ["1_4", "1_5", "2_1", "2_2", "2_3", "2_4", "2_5"]),
        ("graph", 3, ["1_3", "2_1", "2_4", "2_5"]),  # at the end too
        ("graph", 5, ["1_5", "2_5"]),
        ("graph", 99, ["2_5"]),
        ("pynative", 3, ["1_3", "2_1", "2_4", "2_5"]),
        ("sunk", 1, ["1_5", "2_5"]),  # once per sink
        ("sunk", 3, ["1_5", "2_5"]),
        ("sunk", 6, ["2_5"]),
    ],
)
def test_which_steps_are_saved(way, steps, names, tmp_path):
    config = CheckpointConfig(steps, keep_checkpoint_max=7)
    train(build(WAYS[way]["mode"]), ModelCheckpoint("a", tmp_path, config), WAYS[way]["sunk"])
    assert saved(tmp_path) == [f"a-{name}" for name in names]


@pytest.mark.parametrize("keep", [1, 2, 5, 99])
def test_the_oldest_are_deleted(keep, tmp_path):
    train(build(), ModelCheckpoint(directory=tmp_path, config=CheckpointConfig(keep_checkpoint_max=keep)))
    every = [f"CKP-{epoch}_{step}" for epoch in (1, 2) for step in range(1, 6)]
    assert saved(tmp_path) == every[-keep:]


def test_five_are_kept_by_default_in_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(build(), ModelCheckpoint())
    assert saved(tmp_path) == [f"CKP-2_{step}" for step in range(1, 6)]


@pytest.mark.parametrize(
    ("seconds", "names"),
    [(119, ["1_2", "1_4", "2_1", "2_3", "2_5"]), (120, ["1_3", "2_1", "2_4", "2_5"]), (9999, ["2_5"])],
)
def test_so_many_seconds(seconds, names, tmp_path):
    checkpoint = ModelCheckpoint("a", tmp_path, CheckpointConfig(None, seconds))
    train(build(), [Minutes(checkpoint).callback, checkpoint])
    assert saved(tmp_path) == [f"a-{name}" for name in names]


def test_steps_win_over_seconds(tmp_path):
    checkpoint = ModelCheckpoint("a", tmp_path, CheckpointConfig(4, 1))
    train(build(), [Minutes(checkpoint).callback, checkpoint])
    assert saved(tmp_path) == ["a-1_4", "a-2_3", "a-2_5"]


@pytest.mark.parametrize(
    ("minutes", "names"),
    [
        (1, ["1_1", "1_2", "1_3", "1_4", "1_5", "2_1", "2_2", "2_3", "2_4", "2_5"]),
        (3, ["1_1", "1_4", "2_2", "2_5"]),
        (4, ["1_1", "1_5", "2_4", "2_5"]),
    ],
)
def test_one_for_every_so_many_minutes(minutes, names, tmp_path):
    config = CheckpointConfig(keep_checkpoint_max=0, keep_checkpoint_per_n_minutes=minutes)
    checkpoint = ModelCheckpoint("a", tmp_path, config)
    train(build(), [Minutes(checkpoint).callback, checkpoint])
    assert saved(tmp_path) == [f"a-{name}" for name in names]


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (CheckpointConfig(2, 3), (2, 0, 5, 0)),
        (CheckpointConfig(0, 3), (0, 3, 5, 0)),
        (CheckpointConfig(None, None, None, 4), (0, 0, 0, 4)),
        (CheckpointConfig(1, 0, 2, 4), (1, 0, 2, 0)),
        (CheckpointConfig(1, 0, 0, 0), (1, 0, 1, 0)),
    ],
)
def test_which_rule_wins(config, kept):
    assert kept == (
        config.save_checkpoint_steps,
        config.save_checkpoint_seconds,
        config.keep_checkpoint_max,
        config.keep_checkpoint_per_n_minutes,
    )


def test_the_files_of_earlier_runs_stay(tmp_path):
    for name in ("CKP-9_9", "CKPother-1_1", "CKP_4x-1_1"):
        (tmp_path / f"{name}.ckpt").write_bytes(b"mine")
    (tmp_path / "CKP_7-notes.txt").write_bytes(b"")
    config = CheckpointConfig(PER_EPOCH, keep_checkpoint_max=1)
    checkpoint = ModelCheckpoint(directory=tmp_path, config=config)
    model = train(build(), checkpoint)
    assert checkpoint.latest_ckpt_file_name == str(tmp_path / "CKP_1-2_5.ckpt")
    train(model, checkpoint, epochs=1)  # another run of the same callback
    assert checkpoint.latest_ckpt_file_name == str(tmp_path / "CKP_2-1_5.ckpt")
    assert {path.stem for path in tmp_path.glob("*.ckpt")} == {
        *("CKP-9_9", "CKPother-1_1", "CKP_4x-1_1"),
        *("CKP_1-2_5", "CKP_2-1_5"),
    }
    assert (tmp_path / "CKP-9_9.ckpt").read_bytes() == b"mine"


def test_a_request_to_stop_is_saved(tmp_path):
    stop = LambdaCallback(step_end=lambda run_context: run_context.request_stop())
    train(build(), [stop, ModelCheckpoint("a", tmp_path / "new" / "er", CheckpointConfig(3))])
    assert saved(tmp_path / "new" / "er") == ["a-1_1"]


def test_a_run_that_has_nothing_to_do_saves_nothing(tmp_path):
    checkpoint = ModelCheckpoint("a", tmp_path)
    train(build(), checkpoint, epochs=2, first_step=2 * PER_EPOCH)
    assert saved(tmp_path) == []
    assert checkpoint.latest_ckpt_file_name == ""


def test_the_file_is_whole_when_the_step_goes_on_also_with_async_save(tmp_path):
    read = []

    class Read(Callback):
        def step_end(self, run_context):
            read.append(len(load_checkpoint(checkpoint.latest_ckpt_file_name)))

    config = CheckpointConfig(integrated_save=False, async_save=True)
    checkpoint = ModelCheckpoint("a", tmp_path, config)
    model = train(build(), [checkpoint, Read()], epochs=1)
    assert read == [len(weights(model))] * PER_EPOCH


def test_files_have_a_checksum_unless_an_old_reader_needs_them(tmp_path):
    for crc_check in (True, False):
        config = CheckpointConfig(PER_EPOCH, crc_check=crc_check)
        train(build(), ModelCheckpoint("a", tmp_path / str(crc_check), config), epochs=1)
    checked, plain = ((tmp_path / name / "a-1_5.ckpt").read_bytes() for name in ("True", "False"))
    assert checked[10:-17] == plain
    assert checked[-17:-10] == b"crc_num"


def test_a_checkpoint_that_somebody_deleted_is_not_missed(tmp_path):
    checkpoint = ModelCheckpoint("a", tmp_path, CheckpointConfig(keep_checkpoint_max=1))
    delete = LambdaCallback(step_end=lambda run_context: Path(checkpoint.latest_ckpt_file_name).unlink())
    train(build(), [checkpoint, delete], epochs=1)
    assert saved(tmp_path) == []


def test_a_directory_that_is_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot create a directory"):
        train(build(), ModelCheckpoint(directory=tmp_path / "file"))


@table(
    ("make", "text"),
    [
        (lambda: ModelCheckpoint("a/b"), "prefix must be the beginning of a file name\n  callback  ModelCheckpoint"),
        (lambda: ModelCheckpoint(""), "prefix must be the beginning of a file name"),
        (lambda: ModelCheckpoint(3), "prefix must be the beginning of a file name"),
        (lambda: ModelCheckpoint(directory=""), "directory must be the name of a directory"),
        (lambda: ModelCheckpoint(directory=7), "directory must be the name of a directory"),
        (lambda: ModelCheckpoint(config={"a": 1}), "config must be a CheckpointConfig"),
        (lambda: CheckpointConfig(-1), "save_checkpoint_steps must be a whole number of at least 0"),
        (lambda: CheckpointConfig(True), "save_checkpoint_steps must be a whole number of at least 0"),
        (lambda: CheckpointConfig(1, 0.5), "save_checkpoint_seconds must be a whole number of at least 0"),
        (lambda: CheckpointConfig(1, 0, "5"), "keep_checkpoint_max must be a whole number of at least 0"),
        (lambda: CheckpointConfig(1, 0, 5, -2), "keep_checkpoint_per_n_minutes must be a whole number of at least 0"),
        (lambda: CheckpointConfig(0, None, 0, 0), "one number must be more than 0"),
        (lambda: CheckpointConfig(integrated_save=1), "integrated_save must be True or False"),
        (lambda: CheckpointConfig(async_save=None), "async_save must be True or False"),
        (lambda: CheckpointConfig(crc_check=1), "crc_check must be True or False"),
        (lambda: CheckpointConfig(saved_network="net"), "saved_network must be a Cell"),
        (lambda: CheckpointConfig(append_info="epoch_num"), "append_info must be a list"),
        (lambda: CheckpointConfig(append_info=["epoch"]), "append_info is not one of the choices"),
        (lambda: CheckpointConfig(append_info=[1]), "append_info has neither a name nor a dict"),
        (lambda: CheckpointConfig(append_info=[{"a": 1}, {"b": 2}]), "append_info has more than one dict"),
        (lambda: CheckpointConfig(append_info=[{"a": "s"}]), "append_info has something that is no number"),
        (lambda: CheckpointConfig(append_info=[{"a": 2**70}]), "append_info has something that is no number"),
    ],
)
def test_arguments_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(f"ConfigError: {text}")
