"""A model's certificate: a quorum of pinned members, one statement per run, one model."""

from dataclasses import replace

import pytest

from privacy.members.archive import Archive, open_archive
from privacy.members.endorsement import NO_SALT, Endorsement, ModelCertificate
from privacy.securesum.client import Client
from privacy.securesum.errors import (
    ForgedEndorsement,
    NotTheEndorsedModel,
    SecondEndorsement,
    TooFewEndorsements,
    UnreadableArchive,
)
from privacy.securesum.messages import Adverts, Opening
from privacy.securesum.sealing import KEM_SECRET_BYTES, public_key
from privacy.securesum.simulator import SOURCE, Simulation
from privacy.securesum.terms import Terms
from tests.privacy.securesum.test_blind import ENCODING, STATE, TERMS, N, opened, vectors

MODEL, RESULTS, PROGRAM = b"safetensors", b'{"rows":10}', bytes(32)


def finished(terms: Terms = TERMS) -> Simulation:
    simulation = opened(terms)
    simulation.sum(vectors(), encoding=ENCODING, state=STATE)
    return simulation


def endorsed(simulation: Simulation, site: int, data: bytes = MODEL) -> Endorsement:
    certificate = simulation.coordinator.slot.certificate
    assert certificate is not None
    here = simulation.sites[site]
    step = here.client.endorse(
        certificate, program=PROGRAM, parent=None, data=data, state=STATE, results=RESULTS
    )
    here.persist(step)
    return step.message


def certified(simulation: Simulation, sites: int = N) -> ModelCertificate:
    return ModelCertificate.of(
        [endorsed(simulation, site) for site in range(sites)], simulation.epoch.members
    )


@pytest.mark.parametrize("blind", [True, False])
def test_all_members_state_the_same(blind):
    simulation = finished(replace(TERMS, blind=blind))
    found = [endorsed(simulation, site) for site in range(N)]
    assert len({each.about for each in found}) == 1
    certificate = ModelCertificate.decode(certified(simulation).encode())
    certificate.check_covers(MODEL)
    members = simulation.epoch.members
    assert certificate.vouched_by(members, max_colluders=1) == members


def test_one_changed_byte_is_another_model():
    certificate = certified(finished())
    with pytest.raises(NotTheEndorsedModel):
        certificate.check_covers(MODEL[:-1] + b"x")


def test_a_quorum_of_pinned_members_must_vouch():
    simulation = finished()
    members = simulation.epoch.members
    assert simulation.epoch.quorum == 4
    certificate = certified(simulation, 4)
    certificate.vouched_by(members, max_colluders=1)
    with pytest.raises(TooFewEndorsements):
        certificate.vouched_by(members[1:], max_colluders=1)
    with pytest.raises(TooFewEndorsements):
        certified(simulation, 3).vouched_by(members, max_colluders=1)


def test_a_certificate_of_laxer_terms_counts_no_more_than_its_own_signers():
    """n = 3 and m = 0 need two signers; a session that tolerates three colluders needs four."""
    simulation = Simulation(3, terms=Terms(bytes(16), 0, 3, False, blind=True))
    simulation.open_epoch()
    simulation.sum(vectors()[:3], encoding=ENCODING, state=STATE)
    certificate = certified(simulation, 3)
    certificate.vouched_by(simulation.epoch.members, max_colluders=2)
    with pytest.raises(TooFewEndorsements):
        certificate.vouched_by(simulation.epoch.members, max_colluders=3)


def test_forged_repeated_and_swapped_signatures_are_refused():
    simulation = finished()
    members = simulation.epoch.members
    good = certified(simulation)
    forged = replace(good, signatures=(bytes(64), *good.signatures[1:]))
    swapped = replace(
        good, signatures=(good.signatures[1], good.signatures[0], *good.signatures[2:])
    )
    results = replace(good, results=b'{"rows":11}')
    other = replace(good, statement=replace(good.statement, members=3))
    for bad in (forged, swapped, results, other):
        with pytest.raises(ForgedEndorsement):
            bad.vouched_by(members, max_colluders=1)
    with pytest.raises(Exception, match="ascending"):
        replace(good, signers=(good.signers[0],) * N)


def test_a_member_signs_one_model_per_run_also_after_a_crash():
    simulation = finished()
    first = endorsed(simulation, 0)
    assert endorsed(simulation, 0) == first
    simulation.sites[0].crash()
    assert endorsed(simulation, 0) == first
    with pytest.raises(SecondEndorsement):
        endorsed(simulation, 0, b"another model")


def test_the_coordinator_has_no_salt_of_a_model_for_members_only():
    simulation = finished(replace(TERMS, members_only=True))
    endorsement = endorsed(simulation, 0)
    assert endorsement.salt == NO_SALT
    certificate = certified(simulation)
    with pytest.raises(NotTheEndorsedModel):
        certificate.check_covers(MODEL)
    here = simulation.sites[1].client
    salt = here.model_salt(simulation.epoch.epoch_id, endorsement.statement.context)
    certificate.with_salt(salt).check_covers(MODEL)


class Archived:
    """An epoch whose members have archive keys, and a model sealed to them."""

    def __init__(self) -> None:
        terms = replace(TERMS, members_only=True)
        self.simulation = simulation = Simulation(N, terms=terms)
        self.secrets = [bytes([i]) * KEM_SECRET_BYTES for i in range(N)]

        def advertise(client: Client, data: bytes, site: int) -> object:
            key = public_key(self.secrets[site])
            return client.advertise(Opening.decode(data), SOURCE, archive_key=key)

        opening = simulation.coordinator.opening().encode()
        for i, site in enumerate(simulation.sites):
            step = site.answer(opening, lambda client, data, i=i: advertise(client, data, i))  # type: ignore[misc]
            simulation.coordinator.add_advert(step.message)
        simulation.agree()
        simulation.deliver()
        self.adverts: Adverts = simulation.coordinator.close_adverts()

    def sealed(self, content: bytes = MODEL) -> tuple[Archive, bytes]:
        return self.simulation.sites[0].client.seal_archive(
            self.adverts, self.simulation.roster, model=bytes(32), content=content
        )


def test_every_member_opens_an_archive_and_nobody_else():
    archived = Archived()
    header, body = archived.sealed()
    assert MODEL not in body
    header = Archive.decode(header.encode())
    for site, secret in zip(archived.simulation.sites, archived.secrets, strict=True):
        assert open_archive(header, body, own=site.identity.key, secret=secret) == MODEL
    own, secret = archived.simulation.sites[1].identity.key, archived.secrets[1]
    other, _ = archived.sealed(b"another")
    for bad, content, who, key in (
        (header, body[:-1] + b"\0", own, secret),
        (header, body, own, archived.secrets[2]),
        (header, body, bytes(32), secret),
        (replace(header, run=bytes([1]) * 16), body, own, secret),
        (other, body, own, secret),
    ):
        with pytest.raises(UnreadableArchive):
            open_archive(bad, content, own=who, secret=key)


def test_nothing_is_sealed_to_members_that_were_not_agreed_to():
    archived = Archived()
    adverts = archived.adverts
    stranger = replace(adverts.adverts[4], archive_key=public_key(bytes([9]) * KEM_SECRET_BYTES))
    with pytest.raises(Exception, match="not the members"):
        archived.simulation.sites[0].client.seal_archive(
            Adverts((*adverts.adverts[:4], stranger)),
            archived.simulation.roster,
            model=bytes(32),
            content=MODEL,
        )
