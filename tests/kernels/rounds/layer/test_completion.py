"""Held-out rows in the layers that predict, and layers without them that judge."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.errors import NotPrivate, StateError, TooManyRows
from kernels.layer.statistics import Statistics
from kernels.model.model import Model, Withheld
from kernels.model.prediction import predict
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import completion, linear, outcomes, update
from kernels.rounds.plan import check_fits
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from tests.conformance.algorithm import AdditiveOverRows, EqualToPooled
from tests.dealing import DEALING
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import private, sums, tables


class TestCompletion(AdditiveOverRows, EqualToPooled):
    algorithm = completion

    def spec(self) -> Any:
        return completion.Spec()

    def model(self, sites: list[Site]) -> Model:
        return tables.fitted(sites, linear.Spec())


class TestCompletionWithOutcomes(AdditiveOverRows, EqualToPooled):
    algorithm = completion
    tolerance = 1e-6

    def spec(self) -> Any:
        return completion.Spec()

    def sites(self) -> list[Site]:
        return [small.site(30, seed=seed, schema=small.MIXED) for seed in range(3)]

    def model(self, sites: list[Site]) -> Model:
        return small.fitted(sites, linear.Spec(), outcomes.Spec(sums=4))


SITES = [tables.site(seed=seed) for seed in range(3)]
JUDGING = (recalibration.Spec(min_rows=1), evaluation.Spec())


def all_training(site: Site) -> Site:
    """Return the site with its held-out rows among those for training."""
    rows = Records.concatenate(list(site.records.values()))
    return Site({Part.TRAINING: rows}, dealing=DEALING)


def test_the_layer_is_that_of_all_rows() -> None:
    before = tables.fitted(SITES, linear.Spec())
    complete = sums.after_all(completion, completion.Spec(), before, SITES).model
    everyone = list(map(all_training, SITES))
    whole = sums.after_all(linear, linear.Spec(refit=False), before, everyone).model
    scales = complete.hyperparameters, before.hyperparameters
    assert torch.equal(*(own.noise_variance for own in scales))
    assert complete.statistics.count == whole.statistics.count == 120
    torch.testing.assert_close(
        complete.statistics.scatter, whole.statistics.scatter, rtol=0, atol=1e-6
    )
    table = tables.table(20, seed=9)
    expected, found = predict(whole, table), predict(complete, table)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-5, atol=1e-5)


def test_held_out_rows_are_judged_by_layers_that_do_not_have_them() -> None:
    without = tables.fitted(SITES, linear.Spec(), *JUDGING)
    complete = tables.fitted(SITES, linear.Spec(), completion.Spec(), *JUDGING)
    for one, other in zip(without.recalibration, complete.recalibration, strict=True):
        assert torch.equal(one.counts, other.counts)
        assert one.fitted == other.fitted
    assert torch.equal(
        without.scores.gaussian.squared_errors, complete.scores.gaussian.squared_errors
    )
    # A model that judged by its complete layers would say something else.
    cheating = replace(complete, withheld=None)
    state = recalibration.initial(recalibration.Spec(min_rows=1), cheating)
    seen = sums.after_one(recalibration, state, SITES).model.recalibration
    assert not torch.equal(seen[0].counts, complete.recalibration[0].counts)


def test_outcomes_are_close_to_those_fitted_to_all_rows() -> None:
    sites = [small.site(200, seed=seed, schema=small.ALONE) for seed in range(3)]
    before = small.fitted(sites, outcomes.Spec())
    complete = sums.after_all(completion, completion.Spec(), before, sites).model
    whole = sums.after_all(
        outcomes, outcomes.Spec(), before, [all_training(site) for site in sites]
    ).model
    table = small.table(40, seed=9)
    for one, other, old in zip(
        predict(complete, table).outcomes,
        predict(whole, table).outcomes,
        predict(before, table).outcomes,
        strict=True,
    ):
        gap = (one.mean - other.mean).abs().mean()
        assert gap < 0.35 * (old.mean - other.mean).abs().mean() + 1e-3, one.target.name


def test_an_update_changes_the_layers_that_its_rows_are_in() -> None:
    complete = tables.fitted(SITES, linear.Spec(), completion.Spec())
    site = tables.site(30, seed=7, held_out=0.4)
    held_out = [site.records[part] for part in (Part.STOPPING, Part.CALIBRATION)]
    new = {
        Part.ADDED: site.records[Part.TRAINING],
        Part.ADDED_HELD_OUT: Records.concatenate(held_out),
    }
    gone = {
        Part.REMOVED: SITES[0].records[Part.TRAINING].between(slice(0, 4)),
        Part.REMOVED_HELD_OUT: SITES[0].records[Part.CALIBRATION].between(slice(0, 2)),
    }
    changed = sums.after_all(update, update.Spec(), complete, [Site(new), Site(gone)]).model

    def expected(model: Model, added: list[Records], removed: list[Records]) -> Statistics:
        found = model.statistics
        for sign, parts in ((1, added), (-1, removed)):
            for own in parts:
                x, y = Site({Part.TRAINING: own}).table(Part.TRAINING, model)
                one = Statistics.of_table(model.urk, x, y)
                found = Statistics(
                    found.scatter + sign * one.scatter,
                    found.cross + sign * one.cross,
                    found.target_squares + sign * one.target_squares,
                    found.count + sign * one.count,
                )
        return found

    judging = complete.judging(complete.withheld)
    for own, before, added, removed in (
        (changed, complete, new, gone),
        (changed.judging(changed.withheld), judging, {0: new[Part.ADDED]}, {0: gone[Part.REMOVED]}),
    ):
        whole = expected(before, list(added.values()), list(removed.values()))
        assert own.statistics.count == whole.count
        torch.testing.assert_close(own.statistics.scatter, whole.scatter, rtol=0, atol=1e-8)
        torch.testing.assert_close(own.statistics.cross, whole.cross, rtol=0, atol=1e-8)


def test_held_out_rows_that_are_summed_together_fit_into_the_sum_together() -> None:
    """Otherwise the encoding's bound would be exceeded, after entry."""
    stages = (moments.Spec(), linear.Spec(), completion.Spec())
    program = Program(tables.SCHEMA, tables.KERNEL, stages, max_rows=100, held_out=0.25)
    counts = {Part.TRAINING: 100, Part.STOPPING: 50, Part.CALIBRATION: 50}
    check_fits(program, counts)
    with pytest.raises(TooManyRows, match="101 rows for calibration and stopping"):
        check_fits(program, {**counts, Part.STOPPING: 51})
    check_fits(replace(program, stages=stages[:2]), {**counts, Part.STOPPING: 51})


def test_a_run_of_the_layer_alone_completes_it_before_it_is_judged() -> None:
    stages = (moments.Spec(), linear.Spec(), completion.Spec(), *JUDGING)
    program = Program(tables.SCHEMA, tables.KERNEL, stages, held_out=0.25)
    assert program_of(Kind.LINEAR, program).stages == stages[1:]
    assert program_of(Kind.UPDATE, program).stages == (update.Spec(), *JUDGING)


def test_layers_that_the_model_does_not_have_cannot_be_withheld() -> None:
    complete = tables.fitted(SITES, linear.Spec(), completion.Spec())
    with pytest.raises(StateError, match="withheld"):
        replace(complete, withheld=Withheld(None, None, None))


def test_new_weights_and_a_new_layer_drop_the_layers_without_held_out_rows() -> None:
    complete = tables.fitted(SITES, linear.Spec(), completion.Spec())
    assert complete.advanced(weights=complete.urk.weights.detach()).withheld is None
    assert linear.initial(linear.Spec(), complete).model.withheld is None


def test_with_differential_privacy_it_is_refused() -> None:
    with pytest.raises(NotPrivate, match="leave it out"):
        private.program(*private.LAYER, completion.Spec())
