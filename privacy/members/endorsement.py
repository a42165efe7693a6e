"""Signed models: what members state about a finished model, and the certificate of a quorum.

    MODEL    session, run, epoch, n, m, program, roster, parent, model, final state, last context
    RESULTS  the same statement, and the released scores and number of rows as text

Each member signs both, once per run, after it has replayed the run to its end. `model` and the
final state are commitments under salts that members derive from the group key: whoever does not
have the salt cannot compare them with guesses. Where the model is served, its salt is published
with the certificate. That of the final state never is: the state holds more than the model.

A certificate says: *a quorum of the epoch's n members has replayed this model, or has accepted it
from m + 1 members who had; what they put into the sums is their own word.* Whoever checks one
counts only signers that it has pinned: at least the quorum of that epoch, ⌊(n + m)/2⌋ + 1, and at
least m' + 1 with the m' of its *own* session, so that a certificate made under laxer terms counts
no more than its own. An epoch has at least three members, so no single signature is ever enough.
Dates and ε are not stated: they are the word of whoever wrote the card.
"""

import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

from privacy.errors import BadSignature
from privacy.framing import KEY_BYTES, Label, digest
from privacy.identity import Identity, verify
from privacy.securesum.errors import (
    BadField,
    ForgedEndorsement,
    NotAscending,
    NotTheEndorsedModel,
    TooFewEndorsements,
)
from privacy.securesum.terms import LEAST_COHORT, Terms
from privacy.securesum.wire import (
    VERSION,
    Blob,
    Digest,
    Fixed,
    Keys,
    Message,
    One,
    Rank,
    Signature,
    Signatures,
    Uuid,
)

LEAST_COLLUDERS = 1
"""The least m of a verifier: two members that it knows must vouch."""
MAX_RESULTS = 1 << 20
NO_SALT = bytes(KEY_BYTES)
"""In place of the salt of a model that is for members only."""
Salt = Annotated[bytes, Fixed(KEY_BYTES)]
Results = Annotated[bytes, Blob(MAX_RESULTS)]


@dataclass(frozen=True)
class ModelStatement(Message):
    """What a member signs about a finished model.

    members, max_colluders: n of the last epoch, and m of the session. program: the digest of what
    the run computes. parent: `parent_digest` of the model that it started from. model, state:
    salted commitments to the artifact's model section and to the final state. context: that of the
    last sum.
    """

    kind = 27

    session: Uuid
    run: Uuid
    epoch_id: Digest
    members: Rank
    max_colluders: Rank
    program: Digest
    roster: Digest
    parent: Digest
    model: Digest
    state: Digest
    context: Digest

    def check(self) -> None:
        """Refuse numbers that no epoch has: with n = 1 and m = 0 one signature would be enough."""
        least = max(LEAST_COHORT, self.max_colluders + 2)
        if self.members < least:
            raise BadField(
                f"a model must be stated by an epoch of at least {least} members with "
                f"{self.max_colluders} colluders, not {self.members}"
            )

    @property
    def quorum(self) -> int:
        """The number of members that must vouch for the model."""
        return (self.members + self.max_colluders) // 2 + 1

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What is signed under `Label.MODEL`."""
        return bytes((VERSION,)), self.fields_encoded()

    def result_parts(self, results: bytes) -> tuple[bytes, ...]:
        """Return what is signed under `Label.RESULTS`."""
        return *self.parts, results


@dataclass(frozen=True)
class Endorsement(Message):
    """A member's two signatures on a finished model; `results` is empty if nothing is released."""

    kind = 28

    epoch_id: Digest
    rank: Rank
    statement: Annotated[ModelStatement, One(ModelStatement)]
    salt: Salt = field(repr=False)
    results: Results
    signature: Signature
    results_signature: Signature

    @classmethod
    def signed(
        cls,
        identity: Identity,
        *,
        rank: int,
        statement: ModelStatement,
        salt: bytes,
        results: bytes,
    ) -> "Endorsement":
        """Return a member's endorsement."""
        return cls(
            epoch_id=statement.epoch_id,
            rank=rank,
            statement=statement,
            salt=salt,
            results=results,
            signature=identity.sign(Label.MODEL, *statement.parts),
            results_signature=identity.sign(Label.RESULTS, *statement.result_parts(results)),
        )

    def check_signed_by(self, key: bytes) -> None:
        """Refuse an endorsement that is not by this member."""
        _check_signed(key, self.statement, self.results, self.signature, self.results_signature)

    @property
    def about(self) -> tuple[object, ...]:
        """What is endorsed: equal for members that agree."""
        return self.statement, self.salt, self.results


@dataclass(frozen=True)
class ModelCertificate(Message):
    """The endorsements of several members, ascending by key, on one model and its results."""

    kind = 29

    statement: Annotated[ModelStatement, One(ModelStatement)]
    salt: Salt = field(repr=False)
    results: Results
    signers: Keys
    signatures: Signatures
    results_signatures: Signatures

    def check(self) -> None:
        """Refuse repeated signers, and signers without both signatures."""
        if not len(self.signers) == len(self.signatures) == len(self.results_signatures):
            raise BadField("a model's certificate must have two signatures per signer")
        if any(a >= b for a, b in pairwise(self.signers)):
            raise NotAscending("signers must be unique and in ascending order")

    @classmethod
    def of(
        cls, endorsements: Iterable[Endorsement], members: tuple[bytes, ...]
    ) -> "ModelCertificate":
        """Return the certificate of endorsements that agree; `members` are keys in rank order."""
        found = sorted(endorsements, key=lambda each: each.rank)
        first = found[0]
        return cls(
            statement=first.statement,
            salt=first.salt,
            results=first.results,
            signers=tuple(members[each.rank] for each in found),
            signatures=tuple(each.signature for each in found),
            results_signatures=tuple(each.results_signature for each in found),
        )

    def with_salt(self, salt: bytes) -> "ModelCertificate":
        """Return the same certificate with the salt, for whoever may have the model."""
        return ModelCertificate(
            self.statement,
            salt,
            self.results,
            self.signers,
            self.signatures,
            self.results_signatures,
        )

    def check_covers(self, data: bytes) -> None:
        """Refuse a model section other than the one that was signed."""
        if not hmac.compare_digest(model_commitment(self.salt, data), self.statement.model):
            raise NotTheEndorsedModel(
                "The model is not the one that the members have signed: it was changed, or the "
                "certificate belongs to another model."
            )

    def vouched_by(self, pinned: Collection[bytes], *, max_colluders: int) -> tuple[bytes, ...]:
        """Return the pinned members that vouch for the model; refuse it if they are too few.

        max_colluders: the m of the verifier's own session.
        """
        vouching = []
        for key, signature, of_results in zip(
            self.signers, self.signatures, self.results_signatures, strict=True
        ):
            if key not in pinned:
                continue
            _check_signed(key, self.statement, self.results, signature, of_results)
            vouching.append(key)
        needed = max(self.statement.quorum, max_colluders + 1)
        if len(vouching) < needed or self.statement.members < len(self.signers):
            raise TooFewEndorsements(
                f"{len(vouching)} of the members known here vouch for this model, and at least "
                f"{needed} of its {self.statement.members} members must: confirm more of its "
                "signers' keys, or train it again."
            )
        return tuple(vouching)


def statement_of(
    terms: Terms,
    *,
    run: bytes,
    epoch_id: bytes,
    members: int,
    program: bytes,
    roster: bytes,
    parent: str | None,
    salt: bytes,
    data: bytes,
    state_salt: bytes,
    state: bytes,
    context: bytes,
) -> ModelStatement:
    """Return the statement on a finished model.

    data: the artifact's model section. state: the digest of the final state.
    """
    return ModelStatement(
        session=terms.session,
        run=run,
        epoch_id=epoch_id,
        members=members,
        max_colluders=terms.max_colluders,
        program=program,
        roster=roster,
        parent=parent_digest(parent),
        model=model_commitment(salt, data),
        state=digest(Label.FINAL_STATE, state_salt, state),
        context=context,
    )


def model_commitment(salt: bytes, data: bytes) -> bytes:
    """Return the salted commitment to an artifact's model section."""
    return digest(Label.MODEL_SECTION, salt, data)


def parent_digest(parent: str | None) -> bytes:
    """Return the digest of the id of the model that a run started from, if any."""
    return digest(Label.PARENT, *([] if parent is None else [parent.encode()]))


def _check_signed(
    key: bytes, statement: ModelStatement, results: bytes, signature: bytes, of_results: bytes
) -> None:
    try:
        verify(key, signature, Label.MODEL, *statement.parts)
        verify(key, of_results, Label.RESULTS, *statement.result_parts(results))
    except BadSignature as error:
        raise ForgedEndorsement(
            f"A signature on the model is not by the member that it names: {error}"
        ) from None
