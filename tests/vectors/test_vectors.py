"""openapi/vectors.json is up to date, and our own code accepts and refuses what it says."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from privacy.blinding import state_value
from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.frames import Frame, Limits
from privacy.identity import Identity, Member, Roster, check_key
from privacy.members.archive import Archive, open_archive
from privacy.members.endorsement import Endorsement, ModelCertificate
from privacy.members.sealed_state import open_state
from privacy.requests import SignedRequest
from privacy.securesum import checks, messages
from privacy.securesum.certificates import check_abandoned, check_certificate
from privacy.securesum.epoch import Epoch, PairSecrets, check_advert, epoch_from, open_boxes
from privacy.securesum.errors import ForgedMessage, WrongSelfKey, WrongShare
from privacy.securesum.masking import check_commitment, open_share, share_hash
from privacy.securesum.terms import Terms
from privacy.securesum.verification import verified
from privacy.shamir import combine
from tests.vectors.generate import PATH, deterministic, generate

FILE = json.loads(PATH.read_text())
EPOCHS = {epoch["name"]: epoch for epoch in FILE["epochs"]}
LIMITS = Limits(head=1000, parts={"message": 10, "delivery": 10})
MESSAGES = {"Terms": Terms, "ModelCertificate": ModelCertificate}


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def read(name: str, text: str) -> Any:
    return (MESSAGES.get(name) or getattr(messages, name)).decode(raw(text))


class Told:
    """An epoch of the file, as far as our own code needs it to check something."""

    def __init__(self, name: str) -> None:
        self.plain = plain = EPOCHS[name]
        self.roster = Roster(tuple(Member(m["name"], raw(m["key"])) for m in plain["roster"]))
        self.terms = Terms.decode(raw(plain["terms_encoded"]))
        self.adverts = messages.Adverts(
            tuple(read("Advert", member["advert"]) for member in plain["members"])
        )
        self.run, self.number = raw(plain["run"]), plain["number"]
        self.epoch: Epoch = epoch_from(self.terms, self.run, self.number, self.roster, self.adverts)
        self.key, self.commitments = raw(plain["group_key"]), raw(plain["commitments"])
        self.pairs = {
            frozenset(pair["ranks"]): PairSecrets(raw(pair["seed"]), raw(pair["channel"]))
            for pair in plain["pairs"]
        }

    def open_delivery(self, delivery: messages.Delivery) -> Any:
        member = self.plain["members"][delivery.receiver]
        return open_boxes(
            self.epoch,
            delivery.receiver,
            delivery.boxes,
            raw(member["kem_secret"]),
            {int(rank): raw(seed) for rank, seed in member["seeds"].items()},
            raw(member["group_part"]),
        )

    def upload(self, slot: int, rank: int) -> messages.Upload:
        found = next(u for u in self.plain["slots"][slot]["uploads"] if u["rank"] == rank)
        return read("Upload", found["header"])  # type: ignore[no-any-return]


@cache
def told_of(name: str) -> Told:
    return Told(name)


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads(json.dumps(generate()))


def test_the_file_is_what_the_code_makes(made):
    """If not: `python -m tests.vectors`."""
    assert deterministic(made) == deterministic(FILE)


@pytest.mark.parametrize("name", EPOCHS)
def test_recorded_boxes_give_the_pair_secrets_and_the_group_key(name):
    told = told_of(name)
    assert told.epoch.epoch_id == raw(told.plain["epoch_id"])
    boxes = [read("Boxes", member["boxes"]) for member in told.plain["members"]]
    for rank in told.epoch.everyone:
        check_advert(
            told.adverts.adverts[rank], told.terms.session, told.run, told.number, told.roster
        )
        boxes[rank].check_signed_by(told.epoch.members[rank], ForgedMessage, "")
        sent = (box for each in boxes for box in each.boxes)
        addressed = tuple(box for box in sent if box.receiver == rank)
        delivery = messages.Delivery(told.epoch.epoch_id, rank, addressed)
        if rank == 0:
            assert delivery.encode().hex() == told.plain["delivery"]
        pairs, group = told.open_delivery(delivery)
        assert (group.key, group.commitments) == (told.key, told.commitments)
        for other, pair in pairs.items():
            assert pair == told.pairs[frozenset({rank, other})]


@pytest.mark.parametrize("name", EPOCHS)
def test_recorded_sums_are_accepted(name):
    told = told_of(name)
    for at, slot in enumerate(told.plain["slots"]):
        task = read("Task", slot["task"])
        assert task.context(told.commitments) == raw(slot["context"])
        checks.check_author(told.epoch, task)
        if "abandon_proof" in slot:
            check_abandoned(told.epoch, read("AbandonProof", slot["abandon_proof"]))
            continue
        certificate = read("Certificate", slot["certificate"])
        check_certificate(told.epoch, certificate)
        assert slot["slot"] == at
        for repair in slot["repairs"]:
            read("Repair", repair["repair"])
        if slot["outcome"] == "verified":
            total = verified(
                read("Total", slot["total"]),
                raw(slot["total_body"]),
                certificate,
                told.key,
                blinded=told.terms.blind,
            )
            assert [str(number) for number in total.values.tolist()] == slot["values"]
            expected = np.sum(
                [
                    np.array(vector, dtype=np.int64)
                    for rank, vector in enumerate(slot["vectors"])
                    if rank in certificate.survivors
                ],
                axis=0,
            )
            assert np.array_equal(total.values, expected)
        if "sealed_state" in slot:
            sealed = slot["sealed_state"]
            header = read("SealedState", sealed["header"])
            assert open_state(told.epoch, told.key, header, raw(sealed["box"])) == raw(
                sealed["content"]
            )


@pytest.mark.parametrize("name", ["three", "five"])
def test_recorded_models_are_accepted(name):
    told, model = told_of(name), EPOCHS[name]["model"]
    for each in model["endorsements"]:
        endorsement = Endorsement.decode(raw(each))
        endorsement.check_signed_by(told.epoch.members[endorsement.rank])
    certificate = ModelCertificate.decode(raw(model["certificate_with_salt"]))
    certificate.check_covers(raw(model["data"]))
    certificate.vouched_by(told.epoch.members, max_colluders=told.terms.max_colluders)
    if "archive" not in model:
        return
    header = Archive.decode(raw(model["archive"]))
    for rank, member in enumerate(told.plain["members"]):
        content = open_archive(
            header,
            raw(model["sealed"]),
            own=told.epoch.members[rank],
            secret=raw(member["archive_secret"]),
        )
        assert content == raw(model["content"])
    limits = Limits(head=1000, parts=dict.fromkeys(("certificate", "card", "model"), 10_000))
    assert Frame.read(content, limits).bytes("certificate") == certificate.encode()


def test_recorded_transport_is_accepted():
    request = FILE["request"]
    SignedRequest.parse(request["authorization"]).check(
        method=request["method"],
        host=request["host"],
        target=request["target"],
        now_ms=request["time_ms"],
    )
    Frame.read(raw(FILE["frame"]["encoded"]), LIMITS)
    for each in FILE["encodings"]:
        assert Encoding.from_bytes(raw(each["encoded"])).digest() == raw(each["digest"])
    consent = messages.Consent.decode(raw(FILE["consent"]["encoded"]))
    secret = Identity.from_bytes(raw(FILE["consent"]["identity_secret"]))
    consent.check_signed_by(secret.key, ForgedMessage, "")


# -- what must be refused


def _task(told: Told, case: dict[str, Any]) -> None:
    task, slot = read("Task", case["bytes"]), told.plain["slots"][case["slot"]]
    checks.check_author(told.epoch, task)
    named = state_value(
        told.key,
        told.epoch.epoch_id,
        task.slot,
        state=raw(slot["state"]),
        encoding=raw(slot["encoding_digest"]),
    )
    checks.check_state(task, named)
    checks.check_active(told.epoch, case["rank"], task)


def _witnesses(told: Told, case: dict[str, Any]) -> None:
    slot = told.plain["slots"][case["slot"]]
    checks.check_witnesses(
        told.epoch,
        case["rank"],
        read("Task", slot["task"]),
        raw(slot["context"]),
        read("Witnesses", case["bytes"]).uploads,
    )


def _total(told: Told, case: dict[str, Any]) -> None:
    certificate = read("Certificate", told.plain["slots"][case["slot"]]["certificate"])
    total = read("Total", case["total"])
    verified(total, raw(case["body"]), certificate, told.key, blinded=told.terms.blind)


def _reveal(told: Told, case: dict[str, Any]) -> None:
    reveal = read("Reveal", case["bytes"])
    upload = told.upload(case["slot"], reveal.rank)
    if not check_commitment(reveal.self_key, upload.context, reveal.rank, upload.commitment):
        raise WrongSelfKey("")


class Unreadable(Exception):
    code = "unreadable"


def _share(told: Told, case: dict[str, Any]) -> None:
    dealer, receiver = case["dealer"], case["receiver"]
    context = raw(told.plain["slots"][case["slot"]]["context"])
    pair = told.pairs[frozenset({dealer, receiver})]
    found = open_share(raw(case["sealed"]), raw(case["hash"]), pair, context, dealer, receiver)
    if found is None:
        raise Unreadable


def _repair(told: Told, case: dict[str, Any]) -> None:
    repair = read("Repair", case["bytes"])
    repair.check_signed_by(told.epoch.members[repair.rank], ForgedMessage, "")
    for dealer, share in zip(repair.silent, repair.shares, strict=True):
        upload = told.upload(case["slot"], dealer)
        declared = upload.share_hashes[upload.receivers.index(repair.rank)]
        if share_hash(share, upload.context, dealer, repair.rank) != declared:
            raise WrongShare("")


def _model(case: dict[str, Any]) -> None:
    certificate = ModelCertificate.decode(raw(case["bytes"]))
    certificate.check_covers(raw(case["data"]))
    pinned = {raw(key) for key in case["pinned"]}
    certificate.vouched_by(pinned, max_colluders=case["max_colluders"])


def _archive(told: Told, case: dict[str, Any]) -> None:
    rank = case["rank"]
    secret = raw(told.plain["members"][rank]["archive_secret"])
    header = Archive.decode(raw(case["archive"]))
    open_archive(header, raw(case["sealed"]), own=told.epoch.members[rank], secret=secret)


CHECKS = {
    "decode": lambda _, case: read(case["message"], case["bytes"]),
    "key": lambda _, case: check_key(raw(case["bytes"])),
    "advert": lambda told, case: check_advert(
        read("Advert", case["bytes"]), told.terms.session, told.run, told.number, told.roster
    ),
    "delivery": lambda told, case: told.open_delivery(read("Delivery", case["delivery"])),
    "task": _task,
    "witnesses": _witnesses,
    "certificate": lambda told, case: check_certificate(
        told.epoch, read("Certificate", case["bytes"])
    ),
    "abandon_proof": lambda told, case: check_abandoned(
        told.epoch, read("AbandonProof", case["bytes"])
    ),
    "reveal": _reveal,
    "share": _share,
    "repair": _repair,
    "combine": lambda _, case: combine(
        {int(rank) + 1: raw(share) for rank, share in case["shares"].items()}
    ),
    "total": _total,
    "sealed_state": lambda told, case: open_state(
        told.epoch, told.key, read("SealedState", case["header"]), raw(case["box"])
    ),
    "model_certificate": lambda _, case: _model(case),
    "archive": _archive,
    "frame": lambda _, case: Frame.read(raw(case["bytes"]), LIMITS),
}


@pytest.mark.parametrize(
    "case", FILE["refused"], ids=lambda case: f"{case['check']}: {case['what']}"
)
def test_what_must_be_refused_is_refused_with_its_code(case):
    told = told_of(case["epoch"]) if "epoch" in case else None
    with pytest.raises((PrivacyError, Unreadable)) as caught:
        CHECKS[case["check"]](told, case)
    assert caught.value.code == case["code"]


def test_every_check_has_a_case():
    assert {case["check"] for case in FILE["refused"]} == {*CHECKS}
