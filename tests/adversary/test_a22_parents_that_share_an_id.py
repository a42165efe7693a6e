"""A22, by the parent: two models with one id, one honest, one with features aimed at a patient.

A run of any kind but `train` starts from a model that a hospital has replayed or approved, by its
id. Whoever may choose two models finds two ids that agree in b bits with 2^(b/2) tries: with ids of
128 bits, 2⁶⁴, which is within reach. The honest one is replayed or approved, the other one is what
the hospitals then compute with, and replay does not notice: it is where replay starts. So an id has
all 256 bits of the hash.

The attacker's tries are replaced by a hash whose first half is the same for all cards.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.errors import DamagedArtifact
from kernels.model import card
from kernels.model.artifact import Artifact
from kernels.rounds.run_kinds import Kind
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.from_a_parent import from_a_parent
from tests.client_sdk.hospitals import drive
from tests.client_sdk.replaying import vectors
from tests.kernels.rounds.artifacts import CREATED, PLAIN, PRIVACY, artifact


def crafted(honest: Artifact) -> Artifact:
    """Return the artifact of a model that puts one age far away from all others."""
    standardiser = honest.model.standardiser
    assert standardiser is not None
    steep = tuple(replace(own, mean=61.0, scale=1e-3) for own in standardiser.numeric)
    model = replace(honest.model, standardiser=replace(standardiser, numeric=steep))
    return Artifact.of(model, program=PLAIN, members=3, sums=2, privacy=PRIVACY, created=CREATED)


def test_nobody_computes_with_a_parent_whose_id_begins_like_an_approved_one(
    homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = card.digest

    def half(data: bytes) -> str:
        is_card = data.startswith(b'{"artifact":')
        return f"{'0' * 32}{whole(data)[32:]}" if is_card else whole(data)

    monkeypatch.setattr(card, "digest", half)
    honest = artifact(PLAIN)
    other = crafted(honest)
    assert honest.id[:32] == other.id[:32] == "0" * 32, "what 2⁶⁴ tries would give"
    coordinator, hospitals = from_a_parent(homes, Kind.LINEAR, honest.id, other)
    drive(hospitals, coordinator, first_error=True)
    assert isinstance(hospitals[0].error, DamagedArtifact)
    assert [vectors(hospital) for hospital in hospitals] == [0, 0, 0]


def test_the_approved_parent_is_computed_with(homes: Path) -> None:
    honest = artifact(PLAIN)
    coordinator, hospitals = from_a_parent(homes, Kind.LINEAR, honest.id, honest)
    drive(hospitals, coordinator, first_error=True)
    assert vectors(hospitals[0]) == 1
