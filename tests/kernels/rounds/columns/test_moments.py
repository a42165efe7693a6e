"""Federated standardisation, and the census of outcomes in the same sum."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import RareLevel, StateError
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.outcomes.census import Census
from kernels.rounds.columns import moments
from kernels.rounds.declaration import Before
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from tests.conformance.algorithm import EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import private, tables

OUTCOMES = replace(tables.SCHEMA, targets=(*tables.SCHEMA.targets, *private.OUTCOMES))


class TestMoments(EqualToPooled):
    algorithm = moments

    def spec(self) -> Any:
        return moments.Spec()

    def model(self, sites: list[Site]) -> Model:
        return Model(tables.SCHEMA, tables.KERNEL, 1000)


class TestMomentsWithOutcomes(TestMoments):
    def sites(self) -> list[Site]:
        return [_site(seed=seed) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return Model(OUTCOMES, tables.KERNEL, 1000)


class TestMomentsWithCurves(TestMoments):
    def spec(self) -> Any:
        return moments.Spec(curves=True)

    def sites(self) -> list[Site]:
        return [_heavy(seed) for seed in range(3)]


class TestMomentsOfOutcomesWithCurves(TestMomentsWithOutcomes):
    def spec(self) -> Any:
        return moments.Spec(curves=True)


def _heavy(seed: int, schema: Schema = tables.SCHEMA) -> Site:
    """Return a site with a column that has heavy tails, and an outlier."""
    random = np.random.default_rng(seed)
    lactate = np.exp(1.5 * random.normal(size=60))
    lactate[0] = np.nan if seed else 300.0
    table = {**tables.table(60, seed=seed), "lactate": lactate}
    return Site.of_table(schema, table, held_out=0.25, dealing=DEALING)


def _site(rows: int = 40, *, seed: int = 0, schema: Schema = OUTCOMES, **changes: Any) -> Site:
    whole = {**private.with_outcomes(dict(tables.table(rows, seed=seed))), **changes}
    return Site.of_table(schema, whole, held_out=0.25, dealing=DEALING)


def _after(sites: list[Site], spec: moments.Spec, schema: Schema = OUTCOMES) -> Model:
    only = Program(schema, tables.KERNEL, (spec,), max_rows=1000, held_out=0.25)
    return simulate(only, sites, DEALING, secure=False).model


def _census(sites: list[Site], spec: moments.Spec, schema: Schema = OUTCOMES) -> Census:
    census = _after(sites, spec, schema).census
    assert census is not None
    return census


def test_other_divisions_of_the_rows_standardise_alike_to_the_last_bit() -> None:
    sites = [tables.site(seed=seed) for seed in range(7)]
    assert tables.fitted(sites).standardiser == tables.fitted([tables.together(sites)]).standardiser


def test_other_divisions_of_the_rows_have_the_same_curves_to_the_last_bit() -> None:
    sites = [_heavy(seed) for seed in range(7)]
    spec = moments.Spec(curves=True)
    federated, pooled = (
        _after(own, spec, tables.SCHEMA).standardiser for own in (sites, [tables.together(sites)])
    )
    assert federated is not None
    assert federated == pooled
    assert [curve.name for curve in federated.curves] == ["lactate"]


def test_columns_without_a_curve_and_targets_are_standardised_as_without_curves() -> None:
    sites = [_heavy(seed) for seed in range(7)]
    straight, curved = (
        _after(sites, moments.Spec(curves=curves), tables.SCHEMA).standardiser
        for curves in (False, True)
    )
    assert straight is not None
    assert curved is not None
    assert replace(curved, curves=()) == straight
    records = sites[0].records[moments.Part.TRAINING]
    rows, moved = straight.apply(records), curved.apply(records)
    others = [index for index, name in enumerate(rows.feature_names) if name != "lactate"]
    assert torch.equal(rows.features[:, others], moved.features[:, others])
    assert not torch.equal(rows.features, moved.features)
    assert rows.targets is not None
    assert moved.targets is not None
    assert torch.equal(rows.targets, moved.targets)
    # Missing cells are imputed with the middle of the curve.
    lactate = rows.feature_names.index("lactate")
    assert set(moved.features[records.missing[:, 1], lactate].tolist()) <= {0.0}


def test_a_table_without_heavy_tails_is_standardised_as_without_curves() -> None:
    sites = [tables.site(seed=0, rows=40)]
    after = [_after(sites, moments.Spec(curves=own), tables.SCHEMA) for own in (False, True)]
    assert after[0].standardiser == after[1].standardiser


def test_curves_cost_one_sum_and_none_where_bounds_decide_or_with_noise() -> None:
    def sums(spec: moments.Spec, schema: Schema) -> int:
        model = Program(schema, private.KERNEL, (spec,), held_out=0).start()
        return moments.declare(spec, Before(model=model, students=frozenset())).sums

    assert sums(moments.Spec(curves=True), private.ROWS) == 2
    assert sums(moments.Spec(), private.ROWS) == 1
    assert sums(moments.Spec(curves=True, from_bounds=True), private.ROWS) == 0
    spec, sites = (
        moments.Spec(curves=True),
        [private.site(private.table(40, seed=s)) for s in (1, 2)],
    )
    program = private.program(spec)
    assert [own.sums for own in declared(program)] == [1]
    states = private.states(moments, spec, program.start(), sites)
    assert len(states) == 2
    assert states[-1].model.standardiser.curves == ()


def test_a_schema_without_numbers_has_no_further_sum() -> None:
    schema = Schema((tables.SCHEMA.features[2],), tables.SCHEMA.targets)
    kernel = replace(tables.KERNEL, inputs=2)
    model = Program(schema, kernel, (moments.Spec(curves=True),), held_out=0).start()
    found = moments.declare(moments.Spec(curves=True), Before(model=model, students=frozenset()))
    assert found.sums == 2
    assert "interval" not in found.words


def test_a_broadcast_with_other_intervals_than_those_of_a_sum_is_refused() -> None:
    spec = moments.Spec(curves=True)
    model = Model(tables.SCHEMA, tables.KERNEL, 1000)
    states = TestMomentsWithCurves().trained(spec, [_heavy(s) for s in range(3)], model)
    due = states[-2]
    assert due.straight is not None
    curve = states[-1].model.standardiser.curves
    fine = replace(due.straight.numeric[1], scale=math.pi)
    others = [
        {"spec": moments.Spec()},
        {"spec": moments.Spec(curves=True, from_bounds=True)},
        {"bounded": None},
        {"straight": replace(due.straight, curves=curve)},
        {"straight": replace(due.straight, numeric=(due.straight.numeric[0], fine))},
    ]
    for change in others:
        with pytest.raises(StateError):
            replace(due, **change)


def test_a_table_in_pieces_is_counted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = moments.Spec(curves=True)
    model = Model(tables.SCHEMA, tables.KERNEL, 1000)
    due = TestMomentsWithCurves().trained(spec, [_heavy(s) for s in range(3)], model)[-2]
    whole = moments.contribute(due, _heavy(0))
    monkeypatch.setattr("kernels.rounds.site.site.CHUNK_ROWS", 7)
    pieces = moments.contribute(due, _heavy(0))
    assert all(np.array_equal(pieces[name], whole[name]) for name in whole)
    records = _heavy(0).records[moments.Part.TRAINING]
    assert whole["rows_per_interval"].sum(1).tolist() == (~records.missing).sum(0).tolist()


def test_the_census_of_many_sites_is_that_of_all_rows_to_the_last_bit() -> None:
    sites = [_site(seed=seed) for seed in range(7)]
    federated = _census(sites, moments.Spec())
    pooled = _census([tables.together(sites)], moments.Spec())
    for name in ("levels", "counts", "exposures"):
        assert torch.equal(getattr(federated, name), getattr(pooled, name))
    assert federated.offsets(OUTCOMES) == pooled.offsets(OUTCOMES)
    assert federated.sites.tolist() == [7.0] * 5


def test_a_schema_with_outcomes_alone_is_counted() -> None:
    schema = replace(tables.SCHEMA, targets=private.OUTCOMES)
    sites = [_site(seed=seed, schema=schema) for seed in range(3)]
    model = _after(sites, moments.Spec(), schema)
    assert model.census is not None
    assert model.standardiser is not None
    assert model.standardiser.targets == ()
    assert float(model.census.levels[:2].sum()) == sum(map(_training_rows, sites))


def _training_rows(site: Site) -> int:
    return len(site.parts[moments.Part.TRAINING])


@pytest.mark.parametrize("have", [0, 1, 2])
def test_a_level_at_too_few_sites_ends_the_run_and_names_no_site(have: int) -> None:
    often = {"diagnosis": ["stroke", "sepsis", "other", "other"] * 10}
    never = {"diagnosis": ["stroke", "other"] * 20}
    sites = [_site(seed=seed, **(often if seed < have else never)) for seed in range(4)]
    with pytest.raises(RareLevel) as raised:
        _after(sites, moments.Spec())
    # The total has the number of sites of each level; whoever is told this has seen it.
    assert "fewer than 3 sites have rows with 'sepsis' of 'diagnosis'" in str(raised.value)
    assert "stroke" not in str(raised.value)
    if have:
        assert _census(sites, moments.Spec(min_sites=have)).sites.tolist() == [4, 4, 4, have, 4]


def test_the_event_is_named_where_it_is_rare_whichever_level_is_listed_first() -> None:
    for event, other in (("yes", "no"), ("no", "yes")):
        target = replace(private.OUTCOMES[0], event=event)
        schema = replace(tables.SCHEMA, targets=(target,))
        sites = [_site(seed=s, schema=schema, readmitted=[other] * 40) for s in range(3)]
        with pytest.raises(RareLevel, match=f"rows with '{event}' of 'readmitted'"):
            _after(sites, moments.Spec(), schema)


def test_fewer_sites_than_required_must_all_have_every_level() -> None:
    sites = [_site(seed=seed) for seed in range(2)]
    assert _census(sites, moments.Spec(min_sites=5)).sites.tolist() == [2.0] * 5


def test_a_level_in_several_pieces_of_a_streamed_table_is_at_one_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernels.rounds.site.site.CHUNK_ROWS", 7)
    state = moments.initial(moments.Spec(), Model(OUTCOMES, tables.KERNEL, 1000))
    filled = moments._filled(OUTCOMES, {"lactate": 2.0**10, "stay": 2.0**10})
    pieces = moments.contribute(replace(state, bounded=filled), _site(200))
    assert pieces["census.sites"].tolist() == [1.0] * 5


def test_without_a_sum_every_offset_is_zero() -> None:
    bounded = replace(private.ROWS, targets=(*private.ROWS.targets, *private.OUTCOMES))
    model = moments.initial(
        moments.Spec(from_bounds=True), Model(bounded, private.KERNEL, 10)
    ).model
    assert model.census is not None
    assert {each for own in model.census.offsets(bounded) for each in own} == {0.0}


def test_with_noise_nothing_of_the_census_is_below_zero_and_no_level_ends_the_run() -> None:
    schema = replace(private.ROWS, targets=(*private.ROWS.targets, *private.OUTCOMES))
    whole = private.with_outcomes(private.table(6, seed=1))
    sites = [private.site({**whole, "diagnosis": ["other"] * 6}, schema) for _ in range(3)]
    model = private.program(moments.Spec(), schema=schema).start()
    for multiplier in (1e-3, 1e3):
        last = private.states(moments, moments.Spec(), model, sites, multiplier=multiplier)[-1]
        census = last.model.census
        assert all(bool((getattr(census, f.name) >= 0).all()) for f in fields(Census))
        assert not census.sites.any()


def test_missing_codes_beside_bounds_of_every_column_need_no_first_sum() -> None:
    features = (
        Numeric("chol", "mg/dl", 50, 700, may_be_missing=True, missing_codes=(0.0,)),
        Numeric("age", "a", 0, 120),
    )
    schema = Schema(features, (Target("stay", "d", 0, 99, missing_codes=(-1.0,)),))
    random = np.random.default_rng(3)
    sites = [
        {
            "chol": [0.0, *random.uniform(100, 300, 39)],
            "age": random.uniform(20, 90, 40),
            "stay": [-1.0, *random.uniform(1, 9, 39)],
        }
        for _ in range(3)
    ]
    kernel = KernelSpec(architecture=Architecture.LINEAR, inputs=len(schema.feature_names))
    for known in (schema, replace(schema, features=(features[0], Numeric("age", "a")))):
        program = Program(known, kernel, (moments.Spec(),))
        done = simulate(program, sites, DEALING, secure=False)
        assert done.sums == (1 if known is schema else 2)
        assert done.model.standardiser is not None
