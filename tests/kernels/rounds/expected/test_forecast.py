"""The forecast of private programs: what is promised of it, and real runs beside it."""

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

from client_sdk.simulation import simulate
from kernels.errors import NoProspect, ProgramError
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.prediction import predict
from kernels.rounds.automatic import automatic_program
from kernels.rounds.columns import moments
from kernels.rounds.expected.forecast import (
    EXPLAINABLE,
    Measure,
    check_prospect,
    explained,
    forecast,
    least_rows_with_prospect,
)
from kernels.rounds.expected.forecast_in_words import expected_in_words, forecasts
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import linear, refinement
from kernels.rounds.noise_planning import with_noise
from kernels.rounds.program import Program
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Binary, Count, Target, TimeToEvent
from privacy import noise
from privacy.accounting.promises import planned_noise
from tests.dealing import DEALING

COLUMNS = tuple(Numeric(name, "1", -3, 3) for name in "abc")
STAY = Schema(COLUMNS, (Target("stay", "d", -4, 4),))
EVERY = replace(
    STAY,
    targets=(
        Target("stay", "d", -4, 4),
        Binary("readmitted", ("yes", "no"), event="yes"),
        Count("visits", "visits", upper=50),
        TimeToEvent("days", "d", event="died", horizon=90),
    ),
)
LINE = KernelSpec(architecture=Architecture.LINEAR, inputs=3)


def private(program: Program, epsilon: float = 1.0) -> Program:
    return with_noise(program, partial(planned_noise, epsilon=epsilon, delta=1e-5))


@lru_cache
def automatic(schema: Schema = STAY, epsilon: float = 1.0) -> Program:
    return private(automatic_program(schema, min_sites=1, private=True), epsilon)


def line(epsilon: float = 1.0) -> Program:
    return private(Program(STAY, LINE, (moments.Spec(), linear.Spec())), epsilon)


def test_more_rows_and_more_epsilon_never_make_it_worse() -> None:
    for program in (automatic(), line()):
        found = [forecast(program, rows=rows).targets[0].explained for rows in (10, 300, 10**5)]
        assert found == sorted(found)
        assert found[0] < found[-1]
    found = [forecast(line(own), rows=500).targets[0].explained for own in (0.1, 1.0, 8.0)]
    assert found == sorted(found)
    assert found[0] < found[-1]


@pytest.mark.parametrize("program", [automatic, line])
def test_nothing_is_expected_of_a_few_rows_and_nearly_everything_of_very_many(program: Any) -> None:
    few, many = (forecast(program(), rows=rows) for rows in (20, 10**7))
    assert few.without_prospect == ("stay",)
    assert many.without_prospect == ()
    assert many.targets[0].explained == pytest.approx(EXPLAINABLE, rel=0.02)


def test_every_kind_of_target_has_its_own_measure() -> None:
    found = forecast(automatic(EVERY), rows=10**6)
    assert [own.measure for own in found.targets] == [
        Measure.EXPLAINED,
        Measure.AUC,
        Measure.EXPLAINED,
        Measure.CONCORDANCE,
    ]
    for own in found.targets:
        low, middle, high = own.scores
        assert low < middle < high <= 1
    nothing = forecast(automatic(EVERY, 0.01), rows=10)
    assert [round(own.scores[1], 1) for own in nothing.targets] == [0.0, 0.5, 0.0, 0.5]


def test_a_program_without_a_layer_or_of_a_huge_kernel_promises_nothing() -> None:
    assert forecast(private(Program(STAY, LINE, (moments.Spec(),))), rows=100).targets == ()
    huge = KernelSpec(architecture=Architecture.RBF, inputs=3, samples=5_100)
    stages = moments.Spec(), linear.Spec()
    found = forecast(private(Program(STAY, huge, stages)), rows=10**9)
    assert found.without_prospect == ("stay",)


def test_without_noise_there_is_no_forecast() -> None:
    exact = Program(STAY, LINE, (moments.Spec(), linear.Spec()))
    assert forecasts(exact) == ()
    assert expected_in_words(exact) == ()
    with pytest.raises(ProgramError, match="differential privacy"):
        forecast(exact, rows=100)


def test_a_program_without_prospect_is_refused_with_its_rows_and_targets() -> None:
    with pytest.raises(NoProspect, match=r"with 20 training rows .* 'stay' .* no better"):
        check_prospect(line(), rows=20)
    check_prospect(line(), rows=10_000)


def test_the_least_number_of_rows_divides_hopeless_from_promising() -> None:
    least = least_rows_with_prospect(line(), most=10**6)
    assert least is not None
    assert forecast(line(), rows=least).without_prospect == ()
    assert forecast(line(), rows=int(0.9 * least)).without_prospect == ("stay",)
    assert least_rows_with_prospect(line(), most=10) is None


def test_it_is_said_for_the_stated_rows_or_else_for_several_numbers_of_rows() -> None:
    stated = expected_in_words(replace(line(), least_rows=5_000))
    assert stated[0].startswith("Expected with 5,000 training rows over all hospitals: for stay, ")
    assert not any("least_rows" in said for said in stated)
    unstated = expected_in_words(line())
    assert "NO BETTER THAN PREDICTING THE MEAN" in expected_in_words(line(0.05))[0]
    assert "states no least number of training rows (least_rows)" in unstated[-1]


def made_up(rows: int, explainable: float, *, seed: int) -> dict[str, Any]:
    """Return normal columns, and a target of variance 1 of which they explain so much."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)).clip(-3, 3)
    latent = x @ np.array([0.6, -0.64, 0.48])
    y = explainable**0.5 * latent + (1 - explainable) ** 0.5 * random.normal(size=rows)
    return {**dict(zip("abc", x.T, strict=True)), "stay": y.clip(-4, 4)}


def achieved(program: Program, seed: int, *, rows: int, explainable: float) -> float:
    """Return the share of variation that a real run explains of new rows, at least 0."""
    share = 1 - program.held_out
    table = made_up(round(rows / share), explainable, seed=seed)
    source = noise.approximate(np.random.default_rng(seed))
    model = simulate(program, [table], DEALING, secure=False, source=source).model
    new = made_up(4000, explainable, seed=99)
    target = np.array(new.pop("stay"))
    errors = target - predict(model, new).mean[:, 0].numpy()
    return max(0.0, float(1 - (errors**2).mean() / target.var()))


NETWORK = KernelSpec(
    architecture=Architecture.DEEP, inputs=3, samples=20, seed=1, hidden=(8,), latent=4
)
STAGES = (
    moments.Spec(),
    elbo.Spec(steps=60, sampling_rate=0.2, learning_rate=0.05),
    refinement.Spec(noise_share=0.12),
)


RUNS = {
    "linear": (Program(STAY, LINE, (moments.Spec(), linear.Spec()), max_rows=10_000), range(4)),
    "network": (Program(STAY, NETWORK, STAGES, max_rows=10_000), range(1)),
}


@pytest.mark.parametrize(
    ("kernel", "rows"),
    [("linear", 30), ("linear", 300), ("linear", 1000), ("network", 30), ("network", 1000)],
)
def test_real_runs_achieve_about_what_is_expected(kernel: str, rows: int) -> None:
    exact, seeds = RUNS[kernel]
    program = private(exact)
    expected = explained(program, rows=rows, explainable=0.9)
    found = [achieved(program, seed, rows=rows, explainable=0.9) for seed in seeds]
    assert np.mean(found) == pytest.approx(expected, abs=0.15)
