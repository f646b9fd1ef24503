"""What observers of values are shown: the same operators and numbers in every mode, and nothing changes by looking."""

import numpy as np
import pytest
from spy import MODES, Spy, train

from runner import context
from runner.compile import debug_program
from runner.core.graph import NO_VALUES
from runner.errors import ConfigError


@pytest.fixture(scope="module")
def shown():
    spies = {name: Spy([0, 3, 5, 9]) for name in MODES}
    losses = {name: train(*MODES[name], spy, rows=36)[0] for name, spy in spies.items()}
    return spies, losses


def test_every_mode_shows_the_same_operators(shown):
    spies, _ = shown
    expected = spies["pynative"].values
    assert len(expected) == 4 * 158
    for spy in spies.values():
        assert spy.values.keys() == expected.keys()
        assert spy.parameters.keys() == spies["pynative"].parameters.keys()
        assert spy.events == [(event, step) for step in (0, 3, 5, 9) for event in ("begin", "end")]


def test_numbers_agree(shown):
    spies, _ = shown
    for key, array in spies["pynative"].values.items():
        graph, sunk = spies["graph"].values[key], spies["sunk"].values[key]
        assert (graph.dtype, graph.shape) == (array.dtype, array.shape), key
        scale = np.abs(array).max(initial=1e-30)
        np.testing.assert_allclose(graph, array, rtol=0, atol=2e-5 * scale, err_msg=str(key))
        np.testing.assert_array_equal(sunk, graph, err_msg=str(key))


@pytest.mark.parametrize("name", MODES)
def test_operators_are_shown_as_they_are(shown, name):
    """Products, sums and ReLU of the shown operands, in float64."""
    values, checked = shown[0][name].values, 0
    for step, full, side, slot in list(values):
        kind = full.rpartition("/")[2].partition("-")[0]
        if side == "output" and kind in ("MatMul", "BiasAdd", "ReLU", "Flatten"):
            given = [values[step, full, "input", k] for k in range(2) if (step, full, "input", k) in values]
            x, y = given[0].astype(np.float64), values[step, full, side, slot]
            if kind == "MatMul" and "Gradients" not in full:
                expected = x @ given[1].astype(np.float64).T
            elif kind == "BiasAdd":
                expected = x + given[1]
            elif kind in ("ReLU", "Flatten"):
                expected = np.maximum(x, 0) if kind == "ReLU" else x.reshape(y.shape)
            else:
                continue
            checked += 1
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6, err_msg=full)
    assert checked == 4 * (3 + 3 + 4 + 1)


def test_parameters_have_the_values_before_the_update(shown):
    for name, spy in shown[0].items():
        _, model = train(*MODES[name], NO_VALUES, rows=36, epochs=1)
        after = model.train_network.parameters_dict()
        assert any(not np.array_equal(after[p].array, v) for (step, p), v in spy.parameters.items() if step == 0)
        # Step 5 is the first of the second epoch: its parameters are those with which the first epoch ended.
        for (step, parameter), value in spy.parameters.items():
            if step == 5:
                np.testing.assert_array_equal(after[parameter].array, value)


@pytest.mark.parametrize("name", MODES)
def test_looking_changes_nothing(shown, name):
    """Losses bit for bit, with a short last batch in each epoch."""
    plain, model = train(*MODES[name], NO_VALUES, rows=36)
    assert len(plain) == 10
    assert shown[1][name] == plain
    seen, again = train(*MODES[name], Spy(range(10), ["Conv2D"], device_layout=True), rows=36)
    assert seen == plain
    for left, right in zip(model.train_network.get_parameters(), again.train_network.get_parameters(), strict=True):
        np.testing.assert_array_equal(left.array, right.array)


@pytest.mark.parametrize("sink_size", [1, 2, 3, 7])
def test_sinks_are_split_around_shown_steps(sink_size):
    rates = [0.1, 0.05, 0.0, 0.2, 0.01]
    plain, _ = train(context.GRAPH_MODE, True, NO_VALUES, rate=rates, epochs=2, sink_size=sink_size)
    spy = Spy([1, 2, 6])
    seen, _ = train(context.GRAPH_MODE, True, spy, rate=rates, epochs=2, sink_size=sink_size)
    assert seen == plain
    assert [step for event, step in spy.events if event == "end"] == [s for s in (1, 2, 6) if s < 2 * sink_size]
    by_step = Spy([1, 2, 6])
    train(context.PYNATIVE_MODE, False, by_step, rate=rates, epochs=2)
    for key, value in spy.values.items():
        if "ApplyMomentum" in key[1] and key[2] == "input" and key[3] == 2:  # the learning rate of that step
            np.testing.assert_array_equal(value, by_step.values[key])


def test_only_what_is_chosen_is_computed():
    spy = Spy([0], ["MaxPool"])
    train(context.GRAPH_MODE, False, spy, rows=8, epochs=1)
    assert {name.rpartition("/")[2].partition("-")[0] for _, name, _, _ in spy.values} == {"MaxPool"}
    assert len(spy.values) == 4
    nothing = Spy([0], ["NoSuchOperator"])
    train(context.GRAPH_MODE, False, nothing, rows=8, epochs=1)
    assert nothing.values == {}
    assert nothing.events == [("begin", 0), ("end", 0)]


@pytest.mark.parametrize("name", MODES)
def test_values_as_they_lie(shown, name):
    spy = Spy([0], device_layout=True)
    train(*MODES[name], spy, rows=36, epochs=1)
    assert spy.layouts == {"NCHW", "CHWN"}
    plain = shown[0][name]
    for key, value in spy.values.items():
        np.testing.assert_array_equal(value, plain.values[key], err_msg=str(key))


@pytest.mark.parametrize("name", ["graph", "sunk"])
@pytest.mark.parametrize("device_layout", [False, True])
def test_parts_of_a_long_step_show_the_same(name, device_layout, monkeypatch):
    """Every operator in a part of its own, three or four in one, and all in one: equal bytes in equal order."""
    shown = []
    for size in (1, 100_000, 1 << 40):
        monkeypatch.setattr(debug_program, "PART_BYTES", size)
        shown.append(Spy([0, 3], device_layout=device_layout))
        train(*MODES[name], shown[-1], rows=36, epochs=1)
    assert len(shown[2].values) == 2 * 158
    for spy in shown[:2]:
        assert list(spy.values) == list(shown[2].values)
        for key, value in shown[2].values.items():
            np.testing.assert_array_equal(spy.values[key], value, err_msg=str(key))


def test_results_of_a_part_have_a_limit(monkeypatch):
    """No part returns more than the limit and the results of its last operator, and what it returned is released."""
    monkeypatch.setattr(debug_program, "PART_BYTES", 100_000)
    parts = []

    class Counted(debug_program._Part):
        def run(self, known):
            super().run(known)
            parts.append(([known[y].array.nbytes for y in self.results], sum(x.array.nbytes for x in known.values())))

    monkeypatch.setattr(debug_program, "_Part", Counted)
    train(context.GRAPH_MODE, False, Spy([0]), rows=36, epochs=1)
    whole = sum(sum(sizes) for sizes, _ in parts)
    assert len(parts) > 5
    assert all(sum(sizes[:-3]) < 100_000 for sizes, _ in parts)
    assert max(held for _, held in parts) < whole


def test_an_observer_that_cannot_see_sinks():
    class Single(Spy):
        supports_sinks = False

    with pytest.raises(ConfigError, match="synchronous dump needs separate steps") as caught:
        train(context.GRAPH_MODE, True, Single([0]))
    assert "dataset_sink_mode=False" in caught.value.rows["repair"]
    assert len(train(context.PYNATIVE_MODE, True, Single([0]), epochs=1)[0]) == 5
