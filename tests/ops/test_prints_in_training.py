"""Training prints the same text in both modes, sunk and step by step, in order."""

import pytest
from print_network import SHOWN, X, model, rows

from runner import context
from runner.train import sink


def training(capsys, mode, sunk, sink_size=-1, epochs=2, rate=0.5, drop=False):
    made = model(mode, rate)
    made.train(epochs, rows().batch(2, drop_remainder=drop), None, sunk, sink_size)
    return capsys.readouterr().out, made


@pytest.mark.parametrize("drop", [True, False], ids=["whole batches", "a short last batch"])
def test_sunk_as_step_by_step_as_pynative(capsys, drop):
    expected, _ = training(capsys, context.PYNATIVE_MODE, False, drop=drop)
    steps = 6 if drop else 8
    assert [line for line in expected.splitlines() if line.isalpha()] == ["rows", "made", "of", "gradient"] * steps
    assert training(capsys, context.GRAPH_MODE, False, drop=drop)[0] == expected
    assert training(capsys, context.GRAPH_MODE, True, drop=drop)[0] == expected


@pytest.mark.parametrize("sink_size", [1, 2, 5])
def test_every_step_of_a_sink_in_order(capsys, sink_size):
    expected, _ = training(capsys, context.PYNATIVE_MODE, False, epochs=5, drop=True)
    sunk, _ = training(capsys, context.GRAPH_MODE, True, sink_size, epochs=15 // sink_size, drop=True)
    count = 15 // sink_size * sink_size
    assert sunk == expected[: len(sunk)]
    assert sunk.count("rows") == count


def test_a_rate_that_changes_every_step(capsys):
    rates = [0.5, 0.25, 1.0, 0.0, 2.0, 0.5]
    expected, _ = training(capsys, context.PYNATIVE_MODE, False, rate=rates, drop=True)
    assert training(capsys, context.GRAPH_MODE, True, rate=rates, drop=True)[0] == expected


def test_calls_are_short_when_much_is_printed(capsys, monkeypatch):
    expected, whole = training(capsys, context.GRAPH_MODE, True, drop=True)
    size = sum(x.type.nbytes for x in whole.programs[0].graph.effect_operands.values())
    assert size == 16 + 8 + 8 + 1 + 8  # x, y, w, training, gradient
    monkeypatch.setattr(sink, "EFFECT_BYTES", 2 * size + 1)
    sunk, made = training(capsys, context.GRAPH_MODE, True, drop=True)
    assert sunk == expected
    assert (made.steps.interactions, whole.steps.interactions) == (4, 2)  # three steps: two and one, in both epochs
    monkeypatch.setattr(sink, "EFFECT_BYTES", 1)
    sunk, made = training(capsys, context.GRAPH_MODE, True, drop=True)
    assert sunk == expected
    assert made.steps.interactions == 6


def test_evaluation_and_prediction_print(capsys):
    texts = []
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        made = model(mode)
        made.eval(rows(4).batch(2))
        made.predict(X)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert [line for line in texts[0].splitlines() if line.isalpha()] == ["rows", "made", "of"] * 3
    assert texts[0].count("dtype=Bool, value=False)") == 3
    assert SHOWN in texts[0]


def test_printing_changes_no_number():
    values = []
    for silent in (False, True):
        made = model(context.GRAPH_MODE)
        if silent:
            made.network.print = lambda *parts: None
        made.train(2, rows().batch(2), None, True)
        values.append(made.network.w.asnumpy().tobytes())
    assert values[0] == values[1]
