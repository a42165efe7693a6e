"""Who vouches for a model: its certificate, checked against its bytes, its card and known keys.

    bytes      the members have signed a commitment to them
    card       what it says about its program, its parent and its members is signed; its layer,
               laws of residuals, scores and rows follow from the signed bytes; released scores are
               signed once more
    signers    only members that the verifier knows count (`known_members`)

Nobody signs the rest of the card, `NOT_COVERED`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from client_sdk.errors import CardNotSigned, ModelNotCertified, ModelNotVouched
from client_sdk.model.known_members import KnownMembers
from kernels.errors import KernelsError
from kernels.model.artifact import Artifact, rows_error
from kernels.model.card_sections import Evaluation, Law, Layer, Served
from kernels.model.results import Results
from kernels.model.typed_json import to_plain
from privacy.members.endorsement import NO_SALT, ModelCertificate, parent_digest
from privacy.securesum.errors import SecureSumError, TooFewEndorsements

NOT_COVERED = (
    "the date and the version of veilgp",
    "the number of sums",
    "ε and δ, and everything else about privacy except max_colluders: each site's own word",
    "what hospitals put into the sums: their own word",
)
"""What the certificate of a model says nothing about."""

_CLOSE = 1e-6
"""Relative difference of numbers that are computed again: rounding on another machine."""


@dataclass(frozen=True)
class Vouching:
    """A certificate that covers a model, and who of its signers is known to the verifier.

    vouching: names and keys. unknown: keys of further signers, which do not count.
    needed: the number of known members that had to vouch.
    """

    certificate: ModelCertificate
    vouching: tuple[tuple[str, bytes], ...]
    unknown: tuple[bytes, ...]
    needed: int

    @property
    def results(self) -> Results | None:
        """The released scores and rows that the members have signed, if any."""
        return Results.read(self.certificate.results)


def read_certificate(data: bytes, artifact: Artifact) -> ModelCertificate:
    """Read a model's certificate and check that it covers the model; it is not trusted.

    Every signature in it must be valid, and there must be a quorum of them. That anyone may have
    made the keys is left to `vouched_for`.
    """
    try:
        certificate = ModelCertificate.decode(data)
    except SecureSumError as error:
        raise ModelNotCertified(
            f"the model's certificate is damaged: get it again ({error})"
        ) from error
    if certificate.salt == NO_SALT:  # as a coordinator has it whose members keep the model
        certificate = certificate.with_salt(bytes.fromhex(artifact.card.salt))
    certificate.check_covers(artifact.data)
    _check_card(artifact, certificate)
    certificate.vouched_by(certificate.signers, max_colluders=certificate.statement.max_colluders)
    return certificate


def vouched_for(
    certificate: ModelCertificate, members: KnownMembers, *, max_colluders: int | None = None
) -> Vouching:
    """Return who vouches for a model; refuse it if too few of them are known.

    certificate: as `read_certificate` returns it. max_colluders: the verifier's own m.
    """
    statement = certificate.statement
    own = members.max_colluders(statement.session) if max_colluders is None else max_colluders
    try:
        vouching = certificate.vouched_by(members.names.keys(), max_colluders=own)
    except TooFewEndorsements as error:
        raise ModelNotVouched(
            f"{error} The keys known here are those of {members.source}. Pass the roster of the "
            "study's members that you trust (roster=, --roster), or load the model without anyone "
            "who vouches for it (uncertified=True, --uncertified)."
        ) from error
    return Vouching(
        certificate,
        tuple((members.names[key], key) for key in vouching),
        tuple(key for key in certificate.signers if key not in members.names),
        max(statement.quorum, own + 1),
    )


def _check_card(artifact: Artifact, certificate: ModelCertificate) -> None:
    """Refuse a card that differs from what the members have signed."""
    card, statement, model = artifact.card, certificate.statement, artifact.model
    differing = [
        name
        for name, agrees in (
            ("program", card.program_digest == statement.program.hex()),
            ("parent", parent_digest(card.parent) == statement.parent),
            ("members", card.members == statement.members),
            ("privacy.max_colluders", card.privacy.max_colluders == statement.max_colluders),
            ("salt", card.salt == certificate.salt.hex()),
            ("layer", _alike(card.layer, Layer.of(model))),
            ("recalibration", _alike(card.recalibration, Law.of(model))),
            ("evaluation", _alike(_without_errors(card.evaluation), Evaluation.of(model))),
            ("rows_error", card.rows_error == rows_error(model)),
            ("methods", _alike(card.methods, Served.of(model))),
        )
        if not agrees
    ]
    try:
        released = Results.read(certificate.results)
    except KernelsError as error:
        raise CardNotSigned(f"the signed results cannot be read: {error}") from error
    if released is not None and not _alike(
        (released.evaluation, released.rows), (_without_errors(card.evaluation), card.rows)
    ):
        differing.append("evaluation or rows")
    if differing:
        raise CardNotSigned(
            f"the card differs from what the members have signed ({', '.join(differing)}): it was "
            "changed, or the certificate belongs to another model; get both again"
        )


def _without_errors(evaluation: Evaluation | None) -> Evaluation | None:
    """Return what members have signed: errors of noise, like ε, are the coordinator's claim."""
    return None if evaluation is None else replace(evaluation, errors=None)


def _alike(a: object, b: object) -> bool:
    return _close(to_plain(a), to_plain(b))


def _close(a: object, b: object) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return (
            isinstance(a, int | float)
            and isinstance(b, int | float)
            and math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE)
        )
    return a == b
