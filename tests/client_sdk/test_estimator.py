"""The estimators: what scikit-learn's users expect, over tables of several sites."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import client_sdk
from client_sdk import FederatedClassifier, FederatedRegressor, GlobalModel
from client_sdk.errors import PackageMissing
from kernels.errors import KernelsError, TableRefused
from kernels.rounds.automatic import automatic_program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target
from tests.client_sdk.test_estimator_checks import Quick
from tests.kernels.rounds import every_kind

COLUMNS = ["age", "lactate", "ward"]

QUICK = Quick()


def frame(seed: int, rows: int = 80) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age, lactate = random.uniform(20, 90, rows), random.lognormal(0, 0.5, rows)
    ward = random.choice(["medical", "surgical"], rows)
    stay = 2 + age / 20 + lactate + (ward == "surgical") + random.normal(0, 0.3, rows)
    lactate[::10] = np.nan
    died = np.where(stay + random.normal(0, 0.5, rows) > 7, "yes", "no")
    columns = {"age": age, "lactate": lactate, "ward": ward, "stay": stay, "died": died}
    return pd.DataFrame(columns | {"grade": np.digitize(stay, [5.5, 7.5]) + 1})


def short(**more: Any) -> FederatedRegressor:
    return FederatedRegressor(program=QUICK, random_state=1, **more)


def judge(**more: Any) -> FederatedClassifier:
    return FederatedClassifier(program=QUICK, random_state=1, **more)


SITES = [frame(seed) for seed in range(3)]
ROWS = pd.concat(SITES, ignore_index=True)
WHOSE = np.repeat(["north", "south", "west"], 80)
NEW = frame(9, 30)


def test_a_list_of_tables_and_rows_with_their_sites_give_the_same_model() -> None:
    tables = short().fit([each[[*COLUMNS, "stay"]] for each in SITES], target="stay")
    rows = short().fit(ROWS[COLUMNS], ROWS["stay"], sites=WHOSE)
    assert tables.n_sites_ == rows.n_sites_ == 3
    assert tables.schema_.features == rows.schema_.features
    assert np.allclose(tables.predict(NEW), rows.predict(NEW[COLUMNS]), rtol=1e-9)
    together = short().fit(ROWS[COLUMNS], ROWS["stay"])
    assert together.n_sites_ == 1
    assert np.allclose(together.predict(NEW[COLUMNS]), rows.predict(NEW[COLUMNS]), rtol=1e-6)


def test_a_regressor_predicts_means_and_standard_deviations() -> None:
    model = short().fit(ROWS[COLUMNS], ROWS["stay"], sites=WHOSE)
    mean, std = model.predict(NEW[COLUMNS], return_std=True)
    assert np.array_equal(mean, model.predict(NEW[COLUMNS]))
    assert mean.shape == std.shape == (30,)
    z = (NEW["stay"] - mean) / std
    assert 0.5 < z.std() < 2
    assert model.score(NEW[COLUMNS], NEW["stay"]) > 0.8
    assert isinstance(model.model_, GlobalModel)
    assert list(model.feature_names_in_) == COLUMNS
    assert model.schema_.features[2] == Categorical("ward", ("medical", "surgical"))
    assert model.schema_.features[1] == Numeric("lactate", "1", may_be_missing=True)


@pytest.mark.parametrize(
    ("target", "classes", "kind"),
    [("died", ["no", "yes"], Binary), ("grade", [1, 2, 3], Classes)],
)
def test_a_classifier_has_the_classes_of_its_table(
    target: str, classes: list[object], kind: type
) -> None:
    features = [*COLUMNS, target]
    tables = judge().fit([each[features] for each in SITES], target=target)
    rows = judge().fit(ROWS[COLUMNS], ROWS[target], sites=WHOSE)
    for model in (tables, rows):
        assert list(model.classes_) == classes
        assert isinstance(model.schema_.targets[0], kind)
        chances = model.predict_proba(NEW[COLUMNS])
        assert np.allclose(chances.sum(1), 1)
        assert set(model.predict(NEW[COLUMNS])) <= set(classes)
        assert (model.predict(NEW[COLUMNS]) == NEW[target]).mean() > 0.7
    assert np.allclose(
        tables.predict_proba(NEW[COLUMNS]), rows.predict_proba(NEW[COLUMNS]), atol=1e-6
    )


def test_tables_may_be_of_any_kind_that_join_takes(tmp_path: Path) -> None:
    first, second, third = (each[[*COLUMNS, "grade"]] for each in SITES)
    third.to_csv(tmp_path / "third.csv", index=False)
    mixed = [pl.from_pandas(first), second.to_dict("list"), tmp_path / "third.csv"]
    model = judge().fit(mixed, target="grade")
    assert list(model.classes_) == [1, 2, 3]
    plain = judge().fit([first, second, third], target="grade")
    for rows in (NEW, pl.from_pandas(NEW), NEW.to_dict("list")):
        assert np.array_equal(model.predict_proba(rows), plain.predict_proba(NEW))


def test_a_schema_and_a_program_may_be_given() -> None:
    schema = Schema(
        (Numeric("age", "a", 0, 120), Categorical("ward", ("medical", "surgical"))),
        (Count("grade", "1", upper=5),),
    )
    model = short(schema=schema.to_json()).fit(ROWS, ROWS["grade"])
    assert model.schema_ == schema
    assert model.predict(NEW).shape == (30,)
    whole = FederatedRegressor(program=QUICK(schema)).fit(SITES, target="grade")
    assert whole.program_ == QUICK(schema)
    with pytest.raises(ValueError, match="the schema's target is 'grade'"):
        short(schema=schema).fit(SITES, target="stay")
    with pytest.raises(ValueError, match="FederatedClassifier predicts one target"):
        judge(schema=schema).fit(ROWS, ROWS["grade"])


@pytest.mark.slow
def test_without_a_program_it_is_the_coordinators() -> None:
    model = FederatedRegressor(random_state=0).fit(ROWS[["age", "lactate"]], ROWS["stay"])
    assert model.program_ == automatic_program(model.schema_, min_sites=1)


@pytest.mark.full
def test_noise_is_planned_from_epsilon_and_delta() -> None:
    schema = Schema((Numeric("age", "a", 0, 120),), (Target("stay", "d", 0, 40),))
    model = short(schema=schema, epsilon=1.0, delta=1e-5).fit(ROWS, ROWS["stay"])
    assert model.model_.card["privacy"]["epsilon"] <= 1.0


def test_the_secure_sum_needs_three_sites_and_gives_the_same_numbers() -> None:
    X, y = ROWS[COLUMNS], ROWS["stay"]
    with pytest.raises(ValueError, match="at least 3 sites, and there are 1"):
        short(secure=True).fit(X, y)
    secure = short(secure=True).fit(X, y, sites=WHOSE).predict(X)
    assert np.array_equal(secure, short().fit(X, y, sites=WHOSE).predict(X))


def test_what_cannot_be_fitted_is_refused() -> None:
    X, y = ROWS[COLUMNS], ROWS["stay"]
    for refused in (
        lambda: short().fit(SITES),
        lambda: short().fit(SITES, y, target="stay"),
        lambda: short().fit(ROWS, target="stay"),
        lambda: short().fit(SITES, target="weight"),
        lambda: short().fit(SITES, target="died"),
        lambda: judge().fit(SITES, target="stay"),
        lambda: short().fit(X, y, sites=WHOSE[:5]),
        lambda: judge().fit(X, np.zeros(len(X))),
        lambda: short().fit(X[["ward"]].assign(ward=[*map(str, range(len(X)))]), y),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            refused()


def test_rows_that_do_not_fit_are_refused_at_prediction() -> None:
    model = short().fit(ROWS[COLUMNS], ROWS["stay"])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(NEW[COLUMNS[::-1]])
    with pytest.raises(TableRefused):
        model.predict(NEW[COLUMNS].assign(age=np.nan))
    with pytest.raises(NotFittedError):
        short().predict(NEW)
    with pytest.raises(KernelsError):
        short().fit(SITES, target="stay").predict(NEW[["age"]])


def test_it_is_one_among_other_estimators() -> None:
    X, y = ROWS[["age"]].to_numpy(), ROWS["stay"].to_numpy()
    assert cross_val_score(short(), X, y, cv=2).mean() > 0
    model = judge().fit(X, ROWS["died"])
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "client_sdk.estimator")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(PackageMissing, match=r"pip install 'veilgp\[sklearn\]'"):
        client_sdk.FederatedRegressor  # noqa: B018


def test_scikit_learn_knows_what_the_models_of_join_and_simulate_predict() -> None:
    for targets, regressor, classifier in (
        ((every_kind.STAY,), True, False),
        ((every_kind.READMITTED,), False, True),
        ((every_kind.STAY, every_kind.READMITTED), False, False),
        ((every_kind.DEATH,), False, False),
    ):
        model = GlobalModel(every_kind.artifact(*targets))
        assert is_regressor(model) == regressor
        assert is_classifier(model) == classifier
