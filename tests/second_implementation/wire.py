"""Messages as bytes: sections 4 and 5 of docs/protocol.md."""

import re
from itertools import pairwise
from typing import Any

Message = dict[str, Any]

VERSION = 2
MAX_MEMBERS = 200

# Kind, name and fields of each message, in the words of the document's table.
TABLE = """
1 Terms: session uuid, max_colluders u16, min_cohort u16, differential_privacy flag, blind flag,
    members_only flag
2 Opening: terms Terms, run uuid, number u32, seen keys
3 Advert: session uuid, run uuid, number u32, identity key, kem_key bytes:1216, archive_key
    bytes:1216, software text:200, signature signature
4 Adverts: adverts Advert*200
5 Box: sender rank, receiver rank, sealed bytes:1200, commitment digest, signature signature
6 Boxes: epoch_id digest, sender rank, boxes Box*200, signature signature
7 Delivery: epoch_id digest, receiver rank, boxes Box*200
8 Task: epoch_id digest, slot u32, statistic text:200, parameters blob:1048576, state digest,
    encoding digest, length u48, active ranks, proof blob:65536, applied SumName*1, authors ranks,
    authored signatures
9 Upload: epoch_id digest, slot u32, context digest, rank rank, commitment digest, receivers
    ranks, sealed_shares rows:82, share_hashes rows:32, signature signature
10 Proposal: epoch_id digest, slot u32, context digest, active ranks, survivors ranks
11 Certification: epoch_id digest, slot u32, rank rank, signature signature
12 Certificate: epoch_id digest, slot u32, context digest, active ranks, survivors ranks, signers
    ranks, signatures signatures
13 AbandonRequest: epoch_id digest, slot u32, proof blob:65536
14 Abandonment: epoch_id digest, slot u32, rank rank, signature signature
15 AbandonProof: epoch_id digest, slot u32, signers ranks, signatures signatures
16 Reveal: epoch_id digest, slot u32, context digest, rank rank, self_key bytes:32, dropped ranks,
    pair_keys rows:32
17 RepairRequest: epoch_id digest, slot u32, context digest, silent ranks, sealed_shares rows:82,
    share_hashes rows:32
18 Repair: epoch_id digest, slot u32, context digest, rank rank, silent ranks, shares rows:66,
    unreadable ranks, signature signature
19 Consent: session uuid, old keys, new keys, identity key, signature signature
20 Total: epoch_id digest, slot u32, context digest, survivors ranks, failed u32, tags bytes:64
21 Witnesses: uploads Upload*200
22 SumName: number u32, slot u32
23 AuthorRequest: epoch_id digest, slot u32, proof blob:65536
24 Draft: epoch_id digest, slot u32, statistic text:200, parameters blob:1048576, state digest,
    length u48, applied SumName*1, rank rank, signature signature
25 Objection: epoch_id digest, slot u32, context digest, rank rank, signature signature
26 SealedState: epoch_id digest, slot u32, rank rank, salt bytes:32, box_hash digest, signature
    signature
27 ModelStatement: session uuid, run uuid, epoch_id digest, members u16, max_colluders u16,
    program digest, roster digest, parent digest, model digest, state digest, context digest
28 Endorsement: epoch_id digest, rank rank, statement ModelStatement, salt bytes:32, results
    blob:1048576, signature signature, results_signature signature
29 ModelCertificate: statement ModelStatement, salt bytes:32, results blob:1048576, signers keys,
    signatures signatures, results_signatures signatures
30 Archive: session uuid, run uuid, model digest, receivers keys, boxes rows:1200, content_hash
    digest, identity key, signature signature
"""

ALIASES = {
    "uuid": "bytes:16",
    "digest": "bytes:32",
    "key": "bytes:32",
    "signature": "bytes:64",
    "keys": "rows:32",
    "signatures": "rows:64",
    "rank": "u16",
}

# Lists whose entries belong together, and lists of keys that ascend.
PARALLEL: dict[str, tuple[str, ...]] = {
    "Task": ("authors", "authored"),
    "Upload": ("receivers", "sealed_shares", "share_hashes"),
    "Certificate": ("signers", "signatures"),
    "AbandonProof": ("signers", "signatures"),
    "Reveal": ("dropped", "pair_keys"),
    "RepairRequest": ("silent", "sealed_shares", "share_hashes"),
    "Repair": ("silent", "shares"),
    "ModelCertificate": ("signers", "signatures", "results_signatures"),
    "Archive": ("receivers", "boxes"),
}
ASCENDING: dict[str, tuple[str, ...]] = {
    "Consent": ("old", "new"),
    "ModelCertificate": ("signers",),
    "Archive": ("receivers",),
}

KINDS: dict[str, int] = {}
LAYOUTS: dict[str, list[tuple[str, str]]] = {}  # field and type
for entry in re.split(r"\n(?=\d)", TABLE.strip()):
    head, _, listed = entry.partition(": ")
    number, title = head.split()
    KINDS[title] = int(number)
    pairs = (field.split() for field in listed.split(","))
    LAYOUTS[title] = [(field, ALIASES.get(kind, kind)) for field, kind in pairs]


class Refused(Exception):
    """Something that the protocol refuses, with the document's code."""

    def __init__(self, code: str, because: str = "") -> None:
        super().__init__(f"{code}: {because}" if because else code)
        self.code = code


def require(condition: bool, code: str, because: str = "") -> None:
    """Refuse with this code unless the condition holds."""
    if not condition:
        raise Refused(code, because)


def u16(value: int) -> bytes:
    """A rank, where it is hashed or signed."""
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """A slot or the number of an epoch, where it is hashed or signed."""
    return value.to_bytes(4, "big")


def encode_ranks(ranks: list[int]) -> bytes:
    """The type `ranks`, which signatures on survivors also cover."""
    return u16(len(ranks)) + b"".join(map(u16, ranks))


def _encode_value(kind: str, value: Any) -> bytes:
    name, _, size = kind.partition(":")
    if name == "flag":
        return bytes([value])
    if name == "bytes":
        assert len(value) == int(size)
        return value
    if name in ("blob", "text"):
        raw = value.encode() if name == "text" else value
        return len(raw).to_bytes(8, "big") + raw
    if name == "ranks":
        return encode_ranks(value)
    if name == "rows":
        return u16(len(value)) + b"".join(value)
    if name in KINDS:
        return fields(name, value)
    if "*" in name:
        inner = name.partition("*")[0]
        return u32(len(value)) + b"".join(fields(inner, each) for each in value)
    return value.to_bytes(int(name[1:]) // 8, "big")


def fields(name: str, message: Message, *, before: str | None = None) -> bytes:
    """The encoded fields without the header: all of them, or those before one of them."""
    parts = []
    for field, kind in LAYOUTS[name]:
        if field == before:
            break
        parts.append(_encode_value(kind, message[field]))
    return b"".join(parts)


def encode(name: str, message: Message) -> bytes:
    """A complete message with its header."""
    return bytes([VERSION, KINDS[name]]) + fields(name, message)


class _Reader:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        require(len(self.data) - self.at >= count, "securesum.truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def count(self, size: int, most: int) -> int:
        value = self.integer(size)
        require(value <= most, "securesum.field", f"{value} is more than {most}")
        return value


def _decode_value(reader: _Reader, kind: str) -> Any:
    name, _, size = kind.partition(":")
    if name == "flag":
        value = reader.integer(1)
        require(value <= 1, "securesum.field", "a flag is 0 or 1")
        return bool(value)
    if name == "bytes":
        return reader.take(int(size))
    if name == "blob":
        return reader.take(reader.count(8, int(size)))
    if name == "text":
        try:
            return reader.take(reader.count(8, int(size))).decode()
        except UnicodeDecodeError as error:
            raise Refused("securesum.field", "not UTF-8") from error
    if name == "ranks":
        ranks = [reader.integer(2) for _ in range(reader.count(2, MAX_MEMBERS))]
        require(all(r < MAX_MEMBERS for r in ranks), "securesum.field", "a rank of 200 or more")
        _require_ascending(ranks)
        return ranks
    if name == "rows":
        return [reader.take(int(size)) for _ in range(reader.count(2, MAX_MEMBERS))]
    if name in KINDS:
        return _decode_fields(reader, name)
    if "*" in name:
        inner, _, most = name.partition("*")
        return [_decode_fields(reader, inner) for _ in range(reader.count(4, int(most)))]
    return reader.integer(int(name[1:]) // 8)


def _decode_fields(reader: _Reader, name: str) -> Message:
    message = {field: _decode_value(reader, kind) for field, kind in LAYOUTS[name]}
    lengths = {len(message[field]) for field in PARALLEL.get(name, ())}
    require(len(lengths) <= 1, "securesum.field", "lists of different lengths")
    for field in ASCENDING.get(name, ()):
        _require_ascending(message[field])
    if name == "Adverts":
        _require_ascending([advert["identity"] for advert in message["adverts"]])
    if name == "Task":
        require(len(message["authors"]) <= 1, "securesum.field", "more than one author")
    if name == "ModelStatement":
        least = max(3, message["max_colluders"] + 2)
        require(message["members"] >= least, "securesum.field", "fewer members than an epoch has")
    if name == "Terms":
        check_terms(message)
    return message


def _require_ascending(values: list[Any]) -> None:
    require(all(a < b for a, b in pairwise(values)), "securesum.not_ascending")


def check_terms(terms: Message) -> None:
    """The constraints of section 2."""
    require(terms["min_cohort"] >= max(3, terms["max_colluders"] + 2), "terms.invalid")
    require(not (terms["blind"] and terms["differential_privacy"]), "terms.invalid")
    require(terms["blind"] or not terms["members_only"], "terms.invalid")


def decode(name: str, data: bytes) -> Message:
    """The fields of the message of this name, of which `data` is the one encoding."""
    reader = _Reader(data)
    require(reader.integer(1) == VERSION, "securesum.version")
    require(reader.integer(1) == KINDS[name], "securesum.kind")
    message = _decode_fields(reader, name)
    require(reader.at == len(data), "securesum.trailing")
    return message
