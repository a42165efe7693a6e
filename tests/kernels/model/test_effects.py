"""Effects and importances: known functions are found, and nothing but the model is read."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_sdk.simulation import simulate
from kernels.errors import NotFitted, PredictionError
from kernels.features.spec import Architecture, KernelSpec
from kernels.layer.posterior import Hyperparameters
from kernels.layer.statistics import Statistics
from kernels.model.averages import averaged
from kernels.model.effects import ROWS, ColumnEffect, column_effects, most_important
from kernels.model.model import Model, known
from kernels.model.prediction import predict_outcomes
from kernels.model.reference import axes, reference_rows
from kernels.model.stored import MODEL_KINDS
from kernels.outcomes.likelihood import Likelihood
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.storage import decode, encode, kinds_of
from kernels.tables.curves import Curve
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.standardiser import Scale, Shares, Standardiser
from kernels.tables.targets import Target
from tests.dealing import DEALING
from tests.kernels.rounds import every_kind, tables

SLOPES = 2.0, -1.0, 0.0


@cache
def straight() -> Model:
    """Return a linear model of three columns whose slopes, on standardised columns, are known."""
    features = tuple(Numeric(name, "1") for name in ("steep", "falling", "nothing"))
    kernel = KernelSpec(inputs=3, architecture=Architecture.LINEAR, radius=16.0)
    scales = tuple(Scale(each.name, 10.0, 4.0) for each in features)
    # x/√(p + 1) and the constant 1/√(p + 1) are the features.
    weights = 2 * torch.tensor([[*SLOPES, 1.0]], dtype=torch.float64).T
    rows, eye = 1e6, torch.eye(4, dtype=torch.float64)
    statistics = Statistics(
        rows * eye, rows * weights, rows * weights.square().sum(0) + 1.0, count=10**6
    )
    return Model(
        Schema(features, (Target("y", "d"),)),
        kernel,
        max_rows=10**6,
        standardiser=Standardiser(scales, (), (Scale("y", 5.0, 3.0),)),
        hyperparameters=Hyperparameters.of(noise_variance=1.0, prior_variance=1e12),
        statistics=statistics,
    )


def by_name(model: Model, *columns: str) -> Mapping[str, ColumnEffect]:
    found = column_effects(model, columns or None)
    return {own.column.name: own for own in found}


def test_the_effect_in_a_linear_model_is_a_line_with_its_slope() -> None:
    for (name, own), slope in zip(by_name(straight()).items(), SLOPES, strict=True):
        cells = np.array(own.cells, np.float64)
        assert cells[[0, -1]].tolist() == [0.0, 20.0]
        expected = 5.0 + 3.0 * (1.0 + slope * (cells - 10.0) / 4.0)
        assert own.of("y").mean[:, 0].numpy() == pytest.approx(expected, abs=1e-4), name


def test_shares_of_a_linear_model_are_its_squared_slopes() -> None:
    found = {name: own.of("y") for name, own in by_name(straight()).items()}
    assert found["steep"].total == pytest.approx(0.8, abs=0.05)
    assert found["falling"].total == pytest.approx(0.2, abs=0.02)
    for own in found.values():
        assert own.alone == pytest.approx(own.total, abs=1e-9), "nothing interacts"


def test_a_column_without_effect_has_a_flat_curve_and_no_importance() -> None:
    own = by_name(straight())["nothing"].of("y")
    assert own.mean.numpy() == pytest.approx(8.0, abs=1e-4)
    assert own.total < 1e-12
    assert float(own.mean.max() - own.mean.min()) < 1e-9


def test_a_model_that_always_predicts_the_same_has_no_importance() -> None:
    flat = Statistics(
        1e6 * torch.eye(4).double(), torch.zeros(4, 1).double(), torch.ones(1).double(), 10**6
    )
    for own in column_effects(straight().advanced(statistics=flat)):
        assert (own.of("y").alone, own.of("y").total) == (0.0, 0.0)


@cache
def additive() -> Model:
    """Return a model of y = sin(2a) + b² / 2 + level + c·d, learnt from 3,000 rows."""
    random = np.random.default_rng(4)
    n = 3000
    cells: dict[str, Any] = {name: random.normal(size=n) for name in "abcd"}
    level = random.random(n) < 0.25
    y = np.sin(2 * cells["a"]) + cells["b"] ** 2 / 2 + 1.5 * level + cells["c"] * cells["d"]
    table = {**cells, "ward": np.where(level, "x", "y"), "y": y + 0.05 * random.normal(size=n)}
    schema = Schema(
        (*(Numeric(name, "1") for name in "abcd"), Categorical("ward", ("x", "y"))),
        (Target("y", "1"),),
    )
    kernel = KernelSpec(inputs=6, architecture="rbf", lengthscale=2.0, samples=250, seed=2)
    program = Program(
        schema, kernel, (moments.Spec(), linear.Spec()), max_rows=10_000, held_out=0.0
    )
    return simulate(program, [table], DEALING, secure=False).model


def test_a_known_function_is_found_again() -> None:
    found = by_name(additive())
    for name, truth in (("a", lambda x: np.sin(2 * x)), ("b", lambda x: x**2 / 2)):
        own = found[name]
        cells, mean = np.array(own.cells, np.float64), own.of("y").mean[:, 0].numpy()
        inside = np.abs(cells) < 1.8
        off = (mean - truth(cells))[inside]
        assert np.ptp(off) < 0.25, name
    wards = found["ward"].of("y").mean[:, 0]
    assert float(wards[0] - wards[1]) == pytest.approx(1.5, abs=0.1)


def test_columns_that_only_interact_matter_in_total_and_not_alone() -> None:
    found = {name: own.of("y") for name, own in by_name(additive()).items()}
    for name in "cd":
        assert found[name].alone < 0.03
        assert found[name].total > 0.2
    for name in ("a", "ward"):
        assert found[name].total - found[name].alone < 0.05


def test_every_kind_of_target_has_its_curves() -> None:
    model = every_kind.judged().model
    for own in column_effects(model):
        points = len(own.cells)
        assert [each.target for each in own.targets] == list(model.schema.targets)
        for each in own.targets:
            assert each.mean.shape == each.deviation.shape == (points, len(each.levels) or 1)
            assert bool((each.deviation > 0).all())
            assert 0 <= each.alone <= each.total <= 1
        assert own.of("discharged").levels == ("home", "transfer", "hospice")
        chances = own.of("discharged").mean
        assert torch.allclose(chances.sum(1), torch.ones(points).double(), atol=1e-9)
        for name in ("readmitted", "days"):
            assert bool(((own.of(name).mean > 0) & (own.of(name).mean < 1)).all())
    age = by_name(model, "age")["age"]
    for name in ("readmitted", "visits", "days"):  # rise with age, as they were made
        assert float(age.of(name).mean[-1] - age.of(name).mean[0]) > 0.2
        assert age.of(name).total > 0.8


def test_a_missing_cell_is_a_point_of_its_own_without_weight() -> None:
    found = by_name(every_kind.judged().model)
    assert found["lactate"].cells[-1] is None
    assert None not in found["age"].cells
    assert found["ward"].cells == ("medical", "surgical")
    model = every_kind.judged().model
    (own,) = (
        axis
        for axis in axes(model.schema, known(model.standardiser, "moments"))
        if axis.column.name == "lactate"
    )
    assert own.features[-1].tolist() == [0.0, 1.0]
    assert float(own.weights[-1]) == 0.0


def test_the_deviation_is_that_of_the_average_under_the_posterior() -> None:
    """Against weights that are drawn from q: exact for a real target, first order for others."""
    model = every_kind.artifact().model  # without recalibration, which q does not know
    rows = reference_rows(model.schema, known(model.standardiser, "moments"), ROWS)
    found = dict(zip((t.name for t in model.schema.targets), averaged(model, rows, 1), strict=True))
    phi = model.features(rows).double()
    scale = known(model.standardiser, "moments").target_columns[1]
    mean = phi.mean(0)
    exact = (mean @ model.posterior.covariance(0) @ mean).sqrt() * scale[0]
    assert float(found["stay"].deviation[0, 0]) == pytest.approx(float(exact), rel=1e-9)
    for name, drawn in (
        ("readmitted", _drawn(model, "readmitted", phi).sigmoid().mean(1)),
        ("visits", _drawn(model, "visits", phi).exp().mean(1)),
        ("days", _risk(model, phi)),
    ):
        said = float(found[name].deviation[0, 0])
        assert said == pytest.approx(float(drawn.std()), rel=0.15), name
    fitted = _fitted(model, "discharged")
    latent = torch.stack(
        [
            _samples(layer.mean, layer.covariance, seed) @ phi.T + fitted.offsets[seed]
            for seed, layer in enumerate(fitted.layers)
        ],
        2,
    )
    chances = latent.softmax(2).mean(1)
    assert torch.allclose(found["discharged"].deviation[0], chances.std(0), rtol=0.2)


def _fitted(model: Model, name: str) -> Any:
    names = [outcome.name for outcome in model.schema.outcomes]
    return known(model.outcomes, "outcomes")[names.index(name)]


def _samples(mean: Tensor, covariance: Tensor, seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(covariance)
    z = torch.randn(4000, len(mean), generator=generator, dtype=torch.float64)
    return mean + (z * values.clamp_min(0).sqrt()) @ vectors.T


def _drawn(model: Model, name: str, phi: Tensor) -> Tensor:
    """Return latent functions at rows for drawn weights, (draws, rows)."""
    fitted = _fitted(model, name)
    layer = fitted.layers[0]
    return _samples(layer.mean, layer.covariance) @ phi.T + fitted.offsets[0]


def _risk(model: Model, phi: Tensor) -> Tensor:
    """Return the mean risk by 30 days for drawn weights; edges are 10, 20 and 40."""
    fitted, wide = _fitted(model, "days"), phi.shape[1]
    layer = fitted.layers[0]
    drawn = _samples(layer.mean, layer.covariance)
    latent = (drawn[:, :wide] @ phi.T).unsqueeze(2) + drawn[:, None, wide:] + fitted.offsets[0]
    survival = torch.nn.functional.logsigmoid(-latent).cumsum(2).exp()
    return 1 - (survival[:, :, 1] + survival[:, :, 2]).mean(1) / 2


def test_a_curve_is_the_mean_of_what_the_model_predicts() -> None:
    model = every_kind.judged().model
    standardiser = known(model.standardiser, "moments")
    own, rows = by_name(model, "ward")["ward"], reference_rows(model.schema, standardiser, ROWS)
    for place, features in enumerate(([1.0, 0.0], [0.0, 1.0])):
        x = rows.clone()
        x[:, 3:] = torch.tensor(features, dtype=torch.float64)
        told = predict_outcomes(model, model.features(x).double(), {})
        for outcome in told:
            mean = own.of(outcome.target.name).mean[place]
            assert torch.allclose(outcome.mean.reshape(ROWS, -1).mean(0), mean, rtol=1e-9)


def test_the_same_model_has_the_same_effects_bit_for_bit_and_nothing_else_is_read() -> None:
    model = every_kind.judged().model
    again: Model = decode(encode(model), kinds_of(*MODEL_KINDS))
    for first, second in zip(column_effects(model), column_effects(again), strict=True):
        assert first.cells == second.cells
        for one, other in zip(first.targets, second.targets, strict=True):
            assert torch.equal(one.mean, other.mean)
            assert torch.equal(one.deviation, other.deviation)
            assert (one.alone, one.total) == (other.alone, other.total)


def test_reference_rows_follow_the_standardiser_within_the_bounds() -> None:
    schema = Schema(
        (
            Numeric("age", "a", 0, 120),
            Numeric("lactate", "1", 0.5),
            Categorical("ward", ("x", "y")),
        ),
        (Target("y", "1"),),
    )
    scales = Scale("age", 60.0, 10.0), Scale("lactate", 1.0, 2.0)
    own = Standardiser(scales, (Shares("ward", (0.25, 0.75)),), (Scale("y", 0.0, 1.0),))
    rows = reference_rows(schema, own, 400)
    assert float(rows[:, 0].mean()) == pytest.approx(0.0, abs=1e-9)
    assert 2.2 < float(rows[:, 0].max()) <= 2.5
    assert float(rows[:, 1].min()) >= -0.25, "the bound .5 is a quarter of a scale below the mean"
    assert rows[:, 2:].mean(0).tolist() == [0.25, 0.75]
    assert abs(float(torch.corrcoef(rows[:, :3].T)[0, 1])) < 0.2
    for axis in axes(schema, own):
        assert float(axis.weights.sum()) == pytest.approx(1.0)


def test_a_column_with_a_curve_is_shown_where_its_scores_are() -> None:
    schema = Schema((Numeric("cost", "EUR", 0),), (Target("y", "1"),))
    curve = Curve("cost", at=(-0.5, 0.0, 20.0), to=(-2.0, 0.5, 3.0))
    own = Standardiser((Scale("cost", 100.0, 200.0),), (), (Scale("y", 0.0, 1.0),), (curve,))
    (axis,) = axes(schema, own)
    assert np.array(axis.cells, np.float64)[[0, -1]] == pytest.approx([0.0, 3300.0])
    assert np.diff(axis.features[:, 0]) == pytest.approx(4.5 / 16), "equal distances in scores"
    rows = reference_rows(schema, own, 100)
    assert float(rows.median()) == pytest.approx(0.0, abs=0.1)
    assert -2.0 <= float(rows.min()) <= float(rows.max()) <= 2.5


def test_a_mean_outside_the_bounds_still_has_a_range() -> None:
    schema = Schema((Numeric("age", "a", 0, 120),), (Target("y", "1"),))
    for mean in (-500.0, 500.0):
        own = Standardiser((Scale("age", mean, 10.0),), (), (Scale("y", 0.0, 1.0),))
        (axis,) = axes(schema, own)
        cells = np.array(axis.cells, np.float64)
        assert (np.diff(cells) > 0).all()
        assert cells.min() >= 0
        assert cells.max() <= 120
        assert bool(reference_rows(schema, own, 10).isfinite().all())


def test_of_many_columns_those_that_matter_are_found() -> None:
    names = [f"x{place}" for place in range(60)]
    random = np.random.default_rng(3)
    table: dict[str, Any] = {name: random.normal(size=800) for name in names}
    table["y"] = 2 * table["x7"] - table["x41"] + 0.1 * random.normal(size=800)
    schema = Schema(tuple(Numeric(name, "1") for name in names), (Target("y", "1"),))
    kernel = KernelSpec(inputs=60, architecture="linear", radius=16.0)
    program = Program(schema, kernel, (moments.Spec(), linear.Spec()), max_rows=1000, held_out=0.0)
    model = simulate(program, [table], DEALING, secure=False).model
    assert most_important(model, 2) == ("x7", "x41")
    assert len(most_important(model, 20)) == 20
    assert set(most_important(model, 60)) == set(names)


def test_unknown_columns_and_unfinished_models_are_refused() -> None:
    with pytest.raises(PredictionError, match="unknown column 'height'; the model reads steep"):
        column_effects(straight(), ["height"])
    with pytest.raises(NotFitted, match="linear"):
        column_effects(tables.fitted([tables.site()]))


def test_survival_beside_intervals_is_that_of_features_beside_indicators() -> None:
    """`Layer.joint` multiplies once for each row: the same as features with each indicator."""
    model = every_kind.artifact().model
    fitted = _fitted(model, "days")
    phi = model.features(torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).double())
    mean, covariance = fitted.layers[0].joint(phi)
    for place in range(3):
        beside = torch.zeros(5, 3, dtype=torch.float64)
        beside[:, place] = 1.0
        one = fitted.layers[0].latent(torch.cat([phi.double(), beside], 1))
        assert torch.allclose(mean[:, place], one[0], rtol=1e-9, atol=1e-12)
        assert torch.allclose(covariance[:, place, place], one[1], rtol=1e-9, atol=1e-12)
    assert Likelihood(every_kind.DEATH, fitted).survival(phi).mean.shape == (5, 3)
