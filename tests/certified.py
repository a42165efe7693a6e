"""A signed model: the certificate that hospitals would have made, without running their run."""

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from kernels.model.artifact import Artifact
from kernels.model.results import released
from privacy.identity import Identity, Roster
from privacy.identity import Member as Named
from privacy.members.endorsement import (
    Endorsement,
    ModelCertificate,
    ModelStatement,
    model_commitment,
    parent_digest,
)

SALT = sha256(b"the salt of the tests").digest()
NAMES = ("Aarhus", "Bergen", "Cork", "Dresden", "Évora")
HOSPITALS = tuple(
    sorted((Identity.from_bytes(sha256(n.encode()).digest()) for n in NAMES), key=lambda i: i.key)
)
"""Five hospitals in the order of their keys; `NAMES` are their names in this order."""
ROSTER = {name: identity.key for name, identity in zip(NAMES, HOSPITALS, strict=True)}


def signable(artifact: Artifact, *, members: int = 5, colluders: int = 1) -> Artifact:
    """Return a model whose card has the salt and the numbers that its members sign."""
    privacy = replace(artifact.card.privacy, max_colluders=colluders)
    card = replace(artifact.card, salt=SALT.hex(), members=members, privacy=privacy)
    return Artifact(artifact.model, artifact.data, card)


def certificate_of(
    artifact: Artifact,
    signers: Sequence[Identity] = HOSPITALS,
    *,
    data: bytes | None = None,
    results: bytes | None = None,
    session: bytes = bytes(16),
) -> ModelCertificate:
    """Return the certificate by which hospitals vouch for a model; `data` is what they signed."""
    card = artifact.card
    statement = ModelStatement(
        session=session,
        run=bytes(15) + b"\x01",
        epoch_id=bytes(32),
        members=card.members,
        max_colluders=card.privacy.max_colluders,
        program=bytes.fromhex(card.program_digest),
        roster=Roster(tuple(Named(name, key) for name, key in ROSTER.items())).digest(),
        parent=parent_digest(card.parent),
        model=model_commitment(SALT, artifact.data if data is None else data),
        state=os.urandom(32),
        context=bytes(32),
    )
    ordered = sorted(signers, key=lambda each: each.key)
    endorsements = (
        Endorsement.signed(
            identity,
            rank=rank,
            statement=statement,
            salt=SALT,
            results=released(artifact.model) if results is None else results,
        )
        for rank, identity in enumerate(ordered)
    )
    return ModelCertificate.of(endorsements, tuple(each.key for each in ordered))
