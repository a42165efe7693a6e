"""Terms, roster, adverts, boxes and the keys of an epoch: section 7 of docs/protocol.md."""

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag

from .crypto import derive, digest, frame, hpke_open, mix, signed
from .wire import VERSION, Message, Refused, decode, encode, fields, require, u16, u32

SEED_BYTES = 32


def quorum(members: int, colluders: int) -> int:
    """Signers that an outcome needs, and the threshold of sharing."""
    return (members + colluders) // 2 + 1


def roster_digest(roster: dict[str, bytes]) -> bytes:
    """The digest of names and keys, in ascending order of key."""
    ordered = sorted(roster.items(), key=lambda entry: entry[1])
    return digest("roster", *(part for name, key in ordered for part in (name.encode(), key)))


@dataclass(frozen=True)
class Epoch:
    """What all members of an epoch hash alike."""

    terms: Message
    run: bytes
    number: int
    roster: dict[str, bytes]
    adverts: list[Message]  # in ascending order of identity

    @property
    def members(self) -> list[bytes]:
        """Identities by rank."""
        return [advert["identity"] for advert in self.adverts]

    @property
    def size(self) -> int:
        """How many members there are: n."""
        return len(self.adverts)

    @property
    def quorum(self) -> int:
        """Signers that an outcome needs: q."""
        return quorum(self.size, self.terms["max_colluders"])

    @property
    def least_active(self) -> int:
        """Members that a sum needs."""
        return max(self.quorum, self.terms["min_cohort"])

    @property
    def id(self) -> bytes:
        """The identifier of the epoch."""
        return digest(
            "epoch",
            bytes([VERSION]),
            encode("Terms", self.terms),
            self.run,
            u32(self.number),
            roster_digest(self.roster),
            encode("Adverts", {"adverts": self.adverts}),
        )


def check_advert(epoch: Epoch, advert: Message) -> None:
    """Of the checks of Adverts those that are about one advert."""
    named = (advert["session"], advert["run"], advert["number"])
    own = (epoch.terms["session"], epoch.run, epoch.number)
    require(named == own, "epoch.other_advert")
    require(advert["identity"] in epoch.roster.values(), "epoch.not_on_roster")
    covered = fields("Advert", advert, before="signature")
    valid = signed(advert["identity"], advert["signature"], "advert", covered)
    require(valid, "epoch.forged_advert")


# --- boxes -----------------------------------------------------------------------------------


def seal_info(epoch: Epoch, sender: int, receiver: int) -> bytes:
    """HPKE's `info` of a box."""
    return frame("seal", epoch.id, epoch.members[sender], epoch.members[receiver])


def box_parts(epoch_id: bytes, box: Message) -> tuple[bytes, ...]:
    """What the signature of a box covers."""
    hashed = digest("box-hash", box["sealed"])
    return epoch_id, u16(box["sender"]), u16(box["receiver"]), hashed, box["commitment"]


def group_commitment(epoch_id: bytes, rank: int, part: bytes) -> bytes:
    """The commitment c_i to a part g_i of the group key."""
    return digest("group-commitment", epoch_id, u16(rank), part)


def open_delivery(
    epoch: Epoch, rank: int, kem_secret: bytes, delivery: bytes
) -> dict[int, tuple[bytes, bytes]]:
    """Seed and part of the group key from each other member, as rank `rank` reads them."""
    message = decode("Delivery", delivery)
    require(message["epoch_id"] == epoch.id, "epoch.unknown")
    boxes = message["boxes"]
    expected = [(sender, rank) for sender in range(epoch.size) if sender != rank]
    addressed = [(box["sender"], box["receiver"]) for box in boxes]
    require(message["receiver"] == rank and addressed == expected, "epoch.missing_box")
    for box in boxes:
        parts = box_parts(epoch.id, box)
        valid = signed(epoch.members[box["sender"]], box["signature"], "box", *parts)
        require(valid, "epoch.forged_box")
    opened = {}
    for box in boxes:
        try:
            content = hpke_open(
                kem_secret, box["sealed"], seal_info(epoch, box["sender"], box["receiver"])
            )
        except InvalidTag as error:
            raise Refused("epoch.unreadable_box") from error
        opened[box["sender"]] = (content[:SEED_BYTES], content[SEED_BYTES:])
    for box in boxes:
        part = opened[box["sender"]][1]
        commitment = group_commitment(epoch.id, box["sender"], part)
        require(commitment == box["commitment"], "epoch.group_part")
    return opened


# --- keys ------------------------------------------------------------------------------------


def pair_secrets(epoch_id: bytes, a: int, b: int, s_ab: bytes, s_ba: bytes) -> tuple[bytes, bytes]:
    """Pair seed and channel key of the ranks a < b."""
    seed = mix(s_ab + s_ba, "pair", epoch_id, u16(a), u16(b))
    return seed, derive(seed, "channel", epoch_id, u16(a), u16(b))


def group_key(epoch_id: bytes, parts: list[bytes]) -> tuple[bytes, bytes]:
    """The hash of all commitments, and the group key, of the parts by rank."""
    each = [group_commitment(epoch_id, rank, part) for rank, part in enumerate(parts)]
    commitments = digest("group-commitments", *each)
    return commitments, mix(b"".join(parts), "group", epoch_id, commitments)
