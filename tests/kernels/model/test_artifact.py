"""A stored model is read back to the last bit, or refused with a named error."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import storage
from kernels.errors import (
    ArtifactError,
    DamagedArtifact,
    KernelsError,
    NewerArtifact,
    NotFitted,
    OlderArtifact,
    StateError,
)
from kernels.layer.posterior import Hyperparameters
from kernels.model.artifact import Artifact
from kernels.model.card import Card, digest
from kernels.model.card_sections import Privacy
from kernels.model.model import known
from kernels.model.prediction import predict
from kernels.rounds.layer import linear
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import Scores
from kernels.scores.recalibration import Recalibration
from kernels.tables.schema import Numeric, Schema
from kernels.tables.standardiser import Scale, Standardiser
from kernels.tables.targets import Target
from tests.kernels.rounds import every_kind, tables
from tests.kernels.rounds.artifacts import CREATED, PLAIN, PRIVACY, PROGRAM, artifact

ARTIFACT = artifact()
DATA, TEXT = ARTIFACT.to_bytes(), ARTIFACT.card.to_json()
TREE = DATA.index(b'{"fields"')


def with_bytes(data: bytes, **changes: object) -> Artifact:
    """What a consistently lying coordinator can serve: the card's digest matches the bytes."""
    return Artifact.from_bytes(
        data, ARTIFACT.card.to_plain() | changes | {"artifact": digest(data)}
    )


def test_reading_gives_the_same_model_to_the_last_bit() -> None:
    again = Artifact.from_bytes(DATA, json.loads(TEXT), expected_id=ARTIFACT.id)
    assert again.id == ARTIFACT.id
    assert again.to_bytes() == DATA
    assert storage.encode(again.model) == DATA
    assert again.card == ARTIFACT.card
    assert again.card.to_json() == TEXT
    rows = tables.table(20, seed=9)
    one, other = predict(ARTIFACT.model, rows), predict(again.model, rows)
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.variance, other.variance)


def test_an_id_stands_for_bytes_and_card() -> None:
    assert len(ARTIFACT.id) == 64
    assert replace(ARTIFACT.card, members=4).id != ARTIFACT.id
    assert artifact(rows=251).id != ARTIFACT.id
    model, sums = ARTIFACT.model, ARTIFACT.card.sums
    same = Artifact.of(
        model, program=PROGRAM, members=3, sums=sums, privacy=PRIVACY, created=CREATED
    )
    assert same.id == ARTIFACT.id
    with pytest.raises(DamagedArtifact, match="was requested"):
        Artifact.from_bytes(DATA, json.loads(TEXT), expected_id="0" * 64)


def test_the_card_says_what_the_model_is() -> None:
    card, model = ARTIFACT.card, ARTIFACT.model
    scores = known(model.scores, "evaluation")
    units = in_units(scores.gaussian, known(model.standardiser, "moments"))
    evaluation = known(card.evaluation, "evaluation")
    assert [own.rmse for own in evaluation.gaussian] == units.rmse().tolist()
    assert [list(own.curve) for own in evaluation.gaussian] == units.calibration_curve().tolist()
    assert evaluation.rows == int(scores.gaussian.rows[0])
    laws = known(card.recalibration, "recalibration")
    recalibration = known(model.recalibration, "recalibration")
    assert [law.scale for law in laws] == [own.law.scale for own in recalibration]
    assert [own.log_evidence for own in card.layer] == model.posterior.log_evidence.tolist()
    assert card.rows == known(model.statistics, "linear").count
    assert card.program == PROGRAM.to_json()
    assert (card.members, card.sums) == (3, 5)
    assert card.created == "2026-11-16T09:30:00+00:00"


def test_a_model_without_evaluation_has_a_card_that_says_so() -> None:
    card = artifact(PLAIN).card
    assert card.evaluation is None
    assert card.recalibration is None
    assert Card.from_json(card.to_json()) == card


def test_privacy_is_said_in_words_for_the_schemas_unit() -> None:
    assert not PRIVACY.differential_privacy
    assert "no differential privacy" in PRIVACY.meaning
    assert "at least 3 hospitals" in PRIVACY.meaning
    assert PRIVACY.unit == "row"
    schema = Schema(tables.SCHEMA.features, tables.SCHEMA.targets, patient="id")
    noisy = Privacy.of(schema, min_cohort=5, max_colluders=1, epsilon=2.0, delta=1e-6)
    assert (noisy.unit, noisy.differential_privacy) == ("patient", True)
    assert "e^2" in noisy.meaning
    with pytest.raises(ArtifactError, match="only then"):
        replace(PRIVACY, epsilon=1.0)
    with pytest.raises(ArtifactError, match="only then"):
        Privacy.of(schema, min_cohort=5, max_colluders=1, epsilon=1.0)


def test_other_versions_say_which_side_to_upgrade() -> None:
    with pytest.raises(NewerArtifact, match="on this machine"):
        Card.from_plain(json.loads(TEXT) | {"version": Card.VERSION + 1, "new": 1})
    with pytest.raises(OlderArtifact, match="at the coordinator"):
        Card.from_plain(json.loads(TEXT) | {"version": Card.VERSION - 1})
    with pytest.raises(ArtifactError, match="version must be an integer"):
        Card.from_plain(json.loads(TEXT) | {"version": True})


def test_only_a_finished_model_of_its_own_program_is_stored() -> None:
    def of(model: Any, **changes: Any) -> Artifact:
        given = {"program": PROGRAM, "members": 3, "sums": 5, "privacy": PRIVACY}
        return Artifact.of(model, **(given | {"created": CREATED} | changes))

    with pytest.raises(NotFitted, match="linear"):
        of(tables.fitted([tables.site()]))
    with pytest.raises(ArtifactError, match="time zone"):
        of(ARTIFACT.model, created=datetime(2026, 1, 1))  # noqa: DTZ001
    kernel = replace(tables.KERNEL, seed=4)
    with pytest.raises(ArtifactError, match="the same schema and kernel"):
        of(ARTIFACT.model, program=replace(PROGRAM, kernel=kernel))


@given(st.integers(0, len(DATA) - 1))
def test_truncated_bytes_are_refused_whatever_the_card_says(end: int) -> None:
    with pytest.raises(DamagedArtifact):
        Artifact.from_bytes(DATA[:end], ARTIFACT.card)
    with pytest.raises(KernelsError):
        with_bytes(DATA[:end])


@given(st.one_of(st.integers(0, 600), st.integers(TREE, TREE + 4000)), st.integers(0, 7))
def test_a_flipped_bit_is_refused(position: int, bit: int) -> None:
    flipped = bytearray(DATA)
    flipped[position % len(DATA)] ^= 1 << bit
    with pytest.raises(DamagedArtifact):
        Artifact.from_bytes(bytes(flipped), ARTIFACT.card)


@given(st.one_of(st.integers(0, 600), st.integers(0, len(DATA) - 1)), st.integers(0, 7))
def test_a_bit_flipped_by_the_coordinator_itself_is_a_model_or_a_named_error(
    position: int, bit: int
) -> None:
    flipped = bytearray(DATA)
    flipped[position] ^= 1 << bit
    try:
        read = with_bytes(bytes(flipped))
    except KernelsError:
        return
    predict(read.model, tables.table(3))


@given(st.integers(0, len(TEXT) - 1), st.sampled_from('0129.-eE"{}[],: aé\x00'))
def test_a_changed_card_is_another_card_or_a_named_error(position: int, letter: str) -> None:
    changed = TEXT[:position] + letter + TEXT[position + 1 :]
    try:
        card = Card.from_json(changed)
    except KernelsError:
        return
    assert (card.to_json() == TEXT) == (card.id == ARTIFACT.id)


def places(plain: Any) -> list[tuple[Any, Any]]:
    """Return every container of a JSON value with each of its keys."""
    if not isinstance(plain, dict | list):
        return []
    keys = list(plain) if isinstance(plain, dict) else list(range(len(plain)))
    return [(plain, key) for key in keys] + [p for key in keys for p in places(plain[key])]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", 10**400, -1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.data())
def test_anything_anywhere_in_a_card_is_a_card_or_a_named_error(data: st.DataObject) -> None:
    plain = json.loads(TEXT)
    container, key = data.draw(st.sampled_from(places(plain)), "place")
    container[key] = data.draw(JSON_VALUES)
    try:
        card = Card.from_plain(plain)
    except KernelsError:
        return
    assert Card.from_json(card.to_json()).id == card.id


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "NaN", "[" * 100_000, '{"format": 1}', TEXT.replace('"rows"', '"row"')]
)
def test_foreign_cards_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError):
        Card.from_json(text)


def test_a_card_with_numbers_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(ArtifactError):
        Card.from_json(TEXT.replace('"lower":0', '"lower":NaN', 1))
    with pytest.raises(ArtifactError, match="without NaN or infinite values"):
        Card.from_plain({"format": object()})


@pytest.mark.parametrize("number", [2**53, -105108623504638670, 10**30])
@pytest.mark.parametrize(
    ("section", "field"), [("standardiser", "mean"), ("schema", "upper"), ("layer", "log_evidence")]
)
def test_a_large_integer_in_a_card_is_a_float_where_a_float_is_meant(
    section: str, field: str, number: int
) -> None:
    plain = json.loads(TEXT)
    part = {"standardiser": "targets", "schema": "targets"}.get(section)
    (plain[section][part] if part else plain[section])[0][field] = number
    if field == "upper":
        plain[section][part][0]["lower"] = -(10**40)
    card = Card.from_json(json.dumps(plain))
    assert Card.from_plain(plain) == card
    assert Card.from_json(card.to_json()).id == card.id
    part_of_card = getattr(card, section)
    column = (getattr(part_of_card, part) if part else part_of_card)[0]
    assert (type(getattr(column, field)), getattr(column, field)) == (float, float(number))


@pytest.mark.parametrize("number", [2**53, 105108623504638670, 10**30, 10**400])
@pytest.mark.parametrize("field", ["members", "sums", "rows"])
def test_an_integer_that_canonical_json_does_not_have_is_refused_by_name(
    field: str, number: int
) -> None:
    plain = json.loads(TEXT) | {field: number}
    with pytest.raises(ArtifactError, match=f"the card.{field} must be an integer of at least 0"):
        Card.from_json(json.dumps(plain))
    with pytest.raises(ArtifactError, match=f"the card.{field} must be an integer of at least 0"):
        Card.from_plain(plain)


def test_a_model_of_very_large_numbers_is_stored_and_read() -> None:
    """Canonical JSON writes 1e17 without a point, and a JSON reader returns it as an integer."""
    model = ARTIFACT.model
    targets = tuple(replace(own, mean=1e17) for own in known(model.standardiser, "").targets)
    far = replace(model, standardiser=replace(known(model.standardiser, ""), targets=targets))
    stored_far = Artifact.of(
        far, program=PROGRAM, members=3, sums=5, privacy=PRIVACY, created=CREATED
    )
    served = json.loads(json.dumps(stored_far.card.to_plain()))
    read = Artifact.from_bytes(stored_far.data, served, expected_id=stored_far.id)
    assert read.card == stored_far.card


def test_foreign_bytes_are_refused() -> None:
    for data in (b"", b"PK\x03\x04", b"\x80\x04\x95", storage.encode(linear.Spec())):
        with pytest.raises(StateError):
            with_bytes(data)


def stored(**parts: object) -> bytes:
    """Return the bytes of the model with other parts, which its constructor would refuse."""
    model = replace(ARTIFACT.model)
    for name, part in parts.items():
        object.__setattr__(model, name, part)
    return storage.encode(model)


ONES = torch.ones(2, dtype=torch.float64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: stored(standardiser=None),
        lambda: stored(standardiser=ARTIFACT.model.statistics),
        lambda: stored(standardiser=Standardiser((), (), (Scale("stay", 0.0, 1.0),))),
        lambda: stored(hyperparameters=None),
        lambda: stored(hyperparameters=Hyperparameters(ONES[:1], ONES[:1])),
        lambda: stored(hyperparameters=Hyperparameters(ONES, ONES)),
        lambda: stored(statistics=None),
        lambda: stored(statistics=ONES),
        lambda: stored(statistics=artifact_of_three_features()),
        lambda: stored(statistics=scaled(1e308)),
        lambda: stored(statistics=scaled(-1.0)),
        lambda: stored(recalibration=ONES),
        lambda: stored(recalibration=(1, 2)),
        lambda: stored(recalibration=ARTIFACT.model.recalibration[:1]),
        lambda: stored(recalibration=(crafted_law(), crafted_law())),
        lambda: stored(scores=ONES),
        lambda: stored(scores=replace(ARTIFACT.model.scores, part=3)),
        lambda: stored(scores=replace(ARTIFACT.model.scores, gaussian=Scores.zero(3))),
        lambda: stored(scores=replace(ARTIFACT.model.scores, recalibrated=ONES)),
        lambda: stored(scores=replace(ARTIFACT.model.scores, conformal_inside=ONES)),
        lambda: stored(schema=Schema((Numeric("age", "a"),), (Target("stay", "d"),))),
        lambda: stored(max_rows=0),
    ],
)
def test_a_crafted_model_is_refused_when_it_is_read(make: Callable[[], bytes]) -> None:
    with pytest.raises(KernelsError):
        with_bytes(make())


def artifact_of_three_features() -> Any:
    statistics = ARTIFACT.model.statistics
    assert statistics is not None
    return replace(statistics, scatter=statistics.scatter[:3, :3], cross=statistics.cross[:3])


def scaled(factor: float) -> Any:
    statistics = ARTIFACT.model.statistics
    assert statistics is not None
    return replace(statistics, scatter=torch.eye(16, dtype=torch.float64) * factor)


def crafted_law() -> Recalibration:
    assert ARTIFACT.model.recalibration is not None
    law = replace(ARTIFACT.model.recalibration[0])
    object.__setattr__(law, "fitted", 7)
    return law


@pytest.mark.parametrize("changes", [{"rows": 1}, {"layer": []}, {"program": "{}"}, {"kernel": 1}])
def test_a_card_of_another_model_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(KernelsError):
        with_bytes(DATA, **changes)


def test_a_card_of_other_targets_or_curves_is_refused() -> None:
    card = ARTIFACT.card
    evaluation = known(card.evaluation, "evaluation")
    with pytest.raises(ArtifactError, match="once, in order"):
        replace(card, layer=card.layer[::-1])
    with pytest.raises(ArtifactError, match="19 numbers"):
        replace(evaluation.gaussian[0], curve=(0.5,))
    with pytest.raises(ArtifactError, match="held-out rows"):
        replace(evaluation, rows=0)
    with pytest.raises(ArtifactError, match="64 hex digits"):
        replace(card, artifact="../" * 20 + "home")
    one = known(evaluation.conformal, "evaluation")[:1]
    with pytest.raises(ArtifactError, match="one curve for each target"):
        replace(card, evaluation=replace(evaluation, conformal=one))


def test_a_card_describes_the_layers_of_outcomes() -> None:
    made = every_kind.artifact()
    again = Artifact.from_bytes(made.to_bytes(), json.loads(made.card.to_json()))
    assert again.card == made.card
    readmitted, discharged, visits, days = made.card.outcomes
    census = known(made.model.census, "moments")
    no, yes = census.levels[:2].tolist()
    assert (readmitted.levels, readmitted.counts) == (("yes", "no"), (yes, no))
    assert sum(discharged.counts) == readmitted.rows == made.card.rows
    assert (visits.counts[0], visits.exposure) == (
        float(census.counts[0]),
        float(census.exposures[0]),
    )
    assert (days.levels, days.counts) == (("10", "20", "40"), tuple(census.levels[-3:].tolist()))
    assert visits.dispersion is not None
    assert [own.dispersion for own in (readmitted, discharged, days)] == [None] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"prior_variance": 2.0},
        {"counts": [1.0, 2.0]},
        {"rows": 1},
        {"kind": "classes"},
        {"kind": "colour"},
        {"counts": [1.0]},
        {"name": "died"},
    ],
)
def test_a_card_of_other_outcomes_is_refused(change: dict[str, Any]) -> None:
    made = every_kind.artifact()
    plain = json.loads(made.card.to_json())
    plain["outcomes"][0] |= change
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(made.to_bytes(), plain)
