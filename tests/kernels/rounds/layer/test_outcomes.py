"""Phase 2 of outcomes of every kind."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels import storage
from kernels.errors import KernelsError, RareLevel, StateError
from kernels.features.spec import KernelSpec
from kernels.model.model import Model, known
from kernels.model.prediction import Predictions, predict
from kernels.outcomes import binary
from kernels.outcomes.census import Census
from kernels.outcomes.logistic import newton
from kernels.outcomes.predictions import OutcomePrediction
from kernels.reproducible import on_grid
from kernels.rounds.columns import moments
from kernels.rounds.layer import outcomes
from kernels.rounds.shared.weighted_sums import grid_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Schema
from kernels.tables.targets import Outcome
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.kernels.outcomes import tables as dense
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables


class TestOutcomes(AdditiveOverRows, EqualToPooled):
    algorithm = outcomes
    schema = small.MIXED
    kernel = small.KERNEL

    def spec(self) -> Any:
        return outcomes.Spec(sums=3)

    def sites(self) -> list[Site]:
        return [small.site(30, seed=seed, schema=self.schema) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return small.fitted(sites, kernel=self.kernel)


class TestOutcomesAloneBesideALinearPart(TestOutcomes):
    schema = small.ALONE
    kernel = small.SMOOTH

    def spec(self) -> Any:
        return outcomes.Spec(sums=2)


def only(*targets: Outcome) -> Schema:
    return replace(tables.SCHEMA, targets=targets)


def sites_of(*wholes: tables.Table, schema: Schema) -> list[Site]:
    return [small.of_table(whole, schema) for whole in wholes]


def answers(model: Model, sites: list[Site], **how: Any) -> Predictions:
    """Fit the outcomes, and predict all rows of the sites."""
    last = sums.after_all(outcomes, outcomes.Spec(**{"sums": 6, **how}), model, sites)
    rows = tables.together(sites).records[Part.TRAINING]
    return predict(last.model, rows)


def assert_finite(found: OutcomePrediction) -> None:
    for name in ("mean", "variance", "latent_mean", "latent_variance"):
        assert bool(getattr(found, name).isfinite().all()), name
    assert bool((found.variance >= 0).all())


# -- what is fitted


@pytest.mark.parametrize("schema", [small.MIXED, small.ALONE], ids=["mixed", "alone"])
def test_other_divisions_of_the_rows_give_the_same_bits(schema: Schema) -> None:
    rows = (7, 35, 1, 13, 20)
    sites = [small.site(n, seed=seed, schema=schema) for seed, n in enumerate(rows)]
    model, spec = small.fitted(sites), outcomes.Spec(sums=4)
    pooled = sums.after_all(outcomes, spec, model, [tables.together(sites)])
    federated = sums.after_all(outcomes, spec, model, sites)
    assert storage.encode(federated.model) == storage.encode(pooled.model)


@pytest.mark.parametrize("kernel", [small.KERNEL, small.LINEAR], ids=["shifted", "linear"])
def test_a_yes_or_no_reaches_the_pooled_optimum_of_its_bound(kernel: KernelSpec) -> None:
    sites = [small.site(50, seed=seed, schema=only(small.BINARY)) for seed in range(2)]
    model = small.fitted(sites, kernel=kernel)
    spec = outcomes.Spec(sums=30, tolerance=0.0)
    last = sums.after_all(outcomes, spec, model, sites)
    (own,) = known(last.model.outcomes, "outcomes")
    phi, y = pooled_rows(model, sites)
    trials = binary.trials(y, offset=own.offsets[0])
    layer = own.layers[0]
    root = torch.linalg.cholesky(layer.covariance)
    bound = dense.dense_bound(phi, trials, newton, layer.mean, root, layer.prior_variance)
    best = dense.dense_optimum(phi, trials, newton, layer.prior_variance)
    assert last.step < 15
    # What is left is the second order of the rounding of √ω·φ and κ to their grids.
    assert float(bound) == pytest.approx(best, rel=3e-8)


def pooled_rows(model: Model, sites: list[Site]) -> tuple[Tensor, Tensor]:
    """Return features on the grid of the sums, and the column of a yes or no, of all rows."""
    whole = tables.together(sites)
    x, _ = whole.table(Part.TRAINING, model)
    phi = on_grid(model.urk.features(x).detach(), torch.as_tensor(grid_of(model, 0).features))
    return phi, known(whole.records[Part.TRAINING].outcomes, "moments")[:, 0]


def test_no_sum_lowers_the_bound_of_what_is_kept() -> None:
    sites = [small.site(30, seed=seed) for seed in range(3)]
    state = outcomes.initial(outcomes.Spec(sums=8), small.fitted(sites))
    found = []
    while not outcomes.finished(state):
        state = sums.after_one(outcomes, state, sites)
        found.append([(own.restarts, own.search.bound) for own in state.fittings])
    for before, after in pairwise(found):
        for (times, low), (again, high) in zip(before, after, strict=True):
            # Another dispersion is another likelihood, whose search begins again.
            assert again != times or high is None or low is None or high >= low


def test_an_outcome_leaves_the_sums_when_it_is_finished() -> None:
    schema = only(small.BINARY, small.TIMES)
    sites = [small.site(30, seed=seed, schema=schema) for seed in range(3)]
    state, all_went_on = outcomes.initial(outcomes.Spec(), small.fitted(sites)), True
    while not outcomes.finished(state):
        names = [block.name for block in outcomes.layout(state).blocks]
        going_on = {int(name.split(".")[1]) for name in names if name.startswith("outcome.")}
        assert going_on == {i for i, own in enumerate(state.fittings) if not own.finished}
        all_went_on = all_went_on and len(going_on) == 2
        state = sums.after_one(outcomes, state, sites)
    assert state.step < state.spec.sums
    assert not all_went_on


def test_counts_are_near_the_negative_binomial_regression_on_the_same_columns() -> None:
    from statsmodels.discrete.discrete_model import NegativeBinomial

    sites = [small.site(150, seed=seed, schema=only(small.COUNT), held_out=0.0) for seed in (1, 2)]
    model = small.fitted(sites, kernel=small.LINEAR)
    last = sums.after_all(outcomes, outcomes.Spec(), model, sites).model
    whole = tables.together(sites)
    (own,) = predict(last, whole.records[Part.TRAINING]).outcomes
    x, _ = whole.table(Part.TRAINING, model)
    columns = known(whole.records[Part.TRAINING].outcomes, "moments").numpy()
    # The kernel's features: two levels that add up to 1 are one column beside the constant.
    design = np.column_stack([model.urk.features(x).detach().numpy()[:, :-2], np.ones(len(x))])
    expected = NegativeBinomial(columns[:, 0], design, exposure=columns[:, 1]).fit(disp=False)
    # Both predictions are for the rows' exposures.
    away = np.abs(np.log(own.mean.numpy() / expected.predict()))
    assert float(np.median(away)) < 0.03
    assert float(away.max()) < 0.2
    (fitted,) = known(last.outcomes, "outcomes")
    assert fitted.dispersion == pytest.approx(1 / expected.params[-1], rel=0.15)


def test_survival_of_patients_who_are_all_alike_is_kaplan_meiers_estimate() -> None:
    from lifelines import KaplanMeierFitter

    random, edges = np.random.default_rng(3), np.array(small.TIMES.edges)
    wholes = []
    for seed in range(2):
        death, end = random.exponential(50, 300), random.choice(edges, 300)
        died = (death <= end).astype(int)
        wholes.append(small.table(300, seed=seed, days=np.minimum(death, end), died=died))
    sites = sites_of(*wholes, schema=only(small.TIMES))
    (own,) = answers(small.fitted(sites, kernel=small.LINEAR), sites, sums=12).outcomes
    pooled = tables.pooled(wholes)
    estimate = KaplanMeierFitter().fit(pooled["days"], pooled["died"])
    expected = estimate.survival_function_at_times(edges).to_numpy()
    found = known(own.survival, "outcomes").mean(0).numpy()
    # Few reach the last interval, and the prior pulls its hazard towards that of all.
    assert np.abs(found - expected).tolist() == pytest.approx([0.0] * 4, abs=0.03)


# -- tables that are not as one would like them


def separable(rows: int, seed: int) -> tables.Table:
    whole = small.table(rows, seed=seed)
    old, middle = whole["age"] > 70, whole["age"] > 45
    return {
        **whole,
        "readmitted": np.where(old, "yes", "no"),
        "diagnosis": np.where(old, "stroke", np.where(middle, "sepsis", "other")),
        "visits": np.where(old, 200, 0),
        "days": np.where(old, 1.0, 200.0),
        "died": np.where(old, 1, 0),
    }


def all_alike(rows: int, seed: int) -> tables.Table:
    return small.table(
        rows,
        seed=seed,
        readmitted=["no"] * rows,
        diagnosis=["other"] * rows,
        visits=[0] * rows,
        days=[40.0] * rows,
        died=[0] * rows,
    )


def at_once(rows: int, seed: int) -> tables.Table:
    return small.table(rows, seed=seed, days=[0.0] * rows, died=[1] * rows)


def gone_at_once(rows: int, seed: int) -> tables.Table:
    """Nobody has survived an interval: a time to an event has no rows at all."""
    return small.table(rows, seed=seed, days=[0.0] * rows, died=[0] * rows)


def counted(sites: list[Site]) -> Model:
    """Return a model with the census of rows some of whose levels no site has."""
    usual = small.fitted([small.site(60, seed=9, schema=sites[0].schema)])
    records = tables.together(sites).records[Part.TRAINING]
    return replace(usual, census=Census.of(records))


@pytest.mark.parametrize("made", [separable, all_alike, at_once, gone_at_once])
def test_any_outcomes_have_finite_predictions(made: Any) -> None:
    sites = sites_of(made(40, 0), made(30, 1), schema=small.ALONE)
    model = counted(sites)
    for own in answers(model, sites).outcomes:
        assert_finite(own)


def test_a_million_is_a_count() -> None:
    schema = only(replace(small.COUNT, upper=1e6))
    visits = [0, 1, 10**6, 3] * 10
    sites = sites_of(*(small.table(40, seed=s, visits=visits) for s in range(2)), schema=schema)
    (own,) = answers(small.fitted(sites), sites).outcomes
    assert_finite(own)
    assert 1e4 < float(own.mean.mean()) < 1e7


def test_sites_without_rows_and_with_few_change_nothing() -> None:
    whole = small.site(60, seed=4, schema=small.ALONE, held_out=0.0)
    records = whole.records[Part.TRAINING]
    none = Site({Part.TRAINING: records.between(slice(0, 0))})
    model, spec = small.fitted([whole]), outcomes.Spec(sums=3)
    alone, among = (
        sums.after_all(outcomes, spec, model, sites).model
        for sites in ([whole], [none, whole, none])
    )
    assert storage.encode(alone) == storage.encode(among)


def test_no_rows_at_all_leave_the_prior() -> None:
    whole = small.site(30, schema=small.ALONE)
    none = Site({Part.TRAINING: whole.records[Part.TRAINING].between(slice(0, 0))})
    last = sums.after_all(outcomes, outcomes.Spec(sums=3), small.fitted([whole]), [none])
    for own in predict(last.model, small.table(3)).outcomes:
        assert_finite(own)


def test_a_class_that_too_few_sites_have_ends_the_run_before_phase_2() -> None:
    wholes = [small.table(30, seed=s, diagnosis=["stroke", "other"] * 15) for s in range(2)]
    sites = sites_of(small.table(30, seed=5), *wholes, schema=small.ALONE)
    with pytest.raises(RareLevel, match="'sepsis' of 'diagnosis'"):
        small.fitted(sites, outcomes.Spec(), columns=moments.Spec())


def test_a_class_that_nobody_has_is_possible_and_unlikely() -> None:
    wholes = [small.table(60, seed=s, diagnosis=["stroke", "other"] * 30) for s in range(2)]
    sites = sites_of(*wholes, schema=only(small.CLASSES))
    (own,) = answers(counted(sites), sites).outcomes
    assert_finite(own)
    assert 0 < float(own.probabilities[:, 1].max()) < 0.1


# -- states that no run has


def broken(state: outcomes.State, **changes: Any) -> outcomes.State:
    first, *rest = state.fittings
    return replace(state, fittings=(replace(first, **changes), *rest))


@pytest.fixture(scope="module")
def started() -> outcomes.State:
    sites = [small.site(30, seed=seed, schema=small.ALONE) for seed in range(3)]
    return outcomes.initial(outcomes.Spec(), small.fitted(sites))


def test_states_of_other_outcomes_are_refused_by_name(started: outcomes.State) -> None:
    own = started.fittings
    for fittings in ((), own[:-1], (*own, own[0]), list(own), tuple(f.search for f in own)):
        with pytest.raises(StateError, match="one for each of 4 outcomes"):
            replace(started, fittings=fittings)
    with pytest.raises(StateError, match="'readmitted' must have 1 layers"):
        replace(started, fittings=(own[1], *own[1:]))
    with pytest.raises(StateError, match="'days' must have 1 layers of 14 features"):
        replace(started, fittings=(*own[:3], own[0]))
    with pytest.raises(StateError, match="a count must have a positive dispersion"):
        broken(started, dispersion=1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"search": None},
        {"restarts": -1},
        {"finished": 1},
        {"offsets": (float("nan"),)},
        {"offsets": (0.0, 0.0)},
        {"offsets": [0.0]},
    ],
    ids=str,
)
def test_broken_searches_are_refused_by_name(started: outcomes.State, wrong: Any) -> None:
    with pytest.raises(KernelsError):
        broken(started, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": ()},
        {"stride": 0.0},
        {"stride": float("nan")},
        {"share": 2.0},
        {"bound": float("nan")},
        {"gain": float("inf")},
        {"kept_steps": -1},
        {"kept": ()},
        {"sums": ()},
        {"kept": "kept"},
    ],
    ids=str,
)
def test_searches_that_no_sum_gives_are_refused_by_name(
    started: outcomes.State, wrong: Any
) -> None:
    with pytest.raises(KernelsError):
        broken(started, search=replace(started.fittings[0].search, **wrong))


@pytest.mark.parametrize(
    "wrong", [{"sums": 0}, {"sums": 2.5}, {"tolerance": -1.0}, {"private_sums": 0}], ids=str
)
def test_impossible_parameters_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(KernelsError, match=next(iter(wrong))):
        outcomes.Spec(**wrong)
