"""`simulate` from a schema: the coordinator's program over any tables, and `join`'s model."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from client_sdk import GlobalModel, Simulated, simulate
from client_sdk.errors import NotATable, PackageMissing, SchemaNotRead
from kernels import storage
from kernels.errors import EmptyTable, KernelsError, ProgramError
from kernels.features.spec import KernelSpec
from kernels.rounds.automatic import automatic_program
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.plan import planned
from kernels.rounds.program import Program
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Target
from privacy.noise import approximate
from privacy.securesum.terms import default_terms
from tests.dealing import DEALING

FEATURES = (
    Numeric("age", "a", 0, 120),
    Numeric("lactate", "mmol/l", 0, 30, may_be_missing=True),
    Categorical("ward", ("medical", "surgical")),
)
SCHEMA = Schema(
    FEATURES, (Target("stay", "d", 0, 40), Binary("died", levels=("no", "yes"), event="yes"))
)
STAY = Schema(FEATURES, SCHEMA.real)
KERNEL = KernelSpec(inputs=len(SCHEMA.feature_names), samples=8, hidden=(4,), seed=1)
SHORT = Program(
    SCHEMA,
    KERNEL,
    (moments.Spec(), linear.Spec(), outcomes.Spec(), recalibration.Spec(), evaluation.Spec()),
)
"""A program that costs nothing, where it does not matter which."""
LAYER = Program(STAY, KERNEL, (moments.Spec(), linear.Spec()))


def table(seed: int, rows: int = 120) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    age, lactate = random.uniform(20, 90, rows), random.lognormal(0, 0.5, rows)
    ward = random.choice(["medical", "surgical"], rows)
    stay = (2 + np.sin(age / 12) + lactate + random.normal(0, 0.3, rows)).clip(0, 40)
    died = np.where(random.random(rows) < 1 / (1 + np.exp(3 - stay / 2)), "yes", "no")
    return {"age": age, "lactate": lactate, "ward": ward, "stay": stay, "died": died}


TABLES = [table(seed) for seed in range(3)]
NEW = table(9, 20)


@pytest.fixture(scope="module")
def fitted() -> Simulated:
    return simulate(SHORT, TABLES, DEALING, secure=False)


@pytest.mark.slow
def test_a_schema_runs_the_program_that_the_coordinator_makes() -> None:
    tables = [table(seed) for seed in range(5)]
    found = simulate(STAY, tables, DEALING, secure=False)
    least = default_terms(bytes(16), 5).min_cohort
    assert found.program == automatic_program(STAY, min_sites=least)
    predicted = found.predict(NEW)
    errors = predicted["stay"].mean - NEW["stay"]
    assert np.sqrt((errors**2).mean()) < 0.8 * NEW["stay"].std()
    assert found.card["members"] == 5


def test_what_it_returns_is_what_join_returns(fitted: Simulated, tmp_path: Path) -> None:
    assert isinstance(fitted, GlobalModel)
    predicted = fitted.predict(pd.DataFrame(NEW))
    assert isinstance(predicted["stay"].mean, np.ndarray)
    frame = predicted.to_pandas()
    assert list(frame.columns[:2]) == ["stay.mean", "stay.variance"]
    assert len(frame) == len(predicted.intervals(0.9, kind="gaussian").to_pandas()) == 20
    assert fitted.predict_proba(NEW).shape == (20, 2)
    fitted.save(tmp_path / "model")
    read = GlobalModel.load(tmp_path / "model", uncertified=True)
    assert read.id == fitted.id
    assert np.array_equal(read.predict(NEW).mean, predicted.mean)
    assert "no differential privacy" in repr(fitted.card)
    assert fitted.card["privacy"]["meaning"].startswith("This model comes from a simulation")
    assert repr(fitted) == f"Simulated(3 sites, {fitted.sums} sums, predicts stay, died)"


def test_a_frame_needs_pandas_and_says_so(
    fitted: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PackageMissing, match="pip install pandas"):
        fitted.predict(NEW).to_pandas()


def test_tables_are_whatever_join_takes(fitted: Simulated, tmp_path: Path) -> None:
    first, second, third = TABLES
    path = tmp_path / "third.csv"
    pd.DataFrame(third).to_csv(path, index=False)
    for tables in (
        [pd.DataFrame(first), pl.DataFrame(second), path],
        [pa.table(first), second, str(path)],
    ):
        again = simulate(SHORT, tables, DEALING, secure=False)
        assert storage.encode(again.model) == storage.encode(fitted.model)
    with pytest.raises(NotATable):
        simulate(SHORT, [7], DEALING, secure=False)


def test_a_schema_is_taken_in_any_form(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(STAY.to_json())
    columns = {name: cells for name, cells in TABLES[0].items() if name != "age"}
    for study in (STAY, path, str(path), STAY.to_json(), json.loads(STAY.to_json())):
        with pytest.raises(KernelsError, match="'age'"):  # the schema is read: a column is missing
            simulate(study, [columns] * 3, DEALING)
    with pytest.raises(SchemaNotRead):
        simulate(tmp_path / "none.json", TABLES)


@pytest.mark.full
def test_noise_is_planned_from_epsilon_and_delta_and_said_in_the_card() -> None:
    source = approximate(np.random.default_rng(0))
    spent = simulate(STAY, TABLES, DEALING, epsilon=2.0, delta=1e-6, source=source)
    privacy = spent.card["privacy"]
    assert 1.9 < privacy["epsilon"] <= 2.0
    assert privacy["delta"] == 1e-6
    assert privacy["releases"] == spent.sums
    assert np.isfinite(spent.predict(NEW).mean).all()


def test_the_noise_of_a_program_is_planned_as_for_a_session() -> None:
    source = approximate(np.random.default_rng(0))
    noisy = simulate(LAYER, TABLES, DEALING, epsilon=1.0, delta=1e-5, source=source)
    assert all(stage.multiplier > 1 for stage in planned(noisy.program))
    with pytest.raises(ProgramError, match="has its noise already"):
        simulate(noisy.program, TABLES, DEALING, epsilon=1.0, delta=1e-5)
    for half in ({"epsilon": 1.0}, {"delta": 1e-5}):
        with pytest.raises(ProgramError, match="belong together"):
            simulate(LAYER, TABLES, DEALING, **half)


def test_no_tables_are_refused() -> None:
    with pytest.raises(EmptyTable):
        simulate(SCHEMA, [])


def test_a_program_without_a_layer_has_states_and_no_card() -> None:
    program = Program(STAY, KERNEL, (moments.Spec(),))
    found = simulate(program, TABLES, DEALING, secure=False)
    assert found.states
    assert "stay" in repr(found)
    with pytest.raises(KernelsError, match="linear"):
        found.predict(NEW)
