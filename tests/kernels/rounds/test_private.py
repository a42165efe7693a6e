"""Every algorithm with differential privacy, and the twins that would break it."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.features.linear_part import with_log_ratio
from kernels.features.spec import KernelSpec
from kernels.outcomes.census import Census
from kernels.outcomes.likelihood import Likelihood
from kernels.rounds.algorithm import Contribution
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.kernel import elbo, private_exact
from kernels.rounds.layer import linear, outcomes, update
from kernels.rounds.shared import sufficient
from kernels.rounds.shared.weighted_sums import outcome_chunks
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Schema
from privacy.layout import Layout
from tests.conformance.private import PrivateConformance
from tests.dealing import DEALING
from tests.kernels.rounds import private


class TestMoments(PrivateConformance):
    algorithm = moments
    before = ()

    def spec(self) -> Any:
        return moments.Spec()


class TestMomentsWithOutcomes(TestMoments):
    """The census of outcomes of every kind: counts at their bounds, events in every interval."""

    def site(self, whole: private.Table, schema: Schema) -> Site:
        return super().site(whole, _with_outcomes(schema))

    def all_states(self, schema: Schema, **how: Any) -> Sequence[Any]:
        return super().all_states(_with_outcomes(schema), **how)


def _with_outcomes(schema: Schema) -> Schema:
    return replace(schema, targets=private.MIXED.targets)


class TestOutcomes(TestMomentsWithOutcomes):
    """Every kind of outcome, at each q of a run and at those of `_unlikely`."""

    algorithm = outcomes
    examples = 4
    kernel = private.SMOOTH
    before = (moments.Spec(from_bounds=True),)

    def spec(self) -> Any:
        return outcomes.Spec(private_sums=2)

    def all_states(self, schema: Schema, **how: Any) -> Sequence[Any]:
        *states, last = super().all_states(schema, **how)
        return (*states, *map(_unlikely, states), last)


def _unlikely(state: outcomes.State) -> outcomes.State:
    """A state in which latent means cancel large offsets, so that nothing is certain."""
    fittings = []
    for own in state.fittings:
        layers = tuple(
            replace(layer, sums=replace(layer.sums, cross=torch.full_like(layer.sums.cross, -o)))
            for layer, o in zip(own.search.layers, (9.0, -9.0, 4.0), strict=False)
        )
        offsets = (9.0, -9.0, 4.0)[: len(layers)]
        fittings.append(replace(own, search=replace(own.search, layers=layers), offsets=offsets))
    return replace(state, fittings=tuple(fittings))


class TestLinear(PrivateConformance):
    algorithm = linear
    before = (moments.Spec(from_bounds=True),)

    def spec(self) -> Any:
        return linear.Spec()


class TestLinearWithNoisyMoments(TestLinear):
    before = (moments.Spec(),)


class TestLinearBesideAnotherKernel(TestLinearWithNoisyMoments):
    kernel = private.BESIDE


class TestLinearAlone(TestLinearWithNoisyMoments):
    kernel = private.LINEAR


class TestPrivateExact(PrivateConformance):
    algorithm = private_exact
    before = (moments.Spec(from_bounds=True),)

    def spec(self) -> Any:
        return private_exact.Spec(steps=2, learning_rate=0.1, penalty=3.0, unit_clip=0.5)


class TestPrivateExactWithALinearPart(TestPrivateExact):
    kernel = private.BESIDE


class TestElbo(PrivateConformance):
    algorithm = elbo
    before = (moments.Spec(from_bounds=True),)

    def spec(self) -> Any:
        return elbo.Spec(steps=2, sampling_rate=1.0, learning_rate=0.1, clip=0.5)


class TestElboWithALinearPart(TestElbo):
    kernel = private.BESIDE


class TestRecalibration(PrivateConformance):
    algorithm = recalibration
    held_out = 0.9

    def spec(self) -> Any:
        return recalibration.Spec(min_rows=1)


class TestEvaluation(PrivateConformance):
    algorithm = evaluation
    before = (*private.LAYER, recalibration.Spec(min_rows=1))
    held_out = 0.9

    def spec(self) -> Any:
        return evaluation.Spec()


class TestEvaluationOfTrainingRows(PrivateConformance):
    algorithm = evaluation

    def spec(self) -> Any:
        return evaluation.Spec(part=Part.TRAINING, recalibrated=False)


class TestUpdate(PrivateConformance):
    algorithm = update

    def spec(self) -> Any:
        return update.Spec()

    def site(self, whole: private.Table, schema: Schema) -> Site:
        """Take half of the rows for new ones."""
        own = private.site(whole, schema)
        return Site({**own.parts, Part.ADDED: own.parts[Part.CALIBRATION]}, dealing=DEALING)


class _UpdateWithOutcomes(TestUpdate):
    examples = 4
    kernel = private.BESIDE
    before = (*private.LAYER, outcomes.Spec(private_sums=1))

    def site(self, whole: private.Table, schema: Schema) -> Site:
        return super().site(whole, _with_outcomes(schema))

    def all_states(self, schema: Schema, **how: Any) -> Sequence[Any]:
        return super().all_states(_with_outcomes(schema), **how)


@pytest.mark.parametrize("schema", [private.PATIENTS, private.ROWS], ids=["patient", "row"])
def test_one_added_unit_moves_the_sums_of_outcomes_no_further_than_declared(
    schema: Schema,
) -> None:
    promises = _UpdateWithOutcomes()
    promises.test_one_unit_moves_no_block_further_than_declared(schema)
    assert len(promises.all_states(schema)) == 2


@pytest.mark.parametrize("kernel", [private.SMOOTH, private.BESIDE, private.LINEAR])
def test_rows_are_counted_by_the_part_of_s_that_is_the_same_in_every_row(
    kernel: KernelSpec,
) -> None:
    whole = private.program(moments.Spec(from_bounds=True), schema=private.ROWS, kernel=kernel)
    site = private.site(private.table(60, seed=3, outliers=0.5), private.ROWS, held_out=0.0)
    model = private.fitted(whole, [site])
    scatter = sufficient.site_statistics(model, site, Part.TRAINING).scatter
    assert sufficient.counted(scatter.diagonal(), model) == 60
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(4000, len(scatter), generator=generator, dtype=torch.float64)
    part, each = sufficient.counting_part(model)
    spread = float((noise[:, part].sum(1) / each).std())
    assert sufficient.counting_noise(1.0, model) == pytest.approx(spread, rel=0.1)


# -- what must be noticed


def _no_bound_per_patient(state: Any, site: Site) -> Contribution:
    unbounded = replace(state.model.privacy, max_rows_per_patient=100_000)
    return linear.contribute(replace(state, model=replace(state.model, privacy=unbounded)), site)


def _at_another_ratio(state: Any, site: Site) -> Contribution:
    """The linear part at a ratio for which the sensitivity was not declared."""
    weights = with_log_ratio(state.model.urk.weights.detach(), 1.0)
    return linear.contribute(replace(state, model=replace(state.model, weights=weights)), site)


def _targets_as_they_are(state: Any, site: Site) -> Contribution:
    x, y = site.table(Part.TRAINING, state.model)
    if len(x) == 0:
        return linear.contribute(state, site)
    phi = state.model.urk.features(x).detach()
    return {**linear.contribute(state, site), "cross": (phi.mT @ y).numpy()}


def _targets_on_the_sites_own_scale(state: Any, site: Site) -> Contribution:
    """Every row's part depends on the largest one: without it all others change."""
    x, y = site.table(Part.TRAINING, state.model)
    if len(x) == 0:
        return linear.contribute(state, site)
    phi = state.model.urk.features(x).detach()
    y = y / y.abs().amax(0) * sufficient.target_bounds(state.model)
    return {**linear.contribute(state, site), "cross": (phi.mT @ y).numpy()}


def _exposures_as_they_are(state: Any, site: Site) -> Contribution:
    census = Census.zero(state.model.schema)
    for records in site.record_chunks(Part.TRAINING, state.model):
        census += Census.of(records)
    return {**moments.contribute(state, site), "census.exposures": census.exposures.numpy()}


def _classes_as_they_are(state: Any, site: Site) -> Contribution:
    """The pulls of classes without a bound: large where a latent mean cancels an offset."""
    blocks = dict(outcomes.contribute(state, site))
    names = [name for name in blocks if name.startswith("outcome.1.cross")]
    blocks |= {name: np.zeros_like(blocks[name]) for name in names}
    at = Likelihood(state.model.schema.outcomes[1], state.fittings[1].candidate)
    for phi, columns in outcome_chunks(state.model, site, Part.TRAINING) if names else ():
        for function, own in enumerate(at.sums(phi, columns[1])):
            blocks[f"outcome.1.cross.{function}"] += own.cross.numpy()
    return blocks


def _patients_have_one_interval(state: Any) -> Layout:
    """A time to an event as if a patient were one row, as a yes or no is."""
    square = sufficient.squared_norm(state.model) * state.model.privacy.max_rows_per_patient
    return Layout(
        tuple(
            replace(block, sensitivity=(square + 1) / 4)
            if block.name == "outcome.4.scatter.0"
            else block
            for block in outcomes.layout(state).blocks
        )
    )


def _slopes_as_they_are(state: Any, site: Site) -> Contribution:
    """Slopes without a clip: a row of a count, or of many intervals, moves them far."""
    blocks = dict(outcomes.contribute(state, site))
    names = [name for name in blocks if ".slopes." in name]
    blocks |= {name: np.zeros_like(blocks[name]) for name in names}
    for phi, columns in outcome_chunks(state.model, site, Part.TRAINING) if names else ():
        for index, outcome in enumerate(state.model.schema.outcomes):
            at = Likelihood(outcome, state.fittings[index].candidate)
            for function, own in enumerate(at.slopes(phi, columns[index], clip=None)):
                blocks[f"outcome.{index}.slopes.{function}"] += own.numpy()
    return blocks


def _clipped_row_by_row(state: Any, site: Site) -> Contribution:
    """What is right for rows is too much for patients: k rows, each clipped."""
    model = replace(state.model, schema=replace(state.model.schema, patient=None))
    records = replace(
        site._in_memory(Part.TRAINING, state.model), schema=model.schema, patients=None
    )
    rows = Site({Part.TRAINING: records})
    return elbo.contribute(replace(state, model=model), rows)


@pytest.mark.parametrize(
    ("kind", "broken", "schema"),
    [
        (TestMomentsWithOutcomes, _exposures_as_they_are, private.ROWS),
        (TestLinear, _no_bound_per_patient, private.PATIENTS),
        (TestLinearAlone, _at_another_ratio, private.ROWS),
        (TestLinearWithNoisyMoments, _targets_as_they_are, private.ROWS),
        (TestLinear, _targets_on_the_sites_own_scale, private.ROWS),
        (TestElbo, _clipped_row_by_row, private.PATIENTS),
        (TestOutcomes, _classes_as_they_are, private.ROWS),
        (TestOutcomes, _patients_have_one_interval, private.ROWS),
        (TestOutcomes, _slopes_as_they_are, private.ROWS),
    ],
)
def test_a_broken_twin_is_noticed(
    kind: type[PrivateConformance], broken: Any, schema: Schema
) -> None:
    part = "layout" if broken is _patients_have_one_interval else "contribute"
    honest = {name: value for name, value in vars(kind.algorithm).items() if name[0] != "_"}

    class Suspect(kind):
        algorithm = SimpleNamespace(**{**honest, part: broken})
        examples = 10
        derandomize = True

        def all_states(self, schema: Schema, **how: Any) -> Sequence[Any]:
            return kind().all_states(schema, **how)

    with pytest.raises(AssertionError):
        Suspect().test_one_unit_moves_no_block_further_than_declared(schema)


def test_a_histogram_that_couples_rows_is_noticed() -> None:
    def from_their_sum(state: Any, site: Site) -> Contribution:
        model = state.model
        counts = np.zeros(recalibration.layout(state).blocks[0].shape)
        for _, y, _ in site.chunks(Part.CALIBRATION, model):
            z = y - y.sum(0)
            counts += torch.stack(
                [recalibration.noisy_recalibration.histogram(own) for own in z.mT]
            ).numpy()
        return {"residuals": counts}

    honest = {name: value for name, value in vars(recalibration).items() if name[0] != "_"}

    class Suspect(TestRecalibration):
        algorithm = SimpleNamespace(**{**honest, "contribute": from_their_sum})
        derandomize = True

    with pytest.raises(AssertionError):
        Suspect().test_one_unit_moves_no_block_further_than_declared(private.ROWS)
