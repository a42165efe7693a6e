"""Key material appears in no repr, error or journal, and cannot be pickled."""

import pickle
import traceback
from dataclasses import replace

import pytest

from privacy.securesum.errors import SecureSumError
from privacy.securesum.records import (
    AdvertSecrets,
    GroupSecrets,
    PairsSecrets,
    SealSecrets,
    SlotSecrets,
)

from .coordinator import Attacker, Lair

KINDS = {
    kind.kind: kind
    for kind in (AdvertSecrets, SealSecrets, PairsSecrets, SlotSecrets, GroupSecrets)
}


@pytest.fixture
def lair() -> Lair:
    lair = Attacker().open()
    lair.uploads(lair.task())
    return lair


def secrets_of(lair: Lair, rank: int) -> list[bytes]:
    """Return a member's secrets: private key, self key, pair seeds and channel keys."""
    found = [lair.members[rank].identity.to_bytes(), lair.stolen_self_key(rank)]
    lair.corrupt(rank)
    for pair in lair.corrupted[rank].values():
        found += [pair.seed, pair.channel]
    return found


def shows(text: str, secret: bytes) -> bool:
    return any(form in text for form in (repr(secret), repr(secret)[2:-1], secret.hex()))


def test_reprs_show_no_secret(lair):
    secrets = secrets_of(lair, 0)
    client, vault = lair.members[0].client, lair.members[0].vault
    certificate = lair.certificate(lair.proposal(lair.task()))
    step = client.reveal(certificate)
    shown = [repr(x) for x in (client, lair.members[0].identity, step, step.message)]
    lair.reveal(certificate, 1)
    repair = lair.members[1].client.repair(lair.repair_request(lair.task(), 1, 0))
    shown += [repr(repair), repr(client.upload), repr(client.journal)]
    shown += [repr(pair) for pair in lair.corrupted[0].values()]
    for content in vault.values():
        kind = KINDS.get(bytes(content[:2])[1])
        if kind is not None:
            shown.append(repr(kind.decode(bytes(content))))
    secrets += repair.message.shares
    for text in shown:
        assert not any(shows(text, secret) for secret in secrets)


def test_errors_show_no_secret(lair):
    secrets, errors = secrets_of(lair, 0), []
    certificate = lair.certificate(lair.proposal(lair.task()))
    for ask in (
        lambda: lair.reveal(replace(certificate, context=bytes(32)), 0),
        lambda: lair.reveal(replace(certificate, signatures=(bytes(64),) * 4), 0),
        lambda: lair.upload(lair.task(statistic="other"), 0),
        lambda: lair.upload(lair.task(1, proof=certificate.encode()), 0, vector=[1]),
        lambda: lair.repair(lair.task(), 0, 1),
    ):
        with pytest.raises(SecureSumError) as caught:
            ask()
        errors.append("".join(traceback.format_exception(caught.value)))
    for text in errors:
        assert not any(shows(text, secret) for secret in secrets)


def test_a_client_and_its_identity_cannot_be_pickled(lair):
    for thing in (lair.members[0].client, lair.members[0].identity):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_journals_hold_no_secret(lair):
    secrets = secrets_of(lair, 0)
    certificate = lair.certificate(lair.proposal(lair.task()))
    lair.reveal(certificate, 0)
    journal = b"".join(lair.members[0].records)
    assert not any(secret in journal for secret in secrets)
