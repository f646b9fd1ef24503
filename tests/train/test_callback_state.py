"""What a checkpoint holds of callbacks comes back as it was, or is refused with its place."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tables import table

from runner import Tensor
from runner.errors import ConfigError, DataError
from runner.train.callback import Callback, EarlyStopping, EpochMonitor, ModelCheckpoint
from runner.train.callback.state import MAX_VALUES, CallbackStates


class Holder(Callback):
    """Holds what it is given."""

    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def carried(state: dict) -> dict:
    """The state after a checkpoint: JSON is written and read."""
    values, arrays = CallbackStates([Holder(**state)]).saved()
    CallbackStates([holder := Holder()]).load(json.loads(json.dumps(values, allow_nan=False, sort_keys=True)), arrays)
    return holder.state


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS
KEYS = TEXTS.filter(lambda text: text[:1] != "$")
VALUES = st.recursive(PLAIN, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3))


@given(st.dictionaries(KEYS.filter(str.isidentifier), VALUES, min_size=1, max_size=4))
def test_plain_values_come_back(state):
    assert carried(state) == state


def test_arrays_numbers_and_what_is_not_finite_come_back():
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    found = carried({"deep": [{"x": x}], "one": np.float32(0.1), "bad": math.nan, "best": -math.inf, "pair": (1, 2)})
    (inner,) = found["deep"]
    assert inner["x"].dtype == np.float16
    assert inner["x"].tobytes() == x.tobytes()
    inner["x"][0] = 1  # it belongs to the callback
    assert type(found["one"]) is np.float32
    assert found["one"] == np.float32(0.1)
    assert math.isnan(found["bad"])
    assert found["best"] == -math.inf
    assert found["pair"] == [1, 2]


def nested(levels: int) -> list:
    return [nested(levels - 1)] if levels else []


REFUSED = [
    ({"a": {"b": [0, object]}}, r"at +a\.b\.1\n"),
    ({"a": 2**63}, r"given +int 9223372036854775808\n"),
    ({"a": {1: 2}}, "dict {1: 2}"),
    ({"a": {"$array": "x"}}, r"\$array"),
    ({"a": "\ud800"}, "str"),
    ({"a": Tensor([1.0])}, "Tensor"),
    ({"a": np.array(["x"])}, "ndarray"),
    ({"a": np.array([object()])}, "ndarray"),
    ({"a": 1j}, "complex"),
    ({"a": nested(17)}, "16 levels"),
    ({"a": [0] * (MAX_VALUES + 1)}, f"at most {MAX_VALUES} values"),
    ({"a": np.broadcast_to(np.float64(0), (1 << 27, 2))}, "1024 MiB"),
]


@table(("state", "text"), REFUSED)
def test_what_is_refused(state, text):
    with pytest.raises(ConfigError, match=text) as caught:
        CallbackStates([Holder(**state)]).saved()
    assert caught.value.rows["callback"] == "Holder"


def test_a_state_that_cannot_be_loaded_is_refused():
    class Half(Callback):
        def state_dict(self):
            return {"a": 1}

    with pytest.raises(ConfigError, match="a state that it cannot load"):
        CallbackStates([Half()]).saved()


def test_callbacks_of_one_class_have_numbers():
    values, arrays = CallbackStates([Holder(a=1), Callback(), Holder(), Holder(a=np.ones(2))]).saved()
    assert values == {"Holder": {"a": 1}, "Holder 3": {"a": {"$array": "Holder 3/0"}}}
    assert [*arrays] == ["Holder 3/0"]


@table(
    "states",
    [
        *(3, {"Holder": {"a": {"$array": "Holder/1"}}}, {"Holder": {"$float": "x"}}, {"Holder": {"$array": 1, "b": 2}}),
        *({"Holder": value} for value in (3, None, [], "a", {"$float": "1"}, {"a": {"$array": ["Holder/0"]}})),
        *({"Other": 3}, {"Holder": {}}),
    ],
)
def test_damaged_states(states):
    """Also of a callback that this run does not have, and with an array that no state has."""
    with pytest.raises(DataError, match="damaged"):
        CallbackStates([Holder()]).load(states, {"Holder/0": np.ones(2)})


OTHERS = [
    (EarlyStopping(), {}),
    (EarlyStopping(), {"best": "1", "best_epoch": 1, "stopped_epoch": None, "waited": 0}),
    (EarlyStopping(), {"best": 1.0, "best_epoch": 1, "stopped_epoch": None, "waited": 0, "losses": np.ones((2, 2))}),
    (EarlyStopping(), {"best": 1.0, "best_epoch": 1, "stopped_epoch": None, "waited": -1}),
    (EpochMonitor(), {"sum": "0", "losses": 3}),
    (EpochMonitor(), {"sum": 1.0, "losses": -3}),
    (ModelCheckpoint(), {"prefix": 3, "saved_step": 3, "files": []}),
    (ModelCheckpoint(), {"prefix": "CKP", "saved_step": 3, "files": 3}),
    (ModelCheckpoint(), {"prefix": "CKP", "saved_step": 3, "files": [], "ages": 3}),
    (ModelCheckpoint(), {"prefix": "CKP", "saved_step": -3, "files": []}),
    (ModelCheckpoint(), {"prefix": "CKP", "saved_step": 3, "files": ["../../other.ckpt"]}),
    (ModelCheckpoint(), {"prefix": "CKP", "saved_step": 3, "files": ["CKP-1_3.ckpt"], "ages": [1.0]}),
]


@table(("callback", "state"), OTHERS)
def test_states_that_are_those_of_others(callback, state):
    with pytest.raises(DataError, match="not the state of such a callback"):
        callback.load_state_dict(state)


class Own(Callback):
    """Changes what a test tells it to."""

    def __init__(self):
        self.count, self.table, self.seen = 0, {"a": [1, {2}]}, np.zeros(3)
        self.mark, self.helper = Tensor([1.0]), object()


CHANGES = {
    "count": lambda own: setattr(own, "count", 1),
    "table": lambda own: own.table["a"][1].add(3),
    "seen": lambda own: own.seen.__setitem__(1, 2),
    "mark": lambda own: setattr(own, "mark", Tensor([2.0])),
    "helper": lambda own: setattr(own, "helper", object()),
    "new": lambda own: setattr(own, "new", None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_attribute_is_noticed(name, caplog):
    states = CallbackStates([own := Own()])
    states.begin()
    states.saved()
    assert not caplog.messages
    CHANGES[name](own)
    for _ in range(2):
        states.saved()
    (line,) = caplog.messages
    assert line.startswith(f"callback Own has changed {name} and has no state_dict")


def test_an_empty_state_says_that_nothing_is_lost(caplog):
    states = CallbackStates([holder := Holder()])
    states.begin()
    holder.more = 1
    assert states.saved() == ({}, {})
    assert not caplog.messages
