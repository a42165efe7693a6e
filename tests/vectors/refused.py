"""What a second implementation must refuse: bytes that are nearly right, and the error's code."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.framing import Label, derive
from privacy.members.archive import Archive
from privacy.members.endorsement import Endorsement, ModelCertificate
from privacy.members.padding import padded
from privacy.securesum.messages import (
    AbandonProof,
    Advert,
    Boxes,
    Certificate,
    Delivery,
    Draft,
    Repair,
    Reveal,
    SealedState,
    SumName,
    Task,
    Total,
    Upload,
    Witnesses,
)
from privacy.shamir import PRIME, SHARE_BYTES
from privacy.tags import PRIMES
from tests.vectors.epochs import Plain, Story


def refused(stories: Mapping[str, Story]) -> list[Plain]:
    """Return all cases, each with the check that refuses it and its code."""
    three, five = stories["three"], stories["five"]
    return [
        *_encodings(three, five),
        *_keys(),
        *_epoch(three),
        *_tasks(three, five),
        *_proofs(three, five),
        *_keys_and_shares(three),
        *_totals(three, stories["failure"]),
        *_states(three),
        *_models(three, five),
        *_transport(),
    ]


def case(check: str, what: str, code: str, because: str, **inputs: object) -> Plain:
    return {"check": check, "what": what, **inputs, "code": code, "because": because}


def _of(message: type[Any], data: str) -> Any:
    return message.decode(bytes.fromhex(data))


def _hex(message: Any) -> str:
    return message.encode().hex()  # type: ignore[no-any-return]


def _flipped(data: bytes, at: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _stated_by(five: Story, members: int, colluders: int) -> bytes:
    """Return a model's certificate whose statement has other numbers, as bytes."""
    told = bytes.fromhex(five.told["model"]["certificate"])
    at = 2 + 16 + 16 + 32
    return told[:at] + members.to_bytes(2, "big") + colluders.to_bytes(2, "big") + told[at + 4 :]


def _with_count(data: bytes, at: int, count: int, size: int) -> str:
    return (data[:at] + count.to_bytes(size, "big") + data[at + size :]).hex()


def _encodings(three: Story, five: Story) -> Iterator[Plain]:
    terms = five.terms.encode()
    task = bytes.fromhex(three.told["slots"][0]["task"])
    certificate = bytes.fromhex(three.told["slots"][0]["certificate"])

    def decode(message: str, data: bytes | str, what: str, code: str, because: str) -> Plain:
        encoded = data if isinstance(data, str) else data.hex()
        return case("decode", what, code, because, message=message, bytes=encoded)

    yield decode(
        "Terms",
        b"\x01" + terms[1:],
        "terms of version 1",
        "securesum.version",
        "the first byte must be 2",
    )
    yield decode(
        "Terms", task, "a task in place of terms", "securesum.kind", "the second byte must be 1"
    )
    yield decode(
        "Terms",
        terms[:-1],
        "terms without their last byte",
        "securesum.truncated",
        "members_only is missing",
    )
    yield decode(
        "Terms",
        terms + b"\0",
        "terms with one more byte",
        "securesum.trailing",
        "nothing follows the last field",
    )
    yield decode(
        "Terms",
        terms[:-1] + b"\x02",
        "a flag that is 2",
        "securesum.field",
        "a flag is the byte 0 or 1",
    )
    head, flags = terms[:18], terms[22:]
    yield decode(
        "Terms",
        head + b"\0\1\0\2" + flags,
        "m = 1 with min_cohort = 2",
        "terms.invalid",
        "min_cohort must be at least max(3, m + 2)",
    )
    yield decode(
        "Terms",
        terms[:22] + b"\1\1\0",
        "blind sums with differential privacy",
        "terms.invalid",
        "blind sums need every member in every sum",
    )
    yield decode(
        "Terms",
        terms[:22] + b"\0\0\1",
        "a model for members only with open sums",
        "terms.invalid",
        "the coordinator computes the model of open sums",
    )
    for members, colluders in ((1, 0), (2, 0), (3, 2)):
        yield decode(
            "ModelCertificate",
            _stated_by(five, members, colluders),
            f"a model of {members} members, of whom {colluders} may collude",
            "securesum.field",
            "members is at least max(3, max_colluders + 2)",
        )
    at = 2 + 32 + 4
    yield decode(
        "Task",
        _with_count(task, at, 201, 8),
        "a statistic of 201 bytes announced",
        "securesum.field",
        "at most 200 are allowed, and this is found before they are read",
    )
    yield decode(
        "Task",
        task[:at] + (2).to_bytes(8, "big") + b"\xc3\x28" + task[at + 8 + len("vectors/1") :],
        "a statistic that is not UTF-8",
        "securesum.field",
        "text is strict UTF-8",
    )
    signed = _of(Task, three.told["slots"][1]["task"])
    unsigned = replace(signed, authors=(), authored=()).encode()
    yield decode(
        "Task",
        unsigned[:-4] + b"\0\1\0\0" + unsigned[-2:],
        "an author without a signature",
        "securesum.field",
        "authors and authored have equal lengths, at most 1",
    )
    ranks = 2 + 32 + 4 + 32
    yield decode(
        "Certificate",
        certificate[:ranks] + b"\0\3\0\0\0\2\0\1" + certificate[ranks + 8 :],
        "active ranks 0, 2, 1",
        "securesum.not_ascending",
        "ranks ascend strictly",
    )
    yield decode(
        "Certificate",
        certificate[:ranks] + b"\0\3\0\0\0\1\0\xc8" + certificate[ranks + 8 :],
        "a rank of 200",
        "securesum.field",
        "ranks are below 200",
    )
    certified = _of(Certificate, three.told["slots"][0]["certificate"])
    fewer = replace(certified, signers=certified.signers[:1], signatures=certified.signatures[:1])
    both = len(certified.signers)
    body = fewer.encode()[: -(2 + 64)]
    rows = both.to_bytes(2, "big") + b"".join(certified.signatures)
    yield decode(
        "Certificate",
        body + rows,
        "one signer with two signatures",
        "securesum.field",
        "signers and signatures have equal lengths",
    )
    adverts = three.adverts
    swapped = (adverts.adverts[1], adverts.adverts[0], adverts.adverts[2])
    count = len(swapped).to_bytes(4, "big")
    yield decode(
        "Adverts",
        b"\x02\x04" + count + b"".join(advert.encode()[2:] for advert in swapped),
        "adverts that do not ascend by identity",
        "securesum.not_ascending",
        "adverts ascend strictly by identity",
    )
    model = _of(ModelCertificate, three.told["model"]["certificate"])
    statement = model.statement.encode()[2:]
    tail = (
        model.salt
        + len(model.results).to_bytes(8, "big")
        + model.results
        + (2).to_bytes(2, "big")
        + model.signers[0] * 2
        + (2).to_bytes(2, "big")
        + model.signatures[0] * 2
        + (2).to_bytes(2, "big")
        + model.results_signatures[0] * 2
    )
    yield decode(
        "ModelCertificate",
        b"\x02\x1d" + statement + tail,
        "one signer listed twice",
        "securesum.not_ascending",
        "signers ascend strictly",
    )


def _keys() -> Iterator[Plain]:
    field = 2**255 - 19
    order_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    small = {
        "0": 0,
        "1": 1,
        "-1": field - 1,
        "y of order 8": order_8,
        "its negative": field - order_8,
    }
    for what, y in small.items():
        for sign in (0, 1 << 255):
            yield case(
                "key",
                f"y = {what}{', sign bit set' if sign else ''}",
                "identity.key",
                "the point has small order",
                bytes=(y | sign).to_bytes(32, "little").hex(),
            )
    yield case(
        "key",
        "y = p + 3",
        "identity.key",
        "y must be below 2^255 - 19",
        bytes=(field + 3).to_bytes(32, "little").hex(),
    )


def _epoch(three: Story) -> Iterator[Plain]:
    here = {"epoch": three.name}
    own = three.adverts.adverts[1]
    yield case(
        "advert",
        "an advert for the next epoch",
        "epoch.other_advert",
        "session, run and number must be this epoch's",
        **here,
        bytes=_hex(replace(own, number=own.number + 1)),
    )
    stranger = three.sites[0].identity.from_bytes(bytes(range(32)))
    fields = {**vars(own), "identity": stranger.key}
    del fields["signature"]
    yield case(
        "advert",
        "a signed advert of somebody else",
        "epoch.not_on_roster",
        "its identity must be on the roster",
        **here,
        bytes=_hex(Advert.signed(stranger, **fields)),
    )
    yield case(
        "advert",
        "an advert with another archive key",
        "epoch.forged_advert",
        "the signature covers all fields before it",
        **here,
        bytes=_hex(replace(own, archive_key=bytes([1]) * 1216)),
    )
    boxes = {
        rank: _of(Boxes, each["boxes"]).boxes for rank, each in enumerate(three.told["members"])
    }
    to_0 = (boxes[1][0], boxes[2][0])

    def delivered(what: str, code: str, because: str, *sent: Any) -> Plain:
        delivery = Delivery(three.epoch.epoch_id, 0, tuple(sent))
        return case("delivery", what, code, because, **here, delivery=_hex(delivery))

    yield delivered(
        "a delivery without the box of rank 2",
        "epoch.missing_box",
        "one box from every other member, ascending",
        to_0[0],
    )
    yield delivered(
        "a box of rank 1 to rank 2",
        "epoch.missing_box",
        "all boxes must be for the receiver",
        boxes[1][1],
        to_0[1],
    )
    yield delivered(
        "a box in the name of rank 1 that rank 2 has signed",
        "epoch.forged_box",
        "HPKE does not authenticate the sender, so the signature must",
        replace(to_0[1], sender=1),
        to_0[1],
    )
    yield delivered(
        "a box with another commitment",
        "epoch.forged_box",
        "the signature covers the commitment",
        replace(to_0[0], commitment=bytes(32)),
        to_0[1],
    )
    author = three.sites[1].identity

    def signed(box: Any) -> Any:
        return replace(box, signature=author.sign(Label.BOX, *box.statement(three.epoch.epoch_id)))

    yield delivered(
        "a signed box that does not open",
        "epoch.unreadable_box",
        "it was sealed to rank 2",
        signed(replace(to_0[0], sealed=boxes[1][1].sealed)),
        to_0[1],
    )
    yield delivered(
        "a signed box whose part of the group key is not the committed one",
        "epoch.group_part",
        "g_1 must open c_1",
        signed(replace(to_0[0], commitment=bytes(32))),
        to_0[1],
    )


def _tasks(three: Story, five: Story) -> Iterator[Plain]:
    told = three.told["slots"][1]
    task: Task = _of(Task, told["task"])
    here = {"epoch": three.name, "slot": 1, "rank": 2}

    def changed(what: str, code: str, because: str, **fields: Any) -> Plain:
        return case("task", what, code, because, **here, bytes=_hex(replace(task, **fields)))

    author = "with blind sums a member writes the task and signs it"
    yield changed("a task without an author", "task.author", author, authors=(), authored=())
    yield changed("a task in another's name", "task.author", author, authors=(1,))
    yield changed(
        "another sum that was applied",
        "task.author",
        "the author's signature covers `applied`",
        applied=(SumName(number=7, slot=9),),
    )
    yield changed(
        "another length", "task.author", "the author's signature covers `length`", length=5
    )
    yield changed(
        "an author that is no member",
        "task.unknown_rank",
        "ranks are below n",
        authors=(3,),
    )
    fields = {**vars(task.draft), "state": bytes.fromhex(told["state"])}
    del fields["signature"]
    draft = Draft.signed(three.sites[0].identity, **fields)
    yield changed(
        "the unkeyed digest of the state, signed",
        "task.state",
        "a blind task names the state by its keyed value",
        state=draft.state,
        authored=(draft.signature,),
    )
    yield changed(
        "a task that leaves rank 2 out",
        "task.not_active",
        "only active members answer",
        active=(0, 1),
    )
    yield changed(
        "an active rank that no member has",
        "task.unknown_rank",
        "ranks are below n",
        active=(0, 1, 2, 3),
    )
    yield case(
        "task",
        "a task over two of three members",
        "task.too_few",
        "at least max(q, min_cohort) = 3 members are active",
        **here,
        bytes=_hex(replace(task, active=(0, 2))),
    )
    lie = five.told["slots"][0]
    yield case(
        "task",
        "a task whose author names another state than the others hold",
        "task.state",
        "the member's own value differs, so it objects",
        epoch=five.name,
        slot=0,
        rank=3,
        bytes=lie["task"],
    )
    honest = five.told["slots"][1]
    uploads = [_of(Upload, each["header"]) for each in honest["uploads"]]
    forged = replace(uploads[1], signature=bytes(64))
    witnesses = {
        "one header twice": (uploads[0], uploads[0]),
        "one header and the reader's own": (uploads[0], uploads[4]),
        "one header and a forged one": (uploads[0], forged),
        "one header and one of another context": (
            uploads[0],
            replace(uploads[1], context=bytes(32)),
        ),
    }
    for what, sent in witnesses.items():
        yield case(
            "witnesses",
            what,
            "task.witnesses",
            "m + 1 = 2 distinct other members must have signed under this context",
            epoch=five.name,
            slot=1,
            rank=4,
            bytes=_hex(Witnesses(sent)),
        )


def _proofs(three: Story, five: Story) -> Iterator[Plain]:
    certificate: Certificate = _of(Certificate, three.told["slots"][0]["certificate"])
    here = {"epoch": three.name}

    def changed(what: str, code: str, because: str, **fields: Any) -> Plain:
        encoded = _hex(replace(certificate, **fields))
        return case("certificate", what, code, because, **here, bytes=encoded)

    yield changed(
        "a certificate of another epoch",
        "certificate.different_task",
        "epoch_id must be this epoch's",
        epoch_id=bytes(32),
    )
    yield changed(
        "one signer",
        "certificate.too_few_signers",
        "q = 2 are required",
        signers=certificate.signers[:1],
        signatures=certificate.signatures[:1],
    )
    yield changed(
        "another slot",
        "certificate.forged",
        "the signatures cover the slot",
        slot=1,
    )
    yield changed(
        "fewer survivors",
        "certificate.forged",
        "the signatures cover the survivors",
        survivors=(0, 1),
    )
    yield changed(
        "signatures that are exchanged",
        "certificate.forged",
        "each signature is by its signer",
        signatures=certificate.signatures[::-1],
    )
    yield changed(
        "a survivor that was not active",
        "certificate.unknown_survivor",
        "U is part of C",
        active=(0, 1),
    )
    yield changed(
        "a signer that is no survivor",
        "certificate.signer_outside",
        "signers are survivors",
        survivors=(1, 2),
    )
    proof: AbandonProof = _of(AbandonProof, five.told["slots"][0]["abandon_proof"])
    for what, code, because, fields in (
        (
            "three signers",
            "certificate.too_few_signers",
            "q = 4 are required",
            {"signers": proof.signers[:3], "signatures": proof.signatures[:3]},
        ),
        (
            "another slot",
            "certificate.forged",
            "the signatures cover the slot",
            {"slot": 1},
        ),
        (
            "a signer that is no member",
            "certificate.signer_outside",
            "signers are members of the epoch",
            {"signers": (*proof.signers[:3], 5)},
        ),
    ):
        encoded = _hex(replace(proof, **fields))
        yield case("abandon_proof", what, code, because, epoch=five.name, bytes=encoded)


def _keys_and_shares(three: Story) -> Iterator[Plain]:
    told = three.told["slots"][1]
    here = {"epoch": three.name, "slot": 1}
    reveal: Reveal = _of(Reveal, told["reveals"][0])
    yield case(
        "reveal",
        "another self key",
        "collection.self_key",
        "it must open the commitment in the signed Upload",
        **here,
        bytes=_hex(replace(reveal, self_key=_flipped(reveal.self_key))),
    )
    upload: Upload = _of(Upload, told["uploads"][2]["header"])
    share = {"dealer": 2, "receiver": 0, "sealed": upload.sealed_shares[0].hex()}
    yield case(
        "share",
        "a sealed share with one bit changed",
        "unreadable",
        "AES-GCM's tag is wrong",
        **here,
        **{**share, "sealed": _flipped(upload.sealed_shares[0]).hex()},
        hash=upload.share_hashes[0].hex(),
    )
    yield case(
        "share",
        "a share that was sealed for rank 1",
        "unreadable",
        "the key is for one dealer and one receiver",
        **here,
        **{**share, "sealed": upload.sealed_shares[1].hex()},
        hash=upload.share_hashes[1].hex(),
    )
    yield case(
        "share",
        "a share that its dealer has not declared",
        "unreadable",
        "the share must have its hash",
        **here,
        **share,
        hash=upload.share_hashes[1].hex(),
    )
    repair: Repair = _of(Repair, told["repairs"][0]["repair"])
    unsigned = {**vars(repair), "shares": (_flipped(repair.shares[0], 65),)}
    del unsigned["signature"]
    yield case(
        "repair",
        "another share, signed",
        "collection.share",
        "the dealer has declared a hash of each share",
        **here,
        bytes=_hex(Repair.signed(three.sites[0].identity, **unsigned)),
    )
    yield case(
        "combine",
        "a share that is the prime",
        "sharing.invalid",
        "shares are below 2^521 - 1",
        shares={"0": PRIME.to_bytes(SHARE_BYTES, "big").hex(), "1": repair.shares[0].hex()},
    )


def _totals(three: Story, failure: Story) -> Iterator[Plain]:
    told = three.told["slots"][0]
    total: Total = _of(Total, told["total"])
    body = bytes.fromhex(told["total_body"])
    other: Total = _of(Total, three.told["slots"][1]["total"])
    one = "any failure is this error, and all checks are made"

    def changed(what: str, data: bytes = body, **fields: Any) -> Plain:
        return case(
            "total",
            what,
            "total.not_verified",
            one,
            epoch=three.name,
            slot=0,
            total=_hex(replace(total, **fields)),
            body=data.hex(),
        )

    first = int.from_bytes(body[:8], "little")

    def plus(number: int) -> bytes:
        return ((first + number) % 2**64).to_bytes(8, "little") + body[8:]

    yield changed("one bit of the data", _flipped(body))
    yield changed("2^31 - 1 more", plus(PRIMES[0]))
    yield changed("2^31 - 19 more", plus(PRIMES[1]))
    yield changed("the product of the primes more: beyond the bound", plus(PRIMES[0] * PRIMES[1]))
    yield changed("one element more", body + bytes(8))
    yield changed("one element less", body[:-8])
    yield changed("one byte more", body + b"\0")
    yield changed("another `failed`", failed=(total.failed + 1) % PRIMES[0])
    yield changed("`failed` not below p", failed=PRIMES[0])
    yield changed("one tag changed", tags=_flipped(total.tags, 3))
    yield changed("one tag of `failed` changed", tags=_flipped(total.tags, 63))
    yield changed("the context of the next slot", context=other.context)
    yield changed("fewer survivors", survivors=(0, 1))
    yield changed(
        "the total of the next slot",
        bytes.fromhex(three.told["slots"][1]["total_body"]),
        failed=other.failed,
        tags=other.tags,
    )
    noise = failure.told["slots"][0]
    yield case(
        "total",
        "the true total of a sum in which a site has failed",
        "total.site_failed",
        "`failed` has its tags and is not 0",
        epoch=failure.name,
        slot=0,
        total=noise["total"],
        body=noise["total_body"],
    )
    yield case(
        "total",
        "a failed sum that is said not to have failed",
        "total.not_verified",
        "`failed` = 0 does not have these tags",
        epoch=failure.name,
        slot=0,
        total=_hex(replace(_of(Total, noise["total"]), failed=0)),
        body=noise["total_body"],
    )


def _states(three: Story) -> Iterator[Plain]:
    sealed = three.told["slots"][0]["sealed_state"]
    header: SealedState = _of(SealedState, sealed["header"])
    box = bytes.fromhex(sealed["box"])
    other = three.told["slots"][1]["sealed_state"]

    def changed(what: str, because: str, data: bytes = box, **fields: Any) -> Plain:
        return case(
            "sealed_state",
            what,
            "task.sealed_state",
            because,
            epoch=three.name,
            header=_hex(replace(header, **fields)),
            box=data.hex(),
        )

    signed = "the author's signature covers it"
    yield changed("one bit of the box", "the header has the hash of the box", _flipped(box))
    yield changed("another slot", signed, slot=1)
    yield changed("another author", signed, rank=1)
    yield changed("another salt", signed, salt=bytes(32))
    yield changed("an author that is no member", "ranks are below n", rank=3)
    yield changed("another epoch", "epoch_id must be this epoch's", epoch_id=bytes(32))
    yield changed(
        "the box of slot 1", "the header has the hash of the box", bytes.fromhex(other["box"])
    )
    foreign = {**vars(header), "salt": bytes(32)}
    del foreign["signature"]
    yield case(
        "sealed_state",
        "a signed header with another salt than the box was sealed with",
        "task.sealed_state",
        "the key of the box is another one",
        epoch=three.name,
        header=_hex(SealedState.signed(three.sites[0].identity, **foreign)),
        box=box.hex(),
    )
    content = bytes.fromhex(sealed["content"])
    good = padded(content)
    key = derive(
        bytes.fromhex(three.told["group_key"]),
        Label.STATE_KEY,
        header.epoch_id,
        bytes(4),
        bytes(2),
        header.salt,
    )
    for what, inside in (
        ("a state without padding", content),
        ("padding that is not zero", good[:-1] + b"\1"),
        ("padding that is one step longer", good + bytes(4096)),
        ("padding that is one byte shorter", good[:-1]),
        ("a length beyond the box", len(good).to_bytes(8, "big") + good[8:]),
    ):
        other_box = AESGCM(key).encrypt(bytes(12), inside, None)
        said = {**vars(header), "box_hash": hashlib.sha256(other_box).digest()}
        del said["signature"]
        yield case(
            "sealed_state",
            what,
            "task.sealed_state",
            "what is sealed has one form, and its size says little",
            epoch=three.name,
            header=_hex(SealedState.signed(three.sites[0].identity, **said)),
            box=other_box.hex(),
        )


def _models(three: Story, five: Story) -> Iterator[Plain]:
    told = five.told["model"]
    certificate: ModelCertificate = _of(ModelCertificate, told["certificate_with_salt"])
    keys = [key.hex() for key in five.epoch.members]

    def checked(
        what: str,
        code: str,
        because: str,
        given: ModelCertificate = certificate,
        *,
        data: str = told["data"],
        pinned: list[str] = keys,
        m: int = 1,
    ) -> Plain:
        return case(
            "model_certificate",
            what,
            code,
            because,
            bytes=_hex(given),
            data=data,
            pinned=pinned,
            max_colluders=m,
        )

    yield checked(
        "a model with one changed byte",
        "model.not_the_endorsed",
        "the commitment is to all bytes",
        data=_flipped(bytes.fromhex(told["data"])).hex(),
    )
    yield checked(
        "no salt",
        "model.not_the_endorsed",
        "the commitment is salted",
        _of(ModelCertificate, told["certificate"]),
    )
    yield checked(
        "three of four signers are pinned",
        "model.too_few_endorsements",
        "q = 4 pinned members must vouch",
        pinned=keys[:4],
    )
    yield checked(
        "a session that tolerates four colluders",
        "model.too_few_endorsements",
        "m' + 1 = 5 by the verifier's own m' must vouch",
        m=4,
    )
    forged = (bytes(64), *certificate.signatures[1:])
    because = "each pinned signer must have signed both statements"
    yield checked(
        "a forged signature on the model",
        "model.forged_endorsement",
        because,
        replace(certificate, signatures=forged),
    )
    yield checked(
        "a forged signature on the results",
        "model.forged_endorsement",
        because,
        replace(certificate, results_signatures=(bytes(64), *certificate.results_signatures[1:])),
    )
    yield checked(
        "other results",
        "model.forged_endorsement",
        "the second signature covers the results",
        replace(certificate, results=b'{"rows":121}'),
    )
    yield checked(
        "a statement with smaller n",
        "model.forged_endorsement",
        "the signatures cover the statement",
        replace(certificate, statement=replace(certificate.statement, members=3)),
    )
    keys_of_three = [key.hex() for key in three.epoch.members]
    yield checked(
        "a certificate of laxer terms",
        "model.too_few_endorsements",
        "its three signers are enough for m = 0 and not for m' = 3",
        _of(ModelCertificate, three.told["model"]["certificate"]),
        data=three.told["model"]["data"],
        pinned=keys_of_three,
        m=3,
    )
    liars = [
        Endorsement.signed(
            site.identity,
            rank=rank,
            statement=replace(certificate.statement, members=3, max_colluders=0),
            salt=certificate.salt,
            results=certificate.results,
        )
        for rank, site in enumerate(five.sites[:4])
    ]
    yield checked(
        "more signers than the statement says that there are members",
        "model.too_few_endorsements",
        "an epoch of n members has at most n signers",
        ModelCertificate.of(liars, five.epoch.members),
    )
    archive: Archive = _of(Archive, told["archive"])
    sealed = bytes.fromhex(told["sealed"])

    def archived(what: str, because: str, rank: int = 0, data: bytes = sealed, **f: Any) -> Plain:
        return case(
            "archive",
            what,
            "model.archive",
            because,
            epoch=five.name,
            rank=rank,
            archive=_hex(replace(archive, **f)),
            sealed=data.hex(),
        )

    yield archived("one bit of the content", "the box has its hash", data=_flipped(sealed))
    yield archived("another run", "the signature covers it", run=bytes(16))
    yield archived(
        "boxes that are exchanged",
        "the signature covers them",
        boxes=archive.boxes[::-1],
    )
    yield archived(
        "another model",
        "the signature covers it",
        model=bytes(32),
    )


def _transport() -> Iterator[Plain]:
    def framed(what: str, head: bytes, because: str, rest: bytes = b"abc") -> Plain:
        encoded = len(head).to_bytes(4, "big") + head + rest
        return case("frame", what, "frame.invalid", because, bytes=encoded.hex())

    good = b'{"content":{},"parts":[{"bytes":3,"name":"message"}]}'
    canonical = "the head is canonical JSON"
    yield framed("a space in the head", good.replace(b":{}", b": {}"), canonical)
    yield framed(
        "keys in another order",
        b'{"parts":[{"bytes":3,"name":"message"}],"content":{}}',
        canonical,
    )
    yield framed(
        "an unknown part", good.replace(b"message", b"other"), "the reader does not know it"
    )
    yield framed(
        "a part twice",
        b'{"content":{},"parts":[{"bytes":1,"name":"message"},{"bytes":2,"name":"message"}]}',
        "names are unique",
    )
    yield framed("a byte more", good, "nothing follows the last part", b"abcd")
    yield framed("a byte less", good, "the parts are complete", b"ab")
    yield framed(
        "a part that is too long",
        good.replace(b"3", b"11"),
        "a part `message` has at most 10 bytes here",
        b"abcdefghijk",
    )
    yield framed(
        "a further field",
        good[:-1] + b',"z":1}',
        "the head has exactly content and parts",
    )
