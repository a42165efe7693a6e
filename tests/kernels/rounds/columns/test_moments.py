"""Federated standardisation, and the census of outcomes in the same sum."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import RareLevel
from kernels.model.model import Model
from kernels.outcomes.census import Census
from kernels.rounds.columns import moments
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.tables.schema import Schema
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
