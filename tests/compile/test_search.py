"""The search for the fastest step: what it may choose from, whom it believes, and when it ends. Times are planted."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from training_steps import Batch, lenet, resnet, training_step

from runner import nn
from runner.compile import parts, tuning as trial
from runner.compile.passes import PASSES, optimize
from runner.compile.passes.order import lowerings_of, signature
from runner.compile.tuning import PairedTiming, Trial, TuningResult, TuningSearch, results_agree
from runner.core.graph import Graph
from runner.core.precision import OperandPrecision
from runner.core.trace import trace
from runner.device import UNTUNED, Device, Tuning
from runner.host import seed
from runner.types import TensorType

ALONE = Device(threads=1)
USUAL = 10.0  # planted seconds


def step(make: Callable[[int], tuple[object, Batch]], batch: int = 8) -> tuple[Graph, Batch]:
    cell, arrays = make(batch)
    return optimize(trace(training_step(cell).construct, [TensorType.of(a) for a in arrays], "step"), PASSES), arrays


def small(batch: int) -> tuple[nn.Cell, Batch]:
    """A convolution, a pool and a dense layer."""
    seed.set_seed(1)
    layers = nn.Conv2d(1, 4, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(144, 10)
    rng = np.random.default_rng(2)
    images, labels = rng.standard_normal((batch, 1, 16, 16), np.float32), rng.integers(0, 10, batch)
    return nn.SequentialCell(*layers), (images, labels.astype(np.int32))


@pytest.fixture(scope="module")
def small_step() -> tuple[Graph, Batch]:
    return step(small)


def sites(graph: Graph) -> dict[str, list[str]]:
    return {signature(node): list(map(str, lowerings_of(node, Device()))) for node in graph.nodes}


@pytest.mark.parametrize("make", [lenet, resnet])
def test_every_lowering_is_taken_and_agrees(make):
    """A form that is asked for is the one that is lowered; float64 would be exact, the usual float32 step is near."""
    graph, arrays = step(make)
    usual = Trial(graph, arrays, ALONE, UNTUNED)
    expected = usual.results()
    many = {name: lowerings for name, lowerings in sites(graph).items() if len(lowerings) > 1}
    assert len(many) > 20
    for k in range(max(map(len, many.values()))):  # all sites at once: the k-th form of each
        lowerings = {name: lowerings[k % len(lowerings)] for name, lowerings in many.items()}
        made = Trial(graph, arrays, ALONE, Tuning(forms=tuple(lowerings.items())))
        assert {signature(n): str(n.lowering) for n in made.graph.nodes if signature(n) in lowerings} == lowerings
        for a, b, x in zip(expected, made.results(), [None, *graph.updates], strict=True):
            size = np.abs(a if x is None else a - x.array).max()
            assert np.abs(a - b).max() <= 2e-4 * size + 1e-6 * np.abs(a).max()


def test_the_layout_of_onnxruntime_changes_no_result(small_step):
    graph, arrays = small_step
    made = Trial(graph, arrays, Device(), Tuning(placed=False))
    assert not made.graph.has_lowerings
    assert results_agree(graph, Trial(graph, arrays, Device(), UNTUNED).results(), made.results())


def test_agreement_is_about_the_change_of_a_parameter(small_step):
    graph, arrays = small_step
    expected = Trial(graph, arrays, ALONE, UNTUNED).results()
    values = [None, *(parameter.array for parameter in graph.updates)]
    assert results_agree(graph, expected, expected)
    for k, (array, before) in enumerate(zip(expected, values, strict=True)):
        change = array - (0 if before is None else before)
        for factor, fits in ((1.01, False), (1 + 1e-6, True)):  # 1% of a change is 1e-5 of a weight
            made = list(expected)
            made[k] = (array + (factor - 1) * change).astype(np.float32)
            assert results_agree(graph, expected, made) == fits, (k, factor)
        made = list(expected)
        made[k] = np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array).astype(np.float32)
        assert not results_agree(graph, expected, made)


class Planted:
    """Trials whose steps take what `seconds` says of their tuning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Tuning], float]) -> None:
        self.asked: list[Tuning] = []

        def timed(way: Trial, count: int) -> float:
            self.asked.append(way.tuning)
            return count * seconds(way.tuning)

        monkeypatch.setattr(trial.Trial, "seconds", timed)


def searched(graph: Graph, arrays: Batch, *ways: str, device: Device = ALONE, limit: float = 1e9) -> TuningResult:
    return TuningSearch(graph, arrays, device, ways, limit, lambda line: None).result()


def test_the_best_of_all_is_found(small_step, monkeypatch):
    """Two forms gain, one of them only a little; one loses; all others change nothing."""
    graph, arrays = small_step
    many = [(name, lowering) for name, lowerings in sites(graph).items() for lowering in lowerings[1:]]
    pools = [pair for pair in many if pair[0].startswith("MaxPool(") and pair[1].startswith("last")]
    products = [pair for pair in many if pair[0].startswith("MatMul(")]
    worth = {pools[0]: -3.0, products[0]: -0.1, products[-1]: 2.0}
    Planted(monkeypatch, lambda tuning: USUAL + sum(worth.get(pair, 0.0) for pair in tuning.forms))
    found = searched(graph, arrays, "RL", "GA")
    assert found.tuning.forms == (pools[0],)  # 1% is within the noise of a machine
    assert found.tuning == Tuning(forms=found.tuning.forms)
    assert (found.usual_ms, found.tuned_ms) == (pytest.approx(1e4), pytest.approx(7e3))
    assert found.tried == found.candidates
    assert searched(graph, arrays, "GA").tuning == UNTUNED
    assert searched(graph, arrays, "RL").tuning.forms == (pools[0],)


def test_each_way_changes_its_own_operators(small_step, monkeypatch):
    graph, arrays = small_step
    cube = {signature(node) for node in graph.nodes if node.op.precision is OperandPrecision.HALF}
    assert {name.partition("(")[0] for name in cube} >= {"Conv2D", "MatMul", "Conv2DBackpropFilter"}
    for ways, allowed in ((("GA",), cube), (("RL",), sites(graph).keys() - cube)):
        planted = Planted(monkeypatch, lambda tuning: USUAL)
        searched(graph, arrays, *ways)
        changed = {name for tuning in planted.asked for name, _ in tuning.forms}
        assert changed
        assert changed <= allowed
        assert all(tuning == Tuning(forms=tuning.forms) for tuning in planted.asked)


def test_both_ways_also_try_the_layout_of_onnxruntime(small_step, monkeypatch):
    graph, arrays = small_step
    planted = Planted(monkeypatch, lambda tuning: USUAL - (not tuning.placed))
    assert searched(graph, arrays, "RL", "GA", device=Device()).tuning == Tuning(placed=False)
    planted.asked.clear()
    searched(graph, arrays, "GA")
    assert all(tuning.placed for tuning in planted.asked)


def test_the_operators_of_parts_are_tried(monkeypatch):
    graph, arrays = step(lenet, 32)
    monkeypatch.setattr(parts, "PART_FLOPS", 1)
    of_parts = Trial(graph, arrays, ALONE, UNTUNED)
    batches = {node.inputs[0].shape[0] for node in of_parts.nodes if node.op.name == "Conv2D"}
    assert batches == {16}
    gains = [signature(node) for node in of_parts.nodes if node.op.name == "Conv2D"]
    Planted(monkeypatch, lambda tuning: USUAL - 2 * any(name == gains[0] for name, _ in tuning.forms))
    found = searched(graph, arrays, "GA")
    assert [name for name, _ in found.tuning.forms] == [gains[0]]
    made = Trial(graph, arrays, ALONE, found.tuning)
    assert {str(n.lowering) for n in made.nodes if signature(n) == gains[0]} == {found.tuning.forms[0][1]}


def test_what_only_seemed_faster_is_given_up(small_step, monkeypatch):
    """Every change seems to gain as long as it is new; the last race is fair."""
    graph, arrays = small_step
    Planted(monkeypatch, lambda tuning: USUAL)
    lucky = itertools.chain([0.9], itertools.repeat(1.0))

    def ratio(race: PairedTiming, pairs: int = trial.PAIRS) -> float:
        race.ratios, race.milliseconds = [next(lucky)], (10.0, 9.0)
        return race.ratios[0]

    monkeypatch.setattr(trial.PairedTiming, "ratio", ratio)
    found = searched(graph, arrays, "GA")
    assert found.tuning == UNTUNED
    assert found.tuned_ms == found.usual_ms == 10.0


def test_a_lowering_with_other_results_is_never_taken(small_step, monkeypatch):
    graph, arrays = small_step
    Planted(monkeypatch, lambda tuning: USUAL * 0.9 ** len(tuning.forms))
    honest = trial.Trial.results

    def results(way: Trial) -> list[np.ndarray]:
        wrong = any(name.startswith("Conv2D(") for name, _ in way.tuning.forms)
        return [array * np.float32(1.001 if wrong else 1.0) for array in honest(way)]

    monkeypatch.setattr(trial.Trial, "results", results)
    found = searched(graph, arrays, "GA")
    assert found.tuning.forms
    assert not [name for name, _ in found.tuning.forms if name.startswith("Conv2D(")]
    assert {line.partition("(")[0] for line in found.inexact} == {"Conv2D"}


def test_the_limit_ends_a_search(small_step):
    graph, arrays = small_step
    found = searched(graph, arrays, "RL", "GA", limit=0.0)
    assert (found.tried, found.tuning) == (0, UNTUNED)
    assert found.candidates > 20


def test_a_race_ends_when_it_is_lost(small_step, monkeypatch):
    graph, arrays = small_step
    Planted(monkeypatch, lambda tuning: USUAL + (not tuning.placed))
    ways = [Trial(graph, arrays, ALONE, tuning) for tuning in (UNTUNED, Tuning(placed=False))]
    lost, won = PairedTiming(*ways), PairedTiming(*reversed(ways))
    assert (lost.ratio(), won.ratio()) == (pytest.approx(1.1), pytest.approx(10 / 11))
    assert (len(lost.ratios), len(won.ratios)) == (trial.MIN_PAIRS, trial.PAIRS)
    assert won.is_faster
    assert not lost.is_faster
