"""Learning-rate schedules against closed forms in fractions and 50 decimal digits, and what they refuse."""

import itertools
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tables import table

from runner import Tensor, dtype, nn
from runner.errors import ConfigError
from runner.mindspore.nn import dynamic_lr

getcontext().prec = 50
PI = Decimal("3.14159265358979323846264338327950288419716939937511")
STEPS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 99, 1000)


def D(number: float) -> Decimal:
    """The exact value of a float."""
    return Decimal(number)


def cosine(x: Decimal) -> Decimal:
    """By its series."""
    term, total = Decimal(1), Decimal(0)
    for k in itertools.count(1):
        total += term
        term *= -x * x / ((2 * k - 1) * (2 * k))
        if abs(term) < Decimal(10) ** -45:
            return total


def power(base: Decimal, exponent: Decimal) -> Decimal:
    return (base.ln() * exponent).exp() if base else Decimal(0)


def share(step: int, steps: int, stair: bool) -> Decimal:
    return Decimal(step // steps) if stair else Decimal(step) / Decimal(steps)


def check(schedule, form, steps=STEPS):
    """Each rate is the closed form within float64's precision, and `rates` is that, rounded to float32."""
    for step in steps:
        expected = form(step)
        assert abs(D(schedule(step)) - expected) <= abs(expected) * Decimal("4e-15") + Decimal("1e-17"), step
    rates = schedule.rates(3, 9)
    assert rates.dtype == np.float32
    assert rates.tolist() == [np.float32(schedule(step)) for step in range(3, 12)]


@pytest.mark.parametrize("stair", [False, True])
def test_exponential_decay(stair):
    check(nn.ExponentialDecayLR(0.1, 0.9, 4, stair), lambda i: D(0.1) * power(D(0.9), share(i, 4, stair)))


@pytest.mark.parametrize("stair", [False, True])
def test_natural_exponential_decay(stair):
    """r1.2 does not divide the step by decay_steps, whatever its documentation says."""
    rate = nn.NaturalExpDecayLR(0.1, 0.01, 4, stair)
    check(rate, lambda i: D(0.1) * (-D(0.01) * (i // 4 * 4 if stair else i)).exp())


@pytest.mark.parametrize("stair", [False, True])
def test_inverse_decay(stair):
    check(nn.InverseDecayLR(0.1, 0.5, 4, stair), lambda i: D(0.1) / (1 + D(0.5) * share(i, 4, stair)))


def test_cosine_decay():
    low, high = D(0.01), D(0.1)
    rate = nn.CosineDecayLR(0.01, 0.1, 9)
    check(rate, lambda i: low + (high - low) / 2 * (1 + cosine(PI * min(i, 9) / 9)))
    assert [rate(0), rate(9), rate(10**9)] == [0.1, 0.01, 0.01]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("end", [0.0, 0.01, 0.3])
def test_polynomial_decay(exponent, end):
    def form(i, steps=4):
        return (D(0.1) - D(end)) * power(1 - Decimal(min(i, steps)) / steps, D(exponent)) + D(end)

    check(nn.PolynomialDecayLR(0.1, end, 4, exponent), form)
    check(nn.PolynomialDecayLR(0.1, end, 4, exponent, True), lambda i: form(i, 4 * max(1, -(-i // 4))))


def test_polynomial_decay_reaches_its_end_at_every_multiple():
    rate = nn.PolynomialDecayLR(0.1, 0.01, 4, 1.0, update_decay_steps=True)
    assert [rate(step) for step in (0, 4, 8, 12)] == [0.1, 0.01, 0.01, 0.01]
    assert rate(5) == pytest.approx(0.09 * 3 / 8 + 0.01)  # 5 of 8


def test_warm_up():
    check(nn.WarmUpLR(0.1, 8), lambda i: D(0.1) * min(i, 8) / 8)
    assert nn.WarmUpLR(0.1, 8)(0) == 0.0


def test_steps_and_pieces():
    check(nn.StepLR(0.1, 0.5, 4), lambda i: D(0.1) * Decimal("0.5") ** (i // 4))
    check(nn.ConstantLR(0.1), lambda i: D(0.1))
    check(nn.PiecewiseConstantLR([2, 5, 9], [0.3, 0.2, 0.1]), lambda i: D(0.3 if i < 2 else 0.2 if i < 5 else 0.1))
    assert [nn.PiecewiseConstantLR([2, 2, 3], [0.3, 0.2, 0.1])(step) for step in range(4)] == [0.3, 0.3, 0.1, 0.1]


def test_past_the_end_of_a_list_its_last_rate_holds():
    assert [nn.PerStepLR([0.3, 0.2])(step) for step in (0, 1, 2, 10**9)] == [0.3, 0.2, 0.2, 0.2]
    assert nn.PerStepLR(rate / 10 for rate in range(3)).learning_rates == [0.0, 0.1, 0.2]
    assert nn.PerStepLR(np.array([1, 2], np.int64)).learning_rates == [1.0, 2.0]
    assert nn.PerStepLR([np.float32(0.5), Tensor(0.25), 1]).learning_rates == [0.5, 0.25, 1.0]


def test_a_warm_up_leads_to_the_first_rate_of_what_follows():
    after = nn.CosineDecayLR(0.0, 0.1, 6)
    rate = nn.WarmUpThen(4, after)
    assert [rate(step) for step in range(4)] == [0.1 * step / 4 for step in range(4)]
    assert [rate(step) for step in range(4, 14)] == [after(step) for step in range(10)]
    nested = nn.WarmUpThen(2, nn.WarmUpThen(2, nn.ConstantLR(1.0)))
    assert [nested(step) for step in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]


# What the documentation of r1.2 shows.
@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        (nn.ExponentialDecayLR(0.1, 0.9, 4), "0.09486833"),
        (nn.NaturalExpDecayLR(0.1, 0.9, 4, True), "0.1"),
        (nn.InverseDecayLR(0.1, 0.9, 4, True), "0.1"),
        (nn.CosineDecayLR(0.01, 0.1, 4), "0.055"),
        (nn.PolynomialDecayLR(0.1, 0.01, 4, 0.5), "0.07363961"),
        (nn.WarmUpLR(0.1, 2), "0.1"),
    ],
)
def test_the_examples_of_the_reference(schedule, shown):
    assert schedule(Tensor(2, dtype.int32)) == schedule(2) == schedule(np.array([2]))
    assert str(np.float32(schedule(2))) == shown


LISTS = {
    "piecewise_constant_lr": ([2, 5, 10], [0.1, 0.05, 0.01]),
    "exponential_decay_lr": (0.1, 0.9, 6, 2, 1),
    "natural_exp_decay_lr": (0.1, 0.9, 6, 2, 2, True),
    "inverse_decay_lr": (0.1, 0.5, 6, 1, 1, True),
    "cosine_decay_lr": (0.01, 0.1, 6, 2, 2),
    "polynomial_decay_lr": (0.1, 0.01, 6, 2, 2, 0.5),
    "warmup_lr": (0.1, 6, 2, 2),
}
SHOWN = {
    "piecewise_constant_lr": [0.1, 0.1, 0.05, 0.05, 0.05, 0.01, 0.01, 0.01, 0.01, 0.01],
    "exponential_decay_lr": [
        0.1,
        0.1,
        0.09000000000000001,
        0.09000000000000001,
        0.08100000000000002,
        0.08100000000000002,
    ],
    "natural_exp_decay_lr": [0.1, 0.1, 0.1, 0.1, 0.016529888822158657, 0.016529888822158657],
    "inverse_decay_lr": [0.1, 0.06666666666666667, 0.05, 0.04, 0.03333333333333333, 0.028571428571428574],
    "cosine_decay_lr": [0.1, 0.1, 0.05500000000000001, 0.05500000000000001, 0.01, 0.01],
    "polynomial_decay_lr": [0.1, 0.1, 0.07363961030678928, 0.07363961030678928, 0.01, 0.01],
    "warmup_lr": [0.0, 0.0, 0.05, 0.05, 0.1, 0.1],
}


@pytest.mark.parametrize("name", LISTS)
def test_the_lists_of_the_reference(name):
    assert getattr(nn, name) is getattr(dynamic_lr, name)
    assert getattr(nn, name)(*LISTS[name]) == SHOWN[name]


def test_a_polynomial_list_can_move_its_end():
    made = nn.polynomial_decay_lr(1.0, 0.0, 7, 1, 2, 1.0, True)
    assert made == [1.0, 0.5, 0.0, 1 - 3 / 4, 0.0, 1 - 5 / 6, 0.0]


@settings(max_examples=60)
@given(st.floats(1e-6, 1.0), st.floats(0.1, 0.999), st.integers(1, 50), st.integers(0, 200), st.booleans())
def test_rates_do_not_depend_on_how_many_are_asked_for(rate, decay, steps, start, stair):
    for schedule in (
        nn.ExponentialDecayLR(rate, decay, steps, stair),
        nn.InverseDecayLR(rate, decay, steps, stair),
        nn.WarmUpThen(steps, nn.CosineDecayLR(0.0, rate, steps)),
        nn.PolynomialDecayLR(rate, rate * decay, steps, 1.5, stair),
    ):
        all_at_once = schedule.rates(start, 16)
        alone = np.concatenate([schedule.rates(start + k, 1) for k in range(16)])
        assert all_at_once.tobytes() == alone.tobytes()
        assert (all_at_once <= np.float32(rate)).all()


@given(st.integers(1, 30), st.integers(1, 30), st.lists(st.integers(0, 1000), max_size=5))
def test_a_linear_polynomial_is_exact_in_fractions(steps, scale, at):
    schedule = nn.PolynomialDecayLR(float(scale), 0.0, steps, 1.0)
    for step in at:
        exact = scale * (1 - Fraction(min(step, steps), steps))
        assert abs(Fraction(schedule(step)) - exact) <= Fraction(scale, 2**51)


def test_a_schedule_of_ones_own():
    class Triangle(nn.LearningRateSchedule):
        def __init__(self, top):
            super().__init__()
            self.top = top

        def construct(self, global_step):
            return self.top * (1 - abs(global_step % 4 - 2) / 2)

    assert Triangle(0.5).rates(0, 5).tolist() == [0.0, 0.25, 0.5, 0.25, 0.0]
    assert repr(Triangle(0.5)) == "Triangle(top=0.5)"
    with pytest.raises(NotImplementedError, match="LearningRateSchedule must define construct"):
        nn.LearningRateSchedule()(0)


@pytest.mark.parametrize(
    ("schedule", "step", "shown"),
    [
        (nn.ExponentialDecayLR(1.0, 10.0, 1), 39, "1e+39"),
        (nn.ExponentialDecayLR(1.0, 10.0, 1), 400, "inf"),
        (type("Nan", (nn.LearningRateSchedule,), {"construct": lambda self, step: float("nan")})(), 0, "nan"),
    ],
)
def test_a_rate_that_float32_does_not_have(schedule, step, shown):
    with pytest.raises(ConfigError) as caught:
        schedule(step)
    assert str(caught.value) == (
        "ConfigError: a learning rate must be a finite number of at least 0\n"
        f"  schedule  {schedule!r}\n  step      {step}\n  given     {shown}"
    )


NAN = float("nan")
WRONG = [
    (
        lambda: nn.ExponentialDecayLR(0.0, 0.9, 4),
        "learning_rate must be a number above 0.0",
        "ExponentialDecayLR",
        "0.0",
    ),
    (lambda: nn.ExponentialDecayLR(0.1, -0.9, 4), "decay_rate must be a number above 0.0", None, "-0.9"),
    (lambda: nn.ExponentialDecayLR("0.1", 0.9, 4), "learning_rate must be a number above 0.0", None, "'0.1'"),
    (lambda: nn.NaturalExpDecayLR(0.1, 0.0, 4), "decay_rate must be a number above 0.0", "NaturalExpDecayLR", "0.0"),
    (lambda: nn.NaturalExpDecayLR(0.1, 0.9, 0), "decay_steps must be a whole number of at least 1", None, "0"),
    (lambda: nn.InverseDecayLR(0.1, 0.9, 4.0), "decay_steps must be a whole number of at least 1", None, "4.0"),
    (lambda: nn.InverseDecayLR(0.1, 0.9, True), "decay_steps must be a whole number of at least 1", None, "True"),
    (lambda: nn.InverseDecayLR(0.1, 0.9, 4, 1), "is_stair must be True or False", "InverseDecayLR", "1"),
    (lambda: nn.CosineDecayLR(-0.1, 0.1, 4), "min_lr must be a number of at least 0.0", "CosineDecayLR", "-0.1"),
    (lambda: nn.CosineDecayLR(0.0, 0.0, 4), "max_lr must be a number above 0.0", None, "0.0"),
    (lambda: nn.CosineDecayLR(0.0, NAN, 4), "max_lr must be a number above 0.0", None, "nan"),
    (lambda: nn.PolynomialDecayLR(0.1, 0.0, 4, 0.0), "power must be a number above 0.0", "PolynomialDecayLR", "0.0"),
    (
        lambda: nn.PolynomialDecayLR(0.1, -1.0, 4, 1.0),
        "end_learning_rate must be a number of at least 0.0",
        None,
        "-1.0",
    ),
    (lambda: nn.PolynomialDecayLR(0.1, 0.0, 4, 1.0, 0), "update_decay_steps must be True or False", None, "0"),
    (lambda: nn.WarmUpLR(0.1, 0), "warmup_steps must be a whole number of at least 1", "WarmUpLR", "0"),
    (lambda: nn.WarmUpThen(0, nn.ConstantLR(0.1)), "warmup_steps must be a whole number of at least 1", None, "0"),
    (lambda: nn.WarmUpThen(2, 0.1), "schedule must be a LearningRateSchedule", "WarmUpThen", "0.1"),
    (lambda: nn.ConstantLR(True), "learning_rate must be a number of at least 0.0", "ConstantLR", "True"),
    (lambda: nn.PerStepLR([0.1, -0.2]), "learning_rates[1] must be a number of at least 0.0", "PerStepLR", "-0.2"),
    (lambda: nn.PerStepLR(["a"]), "learning_rates[0] must be a number of at least 0.0", None, "'a'"),
    (lambda: nn.PerStepLR([]), "a list of learning rates needs at least one", "PerStepLR", None),
    (lambda: nn.PiecewiseConstantLR([], []), "milestone must be a list that is not empty", None, "[]"),
    (lambda: nn.PiecewiseConstantLR([2], 0.1), "learning_rates must be a list that is not empty", None, "0.1"),
    (lambda: nn.PiecewiseConstantLR([0], [0.1]), "milestone[0] must be a whole number of at least 1", None, "0"),
    (
        lambda: nn.PiecewiseConstantLR([5, 4], [0.1, 0.1]),
        "milestone[1] must be a whole number of at least 5",
        None,
        "4",
    ),
    (lambda: nn.PiecewiseConstantLR([5], [NAN]), "learning_rates[0] must be a number of at least 0.0", None, "nan"),
    (lambda: nn.exponential_decay_lr(0.1, 0.9, 0, 1, 1), "total_step must be a whole number of at least 1", None, "0"),
    (lambda: nn.cosine_decay_lr(0.0, 0.1, 6, 0, 1), "step_per_epoch must be a whole number of at least 1", None, "0"),
    (lambda: nn.warmup_lr(0.1, 6, 1, 0), "warmup_epoch must be a whole number of at least 1", None, "0"),
    (lambda: nn.inverse_decay_lr(0.1, 0.9, 6, 1, 1.5), "decay_epoch must be a whole number of at least 1", None, "1.5"),
]


@table(("make", "what", "schedule", "shown"), WRONG)
def test_arguments_that_make_no_sense(make, what, schedule, shown):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.what == what
    assert caught.value.rows.get("given") == shown
    assert schedule in (None, caught.value.rows.get("schedule"))


def test_whole_texts():
    with pytest.raises(ConfigError) as caught:
        nn.CosineDecayLR(0.1, 0.1, 4)
    assert str(caught.value) == (
        "ConfigError: max_lr must be above min_lr\n  schedule  CosineDecayLR\n  min lr    0.1\n  max lr    0.1"
    )
    with pytest.raises(ConfigError) as caught:
        nn.piecewise_constant_lr([2, 5], [0.1])
    assert str(caught.value) == (
        "ConfigError: every learning rate needs a milestone\n"
        "  schedule        PiecewiseConstantLR\n  milestones      2\n  learning rates  1"
    )
    with pytest.raises(ConfigError) as caught:
        nn.warmup_lr(0.1, 6, 1, 0)
    assert str(caught.value) == (
        "ConfigError: warmup_epoch must be a whole number of at least 1\n  function  warmup_lr\n  given     0"
    )


@pytest.mark.parametrize("wrong", [None, "0.1", -1, float("nan"), True, np.zeros((2, 2)), b"ab", np.bool_(True)])
def test_what_is_no_learning_rate(wrong):
    dense = nn.Dense(2, 2)
    with pytest.raises(ConfigError) as caught:
        nn.SGD(dense.trainable_params(), wrong)
    assert caught.value.what == "learning_rate must be a number of at least 0.0"
    assert caught.value.rows["optimizer"] == "SGD"


def test_what_an_optimizer_takes():
    def optimizer(rate):
        return nn.SGD(nn.Dense(2, 2).trainable_params(), rate)

    for rate in (0.5, Tensor(0.5), np.float64(0.5)):
        assert optimizer(rate).schedule is None
        assert optimizer(rate).learning_rate.asnumpy() == np.float32(0.5)
    for rates in ([0.5, 0.25], (0.5,), np.array([0.5, 0.1]), Tensor([0.5, 0.1]), iter([0.5]), nn.ConstantLR(0.5)):
        made = optimizer(rates)
        assert made.schedule is not None
        assert made.learning_rate.asnumpy() == np.float32(0.5)  # of step 0
        assert [p.name for p in made.get_parameters()][:2] == ["learning_rate", "global_step"]
        assert made.learning_rate.requires_grad is made.global_step.requires_grad is False
