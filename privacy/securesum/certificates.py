"""The two statements that can close a slot, and the quorum of signatures that proves one of them.

    CERTIFY  session, run, epoch, slot, context, active, survivors    signed by survivors
    ABANDON  session, run, epoch, slot                                signed by any member

A member signs one of them, once per slot. Any two quorums of an epoch share an honest member, so a
slot has either one certified set of survivors or a proof of abandonment, and never two of these.
"""

from collections.abc import Iterable, Mapping

from privacy.errors import BadSignature
from privacy.framing import Label, frame
from privacy.identity import verify_framed
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    DifferentTask,
    ForgedSignature,
    SignerOutside,
    SlotNotClosed,
    TooFewSigners,
    UnknownSurvivor,
)
from privacy.securesum.messages import AbandonProof, Certificate, Proposal, slot_bytes
from privacy.securesum.wire import Ranks

Proof = Certificate | AbandonProof


def certify_parts(epoch: Epoch, claim: Proposal | Certificate) -> tuple[bytes, ...]:
    """Return what a survivor signs under `Label.CERTIFY`."""
    ranks = Ranks()
    return (
        epoch.terms.session,
        epoch.run,
        epoch.epoch_id,
        slot_bytes(claim.slot),
        claim.context,
        ranks.write(claim.active),
        ranks.write(claim.survivors),
    )


def abandon_parts(epoch: Epoch, slot: int) -> tuple[bytes, ...]:
    """Return what a member signs under `Label.ABANDON`."""
    return (epoch.terms.session, epoch.run, epoch.epoch_id, slot_bytes(slot))


def check_certificate(
    epoch: Epoch, certificate: Certificate, own: Mapping[int, bytes] | None = None
) -> None:
    """Refuse a certificate without a quorum of signatures by distinct survivors.

    `own` is the caller's own signature on this statement, by rank, if it has made one.
    """
    _check_epoch(epoch, certificate.epoch_id)
    epoch.check_ranks(certificate.active)
    check_survivors_active(certificate)
    _check_signed(
        epoch,
        certificate,
        certificate.survivors,
        Label.CERTIFY,
        certify_parts(epoch, certificate),
        own or {},
    )


def check_abandoned(epoch: Epoch, proof: AbandonProof) -> None:
    """Refuse a proof of abandonment without a quorum of signatures by distinct members."""
    _check_epoch(epoch, proof.epoch_id)
    parts = abandon_parts(epoch, proof.slot)
    _check_signed(epoch, proof, epoch.everyone, Label.ABANDON, parts, {})


def check_closed(epoch: Epoch, slot: int, proof: bytes) -> Proof:
    """Return the proof that this slot is closed, in either way; refuse any other bytes."""
    closing = decode_proof(proof)
    if closing.slot != slot:
        raise SlotNotClosed(f"A proof for slot {closing.slot} does not close slot {slot}.")
    if isinstance(closing, Certificate):
        check_certificate(epoch, closing)
    else:
        check_abandoned(epoch, closing)
    return closing


def decode_proof(proof: bytes) -> Proof:
    """Read a certificate or a proof of abandonment."""
    if not proof:
        raise SlotNotClosed("The proof that the previous slot is closed is missing.")
    if proof[1:2] == bytes((Certificate.kind,)):
        return Certificate.decode(proof)
    return AbandonProof.decode(proof)


def check_survivors_active(claim: Proposal | Certificate) -> None:
    """Refuse survivors that were not active."""
    if not set(claim.survivors) <= set(claim.active):
        raise UnknownSurvivor(
            f"Slot {claim.slot}: a listed survivor is not one of the active members."
        )


def _check_epoch(epoch: Epoch, epoch_id: bytes) -> None:
    if epoch_id != epoch.epoch_id:
        raise DifferentTask("The proof belongs to another epoch.")


def _check_signed(
    epoch: Epoch,
    proof: Proof,
    allowed: Iterable[int],
    label: Label,
    parts: tuple[bytes, ...],
    own: Mapping[int, bytes],
) -> None:
    check_quorum(epoch, proof)
    check_signers(proof, allowed)
    check_signatures(epoch, proof, frame(label, *parts), own)


def check_quorum(epoch: Epoch, proof: Proof) -> None:
    """Refuse fewer signers than the quorum; a message lists each signer once."""
    if len(proof.signers) < epoch.quorum:
        raise TooFewSigners(
            f"Slot {proof.slot}: {len(proof.signers)} members have signed, but {epoch.quorum} of "
            f"{epoch.size} are required."
        )


def check_signers(proof: Proof, allowed: Iterable[int]) -> None:
    """Refuse signers who may not sign this statement."""
    outside = set(proof.signers).difference(allowed)
    if outside:
        raise SignerOutside(f"Slot {proof.slot}: rank {min(outside)} may not sign this statement.")


def check_signatures(
    epoch: Epoch, proof: Proof, statement: bytes, own: Mapping[int, bytes]
) -> None:
    """Refuse a signature that is not by its signer, or not on this statement."""
    for rank, signature in zip(proof.signers, proof.signatures, strict=True):
        if own.get(rank) == signature:
            continue  # the caller made this signature itself
        try:
            verify_framed(epoch.members[rank], signature, statement)
        except BadSignature as error:
            raise ForgedSignature(f"Slot {proof.slot}, rank {rank}: {error}") from None
