"""What members sign about a model, and how it is sealed to them: section 17 of docs/protocol.md."""

from collections.abc import Collection

from cryptography.exceptions import InvalidTag

from .crypto import derive, digest, frame, gcm_open, hpke_open, sha256, signed, unpadded
from .epoch import Epoch, quorum, roster_digest
from .wire import VERSION, Message, Refused, decode, fields, require

KEY_BYTES = 32


def statement(
    epoch: Epoch,
    group: bytes,
    *,
    program: str,
    parent: str | None,
    data: bytes,
    final_state: bytes,
    context: bytes,
) -> Message:
    """The ModelStatement that every member derives."""
    state_salt = derive(group, "state-salt", context)
    return {
        "session": epoch.terms["session"],
        "run": epoch.run,
        "epoch_id": epoch.id,
        "members": epoch.size,
        "max_colluders": epoch.terms["max_colluders"],
        "program": sha256(program.encode()),
        "roster": roster_digest(epoch.roster),
        "parent": digest("parent") if parent is None else digest("parent", parent.encode()),
        "model": digest("model-section", model_salt(group, context), data),
        "state": digest("final-state", state_salt, final_state),
        "context": context,
    }


def model_salt(group: bytes, context: bytes) -> bytes:
    """The salt of the commitment to the model section."""
    return derive(group, "model-salt", context)


def statement_parts(message: Message) -> tuple[bytes, bytes]:
    """What the first signature covers; the second covers `results` as well."""
    return bytes([VERSION]), fields("ModelStatement", message)


def verify_certificate(
    certificate: Message, data: bytes, pinned: Collection[bytes], max_colluders: int
) -> None:
    """Enough pinned members have signed this model section."""
    stated = certificate["statement"]
    commitment = digest("model-section", certificate["salt"], data)
    require(commitment == stated["model"], "model.not_the_endorsed")
    parts = statement_parts(stated)
    signatures = zip(
        certificate["signers"],
        certificate["signatures"],
        certificate["results_signatures"],
        strict=True,
    )
    vouching = 0
    for key, first, second in signatures:
        if key in pinned:
            valid = signed(key, first, "model", *parts)
            valid = valid and signed(key, second, "results", *parts, certificate["results"])
            require(valid, "model.forged_endorsement")
            vouching += 1
    enough = vouching >= quorum(stated["members"], stated["max_colluders"])
    require(enough, "model.too_few_endorsements", "by the statement's own numbers")
    require(vouching > max_colluders, "model.too_few_endorsements", "by the verifier's m")
    possible = len(certificate["signers"]) <= stated["members"]
    require(possible, "model.too_few_endorsements", "more signers than members")


def archive_info(archive: Message, receiver: bytes) -> bytes:
    """HPKE's `info` of the box of one receiver."""
    named = (archive["session"], archive["run"], archive["model"], archive["identity"])
    return frame("archive-seal", *named, receiver)


def open_archive(receiver: bytes, archive_secret: bytes, archive: bytes, sealed: bytes) -> bytes:
    """The content of an archive, which is still to be checked against the certificate in it."""
    code = "model.archive"
    return unpadded(
        gcm_open(archive_key(receiver, archive_secret, archive, sealed), sealed, code), code
    )


def archive_key(receiver: bytes, archive_secret: bytes, archive: bytes, sealed: bytes) -> bytes:
    """The key k, of a box that is for this receiver and for exactly these sealed bytes."""
    message = decode("Archive", archive)
    covered = fields("Archive", message, before="signature")
    valid = signed(message["identity"], message["signature"], "archive", covered)
    require(valid and receiver in message["receivers"], "model.archive")
    box = message["boxes"][message["receivers"].index(receiver)]
    try:
        content = hpke_open(archive_secret, box, archive_info(message, receiver))
    except InvalidTag as error:
        raise Refused("model.archive") from error
    require(content[KEY_BYTES:] == sha256(sealed), "model.archive")
    return content[:KEY_BYTES]
