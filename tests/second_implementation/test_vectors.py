"""Every value of openapi/vectors.json that can be recomputed, and every case it says to refuse."""

import ast
import copy
import functools
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import encoding, models, sums
from .crypto import (
    check_identity,
    combine,
    derive,
    digest,
    fingerprint,
    gcm_seal,
    identity,
    kem_public,
    mix,
    padded,
    prg,
    sha256,
    share_at,
    sign,
)
from .epoch import (
    Epoch,
    box_parts,
    check_advert,
    group_commitment,
    group_key,
    open_delivery,
    pair_secrets,
    quorum,
    roster_digest,
)
from .frames import authorization, canonical, read_frame, write_frame
from .wire import KINDS, Message, Refused, decode, encode, fields, u16, u32

HERE = Path(__file__).parent
VECTORS: dict[str, Any] = json.loads((HERE.parents[1] / "openapi" / "vectors.json").read_text())
EPOCHS: dict[str, Any] = {epoch["name"]: epoch for epoch in VECTORS["epochs"]}

unhex = bytes.fromhex


def same(recorded: str, computed: bytes) -> None:
    assert recorded == computed.hex()


def same_message(recorded: str, name: str, message: Message) -> Message:
    """The recorded message is the one encoding of these fields, and decodes to them."""
    assert recorded == encode(name, message).hex()
    assert decode(name, unhex(recorded)) == message
    return message


def signed_message(secret: bytes, name: str, label: str, message: Message) -> Message:
    signature = sign(secret, label, fields(name, message, before="signature"))
    return message | {"signature": signature}


def integers(recorded: list[str]) -> list[int]:
    values = [int(text) for text in recorded]
    assert [str(value) for value in values] == recorded
    return values


# --- at the top ------------------------------------------------------------------------------


def check_request(v: dict[str, Any]) -> None:
    assert v["authorization"] == authorization(
        unhex(v["identity_secret"]),
        v["method"],
        v["host"],
        v["target"],
        v["time_ms"],
        unhex(v["nonce"]),
        unhex(v["body"]),
    )


def check_frame(v: dict[str, Any]) -> None:
    parts = [(part["name"], unhex(part["bytes"])) for part in v["parts"]]
    same(v["encoded"], write_frame(v["content"], parts))
    most = {"message": 10, "delivery": 10}
    read = read_frame(unhex(v["encoded"]), most_head=1000, most=most)
    assert read == (v["content"], dict(parts))


def check_consent(v: dict[str, Any]) -> None:
    secret = unhex(v["identity_secret"])
    consent = {
        "session": unhex(v["session"]),
        "old": [unhex(key) for key in v["old"]],
        "new": [unhex(key) for key in v["new"]],
        "identity": identity(secret),
    }
    same_message(v["encoded"], "Consent", signed_message(secret, "Consent", "consent", consent))


def check_encoding(v: dict[str, Any]) -> None:
    blocks = [encoding.Block(**(block | {"shape": tuple(block["shape"])})) for block in v["blocks"]]
    clients = v["max_clients"]
    if v["multiplier"] is None:
        assert v["honest"] is None
        bits, deviations = [encoding.scale(block, clients) for block in blocks], []
    else:
        weights = sum(block.weight for block in blocks)
        scales = [
            encoding.noisy_scale(block, clients, v["multiplier"], v["honest"], weights)
            for block in blocks
        ]
        bits, deviations = [f for f, _ in scales], [s for _, s in scales]
    assert v["fractional_bits"] == bits
    assert integers(v["share_deviations"]) == deviations
    encoded = encoding.canonical_bytes(blocks, clients, bits, deviations)
    same(v["encoded"], encoded)
    same(v["digest"], sha256(encoded))
    assert encoding.read_canonical(encoded) == (blocks, clients, bits, deviations)
    if v["contribution"] is None:
        assert v["integers"] is None
    else:
        assert list(v["contribution"]) == [block.name for block in blocks]
        packed = [
            encoding.pack(block, v["contribution"][block.name], f)
            for block, f in zip(blocks, bits, strict=True)
        ]
        assert integers(v["integers"]) == [value for values in packed for value in values]


# --- an epoch --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """An epoch and all its secrets, computed from what the members drew."""

    epoch: Epoch
    secrets: list[bytes]  # of the identities, by rank
    kem_secrets: list[bytes]
    seeds: dict[tuple[int, int], bytes]  # s_ij by sender and receiver
    pairs: dict[tuple[int, int], tuple[bytes, bytes]]  # seed and channel, by ranks a < b
    commitments: bytes
    group: bytes

    def pair(self, one: int, other: int) -> tuple[bytes, bytes]:
        return self.pairs[min(one, other), max(one, other)]

    def sign(self, rank: int, name: str, label: str, message: Message) -> Message:
        return signed_message(self.secrets[rank], name, label, message | {"rank": rank})


def known_epoch(v: dict[str, Any]) -> Known:
    """Everything that follows from the drawn secrets; of messages only `software` is read."""
    terms = v["terms"] | {"session": unhex(v["terms"]["session"])}
    run, number = unhex(v["run"]), v["number"]
    adverts = []
    for member in v["members"]:
        archive_secret = member["archive_secret"]
        advert = {
            "session": terms["session"],
            "run": run,
            "number": number,
            "identity": identity(unhex(member["identity_secret"])),
            "kem_key": kem_public(unhex(member["kem_secret"])),
            "archive_key": kem_public(unhex(archive_secret)) if archive_secret else bytes(1216),
            "software": decode("Advert", unhex(member["advert"]))["software"],
        }
        secret = unhex(member["identity_secret"])
        adverts.append(signed_message(secret, "Advert", "advert", advert))
    roster = {entry["name"]: unhex(entry["key"]) for entry in v["roster"]}
    epoch = Epoch(terms, run, number, roster, adverts)
    seeds = {
        (member["rank"], int(receiver)): unhex(seed)
        for member in v["members"]
        for receiver, seed in member["seeds"].items()
    }
    pairs = {
        (a, b): pair_secrets(epoch.id, a, b, seeds[a, b], seeds[b, a])
        for a in range(epoch.size)
        for b in range(a + 1, epoch.size)
    }
    parts = [unhex(member["group_part"]) for member in v["members"]]
    commitments, group = group_key(epoch.id, parts)
    return Known(
        epoch=epoch,
        secrets=[unhex(member["identity_secret"]) for member in v["members"]],
        kem_secrets=[unhex(member["kem_secret"]) for member in v["members"]],
        seeds=seeds,
        pairs=pairs,
        commitments=commitments,
        group=group,
    )


@functools.cache
def known(name: str) -> Known:
    return known_epoch(EPOCHS[name])


def check_epoch(v: dict[str, Any]) -> None:
    """The fields of an epoch but its slots and its model."""
    k = known_epoch(v)
    epoch, n = k.epoch, len(v["members"])
    same_message(v["terms_encoded"], "Terms", epoch.terms)
    opening = {"terms": epoch.terms, "run": epoch.run, "number": epoch.number, "seen": []}
    same_message(v["opening"], "Opening", opening)
    assert v["quorum"] == epoch.quorum == quorum(n, epoch.terms["max_colluders"])
    same(v["roster_digest"], roster_digest(epoch.roster))
    assert len(epoch.roster) == len(v["roster"]) == n + 1
    assert [entry["key"] for entry in v["roster"]] == sorted(e["key"] for e in v["roster"])
    decode("Adverts", encode("Adverts", {"adverts": epoch.adverts}))
    same(v["epoch_id"], epoch.id)
    boxes = [check_member(k, rank, member) for rank, member in enumerate(v["members"])]
    for rank, secret in enumerate(k.kem_secrets):
        delivery = {
            "epoch_id": epoch.id,
            "receiver": rank,
            "boxes": [box for sent in boxes for box in sent if box["receiver"] == rank],
        }
        opened = open_delivery(epoch, rank, secret, encode("Delivery", delivery))
        assert opened == {
            other: (k.seeds[other, rank], unhex(v["members"][other]["group_part"]))
            for other in range(n)
            if other != rank
        }
        if rank == 0:
            same_message(v["delivery"], "Delivery", delivery)
    assert [tuple(pair["ranks"]) for pair in v["pairs"]] == list(k.pairs)
    for pair, (seed, channel) in zip(v["pairs"], k.pairs.values(), strict=True):
        same(pair["seed"], seed)
        same(pair["channel"], channel)
    same(v["commitments"], k.commitments)
    same(v["group_key"], k.group)


def check_member(k: Known, rank: int, v: dict[str, Any]) -> list[Message]:
    """One member's fields; returns its boxes, of which only what HPKE sealed is not computed."""
    epoch = k.epoch
    assert v["rank"] == rank
    assert epoch.roster[v["name"]] == epoch.members[rank]
    same(v["identity"], epoch.members[rank])
    check_identity(epoch.members[rank])
    assert v["fingerprint"] == fingerprint(epoch.members[rank])
    assert (v["archive_secret"] is not None) == epoch.terms["members_only"]
    check_advert(epoch, same_message(v["advert"], "Advert", epoch.adverts[rank]))
    others = [other for other in range(epoch.size) if other != rank]
    assert [int(receiver) for receiver in v["seeds"]] == others
    commitment = group_commitment(epoch.id, rank, unhex(v["group_part"]))
    same(v["group_commitment"], commitment)
    recorded = decode("Boxes", unhex(v["boxes"]))["boxes"]
    boxes = []
    for other, sent in zip(others, recorded, strict=True):
        box = {"sender": rank, "receiver": other, "sealed": sent["sealed"]}
        box["commitment"] = commitment
        box["signature"] = sign(k.secrets[rank], "box", *box_parts(epoch.id, box))
        boxes.append(box)
    message = {"epoch_id": epoch.id, "sender": rank, "boxes": boxes}
    message = signed_message(k.secrets[rank], "Boxes", "boxes", message)
    same_message(v["boxes"], "Boxes", message)
    return boxes


# --- a slot ----------------------------------------------------------------------------------


def check_slots(v: dict[str, Any], k: Known) -> None:
    proof, applied = b"", []
    for number, slot in enumerate(v["slots"]):
        assert slot["slot"] == number
        task = check_task(k, slot, proof, applied)
        if "abandon_proof" in slot:
            check_abandoned(k, slot, task)
            proof, applied = unhex(slot["abandon_proof"]), []
        else:
            check_sum(k, slot, task)
            proof = unhex(slot["certificate"])
            applied = [{"number": k.epoch.number, "slot": number}]


def check_task(k: Known, v: dict[str, Any], proof: bytes, applied: list[Message]) -> Message:
    """State, encoding, draft, task and sealed state; of the task only free text is read."""
    epoch, slot = k.epoch, v["slot"]
    read = decode("Task", unhex(v["task"]))
    parameters = json.loads(read["parameters"])
    assert canonical(parameters) == read["parameters"]
    assert set(parameters) == {"parent", "program", "run_kind", "stage", "sum_index"}
    assert (parameters["stage"], parameters["sum_index"]) == (v["stage"], v["sum_index"])
    state = sums.position_digest(v["stage"], v["sum_index"], unhex(v["stored_state"]))
    same(v["state"], state)
    encoding_digest, length = bytes(32), read["length"]
    if v["encoding"] is not None:
        encoding_digest = sha256(unhex(v["encoding"]))
        blocks, clients, bits, deviations = encoding.read_canonical(unhex(v["encoding"]))
        assert (clients, deviations) == (epoch.size, [])
        assert bits == [encoding.scale(block, clients) for block in blocks]
        length = sum(block.length for block in blocks)
    same(v["encoding_digest"], encoding_digest)
    task = {
        "epoch_id": epoch.id,
        "slot": slot,
        "statistic": read["statistic"],
        "parameters": read["parameters"],
        "state": state,
        "encoding": encoding_digest,
        "length": length,
        "active": list(range(epoch.size)),
        "proof": proof,
        "applied": [],
        "authors": [],
        "authored": [],
    }
    if epoch.terms["blind"]:
        task |= check_draft(k, v, task | {"applied": applied}, state, encoding_digest)
    same_message(v["task"], "Task", task)
    same(v["context"], sums.context(k.commitments, task))
    assert v["active"] == task["active"]
    if "abandon_proof" not in v:
        for rank in task["active"]:
            sums.check_task(epoch, k.group, rank, task, state, encoding_digest)
    return task


def check_draft(
    k: Known, v: dict[str, Any], task: Message, state: bytes, encoding_digest: bytes
) -> Message:
    """The fields of a blind task that its author has signed, and the author's sealed state."""
    epoch, slot = k.epoch, v["slot"]
    request = {"epoch_id": epoch.id, "slot": slot, "proof": task["proof"]}
    same_message(v["author_request"], "AuthorRequest", request)
    same(v["state_value"], sums.state_value(k.group, epoch.id, slot, state, encoding_digest))
    sealed, author = v["sealed_state"], v["author"]
    content = unhex(sealed["content"])
    author_state = sums.position_digest(v["stage"], v["sum_index"], content)
    same(v["author_state"], author_state)
    assert (author_state != state) == ("abandon_proof" in v)
    task = task | {
        "state": sums.state_value(k.group, epoch.id, slot, author_state, encoding_digest),
        "encoding": bytes(32),
    }
    named = ("epoch_id", "slot", "statistic", "parameters", "state", "length", "applied")
    draft = k.sign(author, "Draft", "draft", {field: task[field] for field in named})
    same_message(v["draft"], "Draft", draft)
    header = {
        "epoch_id": epoch.id,
        "slot": slot,
        "rank": author,
        "salt": decode("SealedState", unhex(sealed["header"]))["salt"],
    }
    box = gcm_seal(sums.state_key(k.group, header), padded(content))
    same(sealed["box"], box)
    header = k.sign(author, "SealedState", "state-box", header | {"box_hash": sha256(box)})
    same_message(sealed["header"], "SealedState", header)
    assert sums.open_state(epoch, k.group, unhex(sealed["header"]), box) == content
    return task | {"authors": [author], "authored": [draft["signature"]]}


def check_abandoned(k: Known, v: dict[str, Any], task: Message) -> None:
    epoch, slot = k.epoch, v["slot"]
    context = sums.context(k.commitments, task)
    others = [rank for rank in task["active"] if rank != v["author"]]
    for rank, recorded in zip(others, v["objections"], strict=True):
        objection = {"epoch_id": epoch.id, "slot": slot, "context": context}
        objection = k.sign(rank, "Objection", "objection", objection)
        same_message(recorded, "Objection", objection)
    request = {"epoch_id": epoch.id, "slot": slot, "proof": task["proof"]}
    same_message(v["abandon_request"], "AbandonRequest", request)
    signatures = []
    ranks = [decode("Abandonment", unhex(each))["rank"] for each in v["abandonments"]]
    assert sorted(set(ranks)) == ranks
    for rank, recorded in zip(ranks, v["abandonments"], strict=True):
        signature = sign(k.secrets[rank], "abandon", *sums.abandon_parts(epoch, slot))
        abandonment = {"epoch_id": epoch.id, "slot": slot, "rank": rank, "signature": signature}
        same_message(recorded, "Abandonment", abandonment)
        signatures.append(signature)
    proof = {
        "epoch_id": epoch.id,
        "slot": slot,
        "signers": ranks[: epoch.quorum],
        "signatures": signatures[: epoch.quorum],
    }
    sums.check_abandon_proof(epoch, same_message(v["abandon_proof"], "AbandonProof", proof))


def check_sum(k: Known, v: dict[str, Any], task: Message) -> None:
    context = sums.context(k.commitments, task)
    pair_keys = check_keys(k, v, context, task["length"])
    uploads = {
        upload["rank"]: check_upload(k, v, task, context, upload, pair_keys)
        for upload in v["uploads"]
    }
    certificate = check_outcome(k, v, task, context, list(uploads))
    self_keys, revealed = check_reveals(k, v, uploads, certificate, pair_keys)
    bodies = {upload["rank"]: unhex(upload["body"]) for upload in v["uploads"]}
    data, residues = sums.unmask(bodies, self_keys, revealed)
    same(v["total_body"], sums.body(data))
    assert v["total_residues"] == residues
    total = {
        **{field: certificate[field] for field in ("epoch_id", "slot", "context", "survivors")},
        "failed": residues[0],
        "tags": b"".join(map(u32, residues[1:])),
    }
    same_message(v["total"], "Total", total)
    sent = (unhex(v["total"]), unhex(v["total_body"]))
    if None in v["vectors"]:
        assert (v["outcome"], v["values"]) == ("total.site_failed", None)
        assert refusal(verified, k, v, *sent) == v["outcome"]
    else:
        added = zip(*(integers(v["vectors"][rank]) for rank in uploads), strict=True)
        values = verified(k, v, *sent)
        assert values == integers(v["values"]) == [sum(each) for each in added]
        assert v["outcome"] == "verified"


def verified(k: Known, v: dict[str, Any], total: bytes, vector: bytes) -> list[int]:
    """T, as a member verifies it with the slot's certificate."""
    certificate = decode("Certificate", unhex(v["certificate"]))
    length = decode("Task", unhex(v["task"]))["length"]
    return sums.verify_total(k.epoch, k.group, length, certificate, total, vector)


def check_keys(
    k: Known, v: dict[str, Any], context: bytes, length: int
) -> dict[tuple[int, int], bytes]:
    """Pair keys by ranks a < b, and the keys that rest on the group key."""
    assert [tuple(pair["ranks"]) for pair in v["pair_keys"]] == list(k.pairs)
    pair_keys = {}
    for recorded, (ranks, (seed, _)) in zip(v["pair_keys"], k.pairs.items(), strict=True):
        pair_keys[ranks] = sums.pair_key(seed, context)
        same(recorded["pair_key"], pair_keys[ranks])
        same(recorded["mask_key"], sums.mask_key(pair_keys[ranks]))
        tag_mask_key = sums.tag_mask_key(pair_keys[ranks])
        same(recorded["tag_mask_key"], tag_mask_key)
        assert recorded["residue_masks"] == sums.residues_of(tag_mask_key)
    same(v["tag_key"], derive(k.group, "tag", context))
    same(v["failed_tag_key"], derive(k.group, "failed-tag", context))
    if k.epoch.terms["blind"]:
        pad, residue_pad = sums.pads(k.group, context, length)
        same(v["pad_key"], derive(k.group, "blind", context))
        same(v["pad"], sums.body(pad))
        same(v["residue_pad_key"], derive(k.group, "blind-tags", context))
        assert v["residue_pad"] == residue_pad
    else:
        fields_of_pads = ("pad_key", "pad", "residue_pad_key", "residue_pad")
        assert [v[field] for field in fields_of_pads] == [None] * 4
    return pair_keys


def check_upload(
    k: Known,
    v: dict[str, Any],
    task: Message,
    context: bytes,
    recorded: dict[str, Any],
    pair_keys: dict[tuple[int, int], bytes],
) -> Message:
    """Header and body of one upload."""
    rank, self_key, length = recorded["rank"], unhex(recorded["self_key"]), task["length"]
    others = [other for other in task["active"] if other != rank]
    keys = {other: pair_keys[min(rank, other), max(rank, other)] for other in others}
    shares = {int(receiver): unhex(share) for receiver, share in recorded["shares"].items()}
    assert list(shares) == others
    quorum_of_shares = dict(list(shares.items())[: k.epoch.quorum])
    assert combine(quorum_of_shares) == self_key
    assert all(share_at(r, quorum_of_shares) == share for r, share in shares.items())
    header = {
        "epoch_id": k.epoch.id,
        "slot": task["slot"],
        "context": context,
        "rank": rank,
        "commitment": sums.self_commitment(context, rank, self_key),
        "receivers": others,
        "sealed_shares": [
            sums.seal_share(k.pair(rank, other)[1], context, rank, other, share)
            for other, share in shares.items()
        ],
        "share_hashes": [
            sums.share_hash(context, rank, other, share) for other, share in shares.items()
        ],
    }
    header = k.sign(rank, "Upload", "upload", header)
    same_message(recorded["header"], "Upload", header)
    for other, sealed, declared in zip(
        others, header["sealed_shares"], header["share_hashes"], strict=True
    ):
        channel = k.pair(rank, other)[1]
        opened = sums.open_share(channel, context, rank, other, sealed, declared)
        assert opened == shares[other]

    masks = sums.mask(rank, self_key, keys, length + sums.EXTRA)
    padding = k.epoch.terms["blind"] and rank == min(task["active"])
    data_pad, residue_pad = sums.pads(k.group, context, length) if padding else (None, None)
    if v["vectors"][rank] is None:
        check_failed_upload(k, context, recorded, keys, masks)
    else:
        vector = integers(v["vectors"][rank])
        residues = sums.all_residues(k.group, context, vector, 0)
        assert recorded["residues"] == residues
        masked = sums.masked_residues(rank, residues, keys, residue_pad)
        assert recorded["masked_residues"] == masked
        data = sums.as_words(vector)
        data = data if data_pad is None else data + data_pad
        z = sums.as_words([*data.tolist(), masked[0], 1, *masked[1:]])
        same(recorded["body"], sums.body(z + masks))
    return header


def check_failed_upload(
    k: Known,
    context: bytes,
    recorded: dict[str, Any],
    keys: dict[int, bytes],
    masks: sums.Words,
) -> None:
    """A failed member's data and data tags are random: what it masked is read from its body."""
    assert recorded["residues"] is None
    z = (sums.read_body(unhex(recorded["body"])) - masks).tolist()
    failed, constant, *tags = z[-sums.EXTRA :]
    assert constant == 1
    assert recorded["masked_residues"] == [failed, *tags]
    assert all(r < p for r, p in zip([failed, *tags], sums.PRIMES, strict=True))
    # Masks of residues have opposite signs for the two of a pair, so this removes them.
    unmasked = [failed, *tags]
    for other, key in keys.items():
        sign_of_pair = -1 if other > recorded["rank"] else 1
        mask = sums.residues_of(sums.tag_mask_key(key))
        unmasked = sums.add_residues(unmasked, mask, sign_of_pair)
    assert unmasked[0] != 0
    assert unmasked[9:] == sums.all_residues(k.group, context, [], unmasked[0])[9:]


def check_outcome(
    k: Known, v: dict[str, Any], task: Message, context: bytes, survivors: list[int]
) -> Message:
    """Proposal, certifications and the certificate."""
    epoch = k.epoch
    assert v["survivors"] == survivors
    proposal = {
        "epoch_id": epoch.id,
        "slot": task["slot"],
        "context": context,
        "active": task["active"],
        "survivors": survivors,
    }
    same_message(v["proposal"], "Proposal", proposal)
    signatures = []
    for rank, recorded in zip(survivors, v["certifications"], strict=True):
        signature = sign(k.secrets[rank], "certify", *sums.certify_parts(epoch, proposal))
        certification = {"epoch_id": epoch.id, "slot": task["slot"], "rank": rank}
        same_message(recorded, "Certification", certification | {"signature": signature})
        signatures.append(signature)
    certificate = proposal | {
        "signers": survivors[: epoch.quorum],
        "signatures": signatures[: epoch.quorum],
    }
    sums.check_certificate(epoch, same_message(v["certificate"], "Certificate", certificate))
    return certificate


def check_reveals(
    k: Known,
    v: dict[str, Any],
    uploads: dict[int, Message],
    certificate: Message,
    pair_keys: dict[tuple[int, int], bytes],
) -> tuple[dict[int, bytes], dict[tuple[int, int], bytes]]:
    """Self keys by rank, revealed or repaired, and the pair keys of those that dropped out."""
    named = {field: certificate[field] for field in ("epoch_id", "slot", "context")}
    drawn = {upload["rank"]: unhex(upload["self_key"]) for upload in v["uploads"]}
    dropped = [rank for rank in certificate["active"] if rank not in uploads]
    self_keys, revealed = {}, {}
    for recorded in v["reveals"]:
        rank = decode("Reveal", unhex(recorded))["rank"]
        owed = [pair_keys[min(rank, d), max(rank, d)] for d in dropped]
        reveal = {"rank": rank, "self_key": drawn[rank], "dropped": dropped, "pair_keys": owed}
        sums.check_reveal(uploads, same_message(recorded, "Reveal", named | reveal))
        self_keys[rank] = reveal["self_key"]
        revealed |= {(rank, d): key for d, key in zip(dropped, owed, strict=True)}
    assert list(self_keys) == sorted(self_keys)
    silent = [rank for rank in certificate["survivors"] if rank not in self_keys]
    if not silent:
        assert v["repairs"] == []
        return self_keys, revealed
    assert [repair["rank"] for repair in v["repairs"]] == list(self_keys)
    returned: dict[int, dict[int, bytes]] = {dealer: {} for dealer in silent}
    for recorded in v["repairs"]:
        rank = recorded["rank"]
        places = [(uploads[dealer], uploads[dealer]["receivers"].index(rank)) for dealer in silent]
        request = named | {
            "silent": silent,
            "sealed_shares": [upload["sealed_shares"][at] for upload, at in places],
            "share_hashes": [upload["share_hashes"][at] for upload, at in places],
        }
        same_message(recorded["request"], "RepairRequest", request)
        shares = [
            sums.open_share(
                k.pair(rank, dealer)[1], named["context"], dealer, rank, sealed, declared
            )
            for dealer, sealed, declared in zip(
                silent, request["sealed_shares"], request["share_hashes"], strict=True
            )
        ]
        repair = named | {"silent": silent, "shares": shares, "unreadable": []}
        repair = k.sign(rank, "Repair", "repair", repair)
        sums.check_repair(k.epoch, uploads, same_message(recorded["repair"], "Repair", repair))
        for dealer, share in zip(silent, shares, strict=True):
            returned[dealer][rank] = share
    for dealer, shares_by_rank in returned.items():
        assert len(shares_by_rank) >= k.epoch.quorum
        self_keys[dealer] = combine(shares_by_rank)
        assert self_keys[dealer] == drawn[dealer]
    return self_keys, revealed


# --- a model ---------------------------------------------------------------------------------


def check_model(v: dict[str, Any], k: Known) -> None:
    epoch, model = k.epoch, v["model"]
    context, last = unhex(model["context"]), v["slots"][-1]
    assert model["context"] == last["context"]
    parameters = json.loads(decode("Task", unhex(last["task"]))["parameters"])
    same(model["program_digest"], sha256(model["program"].encode()))
    assert parameters["program"] == model["program_digest"]
    assert parameters["parent"] == model["parent"]
    salt = models.model_salt(k.group, context)
    same(model["salt"], salt)
    statement = models.statement(
        epoch,
        k.group,
        program=model["program"],
        parent=model["parent"],
        data=unhex(model["data"]),
        final_state=unhex(model["final_state"]),
        context=context,
    )
    same_message(model["statement"], "ModelStatement", statement)
    results = unhex(model["results"])
    assert canonical(json.loads(results)) == results
    parts = models.statement_parts(statement)
    shown = bytes(32) if epoch.terms["members_only"] else salt
    endorsers = list(range(epoch.size - len(model["endorsements"]), epoch.size))
    signatures = []
    for rank, recorded in zip(endorsers, model["endorsements"], strict=True):
        first = sign(k.secrets[rank], "model", *parts)
        second = sign(k.secrets[rank], "results", *parts, results)
        endorsement = {
            "epoch_id": epoch.id,
            "rank": rank,
            "statement": statement,
            "salt": shown,
            "results": results,
            "signature": first,
            "results_signature": second,
        }
        same_message(recorded, "Endorsement", endorsement)
        signatures.append((first, second))
    certificate = {
        "statement": statement,
        "salt": shown,
        "results": results,
        "signers": [epoch.members[rank] for rank in endorsers],
        "signatures": [first for first, _ in signatures],
        "results_signatures": [second for _, second in signatures],
    }
    same_message(model["certificate"], "ModelCertificate", certificate)
    certificate |= {"salt": salt}
    same_message(model["certificate_with_salt"], "ModelCertificate", certificate)
    m = epoch.terms["max_colluders"]
    models.verify_certificate(certificate, unhex(model["data"]), epoch.members, m)
    assert ("archive" in model) == epoch.terms["members_only"]
    if "archive" in model:
        check_archive(v, k, endorsers[0])


def check_archive(v: dict[str, Any], k: Known, sender: int) -> None:
    epoch, model = k.epoch, v["model"]
    content, sealed = unhex(model["content"]), unhex(model["sealed"])
    most = dict.fromkeys(("certificate", "card", "model"), 2**20)
    described, parts = read_frame(content, most_head=1000, most=most)
    assert (described, list(parts)) == ({}, list(most))
    same(model["content"], write_frame({}, list(parts.items())))
    same(model["certificate_with_salt"], parts["certificate"])
    same(model["data"], parts["model"])
    card = json.loads(parts["card"])
    assert canonical(card) == parts["card"]
    assert card["salt"] == model["salt"]
    recorded = decode("Archive", unhex(model["archive"]))
    archive = {
        "session": epoch.terms["session"],
        "run": epoch.run,
        "model": decode("ModelStatement", unhex(model["statement"]))["model"],
        "receivers": epoch.members,
        "boxes": recorded["boxes"],  # HPKE has sealed them
        "content_hash": sha256(sealed),
        "identity": epoch.members[sender],
    }
    archive = signed_message(k.secrets[sender], "Archive", "archive", archive)
    same_message(model["archive"], "Archive", archive)
    for member in v["members"]:
        own = (unhex(member["identity"]), unhex(member["archive_secret"]))
        assert models.open_archive(*own, unhex(model["archive"]), sealed) == content
        key = models.archive_key(*own, unhex(model["archive"]), sealed)
        same(model["sealed"], gcm_seal(key, padded(content)))


# --- what must be refused --------------------------------------------------------------------


def slot_of(case: dict[str, Any]) -> dict[str, Any]:
    return EPOCHS[case["epoch"]]["slots"][case["slot"]]


def headers_of(case: dict[str, Any]) -> dict[int, Message]:
    headers = [decode("Upload", unhex(upload["header"])) for upload in slot_of(case)["uploads"]]
    return {header["rank"]: header for header in headers}


def refuse_task(case: dict[str, Any]) -> None:
    k, slot = known(case["epoch"]), slot_of(case)
    state, encoding_digest = unhex(slot["state"]), unhex(slot["encoding_digest"])
    task = decode("Task", unhex(case["bytes"]))
    sums.check_task(k.epoch, k.group, case["rank"], task, state, encoding_digest)


def refuse_witnesses(case: dict[str, Any]) -> None:
    k, slot = known(case["epoch"]), slot_of(case)
    task, witnesses = decode("Task", unhex(slot["task"])), decode("Witnesses", unhex(case["bytes"]))
    sums.check_witnesses(k.epoch, case["rank"], task, unhex(slot["context"]), witnesses)


def refuse_share(case: dict[str, Any]) -> None:
    k, context = known(case["epoch"]), unhex(slot_of(case)["context"])
    ranks = (case["dealer"], case["receiver"])
    channel = k.pair(*ranks)[1]
    sums.open_share(channel, context, *ranks, unhex(case["sealed"]), unhex(case["hash"]))


def refuse_model(case: dict[str, Any]) -> None:
    certificate = decode("ModelCertificate", unhex(case["bytes"]))
    pinned = {unhex(key) for key in case["pinned"]}
    models.verify_certificate(certificate, unhex(case["data"]), pinned, case["max_colluders"])


def refuse_archive(case: dict[str, Any]) -> None:
    member = EPOCHS[case["epoch"]]["members"][case["rank"]]
    own = (unhex(member["identity"]), unhex(member["archive_secret"]))
    models.open_archive(*own, unhex(case["archive"]), unhex(case["sealed"]))


CHECKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "decode": lambda c: decode(c["message"], unhex(c["bytes"])),
    "key": lambda c: check_identity(unhex(c["bytes"])),
    "advert": lambda c: check_advert(known(c["epoch"]).epoch, decode("Advert", unhex(c["bytes"]))),
    "delivery": lambda c: open_delivery(
        known(c["epoch"]).epoch, 0, known(c["epoch"]).kem_secrets[0], unhex(c["delivery"])
    ),
    "task": refuse_task,
    "witnesses": refuse_witnesses,
    "certificate": lambda c: sums.check_certificate(
        known(c["epoch"]).epoch, decode("Certificate", unhex(c["bytes"]))
    ),
    "abandon_proof": lambda c: sums.check_abandon_proof(
        known(c["epoch"]).epoch, decode("AbandonProof", unhex(c["bytes"]))
    ),
    "reveal": lambda c: sums.check_reveal(headers_of(c), decode("Reveal", unhex(c["bytes"]))),
    "share": refuse_share,
    "repair": lambda c: sums.check_repair(
        known(c["epoch"]).epoch, headers_of(c), decode("Repair", unhex(c["bytes"]))
    ),
    "combine": lambda c: combine({int(r): unhex(share) for r, share in c["shares"].items()}),
    "total": lambda c: verified(known(c["epoch"]), slot_of(c), unhex(c["total"]), unhex(c["body"])),
    "sealed_state": lambda c: sums.open_state(
        known(c["epoch"]).epoch, known(c["epoch"]).group, unhex(c["header"]), unhex(c["box"])
    ),
    "model_certificate": refuse_model,
    "archive": refuse_archive,
    "frame": lambda c: read_frame(
        unhex(c["bytes"]), most_head=1000, most={"message": 10, "delivery": 10}
    ),
}


# Checks whose whole input is signed, sealed or tagged.
FLIPPED = ["advert", "delivery", "certificate", "abandon_proof", "share", "repair", "total"]
FLIPPED += ["sealed_state", "model_certificate", "archive"]


def refusal(function: Callable[..., Any], *arguments: Any) -> str | None:
    """The code with which this is refused, or None."""
    try:
        function(*arguments)
    except Refused as refused:
        return refused.code
    return None


# --- the tests -------------------------------------------------------------------------------


def check_everything(v: dict[str, Any], *, but: Callable[[str], bool] = lambda _: False) -> None:
    """All values of the file; leaves out the epochs of which `but` says so."""
    assert v["protocol"] == 2
    check_request(v["request"])
    check_frame(v["frame"])
    check_consent(v["consent"])
    for each in v["encodings"]:
        check_encoding(each)
    for epoch in v["epochs"]:
        if not but(epoch["name"]):
            check_whole_epoch(epoch)


def check_whole_epoch(v: dict[str, Any]) -> None:
    check_epoch(v)
    k = known_epoch(v)
    check_slots(v, k)
    if "model" in v:
        check_model(v, k)


def test_the_values_at_the_top() -> None:
    check_everything(VECTORS, but=lambda _: True)
    assert [epoch["name"] for epoch in VECTORS["epochs"]] == ["three", "five", "dropout", "failure"]


@pytest.mark.parametrize("name", EPOCHS)
def test_an_epoch_with_its_sums_and_its_model(name: str) -> None:
    check_whole_epoch(EPOCHS[name])


@pytest.mark.parametrize(
    "case", VECTORS["refused"], ids=[f"{c['check']}: {c['what']}" for c in VECTORS["refused"]]
)
def test_what_must_be_refused(case: dict[str, Any]) -> None:
    assert refusal(CHECKS[case["check"]], case) == case["code"]


def accepted() -> list[tuple[dict[str, Any], str]]:
    """For each check something that it accepts, and the input of it that is changed below."""
    three, five = EPOCHS["three"], EPOCHS["five"]
    first, second = three["slots"]
    repaired = decode("RepairRequest", unhex(second["repairs"][0]["request"]))
    headers = [decode("Upload", unhex(u["header"])) for u in five["slots"][1]["uploads"]]
    witnesses = encode("Witnesses", {"uploads": headers[:2]}).hex()
    pinned = [member["identity"] for member in five["members"]]
    model = five["model"]
    in_three, in_five = {"epoch": "three", "slot": 1}, {"epoch": "five", "slot": 1}
    cases = [
        ("decode", {"message": "Terms", "bytes": three["terms_encoded"]}, "bytes"),
        ("key", {"bytes": three["members"][0]["identity"]}, "bytes"),
        ("advert", in_three | {"bytes": three["members"][1]["advert"]}, "bytes"),
        ("delivery", in_three | {"delivery": three["delivery"]}, "delivery"),
        ("task", in_three | {"rank": 2, "bytes": second["task"]}, "bytes"),
        ("witnesses", in_five | {"rank": 4, "bytes": witnesses}, "bytes"),
        ("certificate", in_three | {"bytes": second["certificate"]}, "bytes"),
        ("abandon_proof", in_five | {"bytes": five["slots"][0]["abandon_proof"]}, "bytes"),
        ("reveal", in_three | {"bytes": second["reveals"][0]}, "bytes"),
        (
            "share",
            in_three
            | {"dealer": 2, "receiver": 0}
            | {"sealed": repaired["sealed_shares"][0].hex()}
            | {"hash": repaired["share_hashes"][0].hex()},
            "sealed",
        ),
        ("repair", in_three | {"bytes": second["repairs"][0]["repair"]}, "bytes"),
        ("combine", {"shares": second["uploads"][2]["shares"]}, "shares"),
        ("total", in_three | {"total": second["total"], "body": second["total_body"]}, "body"),
        (
            "sealed_state",
            in_three | {field: first["sealed_state"][field] for field in ("header", "box")},
            "box",
        ),
        (
            "model_certificate",
            {"bytes": model["certificate_with_salt"], "data": model["data"]}
            | {"pinned": pinned, "max_colluders": 1},
            "bytes",
        ),
        (
            "archive",
            in_five | {"rank": 0, "archive": model["archive"], "sealed": model["sealed"]},
            "sealed",
        ),
        ("frame", {"bytes": VECTORS["frame"]["encoded"]}, "bytes"),
    ]
    return [({"check": check} | case, field) for check, case, field in cases]


@pytest.mark.parametrize(("case", "field"), accepted(), ids=list(CHECKS))
def test_each_check_accepts_what_is_right_and_not_one_byte_less(
    case: dict[str, Any], field: str
) -> None:
    CHECKS[case["check"]](case)
    if case["check"] not in ("key", "combine"):
        assert refusal(CHECKS[case["check"]], case | {field: case[field][:-2]}) is not None


@pytest.mark.parametrize(
    ("case", "field"), [(c, f) for c, f in accepted() if c["check"] in FLIPPED], ids=FLIPPED
)
def test_one_changed_bit_of_a_signed_or_sealed_input_is_refused(
    case: dict[str, Any], field: str
) -> None:
    data = unhex(case[field])
    for at in range(0, len(data), max(1, len(data) // 10)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert refusal(CHECKS[case["check"]], case | {field: flipped.hex()}) is not None, at


def test_every_kind_of_message_is_known() -> None:
    assert sorted(KINDS.values()) == list(range(1, 31))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all single values."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path


def changed(value: Any) -> Any:
    """Another value of the same kind: one bit, one digit or one letter differs."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if value is None:
        return "00"
    if value == "":
        return "00"
    return value[:-1] + ("1" if value[-1] != "1" else "2")


def with_change(vectors: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    result = copy.deepcopy(vectors)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = changed(place[path[-1]])
    return result


def notices(check: Callable[[dict[str, Any]], None], vectors: dict[str, Any]) -> bool:
    """Whether the check fails, in whatever way."""
    try:
        check(vectors)
    except Exception:  # noqa: BLE001
        return True
    return False


def is_free(v: dict[str, Any], path: tuple[Any, ...]) -> bool:
    """Whether nothing follows from this value: an epoch's name, a vector that is not sent."""
    if "vectors" in path:
        return path[3] not in [upload["rank"] for upload in v["slots"][path[1]]["uploads"]]
    return path == ("name",)


def test_one_changed_value_is_noticed() -> None:
    """A sample; all 2,200 were tried once, and those that went unnoticed are free."""
    chosen = random.Random(2)
    for v in (EPOCHS["three"], EPOCHS["dropout"]):
        for path in chosen.sample([path for path in leaves(v) if not is_free(v, path)], 6):
            assert notices(check_whole_epoch, with_change(v, path)), path
    top = {key: VECTORS[key] for key in ("protocol", "request", "frame", "consent", "encodings")}
    for path in chosen.sample(list(leaves(top)), 20):
        assert notices(check_everything, with_change(top | {"epochs": []}, path)), path


def test_the_values_of_section_18() -> None:
    zero = bytes(32)
    ranks = (u16(0), u16(1))
    seed = mix(bytes(64), "pair", zero, *ranks)
    pair_key = sums.pair_key(seed, zero)
    secret = bytes(range(32))
    terms = {
        "session": bytes(16),
        "max_colluders": 1,
        "min_cohort": 5,
        "differential_privacy": False,
        "blind": False,
        "members_only": False,
    }
    commitments, group = group_key(zero, [bytes([i]) * 32 for i in range(3)])
    task = {
        "epoch_id": zero,
        "slot": 0,
        "statistic": "moments/1",
        "parameters": b"{}",
        "state": zero,
        "encoding": zero,
        "length": 3,
        "active": list(range(5)),
        "proof": b"",
        "applied": [],
        "authors": [],
        "authored": [],
    }
    rows = encoding.Block("rows", (), 1e6, 1.0, None, 1.0, symmetric=False)
    computed = [
        digest("advert", b"ab", b"c").hex(),
        seed.hex(),
        derive(seed, "channel", zero, *ranks).hex(),
        pair_key.hex(),
        sums.mask_key(pair_key).hex(),
        " ".join(map(str, sums.residues_of(sums.tag_mask_key(pair_key))[:3])),
        sums.self_commitment(zero, 3, zero).hex(),
        prg(zero, 24).hex(),
        " ".join(map(str, sums.row_tags(zero, [1, -1, 2**60 - 1, 1], sums.DATA_PRIMES))),
        " ".join(map(str, sums.row_tags(zero, [7, 1], sums.FAILED_PRIMES))),
        identity(secret).hex(),
        fingerprint(identity(secret)),
        sign(secret, "abandon", bytes(16), bytes(16), zero, bytes(4)).hex(),
        encode("Terms", terms).hex(),
        group_commitment(zero, 1, b"\x01" * 32).hex(),
        commitments.hex(),
        group.hex(),
        sums.context(zero, task).hex(),
        encoding.canonical_bytes([rows], 5, [encoding.scale(rows, 5)], []).hex(),
    ]
    text = (HERE.parents[1] / "docs" / "protocol.md").read_text()
    table = text.partition("## 18. ")[2].partition("## 19. ")[0]
    cells = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| ")][2:]
    assert [cell.rstrip(" |").strip('`"') for cell in cells] == computed


def test_nothing_of_the_first_implementation_is_imported() -> None:
    allowed = {*sys.stdlib_module_names, "cryptography", "numpy", "pytest"}
    for path in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                beside = node.level == 1 and (node.module or "").count(".") == 0
                assert beside or (node.level == 0 and node.module.partition(".")[0] in allowed)
