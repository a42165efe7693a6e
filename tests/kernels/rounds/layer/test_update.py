"""Rows added and removed give the linear layer as if refitted from scratch."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from client_sdk.simulation import simulate
from kernels.errors import KernelsError, NotFitted
from kernels.layer.statistics import Statistics
from kernels.model.model import Model
from kernels.rounds.layer import linear, update
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from privacy.encoding import Encoding
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import tables
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
    program = tables.program(update.Spec())
    with pytest.raises(NotFitted):
        simulate(program, sites, DEALING)
    stages = (*program.stages[:1], linear.Spec(), update.Spec())
    program = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=1000)
    secure = simulate(program, sites, DEALING).model
    assert_same(secure, simulate(program, sites, DEALING, secure=False).model)
