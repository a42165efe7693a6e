"""A second kernel beside that of a model, and predictions that are mixtures of both."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from client_sdk.model.card import ModelCard
from client_sdk.model.gain import gain
from kernels.errors import ArtifactError, KernelsError, NotFitted, StateError
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.effects import column_effects
from kernels.model.model import Model, check_fitted, is_fitted
from kernels.model.prediction import predict, predict_standardised
from kernels.rounds.broadcast import checked
from kernels.rounds.layer import completion, linear
from tests.kernels.rounds import outcomes as small
from tests.kernels.rounds import private
from tests.kernels.rounds.artifacts import CREATED
from tests.kernels.rounds.kernel.test_blend import CHOICES, CRUDE, PROGRAM, after, sites, table

MODEL = after(linear.Spec(), completion.Spec())
ROWS = {"x": table(30, 7)["x"]}


def artifact(model: Model) -> Artifact:
    privacy = Privacy.of(model.schema, min_cohort=3, max_colluders=0)
    return Artifact.of(
        model,
        program=PROGRAM,
        members=3,
        sums=4,
        privacy=privacy,
        created=CREATED,
    )


def test_predictions_have_the_mean_and_the_variance_of_the_mixture() -> None:
    (one, first), (other, second) = MODEL.members
    assert (first + second, second) == (1.0, MODEL.second.share)
    a, b, found = predict(one, ROWS), predict(other, ROWS), predict(MODEL, ROWS)
    torch.testing.assert_close(found.mean, first * a.mean + second * b.mean)
    squares = [own.variance + own.mean.square() for own in (a, b)]
    variance = first * squares[0] + second * squares[1] - found.mean.square()
    torch.testing.assert_close(found.variance, variance)
    noise = first * a.noise_variance + second * b.noise_variance
    torch.testing.assert_close(found.noise_variance, noise)
    assert bool((found.latent_variance > 0).all())


def test_chunks_and_no_rows_at_all_are_predicted_alike() -> None:
    whole, pieces = predict(MODEL, ROWS), predict(MODEL, ROWS, chunk_rows=7)
    torch.testing.assert_close(whole.variance, pieces.variance)
    nothing = predict_standardised(MODEL, torch.zeros(0, 1).double())
    assert nothing.mean.shape == nothing.latent_variance.shape == (0, 1)


def test_effects_are_those_of_what_is_predicted() -> None:
    (own,) = column_effects(MODEL, ["x"])
    curves = [column_effects(each, ["x"])[0].targets[0].mean for each, _ in MODEL.members]
    share = MODEL.second.share
    torch.testing.assert_close(own.targets[0].mean, (1 - share) * curves[0] + share * curves[1])
    assert bool((own.targets[0].deviation > 0).all())


@pytest.mark.parametrize("share", [0.0, 1.0, 0.3, -0.5, 1, True, None, float("nan")])
def test_a_share_outside_the_grid_is_refused(share: Any) -> None:
    with pytest.raises(StateError, match="share"):
        replace(MODEL.second, share=share)


def test_a_second_kernel_that_does_not_fit_is_refused() -> None:
    second = MODEL.second
    wide = replace(CRUDE, inputs=2)
    wrong: list[Any] = [
        replace(second, kernel=wide),
        replace(second, kernel=replace(second.kernel, samples=5)),
        replace(second, weights=torch.zeros(9).double()),
        replace(second, withheld=None),
        replace(second, statistics=second.withheld.statistics),
        replace(second, hyperparameters="σ"),
        "another kernel",
    ]
    for own in wrong:
        with pytest.raises(KernelsError):
            replace(MODEL, second=own)
    with pytest.raises(StateError, match="Withheld"):
        replace(second, withheld="layers")


def test_where_it_has_no_form_it_is_refused() -> None:
    bare = MODEL.second.without_sums
    for model in (
        Model(MODEL.schema, CRUDE, 100, choices=CHOICES),
        Model(small.MIXED, replace(CRUDE, inputs=small.KERNEL.inputs), 100),
        private.program(*private.LAYER).start(),
    ):
        with pytest.raises(StateError, match="second must be None"):
            replace(model, second=bare)


def test_a_new_standardiser_or_new_weights_drop_it() -> None:
    assert MODEL.advanced(standardiser=MODEL.standardiser).second is None
    assert MODEL.advanced(weights=MODEL.weights).second is None
    assert MODEL.advanced(recalibration=None).second is MODEL.second


def test_without_the_layer_of_the_second_kernel_nothing_is_predicted() -> None:
    half = replace(MODEL, second=MODEL.second.without_sums)
    assert not is_fitted(half)
    with pytest.raises(NotFitted, match="linear"):
        check_fitted(half)


def test_an_artifact_has_both_kernels_and_says_so() -> None:
    own = artifact(MODEL)
    read = Artifact.from_bytes(own.to_bytes(), own.card.to_plain(), expected_id=own.id)
    torch.testing.assert_close(predict(read.model, ROWS).mean, predict(MODEL, ROWS).mean)
    share = MODEL.second.share
    assert f"mixed with rbf, {CRUDE.features} features ({share:.1%})" in repr(ModelCard(own.card))
    other = replace(MODEL.second, share=1 - share if share != 0.5 else 0.25)
    data = artifact(replace(MODEL, second=other)).to_bytes()
    for card in (
        replace(own.card, second=replace(own.card.second, share=other.share)),
        replace(own.card, second=None),
    ):
        with pytest.raises(ArtifactError, match="does not describe"):
            Artifact.from_bytes(own.to_bytes(), card)
    assert data != own.to_bytes()
    alone = replace(PROGRAM, stages=PROGRAM.stages[:1], kernel=MODEL.kernel, choices=())
    with pytest.raises(ArtifactError, match="same schema and kernel"):
        Artifact.of(
            MODEL,
            program=alone,
            members=3,
            sums=4,
            privacy=Privacy.of(MODEL.schema, min_cohort=3, max_colluders=0),
            created=CREATED,
        )


def test_a_broadcast_with_another_second_kernel_than_the_program_s_is_refused() -> None:
    state = linear.initial(linear.Spec(), MODEL)
    assert checked(state, PROGRAM, 2) is state
    strange = replace(MODEL.second.without_sums, kernel=replace(CRUDE, seed=77))
    with pytest.raises(StateError, match="another kernel"):
        checked(replace(state, model=replace(state.model, second=strange)), PROGRAM, 2)


def test_a_site_s_own_model_for_comparison_has_both_kernels() -> None:
    found = gain(MODEL, sites()[0])
    assert bool((found.rmse > -1).all())
    assert found.rows > 0
