"""Rows added and removed give the linear layer as if refitted from scratch."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import KernelsError, NotFitted, ProgramError
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.layer import linear, outcomes, update
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Schema
from privacy.encoding import Encoding
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import sums, tables
from tests.kernels.rounds.sums import add_plainly


def records(rows: int, *, seed: int) -> Records:
    return Records.for_training(tables.SCHEMA, tables.table(rows, seed=seed))


def halves(seed: int) -> tuple[Records, Records]:
    whole = records(40, seed=seed)
    first = torch.arange(40) < 25
    return whole.take(first), whole.take(~first)


def site(**parts: Records) -> Site:
    named = {Part(name): rows for name, rows in parts.items()}
    return Site(named)


class TestUpdate(AdditiveOverRows, EqualToPooled):
    algorithm = update

    def spec(self) -> Any:
        return update.Spec()

    def sites(self) -> list[Site]:
        parts = [halves(seed) for seed in range(3)]
        return [site(training=t, added=a, removed=t.take(torch.arange(25) < 3)) for t, a in parts]

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, linear.Spec())


class TestUpdateWithALinearPart(TestUpdate):
    def model(self, sites: list[Site]) -> Model:
        model = replace(tables.fitted(sites), kernel=tables.BESIDE)
        return after_one_sum(linear, linear.Spec(), model, sites)


def test_the_ratio_of_a_linear_part_is_kept_and_its_rows_can_all_leave() -> None:
    first, second = records(40, seed=0), records(30, seed=1)
    model = replace(tables.fitted([site(training=first)]), kernel=tables.BESIDE)
    both = after_one_sum(
        linear, linear.Spec(), model, [site(training=first), site(training=second)]
    )
    assert float(both.weights[-1]) != 0
    left = run(both, [site(training=first), site(removed=second)])
    assert torch.equal(left.weights, both.weights)
    x, y = site(training=first).table(Part.TRAINING, left)
    expected = Statistics.of_table(left.urk, x, y)
    torch.testing.assert_close(left.statistics.scatter, expected.scatter, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(left.statistics.cross, expected.cross, rtol=1e-8, atol=1e-8)


def after_one_sum(algorithm: Any, spec: Any, model: Model, sites: list[Site]) -> Model:
    state = algorithm.initial(spec, model)
    encoding = Encoding.finest(algorithm.layout(state), max_clients=len(sites))
    total = add_plainly(encoding, [algorithm.contribute(state, each) for each in sites])
    outcome: Model = algorithm.update(state, total).model
    return outcome


def run(model: Model, sites: list[Site]) -> Model:
    return after_one_sum(update, update.Spec(), model, sites)


def refitted(model: Model, sites: list[Site]) -> Model:
    """The linear layer from scratch, with the same standardiser and kernel."""
    return after_one_sum(linear, linear.Spec(), model, sites)


def assert_same(left: Model, right: Model) -> None:
    queries = torch.linspace(-2, 2, 50, dtype=torch.float64).reshape(10, 5)
    one = left.posterior.predict(left.urk.features(queries))
    other = right.posterior.predict(right.urk.features(queries))
    assert ((one.mean - other.mean).abs() / other.variance.sqrt()).max() < 1e-6
    torch.testing.assert_close(one.variance, other.variance, rtol=1e-6, atol=0)


def test_rows_added_and_removed_are_as_if_refitted_from_scratch() -> None:
    parts = [halves(seed) for seed in range(3)]
    model = tables.fitted([site(training=t) for t, _ in parts], linear.Spec())
    first = torch.arange(25) < 4
    changed = [site(training=t, added=a, removed=t.take(first)) for t, a in parts]
    after = [site(training=Records.concatenate([t.take(~first), a])) for t, a in parts]
    assert_same(run(model, changed), refitted(model, after))


def test_a_site_joins_and_another_leaves() -> None:
    own = [records(40, seed=seed) for seed in range(4)]
    model = tables.fitted([site(training=rows) for rows in own[:3]], linear.Spec())
    changes = [
        site(training=own[0], removed=own[0]),
        site(training=own[1]),
        site(training=own[2]),
        site(training=own[3], added=own[3]),
    ]
    assert_same(run(model, changes), refitted(model, [site(training=rows) for rows in own[1:]]))


def test_rows_that_were_never_there_cannot_be_removed() -> None:
    model = tables.fitted([site(training=records(40, seed=0))] * 3, linear.Spec())
    strangers = site(training=records(40, seed=0), removed=records(200, seed=9))
    with pytest.raises(KernelsError):
        run(model, [strangers] * 3)


def test_it_needs_a_linear_layer() -> None:
    with pytest.raises(NotFitted, match="linear"):
        update.initial(update.Spec(), Model(tables.SCHEMA, tables.KERNEL, 100))


def test_it_runs_through_the_secure_sum() -> None:
    parts = [halves(seed) for seed in range(3)]
    sites = [site(training=t, added=a) for t, a in parts]
    with pytest.raises(ProgramError, match="linear"):
        tables.program(update.Spec())
    stages = (*tables.program().stages[:1], linear.Spec(), update.Spec())
    program = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=1000)
    secure = simulate(program, sites, DEALING).model
    assert_same(secure, simulate(program, sites, DEALING, secure=False).model)


# -- with outcomes


def halves_with_outcomes(seed: int, schema: Schema = small.MIXED) -> tuple[Records, Records]:
    whole = Records.for_training(schema, small.table(40, seed=seed))
    first = torch.arange(40) < 35
    return whole.take(first), whole.take(~first)


def fitted_with_outcomes(sites: list[Site]) -> Model:
    stages = (outcomes.Spec(),) if not sites[0].schema.real else (linear.Spec(), outcomes.Spec())
    return small.fitted(sites, *stages)


class TestUpdateWithOutcomes(TestUpdate):
    def sites(self) -> list[Site]:
        parts = [halves_with_outcomes(seed) for seed in range(3)]
        return [site(training=t, added=a, removed=t.take(torch.arange(35) < 2)) for t, a in parts]

    def model(self, sites: list[Site]) -> Model:
        return _fitted_once()


@cache
def _fitted_once() -> Model:
    return fitted_with_outcomes(TestUpdateWithOutcomes().sites())


def distance(left: Model, right: Model) -> list[float]:
    """Return how far apart the latent means of each outcome are, at most."""
    rows = small.table(30, seed=8)
    pairs = zip(predict(left, rows).outcomes, predict(right, rows).outcomes, strict=True)
    return [float((one.latent_mean - other.latent_mean).abs().max()) for one, other in pairs]


def test_outcomes_that_come_and_go_leave_what_was_there() -> None:
    parts = [halves_with_outcomes(seed) for seed in range(3)]
    before = fitted_with_outcomes([site(training=t) for t, _ in parts])
    kept = update.Spec(refit=False)
    more = after_one_sum(update, kept, before, [site(training=t, added=a) for t, a in parts])
    again = after_one_sum(update, kept, more, [site(training=t, removed=a) for t, a in parts])
    moved, left = distance(more, before), distance(again, before)
    assert min(moved) > 0.03
    # The sums of removed rows are made at a q that they have moved: equal to first order.
    assert all(end < 0.25 * there for end, there in zip(left, moved, strict=True))


def test_rows_added_at_the_same_q_leave_without_a_trace() -> None:
    parts = [halves_with_outcomes(seed) for seed in range(3)]
    before = fitted_with_outcomes([site(training=t) for t, _ in parts])
    both = [site(training=t, added=a, removed=a) for t, a in parts]
    again = after_one_sum(update, update.Spec(refit=False), before, both)
    assert max(distance(again, before)) < 1e-9


def test_outcomes_of_added_rows_are_nearer_to_a_refit_than_without_them() -> None:
    parts = [halves_with_outcomes(seed) for seed in range(3)]
    before = fitted_with_outcomes([site(training=t) for t, _ in parts])
    added = run(before, [site(training=t, added=a) for t, a in parts])
    after = [site(training=Records.concatenate([t, a])) for t, a in parts]
    scratch = sums.after_all(outcomes, outcomes.Spec(), before, after).model
    near, far = distance(added, scratch), distance(before, scratch)
    assert all(own < 0.7 * other for own, other in zip(near, far, strict=True))


def test_outcomes_that_were_never_there_cannot_be_removed() -> None:
    own, strangers = halves_with_outcomes(0, small.ALONE)[0], small.table(200, seed=9)
    before = fitted_with_outcomes([site(training=own)] * 3)
    gone = site(training=own, removed=Records.for_training(small.ALONE, strangers))
    with pytest.raises(KernelsError):
        run(before, [gone] * 3)


def test_it_needs_the_layers_of_outcomes() -> None:
    own = site(training=halves_with_outcomes(0)[0])
    with pytest.raises(NotFitted, match="outcomes"):
        update.initial(update.Spec(), small.fitted([own], linear.Spec()))
