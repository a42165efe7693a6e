"""Forged certificates of models: too few signatures, of another model, of another sum."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from client_sdk.conversation.finishing import FetchedModel, check_certified
from client_sdk.conversation.hospital_side import HospitalSide
from privacy.identity import Identity, Pins
from privacy.members.endorsement import (
    Endorsement,
    ModelCertificate,
    ModelStatement,
    model_commitment,
)
from privacy.securesum.errors import BadField, TooFewEndorsements
from privacy.securesum.terms import Terms

CRAFTED = b"a model with a feature that is nonzero for one patient"
COLLUDER = Identity.from_bytes(bytes(range(32)))
SALT = bytes(32)


def alone(members: int) -> ModelStatement:
    """Return what a colluder states alone; the number of members is set behind the check's back."""
    other = bytes(32)
    statement = ModelStatement(
        session=bytes(16),
        run=bytes(16),
        epoch_id=other,
        members=3,
        max_colluders=0,
        program=other,
        roster=other,
        parent=other,
        model=model_commitment(SALT, CRAFTED),
        state=other,
        context=other,
    )
    object.__setattr__(statement, "members", members)
    return statement


def signed_alone(members: int) -> ModelCertificate:
    endorsement = Endorsement.signed(
        COLLUDER, rank=0, statement=alone(members), salt=SALT, results=b""
    )
    return ModelCertificate.of([endorsement], (COLLUDER.key,))


def hospital() -> HospitalSide:
    """Return a hospital that has confirmed the colluder's key."""
    pins = Pins(confirmed={"colluder": COLLUDER.key})
    store = SimpleNamespace(pins=lambda *_, **__: pins)
    home = SimpleNamespace(store=store, identity=Identity.generate())
    policy = SimpleNamespace(trust_first_use=False)
    side: Any = SimpleNamespace(home=home, policy=policy, session="session", roster={})
    return cast(HospitalSide, side)


@pytest.mark.parametrize("members", [0, 1, 2])
def test_a_model_of_fewer_than_three_members_is_not_read(members: int) -> None:
    """With n = 1 and m = 0 the quorum would be one: the colluder that made up the model."""
    with pytest.raises(BadField):
        ModelCertificate.decode(signed_alone(members).encode())


@pytest.mark.parametrize("members", [1, 3])
def test_one_signature_is_no_certificate_in_a_session_without_colluders(members: int) -> None:
    lax = Terms(bytes(16), 0, 3, differential_privacy=False, blind=True)
    model = FetchedModel("id", CRAFTED, {}, signed_alone(members))
    with pytest.raises(TooFewEndorsements):
        check_certified(hospital(), lax, model, starts=True)
