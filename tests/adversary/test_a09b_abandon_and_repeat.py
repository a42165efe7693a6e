"""A9b: a certified sum counts as released, whatever the coordinator says about it.

Five members, of which one (4) may collude: a quorum is four.
"""

from dataclasses import replace

import numpy as np
import pytest

from privacy.framing import Label
from privacy.securesum.certificates import abandon_parts, certify_parts
from privacy.securesum.errors import (
    AlreadySigned,
    BadField,
    ClosedOtherwise,
    CohortChanged,
    DifferentTask,
    ForgedSignature,
    NotAscending,
    PartialCohort,
    SignerOutside,
    SlotAbandoned,
    SlotNotClosed,
    TooFewSigners,
    UnknownEpoch,
    UnknownRank,
    UnknownSurvivor,
)
from privacy.securesum.messages import AbandonProof, AbandonRequest, Certification

from .coordinator import Attacker, Lair, certificate_of, is_noise, marker


@pytest.fixture
def lair() -> Lair:
    return Attacker().open()


def abandoned_by_colluders(lair: Lair, ranks, slot: int = 0) -> AbandonProof:
    """Return colluders' signatures on an abandonment, whatever else they have signed."""
    parts = abandon_parts(lair.epoch, slot)
    signatures = (lair.members[r].identity.sign(Label.ABANDON, *parts) for r in ranks)
    return AbandonProof(lair.epoch.epoch_id, slot, tuple(ranks), tuple(signatures))


def test_a_certified_sum_is_not_abandoned(lair):
    """The attacker unmasks the sum in secret, says that it failed, and requests a repeat."""
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    for rank in certificate.signers:
        with pytest.raises(AlreadySigned):
            lair.abandon(rank)
    # The member who did not sign and the colluder are not a quorum.
    honest = lair.abandon(4)
    proof = AbandonProof(lair.epoch.epoch_id, 0, (4,), (honest.signature,))
    for rank in lair.everyone:
        with pytest.raises(TooFewSigners):
            lair.members[rank].client.close(proof)


def test_who_has_seen_a_certificate_does_not_abandon_even_if_it_signed_neither(lair):
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task), signers=(0, 1, 2, 3))
    lair.reveal(certificate, 4)
    with pytest.raises(AlreadySigned):
        lair.abandon(4)


def test_who_has_abandoned_does_not_certify(lair):
    task = lair.task()
    lair.uploads(task)
    lair.abandon(0)
    with pytest.raises(AlreadySigned):
        lair.certify(lair.proposal(task), 0)


def test_the_repeat_without_one_member_is_refused(lair):
    attacker = lair.attacker
    lair.sum()
    with pytest.raises(PartialCohort):
        lair.upload(lair.task(1, active=(0, 1, 2, 3), proof=lair.last.encode()), 0)
    smaller = attacker.open([0, 1, 2, 3], number=1)
    for rank in smaller.everyone:
        with pytest.raises(CohortChanged):
            smaller.upload(smaller.task(), rank)


def test_too_few_for_either_statement_count_as_released(lair):
    """Nobody can close the slot; the epoch ends, and the data source stays bound."""
    lair.uploads(lair.task())
    lair.certify(lair.proposal(lair.task()), 0)
    lair.abandon(1)
    lair.end()
    smaller = lair.attacker.open([0, 1, 2, 3], number=1)
    with pytest.raises(CohortChanged):
        smaller.upload(smaller.task(), 2)


def test_an_abandoned_sum_is_repeated_for_free_and_stays_masked(lair):
    first = lair.task()
    lair.uploads(first)
    proof = lair.abandonment(lair.everyone)
    total = lair.sum(1, proof=proof.encode())
    np.testing.assert_array_equal(total, sum(marker(i) for i in range(5)))
    lair.corrupt(4)
    assert is_noise(lair.unmask(first, lair.everyone))
    assert is_noise(lair.unmask(first, [0]))


# -- invalid proofs


def test_the_next_slot_needs_a_proof(lair):
    lair.uploads(lair.task())
    for proof in (b"", b"\1"):
        with pytest.raises(ValueError):  # noqa: PT011 - the root of all declared errors
            lair.upload(lair.task(1, proof=proof), 0)
    with pytest.raises(SlotNotClosed):
        lair.upload(lair.task(1), 0)
    with pytest.raises(SlotNotClosed):
        lair.abandon(0, 1)


def test_a_proof_below_the_quorum_is_refused(lair):
    lair.uploads(lair.task())
    proof = lair.abandonment((0, 1, 2), tell=False)
    with pytest.raises(TooFewSigners):
        lair.members[0].client.close(proof)
    with pytest.raises(TooFewSigners):
        lair.upload(lair.task(1, proof=proof.encode()), 0)


def test_a_proof_with_repeated_or_invented_signers_is_refused(lair):
    lair.uploads(lair.task())
    proof = lair.abandonment((0, 1, 2), tell=False)
    one = proof.signatures[0]
    with pytest.raises(BadField):
        replace(proof, signers=(0, 1, 2, 3))
    with pytest.raises(NotAscending):
        replace(proof, signers=(0, 1, 2, 2), signatures=(*proof.signatures, one))
    for signers, error in (((0, 1, 2, 3), ForgedSignature), ((0, 1, 2, 9), SignerOutside)):
        forged = replace(proof, signers=signers, signatures=(*proof.signatures, one))
        with pytest.raises(error):
            lair.members[0].client.close(forged)


def test_a_certificate_over_members_that_the_epoch_lacks_closes_nothing(lair):
    task = lair.task()
    lair.uploads(task)
    proper = lair.certificate(lair.proposal(task))
    for change in (
        {"active": (0, 1, 2, 3, 4, 5)},
        {"active": (0, 1, 2, 3, 5), "survivors": (0, 1, 2, 3, 5), "signers": (0, 1, 2, 5)},
    ):
        with pytest.raises(UnknownRank):
            lair.upload(lair.task(1, proof=replace(proper, **change).encode()), 0)
    outside = replace(proper, active=(0, 1, 2, 3))
    with pytest.raises(UnknownSurvivor):
        lair.upload(lair.task(1, proof=outside.encode()), 0)


def test_abandonment_and_certificate_exclude_each_other_at_every_client(lair):
    """More collude than tolerated, so that both proofs exist: a client accepts only the first."""
    task = lair.task()
    lair.uploads(task)
    proposal = lair.proposal(task)
    proof = abandoned_by_colluders(lair, (1, 2, 3, 4))
    parts = certify_parts(lair.epoch, proposal)
    certificate = certificate_of(
        proposal,
        [
            Certification(
                proposal.epoch_id, 0, r, lair.members[r].identity.sign(Label.CERTIFY, *parts)
            )
            for r in (1, 2, 3, 4)
        ],
    )
    lair.members[0].does(lair.members[0].client.close(proof))
    with pytest.raises(ClosedOtherwise):
        lair.reveal(certificate, 0)
    lair.reveal(certificate, 1)
    with pytest.raises(ClosedOtherwise):
        lair.members[1].client.close(proof)


# -- slots out of order


def test_a_slot_far_ahead_is_not_abandoned_while_an_earlier_one_is_open(lair):
    """A proof that slot 6 was abandoned would let slot 7 begin, with slot 0 still open."""
    lair.uploads(lair.task())
    for rank in lair.everyone:
        with pytest.raises(SlotNotClosed):
            lair.abandon(rank, 6)
    # A colluder's own signature is not a quorum either.
    proof = abandoned_by_colluders(lair, (4,), slot=6)
    with pytest.raises(TooFewSigners):
        lair.abandon(0, 7, proof.encode())
    with pytest.raises(TooFewSigners):
        lair.upload(lair.task(7, proof=proof.encode()), 0)


def test_a_slot_that_was_given_up_is_not_answered(lair):
    lair.abandon(0)
    with pytest.raises(SlotAbandoned):
        lair.upload(lair.task(), 0)
    lair.upload(lair.task(), 1)
    lair.abandon(1)
    with pytest.raises(SlotAbandoned):
        lair.upload(lair.task(), 1)


def test_a_closed_slot_is_not_answered_by_those_who_missed_it(lair):
    """Hospital 4 neither uploaded nor signed; the others abandoned the slot without it."""
    proof = lair.abandonment((0, 1, 2, 3))
    with pytest.raises(SlotAbandoned):
        lair.upload(lair.task(), 4)
    lair.upload(lair.task(1, proof=proof.encode()), 4)


def test_a_slot_that_others_certified_counts_as_released_for_who_is_told_late(lair):
    """The certificate arrives only as the proof in the next task: no repeat with fewer members."""
    task = lair.task()
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task), signers=(1, 2, 3, 4))
    lair.upload(lair.task(1, proof=certificate.encode()), 0)
    with pytest.raises(ClosedOtherwise):
        lair.members[0].client.close(abandoned_by_colluders(lair, (1, 2, 3, 4)))


def test_a_stranger_to_the_epoch_does_not_help_to_abandon_it():
    attacker = Attacker(6)
    lair = attacker.open([0, 1, 2, 3, 4])
    with pytest.raises(UnknownEpoch):
        attacker.hospitals[5].client.abandon(AbandonRequest(lair.epoch.epoch_id, 0, b""))
    other = attacker.open(number=1)
    with pytest.raises(DifferentTask):
        other.abandon(0, 1, lair.abandonment((0, 1, 2, 3), tell=False).encode())
