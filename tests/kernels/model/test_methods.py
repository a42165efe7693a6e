"""The prediction methods of one model: the same rows, the same units, and which methods exist."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from kernels import storage
from kernels.ensembles.distilled import Method
from kernels.ensembles.served_networks import NetworkMethod
from kernels.errors import (
    ArtifactError,
    NotFitted,
    OneVariance,
    OtherFormat,
    StateError,
    UnknownMethod,
)
from kernels.model.artifact import Artifact
from kernels.model.methods import METHODS, methods_of
from kernels.model.model import Model, known
from kernels.model.prediction import predict
from kernels.rounds.registry import restore
from kernels.tables.records import Records
from tests.kernels.rounds import tables
from tests.kernels.rounds.artifacts import (
    ALONE,
    NETWORKS,
    STUDENTS,
    WITH_STUDENTS,
    artifact,
)

MODEL = artifact(STUDENTS).model
ROWS = tables.table(40, seed=9)


def test_one_program_gives_one_model_with_every_method() -> None:
    assert methods_of(MODEL) == WITH_STUDENTS
    assert WITH_STUDENTS == ("fedbnr", "product", "mixture", "beta", "gpoe", "rbcm")
    assert (*WITH_STUDENTS, "fedpa", "ep_mcmc", "fedyogi", "fedbe", "one_shot") == METHODS
    assert methods_of(artifact().model) == ("fedbnr",)


@pytest.mark.parametrize("method", Method)
def test_a_students_word_is_turned_into_the_targets_units(method: Method) -> None:
    standardiser = known(MODEL.standardiser, "moments")
    records = Records.for_prediction(tables.SCHEMA, ROWS)
    said = known(MODEL.distilled, "predictive").predict(
        method, standardiser.apply(records).features
    )
    found = predict(MODEL, ROWS, method=method)
    mean, scale = standardiser.target_columns
    assert torch.allclose(found.mean, said.mean * scale + mean, rtol=1e-12)
    assert torch.allclose(found.variance.sqrt(), said.variance.sqrt() * scale, rtol=1e-12)
    assert found.method == method
    assert bool((found.variance > 0).all())


@pytest.mark.parametrize("method", WITH_STUDENTS)
def test_a_row_alone_many_in_pieces_and_records_are_predicted_alike(method: str) -> None:
    whole = predict(MODEL, ROWS, method=method)
    records = Records.for_prediction(tables.SCHEMA, ROWS)
    pieces = predict(MODEL, records, method=method, chunk_rows=7)
    alone = [
        predict(MODEL, {name: [cells[row].item()] for name, cells in ROWS.items()}, method=method)
        for row in range(3)
    ]
    for name in ("mean", "variance"):
        expected = getattr(whole, name)
        assert torch.allclose(getattr(pieces, name), expected, rtol=1e-12)
        joined = torch.cat([getattr(each, name) for each in alone])
        assert torch.allclose(joined, expected[:3], rtol=1e-12)
    assert len(predict(MODEL, records.between(slice(0, 0)), method=method)) == 0


@pytest.mark.parametrize("method", WITH_STUDENTS)
def test_every_method_marks_the_same_rows_as_beyond_the_bounds(method: str) -> None:
    rows = {"age": [50.0, 121.0], "lactate": [1.0, 1.0], "ward": ["medical"] * 2}
    assert predict(MODEL, rows, method=method).extrapolates.tolist() == [False, True]


def test_the_default_is_fedbnr_and_without_its_layer_the_first_that_there_is() -> None:
    assert predict(MODEL, ROWS).method == "fedbnr"
    bare = replace(MODEL, statistics=None, recalibration=None, scores=None)
    assert methods_of(bare) == WITH_STUDENTS[1:]
    assert predict(bare, ROWS).method == "product"
    with pytest.raises(NotFitted, match="linear"):
        predict(replace(bare, distilled=None), ROWS)


@pytest.mark.parametrize("method", ["product", "fedbnr ", "", "bcm"])
def test_a_method_that_is_not_there_is_refused_with_those_that_are(method: str) -> None:
    with pytest.raises(UnknownMethod, match=r"its methods are: fedbnr$") as refused:
        predict(artifact().model, ROWS, method=method)
    assert refused.value.code == "prediction.unknown_method"


def test_recalibration_is_of_fedbnr_alone() -> None:
    fedbnr, product = (predict(MODEL, ROWS, method=each) for each in ("fedbnr", "product"))
    # So few held-out rows: the law, in which training rows have a part, covers more evenly.
    assert torch.equal(fedbnr.interval(0.9).upper, fedbnr.student_t(0.9).upper)
    lower, upper = product.interval(0.9)
    assert torch.allclose((upper - lower) / 2, 1.6448536269514722 * product.variance.sqrt())
    for kind in ("conformal", "student_t"):
        with pytest.raises(OneVariance, match="only gaussian intervals"):
            product.interval(0.9, kind)


def test_a_students_variance_is_one_and_nobody_is_told_parts_of_it() -> None:
    product = predict(MODEL, ROWS, method="product")
    for part in ("latent_variance", "noise_variance"):
        with pytest.raises(OneVariance, match="or the method fedbnr"):
            getattr(product, part)


def test_what_all_sites_said_is_not_in_the_model_that_goes_out() -> None:
    made = artifact(STUDENTS)
    assert known(made.model.distilled, "").opinion is None
    again: Model = restore(made.to_bytes())
    assert known(again.distilled, "").opinion is None
    missed = {each.method: each.divergence for each in known(again.distilled, "").students}
    assert missed == {each.method: each.divergence for each in made.card.methods[1:]}
    assert b"Committee" not in made.to_bytes()
    assert torch.equal(
        predict(again, ROWS, method="beta").mean, predict(MODEL, ROWS, method="beta").mean
    )


def test_the_card_says_which_methods_there_are_and_how_they_are_served() -> None:
    card = artifact(STUDENTS).card
    assert [each.method for each in card.methods] == list(WITH_STUDENTS)
    assert [each.ensemble for each in card.methods] == [None, *["distilled"] * 5]
    assert all(each.divergence is not None and each.divergence > 0 for each in card.methods[1:])
    beta = card.methods[WITH_STUDENTS.index("beta")].beta
    assert beta is not None
    assert len(beta) == 2
    assert all(0 <= each <= 1 for each in beta)


def test_a_card_that_claims_other_methods_than_the_bytes_have_is_refused() -> None:
    made = artifact(STUDENTS)
    for methods in (made.card.methods[:-1], made.card.methods[::-1]):
        card = replace(made.card, methods=methods, evaluation=None)
        with pytest.raises(ArtifactError, match="does not describe the model"):
            Artifact.from_bytes(made.to_bytes(), card)
        with pytest.raises(
            ArtifactError, match=r"every other method once|the first of its methods"
        ):
            replace(made.card, methods=methods)
    with pytest.raises(ArtifactError, match="one of fedbnr"):
        replace(made.card.methods[1], method="bcm")


def test_two_students_of_one_method_are_refused() -> None:
    distilled = known(MODEL.distilled, "predictive")
    with pytest.raises(StateError, match="at most one student"):
        replace(MODEL, distilled=replace(distilled, students=2 * distilled.students))


def test_students_survive_storage() -> None:
    again: Model = restore(storage.encode(MODEL))
    assert methods_of(again) == WITH_STUDENTS


def test_a_model_of_another_format_is_refused_by_name_with_what_to_do() -> None:
    tensors = safetensors.torch.load(storage.encode(artifact().model))
    tree = json.loads(bytes(tensors.pop("tree").numpy().tobytes()))

    def written(other: object) -> bytes:
        raw = torch.tensor(list(json.dumps(other).encode()), dtype=torch.uint8)
        return safetensors.torch.save({"tree": raw, **tensors})

    assert isinstance(restore(written(tree)), Model)
    for other in (tree["content"], {**tree, "format": storage.FORMAT + 1}):
        with pytest.raises(OtherFormat, match="train the model again"):
            restore(written(other))
    del tree["content"]["fields"]["distilled"]
    with pytest.raises(OtherFormat, match="whose fields this version of veilgp does not read"):
        restore(written(tree))
    with pytest.raises(ArtifactError, match="at least one method"):
        replace(artifact().card, methods=())


def test_networks_are_methods_beside_the_layer_and_without_it() -> None:
    beside, alone = artifact(NETWORKS), artifact(ALONE)
    assert methods_of(beside.model) == ("fedbnr", *NetworkMethod)
    assert methods_of(alone.model) == (*NetworkMethod,)
    assert predict(alone.model, ROWS).method == "fedpa"
    # Both programs train them alike.
    for method in NetworkMethod:
        one, other = (predict(own.model, ROWS, method=method) for own in (beside, alone))
        assert torch.equal(one.mean, other.mean)
        assert torch.equal(one.variance, other.variance)
    assert alone.card.layer == ()
    assert beside.card.rows == alone.card.rows > 0
    with pytest.raises(UnknownMethod, match="its methods are: fedpa"):
        predict(alone.model, ROWS, method="fedbnr")


def test_scores_of_networks_are_those_of_their_predictions() -> None:
    for made, default in ((artifact(NETWORKS), "fedbnr"), (artifact(ALONE), "fedpa")):
        scores = known(made.card.evaluation, "evaluation")
        assert scores.method == default
        judged = {own.method: own.quality for own in scores.others} | {default: scores.gaussian}
        assert set(judged) == set(methods_of(made.model))
        assert len({quality[0].nll for quality in judged.values()}) == len(judged)
    beside, alone = (
        known(artifact(own).card.evaluation, "evaluation") for own in (NETWORKS, ALONE)
    )
    assert beside.others[0].quality == alone.gaussian
    assert beside.others[1:] == alone.others


def test_a_card_that_claims_a_layer_for_networks_alone_is_refused() -> None:
    made, with_layer = artifact(ALONE), artifact(NETWORKS).card.layer
    with pytest.raises(ArtifactError, match="does not describe the model"):
        Artifact.from_bytes(made.to_bytes(), replace(made.card, layer=with_layer))
    with pytest.raises(ArtifactError, match=r"evaluation\.method"):
        replace(made.card, methods=made.card.methods[1:])
    more = replace(made.card, rows=made.card.rows + 1)
    with pytest.raises(ArtifactError, match="does not describe the model"):
        Artifact.from_bytes(made.to_bytes(), more)
