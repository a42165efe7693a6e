"""A5: there is one certified set per sum, and only self keys of its members are revealed.

Seven members, of which two (5 and 6) collude: a quorum is five. With differential privacy any set
of survivors above the minimum may be certified, so only the certificate prevents the attack.
"""

from dataclasses import replace

import numpy as np
import pytest

from privacy.framing import Label
from privacy.securesum.certificates import certify_parts
from privacy.securesum.errors import (
    AlreadySigned,
    DifferentTask,
    ForgedSignature,
    NotAscending,
    NotCertified,
    NotSurvivor,
    NotUploaded,
    SecondCertificate,
    ShareOfOutsider,
    SignerOutside,
    TooFewSigners,
    UnknownSurvivor,
)
from privacy.securesum.messages import Certificate, Certification, Proposal, Task

from .coordinator import Attacker, Lair, certificate_of, is_noise

VICTIM, WITHOUT_VICTIM = 0, (1, 2, 3, 4, 5, 6)
COLLUDERS = (5, 6)


@pytest.fixture
def lair() -> Lair:
    lair = Attacker(7, colluders=2, least=4, private=True).open()
    for rank in COLLUDERS:
        lair.corrupt(rank)
    return lair


@pytest.fixture
def task(lair) -> Task:
    task = lair.task()
    lair.uploads(task)
    return task


def signed_by_colluder(lair: Lair, proposal: Proposal, rank: int) -> Certification:
    """Return a colluder's signature: it signs every proposal, as often as requested."""
    identity = lair.members[rank].identity
    signature = identity.sign(Label.CERTIFY, *certify_parts(lair.epoch, proposal))
    return Certification(proposal.epoch_id, proposal.slot, rank, signature)


def test_two_survivor_lists_never_unmask_a_hospital(lair, task):
    """List one contains the victim and reveals its self key; list two reveals its pair keys."""
    with_victim, without = lair.proposal(task), lair.proposal(task, WITHOUT_VICTIM)
    signed = [lair.certify(with_victim, rank) for rank in (0, 1, 2)]
    certificate = certificate_of(
        with_victim, [*signed, *(signed_by_colluder(lair, with_victim, r) for r in COLLUDERS)]
    )
    # The colluders sign list two as well, and 3 and 4 have not signed anything yet.
    others = [lair.certify(without, rank) for rank in (3, 4)]
    second = certificate_of(
        without, [*others, *(signed_by_colluder(lair, without, r) for r in COLLUDERS)]
    )
    with pytest.raises(AlreadySigned):
        lair.certify(without, 1)
    for rank in (1, 2, 3, 4):
        with pytest.raises(TooFewSigners):
            lair.reveal(second, rank)
    for rank in lair.everyone:
        lair.reveal(certificate, rank)
    # The sum is known, and the victim is in it; the victim's vector alone is still noise.
    total = lair.unmask(task, lair.everyone)
    np.testing.assert_array_equal(total, sum(lair.members[r].vector for r in lair.everyone))
    assert is_noise(lair.unmask(task, [VICTIM]))


def test_a_pretended_dropout_stays_masked_by_its_own_key(lair, task):
    """The victim uploaded; the attacker claims it did not, and gets all its pair keys."""
    certificate = lair.certificate(lair.proposal(task, WITHOUT_VICTIM))
    for rank in WITHOUT_VICTIM:
        lair.reveal(certificate, rank)
    np.testing.assert_array_equal(
        lair.unmask(task, WITHOUT_VICTIM), sum(lair.members[r].vector for r in WITHOUT_VICTIM)
    )
    assert is_noise(lair.unmask(task, [VICTIM]))
    with pytest.raises(NotSurvivor):
        lair.reveal(certificate, VICTIM)
    for rank in (1, 2, 3, 4):
        with pytest.raises(ShareOfOutsider):
            lair.repair(task, rank, VICTIM)
    assert is_noise(lair.unmask(task, [VICTIM]))
    # Only that key was missing.
    lair.self_keys[lair.context(task), VICTIM] = lair.stolen_self_key(VICTIM)
    np.testing.assert_array_equal(lair.unmask(task, [VICTIM]), lair.members[VICTIM].vector)


def test_pair_keys_are_given_for_the_dropped_only(lair, task):
    certificate = lair.certificate(lair.proposal(task, (0, 1, 2, 3, 4, 5)))
    lair.reveal(certificate, 1)
    known = {(i, j) for context, i, j in lair.pair_keys if context == lair.context(task)}
    assert known == {(1, 6)}


def test_shares_are_opened_only_under_a_certificate(lair, task):
    with pytest.raises(NotCertified):
        lair.repair(task, 1, VICTIM)
    for rank in (1, 2, 3):
        lair.certify(lair.proposal(task), rank)
        with pytest.raises(NotCertified):
            lair.repair(task, rank, VICTIM)
    assert is_noise(lair.unmask(task, [VICTIM]))


def test_self_key_and_pair_keys_are_not_both_given_even_with_a_quorum_behind_each(lair, task):
    """Flower's SecAgg+ client answers for a node on both lists; this client accepts one set.

    Here more members collude than the session tolerates, so that both certificates exist.
    """
    first, second = lair.proposal(task), lair.proposal(task, WITHOUT_VICTIM)
    with_victim = lair.certificate(first)
    without = certificate_of(second, [signed_by_colluder(lair, second, r) for r in range(2, 7)])
    lair.reveal(with_victim, VICTIM)
    lair.reveal(with_victim, 1)
    with pytest.raises(SecondCertificate):
        lair.reveal(without, 1)
    lair.reveal(without, 2)
    with pytest.raises(SecondCertificate):
        lair.reveal(with_victim, 2)
    with pytest.raises(ShareOfOutsider):
        lair.repair(task, 2, VICTIM)
    assert is_noise(lair.unmask(task, [VICTIM]))


# -- invalid certificates


def test_a_certificate_with_repeated_signers_is_refused(lair, task):
    proposal = lair.proposal(task)
    one = [lair.certify(proposal, rank) for rank in (1, 2, 3)]
    with pytest.raises(NotAscending):
        certificate_of(proposal, [*one, one[0], one[1]])
    honest = certificate_of(proposal, one)
    spelled_out = replace(honest, signers=(1, 2, 3, 5, 6), signatures=(honest.signatures * 2)[:5])
    with pytest.raises(ForgedSignature):
        lair.reveal(spelled_out, VICTIM)


def test_a_certificate_below_the_quorum_is_refused(lair, task):
    short = lair.certificate(lair.proposal(task), signers=(1, 2, 3, 4))
    with pytest.raises(TooFewSigners):
        lair.reveal(short, VICTIM)


def test_signers_outside_the_survivors_do_not_count(lair, task):
    """The colluders sign a set that they are not in."""
    proposal = lair.proposal(task, (0, 1, 2, 3, 4))
    signed = [lair.certify(proposal, rank) for rank in (0, 1, 2)]
    signed += [signed_by_colluder(lair, proposal, rank) for rank in COLLUDERS]
    with pytest.raises(SignerOutside):
        lair.reveal(certificate_of(proposal, signed), 3)


def test_survivors_that_were_not_active_are_refused():
    lair = Attacker(7, colluders=2, least=4, private=True).open()
    task = lair.task(active=(0, 1, 2, 3, 4, 5))
    lair.uploads(task)
    proposal = lair.proposal(task, lair.everyone)
    with pytest.raises(UnknownSurvivor):
        lair.certify(proposal, 1)
    forced = certificate_of(proposal, [signed_by_colluder(lair, proposal, r) for r in range(1, 6)])
    with pytest.raises(UnknownSurvivor):
        lair.reveal(forced, VICTIM)


def test_signatures_on_another_set_do_not_certify_this_one(lair, task):
    """A valid certificate without the victim is changed to list the victim."""
    proper = lair.certificate(lair.proposal(task, WITHOUT_VICTIM))
    with pytest.raises(ForgedSignature):
        lair.reveal(replace(proper, survivors=lair.everyone), VICTIM)


def test_the_victims_own_signature_on_one_set_does_not_count_for_another(lair, task):
    everyone, fewer = lair.proposal(task), lair.proposal(task, (0, 1, 2, 3, 4, 5))
    own = lair.certify(everyone, VICTIM)
    forced = [signed_by_colluder(lair, fewer, rank) for rank in (1, 2, 3, 4)]
    with pytest.raises(ForgedSignature):
        lair.reveal(certificate_of(fewer, [own, *forced]), VICTIM)


def test_a_certificate_for_another_task_than_the_victims_upload_is_refused(lair):
    own, other = lair.task(), lair.task(statistic="other")
    lair.upload(own, VICTIM)
    lair.uploads(other, WITHOUT_VICTIM)
    certificate = lair.certificate(lair.proposal(other), signers=(1, 2, 3, 4, 5))
    with pytest.raises(DifferentTask):
        lair.reveal(certificate, VICTIM)
    with pytest.raises(DifferentTask):
        lair.certify(lair.proposal(other), VICTIM)
    with pytest.raises(ForgedSignature):
        lair.reveal(replace(certificate, context=lair.context(own)), VICTIM)


def test_nothing_is_signed_or_revealed_for_a_sum_without_an_upload(lair):
    task = lair.task()
    lair.uploads(task, (1, 2, 3, 4, 5))
    certificate = lair.certificate(lair.proposal(task), signers=(1, 2, 3, 4, 5))
    with pytest.raises(NotUploaded):
        lair.certify(lair.proposal(task), VICTIM)
    with pytest.raises(NotUploaded):
        lair.reveal(certificate, VICTIM)
    with pytest.raises(NotCertified):
        lair.repair(task, VICTIM, 1)


def test_a_set_without_the_victim_is_not_signed_by_it(lair, task):
    with pytest.raises(NotSurvivor):
        lair.certify(lair.proposal(task, WITHOUT_VICTIM), VICTIM)


def test_an_outsider_opens_no_shares(lair, task):
    """The victim is not in the certified set, and is asked for its shares of the others' keys."""
    certificate = lair.certificate(lair.proposal(task, WITHOUT_VICTIM))
    with pytest.raises(NotSurvivor):
        lair.reveal(certificate, VICTIM)
    with pytest.raises(NotCertified):
        lair.repair(task, VICTIM, 1)


def test_a_member_is_not_asked_for_a_share_of_its_own_key(lair, task):
    certificate = lair.certificate(lair.proposal(task))
    lair.reveal(certificate, 1)
    request = replace(lair.repair_request(task, 1, VICTIM), silent=(1,))
    with pytest.raises(ShareOfOutsider):
        lair.members[1].client.repair(request)


def test_a_certificate_needs_one_signature_per_signer(lair, task):
    proper = lair.certificate(lair.proposal(task))
    with pytest.raises(ValueError, match="one signature per signer"):
        Certificate(**{**vars(proper), "signers": lair.everyone})
