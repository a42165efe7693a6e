"""One sum, open or blind: sections 8, 10, 14 and 16 of docs/protocol.md."""

import hmac
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .crypto import derive, digest, gcm_open, gcm_seal, prg, sha256, signed, unpadded
from .epoch import Epoch
from .wire import Message, Refused, decode, encode_ranks, fields, require, u16, u32

Words = NDArray[np.uint64]

P = 2**31 - 1
P_OTHER = 2**31 - 19
DATA_PRIMES = [P] * 4 + [P_OTHER] * 4
FAILED_PRIMES = [P] * 8
PRIMES = [P, *DATA_PRIMES, *FAILED_PRIMES]  # of `failed`, its data's tags, its own tags
EXTRA = 1 + len(PRIMES)  # elements beside the data: the constant and the residues
BOUND = 2**60


# --- the task --------------------------------------------------------------------------------


def position_digest(stage: int, sum_index: int, stored: bytes) -> bytes:
    """The digest of a position."""
    numbers = stage.to_bytes(8, "big") + sum_index.to_bytes(8, "big")
    return sha256(b"veilgp/position/1" + numbers + stored)


def state_value(group: bytes, epoch_id: bytes, slot: int, state: bytes, encoding: bytes) -> bytes:
    """The keyed value by which a blind task names a state and its encoding."""
    key = derive(group, "state-value", epoch_id, u32(slot))
    return hmac.digest(key, state + encoding, "sha256")


def context(commitments: bytes, task: Message) -> bytes:
    """The context of a sum: all fields of its task but the proof."""
    whole = fields("Task", task)
    before = fields("Task", task, before="proof")
    proof = len(task["proof"]) + 8
    return digest("context", commitments, before + whole[len(before) + proof :])


def check_author(epoch: Epoch, task: Message) -> None:
    """A blind task has an author who has signed its draft; an open one has none."""
    if not epoch.terms["blind"]:
        require(not task["authors"], "task.author")
        return
    require(bool(task["authors"]), "task.author")
    author = task["authors"][0]
    require(author < epoch.size, "task.unknown_rank")
    draft = fields("Draft", task | {"rank": author}, before="signature")
    require(signed(epoch.members[author], task["authored"][0], "draft", draft), "task.author")


def check_task(
    epoch: Epoch, group: bytes, rank: int, task: Message, state: bytes, encoding: bytes
) -> None:
    """Of the checks of a task: author, state, active ranks."""
    check_author(epoch, task)
    if epoch.terms["blind"]:
        state = state_value(group, epoch.id, task["slot"], state, encoding)
    require(task["state"] == state, "task.state")
    require(all(active < epoch.size for active in task["active"]), "task.unknown_rank")
    require(rank in task["active"], "task.not_active")
    require(len(task["active"]) >= epoch.least_active, "task.too_few")


def check_witnesses(
    epoch: Epoch, rank: int, task: Message, task_context: bytes, witnesses: Message
) -> None:
    """Enough others have uploaded under exactly this task."""
    named = (epoch.id, task["slot"], task_context)
    vouching = {
        upload["rank"]
        for upload in witnesses["uploads"]
        if upload["rank"] != rank
        and upload["rank"] in task["active"]
        and (upload["epoch_id"], upload["slot"], upload["context"]) == named
        and signed_by_member(epoch, "Upload", "upload", upload)
    }
    require(len(vouching) > epoch.terms["max_colluders"], "task.witnesses")


def signed_by_member(epoch: Epoch, name: str, label: str, message: Message) -> bool:
    """Whether the member of the message's rank has signed the fields before `signature`."""
    covered = fields(name, message, before="signature")
    known = message["rank"] < epoch.size
    return known and signed(epoch.members[message["rank"]], message["signature"], label, covered)


# --- masks -----------------------------------------------------------------------------------


def words(key: bytes, count: int) -> Words:
    """The first integers modulo 2⁶⁴ of the mask generator."""
    return np.frombuffer(prg(key, 8 * count), "<u8").astype(np.uint64)


def residues_of(key: bytes) -> list[int]:
    """The 17 residues of the mask generator: M_ij of a pair, or the pad B'."""
    stream = prg(key, 16 * len(PRIMES))
    numbers = (int.from_bytes(stream[16 * n : 16 * n + 16], "little") for n in range(len(PRIMES)))
    return [number % prime for number, prime in zip(numbers, PRIMES, strict=True)]


def add_residues(left: Sequence[int], right: Sequence[int], sign: int = 1) -> list[int]:
    """The sum or difference of residues, each modulo its prime."""
    return [(a + sign * b) % p for a, b, p in zip(left, right, PRIMES, strict=True)]


def row_tags(key: bytes, values: Sequence[int], primes: Sequence[int]) -> list[int]:
    """Eight tags of the values, of which the last is the constant."""
    stream = np.frombuffer(prg(key, 32 * len(values)), "<u4")
    r = (stream & 0x7FFFFFFF).reshape(len(values), 8).tolist()
    return [
        sum(r[e][k] * value for e, value in enumerate(values)) % prime
        for k, prime in enumerate(primes)
    ]


def all_residues(
    group: bytes, task_context: bytes, data: Sequence[int], failed: int, constant: int = 1
) -> list[int]:
    """`failed`, the data's tags and the tags of `failed`."""
    of_data = row_tags(derive(group, "tag", task_context), [*data, constant], DATA_PRIMES)
    failed_key = derive(group, "failed-tag", task_context)
    return [failed, *of_data, *row_tags(failed_key, [failed, constant], FAILED_PRIMES)]


def pair_key(seed: bytes, task_context: bytes) -> bytes:
    """The key p_ij of a pair and one sum."""
    return derive(seed, "pair-sum", task_context)


def mask_key(key: bytes) -> bytes:
    """The key q_ij of a pair's mask, of its pair key."""
    return derive(key, "pair-mask")


def tag_mask_key(key: bytes) -> bytes:
    """The key of a pair's masks of residues, of its pair key."""
    return derive(key, "tag-mask")


def pads(group: bytes, task_context: bytes, length: int) -> tuple[Words, list[int]]:
    """The pad of the data and of the residues of a blind sum."""
    data = words(derive(group, "blind", task_context), length)
    return data, residues_of(derive(group, "blind-tags", task_context))


def masked_residues(
    rank: int, residues: Sequence[int], pair_keys: Mapping[int, bytes], pad: Sequence[int] | None
) -> list[int]:
    """Residues as they enter z_i: with the pad, if this member adds it, and the pairs' masks."""
    result = list(residues) if pad is None else add_residues(residues, pad)
    for other, key in pair_keys.items():
        mask = residues_of(tag_mask_key(key))
        result = add_residues(result, mask, 1 if other > rank else -1)
    return result


def mask(rank: int, self_key: bytes, pair_keys: Mapping[int, bytes], count: int) -> Words:
    """What member i adds to z_i."""
    total = words(self_key, count)
    for other, key in pair_keys.items():
        pair = words(mask_key(key), count)
        total = total + pair if other > rank else total - pair
    return total


def as_words(values: Sequence[int]) -> Words:
    """Integers modulo 2⁶⁴."""
    return np.array([value % 2**64 for value in values], dtype=np.uint64)


def body(vector: Words) -> bytes:
    """A vector as it is sent."""
    return vector.astype("<u8").tobytes()


def read_body(data: bytes) -> Words:
    """A vector that was sent."""
    return np.frombuffer(data, "<u8").astype(np.uint64)


# --- shares ----------------------------------------------------------------------------------


def self_commitment(task_context: bytes, rank: int, self_key: bytes) -> bytes:
    """The commitment to a self key."""
    return digest("self-key-commitment", task_context, u16(rank), self_key)


def _share_key(channel: bytes, task_context: bytes, dealer: int, receiver: int) -> bytes:
    return derive(channel, "share", task_context, u16(dealer), u16(receiver))


def share_hash(task_context: bytes, dealer: int, receiver: int, share: bytes) -> bytes:
    """The hash of a share that its dealer declares."""
    return digest("share-hash", task_context, u16(dealer), u16(receiver), share)


def seal_share(
    channel: bytes, task_context: bytes, dealer: int, receiver: int, share: bytes
) -> bytes:
    """A share, sealed to its receiver."""
    return gcm_seal(_share_key(channel, task_context, dealer, receiver), share)


def open_share(
    channel: bytes, task_context: bytes, dealer: int, receiver: int, sealed: bytes, declared: bytes
) -> bytes:
    """A share that opens and has the declared hash."""
    share = gcm_open(_share_key(channel, task_context, dealer, receiver), sealed, "unreadable")
    require(share_hash(task_context, dealer, receiver, share) == declared, "unreadable")
    return share


def check_reveal(uploads: Mapping[int, Message], reveal: Message) -> None:
    """The self key opens the commitment in the Upload."""
    rank = reveal["rank"]
    opened = self_commitment(reveal["context"], rank, reveal["self_key"])
    require(opened == uploads[rank]["commitment"], "collection.self_key")


def check_repair(epoch: Epoch, uploads: Mapping[int, Message], repair: Message) -> None:
    """The returner has signed, and every share has the hash that its dealer declared."""
    require(signed_by_member(epoch, "Repair", "repair", repair), "collection.forged")
    rank = repair["rank"]
    for dealer, share in zip(repair["silent"], repair["shares"], strict=True):
        upload = uploads[dealer]
        declared = upload["share_hashes"][upload["receivers"].index(rank)]
        computed = share_hash(repair["context"], dealer, rank, share)
        require(computed == declared, "collection.share")


# --- outcomes --------------------------------------------------------------------------------


def certify_parts(epoch: Epoch, statement: Message) -> tuple[bytes, ...]:
    """What a certification covers; `statement` is a Proposal or a Certificate."""
    return (
        epoch.terms["session"],
        epoch.run,
        statement["epoch_id"],
        u32(statement["slot"]),
        statement["context"],
        encode_ranks(statement["active"]),
        encode_ranks(statement["survivors"]),
    )


def abandon_parts(epoch: Epoch, slot: int) -> tuple[bytes, ...]:
    """What an abandonment covers."""
    return epoch.terms["session"], epoch.run, epoch.id, u32(slot)


def check_certificate(epoch: Epoch, certificate: Message) -> None:
    """The checks that section 10 calls *Proof*."""
    active, survivors = certificate["active"], certificate["survivors"]
    signers = certificate["signers"]
    require(certificate["epoch_id"] == epoch.id, "certificate.different_task")
    ranks = {*active, *survivors, *signers}
    require(all(rank < epoch.size for rank in ranks), "task.unknown_rank")
    require(set(survivors) <= set(active), "certificate.unknown_survivor")
    require(len(signers) >= epoch.quorum, "certificate.too_few_signers")
    require(set(signers) <= set(survivors), "certificate.signer_outside")
    parts = certify_parts(epoch, certificate)
    for signer, signature in zip(signers, certificate["signatures"], strict=True):
        valid = signed(epoch.members[signer], signature, "certify", *parts)
        require(valid, "certificate.forged")


def check_abandon_proof(epoch: Epoch, proof: Message) -> None:
    """A quorum has given the slot up."""
    require(proof["epoch_id"] == epoch.id, "certificate.different_task")
    require(len(proof["signers"]) >= epoch.quorum, "certificate.too_few_signers")
    require(all(rank < epoch.size for rank in proof["signers"]), "certificate.signer_outside")
    parts = abandon_parts(epoch, proof["slot"])
    for signer, signature in zip(proof["signers"], proof["signatures"], strict=True):
        valid = signed(epoch.members[signer], signature, "abandon", *parts)
        require(valid, "certificate.forged")


# --- the total -------------------------------------------------------------------------------


def unmask(
    bodies: Mapping[int, bytes],
    self_keys: Mapping[int, bytes],
    revealed: Mapping[tuple[int, int], bytes],
) -> tuple[Words, list[int]]:
    """The coordinator's work: data and residues of the sum over those that uploaded.

    `revealed` has the pair key p_id by survivor i and dropped member d.
    """
    vectors = {rank: read_body(data) for rank, data in bodies.items()}
    count = len(next(iter(vectors.values())))
    total = np.zeros(count, dtype=np.uint64)
    for rank, vector in vectors.items():
        total = total + vector - words(self_keys[rank], count)
    for (survivor, dropped), key in revealed.items():
        pair = words(mask_key(key), count)
        total = total - pair if dropped > survivor else total + pair
    length = count - EXTRA
    numbers = total.tolist()
    require(numbers[length + 1] == len(bodies), "collection.inconsistent")
    residues = [numbers[length], *numbers[length + 2 :]]
    residues = [number % prime for number, prime in zip(residues, PRIMES, strict=True)]
    for (survivor, dropped), key in revealed.items():
        sign = -1 if dropped > survivor else 1
        residues = add_residues(residues, residues_of(tag_mask_key(key)), sign)
    return total[:length], residues


def total_residues(total: Message) -> list[int]:
    """The 17 residues in a Total."""
    tags = total["tags"]
    return [
        total["failed"],
        *(int.from_bytes(tags[at : at + 4], "big") for at in range(0, len(tags), 4)),
    ]


def verify_total(
    epoch: Epoch, group: bytes, length: int, certificate: Message, total: bytes, vector: bytes
) -> list[int]:
    """T, if it is the sum over the certified members; what is wrong with it is not said."""
    message = decode("Total", total)
    named = ("epoch_id", "slot", "context", "survivors")
    right = all(message[field] == certificate[field] for field in named)
    right &= message["failed"] < P and len(vector) == 8 * length
    require(right, "total.not_verified")
    residues, data = total_residues(message), read_body(vector)
    if epoch.terms["blind"]:
        data_pad, residue_pad = pads(group, certificate["context"], length)
        data, residues = data - data_pad, add_residues(residues, residue_pad, -1)
    else:
        residues = [residue % prime for residue, prime in zip(residues, PRIMES, strict=True)]
    values = data.view(np.int64).tolist()
    constant = len(certificate["survivors"])
    expected = all_residues(group, certificate["context"], values, residues[0], constant)
    failed_right = residues[9:] == expected[9:]
    data_right = residues[1:9] == expected[1:9] and all(abs(v) < BOUND for v in values)
    if failed_right and residues[0]:
        raise Refused("total.site_failed")
    require(failed_right and data_right, "total.not_verified")
    return values


# --- sealed states ---------------------------------------------------------------------------


def state_key(group: bytes, header: Message) -> bytes:
    """The key that seals a state."""
    parts = (header["epoch_id"], u32(header["slot"]), u16(header["rank"]), header["salt"])
    return derive(group, "state-key", *parts)


def open_state(epoch: Epoch, group: bytes, header: bytes, box: bytes) -> bytes:
    """The stored form of the author's state."""
    code = "task.sealed_state"
    message = decode("SealedState", header)
    require(message["epoch_id"] == epoch.id and message["rank"] < epoch.size, code)
    require(signed_by_member(epoch, "SealedState", "state-box", message), code)
    require(sha256(box) == message["box_hash"], code)
    return unpadded(gcm_open(state_key(group, message), box, code), code)
