"""A coordinator that invents members, and signs in their names the model that a run starts from."""

from dataclasses import replace
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
from privacy.securesum.errors import NotTheEndorsedModel, TooFewEndorsements
from privacy.securesum.terms import default_terms

TERMS = default_terms(bytes(16), 5, blind=True)
CRAFTED = b"a model with a feature that is nonzero for one patient"
INVENTED = sorted((Identity.generate() for _ in range(4)), key=lambda each: each.key)


def forged() -> FetchedModel:
    salt, other = bytes(32), bytes(32)
    statement = ModelStatement(
        session=TERMS.session,
        run=bytes(16),
        epoch_id=other,
        members=5,
        max_colluders=TERMS.max_colluders,
        program=other,
        roster=other,
        parent=other,
        model=model_commitment(salt, CRAFTED),
        state=other,
        context=other,
    )
    signed = [
        Endorsement.signed(each, rank=rank, statement=statement, salt=salt, results=b"")
        for rank, each in enumerate(INVENTED)
    ]
    keys = tuple(each.key for each in INVENTED)
    return FetchedModel("id", CRAFTED, {}, ModelCertificate.of(signed, keys))


def hospital(*, trust_first_use: bool) -> HospitalSide:
    """Return a hospital that has met the invented members in a roster of the coordinator's."""
    pins = Pins(
        met={f"invented {place}": each.key for place, each in enumerate(INVENTED)},
        trust_first_use=trust_first_use,
    )
    store = SimpleNamespace(pins=lambda *_, **__: pins)
    home = SimpleNamespace(store=store, identity=Identity.generate())
    policy = SimpleNamespace(trust_first_use=trust_first_use)
    side: Any = SimpleNamespace(home=home, policy=policy, session="session", roster={})
    return cast(HospitalSide, side)


@pytest.mark.parametrize("trust_first_use", [False, True])
def test_a_run_does_not_start_from_a_model_that_only_met_members_have_signed(
    *, trust_first_use: bool
) -> None:
    with pytest.raises(TooFewEndorsements):
        check_certified(hospital(trust_first_use=trust_first_use), TERMS, forged(), starts=True)


def test_a_finished_model_may_be_signed_by_members_that_are_trusted_at_first_use() -> None:
    assert len(check_certified(hospital(trust_first_use=True), TERMS, forged())) == 4


def test_a_run_does_not_start_from_a_model_with_the_certificate_of_another() -> None:
    other = replace(forged(), artifact=b"another model")
    with pytest.raises(NotTheEndorsedModel):
        check_certified(hospital(trust_first_use=True), TERMS, other)
