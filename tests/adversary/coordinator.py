"""A lying coordinator against hospitals that run the real client: no mocks, only messages.

`Attacker` controls the network and the session; `Lair` is one epoch and what the attacker knows
about it. Everything that a hospital sends is kept, members can be made to collude (`Lair.corrupt`),
and `Lair.unmask` removes every mask whose key is known: revealed, from a colluder, or recovered
from shares. Its result is the best that the attacker can do: a hospital's vector if the protocol
failed, noise if it did not.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privacy.errors import SharingError
from privacy.identity import Identity, Member, Pins, Randomness, Roster
from privacy.masks import apply_masks
from privacy.securesum.client import Client
from privacy.securesum.epoch import Epoch, PairSecrets, epoch_from
from privacy.securesum.group import commitments_hash
from privacy.securesum.masking import (
    EXTRA,
    check_commitment,
    mask_key,
    open_share,
    pair_key,
    share_point,
)
from privacy.securesum.messages import (
    UNNAMED,
    AbandonProof,
    AbandonRequest,
    Adverts,
    Boxes,
    Certificate,
    Certification,
    Delivery,
    Opening,
    Proposal,
    RepairRequest,
    Task,
    Upload,
)
from privacy.securesum.records import PairsSecrets, SlotSecrets, Step, UploadStep
from privacy.securesum.terms import Terms
from privacy.shamir import combine

LENGTH = 256
SOURCE = "table"
TABLE = bytes(32)
SESSION = b"session of test."
OTHER_SESSION = b"another session."
RUN = b"the only run yet"
OTHER_RUN = b"a run beside it."

Vector = NDArray[np.uint64]


def marker(number: int) -> Vector:
    """Return a hospital's secret: small numbers that identify it in any sum."""
    return np.arange(LENGTH, dtype="<u8") + np.uint64(1000 ** (number % 5 + 1) * (number + 2))


def is_noise(vector: Vector) -> bool:
    """Return whether bytes look uniform (χ², 255 degrees of freedom, six standard deviations)."""
    counts = np.bincount(vector.view(np.uint8), minlength=256)
    expected = vector.nbytes / 256
    return bool(np.sum((counts - expected) ** 2) / expected < 255 + 6 * 22.6)


@dataclass
class Hospital:
    """A member: the real client, and its disk, which survives a crash."""

    number: int
    identity: Identity
    random: Randomness
    records: list[bytes] = field(default_factory=list)
    vault: dict[str, bytes | memoryview] = field(default_factory=dict)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client, step = Client.begin(self.identity, self.random)
        self.does(step)

    @property
    def key(self) -> bytes:
        """The hospital's public key."""
        return self.identity.key

    @property
    def vector(self) -> Vector:
        """The vector that the attacker wants."""
        return marker(self.number)

    def does(self, step: Step[Any]) -> Any:
        """Make a step durable, then return its message."""
        self.records.extend(step.records)
        for name, content in step.vault.items():
            if content is None:
                self.vault.pop(name, None)
            else:
                self.vault[name] = content
        return step.message

    def crash(self) -> None:
        """Lose the machine's memory; continue from the disk."""
        self.client = Client.restore(self.identity, self.records, self.vault, self.random)


class Attacker:
    """A session of n hospitals with a malicious coordinator."""

    def __init__(
        self,
        n: int = 5,
        *,
        colluders: int = 1,
        least: int = 3,
        private: bool = False,
        told: Mapping[int, Terms] | None = None,
        seed: int = 0,
    ) -> None:
        self.random = random.Random(seed).randbytes
        identities = sorted((Identity.generate(self.random) for _ in range(n)), key=lambda i: i.key)
        self.hospitals = [Hospital(i, who, self.random) for i, who in enumerate(identities)]
        self.terms = Terms(SESSION, colluders, least, private)
        self.roster = roster_of(self.hospitals)
        self.pins = Pins({member.name: member.key for member in self.roster.members})
        for hospital in self.hospitals:
            hospital.does(hospital.client.join((told or {}).get(hospital.number, self.terms)))

    def join(self, terms: Terms) -> None:
        """Let every hospital's operator join another session."""
        for hospital in self.hospitals:
            hospital.does(hospital.client.join(terms))

    def opening(self, number: int = 0, run: bytes = RUN, terms: Terms | None = None) -> Opening:
        """Return the invitation to an epoch."""
        return Opening(terms or self.terms, run, number, ())

    def adverts(
        self, opening: Opening, hospitals: Iterable[Hospital], source: str = SOURCE
    ) -> Adverts:
        """Collect adverts, in order."""
        given = [h.does(h.client.advertise(opening, source)) for h in hospitals]
        return Adverts(tuple(sorted(given, key=lambda advert: advert.identity)))

    def lair(self, adverts: Adverts, terms: Terms | None = None) -> "Lair":
        """Return the epoch of a list of adverts; its hospitals have not agreed to it yet."""
        first = adverts.adverts[0]
        epoch = epoch_from(terms or self.terms, first.run, first.number, self.roster, adverts)
        known = {hospital.key: hospital for hospital in self.hospitals}
        members = {r: known[key] for r, key in enumerate(epoch.members) if key in known}
        return Lair(self, epoch, adverts, members)

    def open(
        self,
        members: Sequence[int] | None = None,
        *,
        number: int = 0,
        run: bytes = RUN,
        terms: Terms | None = None,
        source: str = SOURCE,
    ) -> "Lair":
        """Open an epoch as the protocol says, with all hospitals or some."""
        chosen = self.hospitals if members is None else [self.hospitals[i] for i in members]
        adverts = self.adverts(self.opening(number, run, terms), chosen, source)
        lair = self.lair(adverts, terms)
        for rank in lair.members:
            lair.agree(rank)
        for rank in lair.members:
            lair.deliver(rank)
        return lair

    def keys(self, members: Iterable[int]) -> list[bytes]:
        """Return the public keys of some hospitals."""
        return [self.hospitals[i].key for i in members]


@dataclass
class Lair:
    """One epoch, and everything that the attacker has learned in it."""

    attacker: Attacker
    epoch: Epoch
    adverts: Adverts
    members: dict[int, Hospital]
    boxes: dict[int, Boxes] = field(default_factory=dict)
    headers: dict[tuple[bytes, int], Upload] = field(default_factory=dict)
    bodies: dict[tuple[bytes, int], Vector] = field(default_factory=dict)
    self_keys: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    pair_keys: dict[tuple[bytes, int, int], bytes] = field(default_factory=dict)
    shares: dict[tuple[bytes, int], dict[int, bytes]] = field(default_factory=dict)
    corrupted: dict[int, dict[int, PairSecrets]] = field(default_factory=dict)

    @property
    def everyone(self) -> tuple[int, ...]:
        """All ranks."""
        return self.epoch.everyone

    # -- the epoch

    def agree(self, rank: int) -> Boxes:
        """Send a hospital the adverts, and return its boxes."""
        hospital, attacker = self.members[rank], self.attacker
        boxes = hospital.does(hospital.client.agree(self.adverts, attacker.roster, attacker.pins))
        self.boxes[rank] = boxes
        return boxes

    def delivery(self, rank: int) -> Delivery:
        """Return the boxes for one hospital."""
        boxes = [box for r in sorted(self.boxes) for box in self.boxes[r].boxes]
        return Delivery(
            self.epoch.epoch_id, rank, tuple(box for box in boxes if box.receiver == rank)
        )

    def deliver(self, rank: int, delivery: Delivery | None = None) -> None:
        """Send a hospital its boxes, or other ones."""
        hospital = self.members[rank]
        hospital.does(hospital.client.receive(delivery or self.delivery(rank)))

    def end(self) -> None:
        """Let every hospital end the epoch."""
        name = (self.epoch.terms.session, self.epoch.run, self.epoch.number)
        for hospital in self.members.values():
            hospital.does(hospital.client.end(name))

    # -- sums

    def task(self, slot: int = 0, **changes: Any) -> Task:
        """Return a task over everyone, with the given changes."""
        task = Task(
            epoch_id=self.epoch.epoch_id,
            slot=slot,
            statistic="moments",
            parameters=b"",
            state=UNNAMED,
            encoding=UNNAMED,
            length=LENGTH,
            active=self.everyone,
            proof=b"",
        )
        return replace(task, **changes)

    def context(self, task: Task) -> bytes:
        """Return the context that honest members derive for a task."""
        committed = [self.boxes[rank].boxes[0].commitment for rank in self.everyone]
        return task.context(commitments_hash(committed))

    def upload(self, task: Task, rank: int, **changes: Any) -> UploadStep:
        """Send one hospital a task, and keep what it uploads."""
        hospital = self.members[rank]
        private = self.epoch.terms.differential_privacy
        given: dict[str, Any] = {
            "vector": hospital.vector,
            "table": TABLE,
            "noise": self.attacker.random(16) if private else b"",
        }
        step = hospital.client.upload(task, **{**given, **changes})
        hospital.does(step)
        header = step.message
        self.headers[header.context, rank] = header
        self.bodies[header.context, rank] = np.frombuffer(step.body, dtype="<u8").copy()
        return step

    def uploads(self, task: Task, ranks: Iterable[int] | None = None) -> None:
        """Send several hospitals the same task."""
        for rank in task.active if ranks is None else ranks:
            self.upload(task, rank)

    def proposal(self, task: Task, survivors: Iterable[int] | None = None) -> Proposal:
        """Return a claim that these are the survivors."""
        claimed = task.active if survivors is None else tuple(sorted(survivors))
        return Proposal(self.epoch.epoch_id, task.slot, self.context(task), task.active, claimed)

    def certify(self, proposal: Proposal, rank: int) -> Certification:
        """Ask one hospital to sign a proposal."""
        hospital = self.members[rank]
        answer: Certification = hospital.does(hospital.client.certify(proposal))
        return answer

    def certificate(self, proposal: Proposal, signers: Iterable[int] | None = None) -> Certificate:
        """Collect signatures on a proposal, from a quorum by default."""
        chosen = proposal.survivors[: self.epoch.quorum] if signers is None else signers
        return certificate_of(proposal, [self.certify(proposal, rank) for rank in chosen])

    def reveal(self, certificate: Certificate, rank: int) -> None:
        """Send one hospital a certificate, and keep the keys that it reveals."""
        hospital = self.members[rank]
        reveal = hospital.does(hospital.client.reveal(certificate))
        self.self_keys[reveal.context, rank] = reveal.self_key
        for other, key in zip(reveal.dropped, reveal.pair_keys, strict=True):
            self._learn_pair(reveal.context, rank, other, key)

    def repair_request(self, task: Task, holder: int, silent: int) -> RepairRequest:
        """Return the request to `holder` to open its share of a member's self key."""
        header = self.headers[self.context(task), silent]
        place = header.receivers.index(holder)
        return RepairRequest(
            self.epoch.epoch_id,
            task.slot,
            self.context(task),
            (silent,),
            (header.sealed_shares[place],),
            (header.share_hashes[place],),
        )

    def repair(self, task: Task, holder: int, silent: int) -> None:
        """Ask `holder` to open its share, and keep it."""
        hospital = self.members[holder]
        request = self.repair_request(task, holder, silent)
        repair = hospital.does(hospital.client.repair(request))
        for dealer, share in zip(repair.silent, repair.shares, strict=True):
            self.shares.setdefault((repair.context, dealer), {})[holder] = share

    def abandon(self, rank: int, slot: int = 0, proof: bytes = b"") -> Any:
        """Ask one hospital to abandon a slot."""
        hospital = self.members[rank]
        request = AbandonRequest(self.epoch.epoch_id, slot, proof)
        return hospital.does(hospital.client.abandon(request))

    def abandonment(
        self, ranks: Iterable[int], slot: int = 0, proof: bytes = b"", *, tell: bool = True
    ) -> AbandonProof:
        """Collect a proof of abandonment, and send it to everyone."""
        signed = [self.abandon(rank, slot, proof) for rank in ranks]
        collected = AbandonProof(
            self.epoch.epoch_id,
            slot,
            tuple(message.rank for message in signed),
            tuple(message.signature for message in signed),
        )
        for hospital in self.members.values() if tell else ():
            hospital.does(hospital.client.close(collected))
        return collected

    def sum(self, slot: int = 0, **changes: Any) -> Vector:
        """Run a whole sum honestly, and return its total."""
        task = self.task(slot, **changes)
        self.uploads(task)
        certificate = self.certificate(self.proposal(task))
        for rank in certificate.survivors:
            self.reveal(certificate, rank)
        self.last = certificate
        return self.unmask(task, certificate.survivors)

    # -- what the attacker does with it

    def corrupt(self, rank: int) -> None:
        """Let a member tell the attacker everything it knows."""
        vault = self.members[rank].vault
        (stored,) = [vault[name] for name in vault if self._is_own(name)]
        kept = PairsSecrets.decode(bytes(stored))
        self.corrupted[rank] = {
            other: PairSecrets(seed, channel)
            for other, seed, channel in zip(kept.others, kept.seeds, kept.channels, strict=True)
        }

    def stolen_self_key(self, rank: int) -> bytes:
        """Return the key that the attacker must not get, to show that only this key was missing."""
        vault = self.members[rank].vault
        (stored,) = [
            content
            for name, content in vault.items()
            if name.startswith("slot/") and name.endswith(self._suffix)
        ]
        return SlotSecrets.decode(bytes(stored)).self_key

    def unmask(self, task: Task, ranks: Iterable[int]) -> Vector:
        """Return the sum of these members' vectors without the masks whose keys are known."""
        context, chosen = self.context(task), tuple(ranks)
        self._use_corruption(task)
        total = np.zeros(LENGTH + EXTRA, dtype="<u8")
        add, subtract = [], []
        for rank in chosen:
            total += self.bodies[context, rank]
            subtract += [key for key in (self.self_key(context, rank),) if key is not None]
            for other in task.active:
                key = self.pair_keys.get((context, min(rank, other), max(rank, other)))
                if key is not None and other not in chosen:
                    (subtract if rank < other else add).append(mask_key(key))
        apply_masks(total, add=add, subtract=subtract)
        return total[:LENGTH]

    def _use_corruption(self, task: Task) -> None:
        context = self.context(task)
        for rank, pairs in self.corrupted.items():
            for other, pair in pairs.items():
                self._learn_pair(context, rank, other, pair_key(pair, context))
                header = self.headers.get((context, other))
                if header is None or rank not in header.receivers:
                    continue
                place = header.receivers.index(rank)
                share = open_share(
                    header.sealed_shares[place],
                    header.share_hashes[place],
                    pair,
                    context,
                    other,
                    rank,
                )
                if share is not None:
                    self.shares.setdefault((context, other), {})[rank] = share

    def _learn_pair(self, context: bytes, one: int, other: int, key: bytes) -> None:
        self.pair_keys[context, min(one, other), max(one, other)] = key

    def self_key(self, context: bytes, rank: int) -> bytes | None:
        """Return a key that was revealed, or the result of all known shares, even if too few."""
        known = self.self_keys.get((context, rank))
        held = self.shares.get((context, rank))
        if known is not None or not held:
            return known
        try:
            key = combine({share_point(holder): share for holder, share in held.items()})
        except SharingError:
            return None
        committed = self.headers[context, rank].commitment
        return key if check_commitment(key, context, rank, committed) else None

    @property
    def _suffix(self) -> str:
        return f"{self.epoch.terms.session.hex()}/{self.epoch.run.hex()}/{self.epoch.number}"

    def _is_own(self, name: str) -> bool:
        return name == f"epoch/{self._suffix}"


def certificate_of(proposal: Proposal, signed: Sequence[Certification]) -> Certificate:
    """Return a certificate with these signatures, whether or not they are enough."""
    ordered = sorted(signed, key=lambda message: message.rank)
    return Certificate(
        proposal.epoch_id,
        proposal.slot,
        proposal.context,
        proposal.active,
        proposal.survivors,
        tuple(message.rank for message in ordered),
        tuple(message.signature for message in ordered),
    )


def roster_of(hospitals: Iterable[Hospital]) -> Roster:
    """Return the roster of these hospitals, named by number."""
    return Roster(tuple(Member(f"hospital {h.number}", h.key) for h in hospitals))


def disk_of(hospital: Hospital) -> tuple[list[bytes], Mapping[str, bytes | memoryview]]:
    """Return a copy of a hospital's disk: a backup, or the state before an attack."""
    return list(hospital.records), dict(hospital.vault)
