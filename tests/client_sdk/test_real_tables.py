"""Tables as hospitals have them: no column of theirs ends a run or makes a prediction useless."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from client_sdk import simulate
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.model.prediction import Predictions, predict
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Outcome, Target
from tests.dealing import DEALING

STAY = Target("stay", "d")
DIED = Binary("died", ("yes", "no"), event="yes")
HOSPITALS, ROWS = 4, 90
AGE = Numeric("age", "a", 0, 120)
SPEC = moments.Spec(curves=True)

Feature = Numeric | Categorical
Column = NDArray[Any]


def hospital(seed: int, more: Mapping[str, Column], rows: int = ROWS) -> dict[str, Column]:
    """Return a table in which age decides both targets, and further columns."""
    random = np.random.default_rng(seed)
    age = random.uniform(20, 90, rows)
    risk = 1 / (1 + np.exp(-(age - 55) / 8))
    return {
        "age": age,
        "stay": age / 10 + 0.3 * random.normal(size=rows),
        "died": np.where(random.random(rows) < risk, "yes", "no"),
        **more,
    }


def trained(
    features: tuple[Feature, ...],
    tables: list[dict[str, Column]],
    target: Target | Outcome,
    *,
    columns: moments.Spec = SPEC,
    secure: bool = False,
) -> Model:
    schema = Schema((AGE, *features), (target,))
    inputs = len(schema.feature_names)
    kernel = KernelSpec(
        architecture=Architecture.MATERN32,
        inputs=inputs,
        samples=50,
        lengthscale=inputs**0.5,
        linear_part=True,
        seed=1,
    )
    layer = linear.Spec() if isinstance(target, Target) else outcomes.Spec(sums=3)
    stages = columns, layer, recalibration.Spec(min_rows=10), evaluation.Spec()
    program = Program(schema, kernel, stages, max_rows=1000)
    return simulate(program, tables, DEALING, secure=secure).model


def check_predictions(model: Model, table: dict[str, Column]) -> Predictions:
    """Check that predictions are finite, and that age decides them."""
    found = predict(model, table)
    if model.targets:
        mean = found.mean[:, 0]
        assert bool(mean.isfinite().all())
        assert bool(found.variance.isfinite().all())
        assert bool((found.variance > 0).all())
    else:
        mean = found.outcomes[0].probabilities[:, 0]
        assert bool(((mean >= 0) & (mean <= 1)).all())
    truth = torch.tensor(table["age"])
    assert float(torch.corrcoef(torch.stack([mean, truth]))[0, 1]) > 0.9
    return found


Columns = tuple[tuple[Feature, ...], list[dict[str, Column]]]


def _everywhere(*features: Feature, rows: int = ROWS, **own: Any) -> Columns:
    """Return tables with further columns: a function of (random, rows), or a constant."""

    def column(value: Any, seed: int) -> Column:
        if callable(value):
            return np.asarray(value(np.random.default_rng(100 + seed), rows))
        return np.full(rows, value)

    tables = [
        hospital(seed, {name: column(value, seed) for name, value in own.items()}, rows)
        for seed in range(HOSPITALS)
    ]
    return features, tables


def _missing_at(hospitals: set[int]) -> Columns:
    """Return tables in which a number and a category are missing at whole hospitals."""
    features, tables = _everywhere(
        Numeric("vessels", "1", 0, 3, may_be_missing=True),
        Categorical("slope", ("up", "flat", "down"), may_be_missing=True),
        Numeric("troponin", "ng/l", may_be_missing=True),
        vessels=lambda random, rows: random.integers(0, 4, rows).astype(float),
        slope=lambda random, rows: random.choice(["up", "flat", "down"], rows).astype(object),
        troponin=lambda random, rows: random.lognormal(2, 2, rows),
    )
    for one in hospitals:
        tables[one]["vessels"] = np.full(ROWS, np.nan)
        tables[one]["slope"] = np.full(ROWS, None)
        tables[one]["troponin"] = np.full(ROWS, np.nan)
    return features, tables


def _many(count: int) -> Columns:
    """Return tables with so many columns, of several shapes."""
    names = [f"c{index}" for index in range(count - 1)]
    shapes = [
        lambda random, rows: random.normal(size=rows),
        lambda random, rows: random.lognormal(0, 2, rows),
        lambda random, rows: (random.random(rows) < 0.02).astype(float),
        lambda _random, rows: np.zeros(rows),
        lambda random, rows: 1e6 + random.standard_t(1, rows),
    ]
    own = {name: shapes[index % len(shapes)] for index, name in enumerate(names)}
    # Fewer rows than columns would say nothing of age, whatever the columns are.
    return _everywhere(*(Numeric(name, "1") for name in names), rows=max(ROWS, 2 * count), **own)


LEVELS = tuple(f"ward {number}" for number in range(200))
TABLES: dict[str, Columns] = {
    "constant": _everywhere(
        Numeric("zero", "1"),
        Numeric("year", "a"),
        Numeric("top", "1", 0, 7),
        zero=0.0,
        year=2026.0,
        top=7.0,
    ),
    "constant at each hospital": _everywhere(
        Numeric("beds", "1"), beds=lambda random, rows: np.full(rows, float(random.integers(1000)))
    ),
    "missing at two of four hospitals": _missing_at({1, 3}),
    "missing at all hospitals but one": _missing_at({1, 2, 3}),
    "missing everywhere": _missing_at({0, 1, 2, 3}),
    "200 levels": _everywhere(
        Categorical("ward", LEVELS), ward=lambda random, rows: random.choice(LEVELS, rows)
    ),
    "200 levels of which most occur nowhere": _everywhere(
        Categorical("ward", LEVELS), ward=lambda random, rows: random.choice(LEVELS[:5], rows)
    ),
    "outliers": _everywhere(
        Numeric("crp", "mg/l"),
        crp=lambda random, rows: np.append(
            random.normal(5, 1, rows - 1), 10.0 ** random.integers(2, 9)
        ),
    ),
    "3 columns": _many(3),
    "30 columns": _many(30),
    "200 columns": _many(200),
}


@pytest.mark.parametrize("target", [STAY, DIED], ids=lambda target: target.name)
@pytest.mark.parametrize("name", TABLES)
def test_a_model_of_a_real_table_predicts(name: str, target: Target | Outcome) -> None:
    features, tables = TABLES[name]
    model = trained(features, tables, target)
    check_predictions(model, tables[0])
    check_predictions(model, tables[-1])


@pytest.mark.parametrize("target", [STAY, DIED], ids=lambda target: target.name)
def test_what_no_hospital_has_in_training_does_no_harm_in_a_prediction(
    target: Target | Outcome,
) -> None:
    features, tables = TABLES["missing everywhere"]
    model = trained(features, tables, target)
    random = np.random.default_rng(5)
    later = {
        **tables[0],
        "vessels": random.integers(0, 4, ROWS).astype(float),
        "slope": random.choice(["up", "flat", "down"], ROWS).astype(object),
        "troponin": random.lognormal(2, 2, ROWS),
    }
    check_predictions(model, later)


def test_a_level_that_nobody_has_is_predicted_with_more_variance() -> None:
    features, tables = TABLES["200 levels of which most occur nowhere"]
    model = trained(features, tables, STAY)
    seen, never = (
        check_predictions(model, {**tables[0], "ward": np.full(ROWS, level)})
        for level in (LEVELS[0], LEVELS[150])
    )
    assert bool((never.variance > seen.variance).all())


def test_an_outlier_does_not_take_a_column_from_all_other_patients() -> None:
    """One wrong unit at one hospital, and a column that decides the target."""

    def with_outlier(table: dict[str, Column], *, wrong: bool) -> dict[str, Column]:
        random = np.random.default_rng(len(table["age"]) + round(float(table["age"].sum())))
        crp = random.lognormal(1, 1.5, ROWS)
        stay = 3 * np.log(crp) + 0.2 * random.normal(size=ROWS)
        return {**table, "crp": np.append(1e5, crp[1:]) if wrong else crp, "stay": stay}

    plain = [with_outlier(hospital(seed, {}), wrong=seed == 0) for seed in range(HOSPITALS)]
    test = with_outlier(hospital(99, {}), wrong=False)
    errors = {}
    for curves in (False, True):
        columns = moments.Spec(curves=curves)
        model = trained((Numeric("crp", "mg/l", 0),), plain, STAY, columns=columns)
        mean = predict(model, test).mean[:, 0]
        errors[curves] = float((mean - torch.tensor(test["stay"])).square().mean().sqrt())
    assert errors[True] < 1
    assert errors[True] < 0.5 * errors[False], "without a curve, little is left of the column"


def test_curves_are_the_same_through_the_real_secure_sum() -> None:
    features, tables = TABLES["outliers"]
    real, plain = (trained(features, tables, STAY, secure=own) for own in (True, False))
    assert real.standardiser == plain.standardiser
    assert real.standardiser is not None
    assert [curve.name for curve in real.standardiser.curves] == ["crp"]
