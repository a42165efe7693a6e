"""The noise that is planned for a budget costs that budget, and no more."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.events import Release
from privacy.accounting.filters import Filter
from privacy.accounting.planning import Stage, multipliers
from privacy.encoding import Encoding
from privacy.errors import AccountingError, NoSuchPlan
from privacy.layout import Block, Layout

DELTA = 1e-5
DEAL = b"deal"


def planned(stages: list[Stage], noise: tuple[float, ...], runs: int = 1) -> list[Release]:
    return [
        Release.planned(
            multiplier=z,
            honest=2,
            statistic=f"stage {i}",
            part=stage.part or "all rows",
            sums=stage.sums * runs,
            sampling_rate=stage.sampling_rate,
            dealing=DEAL if stage.part else b"",
        )
        for i, (stage, z) in enumerate(zip(stages, noise, strict=True))
    ]


def of_part(stages: list[Stage], releases: list[Release], part: str) -> list[Release]:
    return [r for s, r in zip(stages, releases, strict=True) if s.part in ("", part)]


stages_ = st.lists(
    st.builds(
        Stage,
        part=st.sampled_from(["", "training", "calibration"]),
        sums=st.integers(1, 300),
        share=st.floats(0.01, 10.0),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(
    stages=stages_,
    epsilon=st.floats(0.05, 8.0),
    exponent=st.integers(-9, -4),
    runs=st.integers(1, 4),
)
def test_a_plan_costs_its_budget_and_no_more(
    stages: list[Stage], epsilon: float, exponent: int, runs: int
) -> None:
    delta = 10.0**exponent
    noise = multipliers(stages, epsilon=epsilon, delta=delta, runs=runs)
    releases = planned(stages, noise, runs)
    assert 0.995 * epsilon <= Filter(epsilon, delta).spent(releases).epsilon <= epsilon
    named = {stage.part for stage in stages} - {""}
    for part in named:
        spent = Filter(epsilon, delta).spent(of_part(stages, releases, part)).epsilon
        assert 0.995 * epsilon <= spent <= epsilon


def test_the_encodings_of_a_plan_cost_what_was_planned() -> None:
    """Go from the budget to the integers that are drawn, and back to ε."""
    layout = Layout(
        (
            Block("scatter", (100, 100), 1e5, 1.0, 1.0, symmetric=True, weight=4.0),
            Block("cross", (100,), 3e5, 1.0, 3.0),
            Block("square", (), 9e5, 1.0, 9.0, weight=0.1),
        )
    )
    for epsilon in (0.5, 1.0, 8.0):
        (z,) = multipliers([Stage(part="training", sums=20)], epsilon=epsilon, delta=DELTA)
        encoding = Encoding.noisy(layout, multiplier=z, honest=7, max_clients=10)
        release = Release.of(encoding, honest=7, statistic="linear", part="training", sums=20)
        assert 0.995 * epsilon <= Filter(epsilon, DELTA).spent([release]).epsilon <= epsilon


def test_stages_of_a_part_divide_its_budget_by_their_shares() -> None:
    stages = [
        Stage(part="training", share=3.0),
        Stage(part="training", sums=4),
        Stage(part="calibration"),
    ]
    large, small, alone = multipliers(stages, epsilon=1.0, delta=DELTA)
    assert (small / large) ** 2 == pytest.approx(3 * 4, rel=1e-3)
    assert 1 / alone**2 == pytest.approx(1 / large**2 + 4 / small**2, rel=2e-3)


def test_a_stage_over_all_rows_is_taken_from_every_part() -> None:
    stages = [Stage(part="", share=1.0), Stage(part="a", share=3.0), Stage(part="b", share=1.0)]
    every, a, b = multipliers(stages, epsilon=1.0, delta=DELTA)
    assert every**2 / a**2 == pytest.approx(3.0, rel=1e-3)
    assert a == b  # what is left in each part, whatever the shares in the other


def test_sums_over_samples_are_planned_too() -> None:
    stages = [
        Stage(part="training", sums=200, sampling_rate=0.05, share=4.0),
        Stage(part="training"),
        Stage(part="calibration"),
    ]
    noise = multipliers(stages, epsilon=2.0, delta=DELTA)
    releases = planned(stages, noise)
    for part in ("training", "calibration"):
        spent = Filter(2.0, DELTA).spent(of_part(stages, releases, part)).epsilon
        assert 0.99 * 2.0 <= spent <= 2.0
    whole = multipliers([stages[1], stages[2]], epsilon=2.0, delta=DELTA)
    assert noise[2] == whole[1]
    assert noise[0] < math.sqrt(200) * whole[0] / 2


@pytest.mark.full
def test_a_sampled_stage_with_next_to_no_share_takes_what_the_rounding_left_over() -> None:
    stages = [
        Stage(part="training", sums=10, sampling_rate=0.1, share=1e-3),
        Stage(part="training"),
    ]
    noise = multipliers(stages, epsilon=1.0, delta=DELTA)
    assert 0.99 <= Filter(1.0, DELTA).spent(planned(stages, noise)).epsilon <= 1.0


def test_numbers_are_rounded_up_to_four_digits() -> None:
    for z in multipliers([Stage(part="a", sums=n) for n in (1, 7, 300)], epsilon=0.3, delta=1e-7):
        assert float(f"{z:.4g}") == z


def test_a_plan_without_stages_needs_no_noise() -> None:
    assert multipliers([], epsilon=1.0, delta=DELTA) == ()


def test_a_plan_beyond_any_noise_is_refused() -> None:
    with pytest.raises(NoSuchPlan, match="fewer sums"):
        multipliers([Stage(part="training", sums=10**6)], epsilon=1e-4, delta=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": 1},
        {"runs": 0},
        {"runs": 1.0},
    ],
)
def test_impossible_budgets_are_refused(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"epsilon": 1.0, "delta": DELTA} | wrong
    with pytest.raises(AccountingError):
        multipliers([Stage(part="training")], **arguments)


@pytest.mark.parametrize(
    "wrong",
    [
        {"part": None},
        {"sums": 0},
        {"sums": 1.5},
        {"share": 0.0},
        {"share": math.nan},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
    ],
)
def test_impossible_stages_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(AccountingError):
        Stage(**({"part": "training"} | wrong))
