"""An epoch of the real client and the real coordinator, from fixed seeds, with all it computes."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import rfc8785

from privacy.blinding import blind_residues
from privacy.encoding import Encoding
from privacy.frames import pieces
from privacy.framing import Label, derive
from privacy.identity import Identity, Member, Pins, Roster
from privacy.masks import apply_masks
from privacy.members.endorsement import Endorsement, ModelCertificate
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.epoch import PairSecrets
from privacy.securesum.errors import SiteFailed
from privacy.securesum.masking import (
    EXTRA,
    FailedVector,
    failed_tag_key,
    mask_key,
    open_share,
    pair_key,
    tag_key,
    tag_mask_key,
)
from privacy.securesum.memory import epoch_entry, group_entry, slot_entry
from privacy.securesum.messages import NO_ARCHIVE, UNNAMED, Adverts, SumName, Task
from privacy.securesum.records import (
    AdvertSecrets,
    GroupSecrets,
    PairsSecrets,
    SealSecrets,
    SlotSecrets,
)
from privacy.securesum.sealing import KEM_SECRET_BYTES, public_key
from privacy.securesum.simulator import Site
from privacy.securesum.terms import Terms
from privacy.tags import RESIDUE_PRIMES, data_tags, failed_tags, residue_masks

Plain = dict[str, Any]
SOURCE, TABLE, SOFTWARE = "table", bytes(range(32)), "veilgp test vectors"
PROGRAM = '{"stages":[]}'
PARENT = "5a" * 32
NUMBER = 7


class Stream:
    """Deterministic bytes under a name, in place of the operating system's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = 0

    def __call__(self, count: int) -> bytes:
        self._calls += 1
        return hashlib.shake_256(f"veilgp/{self._name}/{self._calls}".encode()).digest(count)


def named_bytes(name: str, count: int) -> bytes:
    return hashlib.shake_256(f"veilgp/{name}".encode()).digest(count)


def position_digest(stage: int, sum_index: int, stored: bytes) -> bytes:
    place = stage.to_bytes(8, "big") + sum_index.to_bytes(8, "big")
    return hashlib.sha256(b"veilgp/position/1" + place + stored).digest()


@dataclass(frozen=True)
class Sum:
    """What one slot is to show.

    vectors: the members' integers by rank; None for a site that could not compute.
    missing: ranks that do not upload. silent: ranks that upload and do not reveal.
    author: who writes the task, with blind sums.
    lie: the author names another state than the others hold, and the slot is abandoned.
    """

    vectors: Sequence[Sequence[int] | None]
    encoding: Encoding | None = None
    sum_index: int = 0
    applied: SumName | None = None
    author: int = 0
    missing: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    lie: bool = False


@dataclass
class Story:
    """An epoch whose members and coordinator run in one process."""

    name: str
    size: int
    max_colluders: int
    min_cohort: int
    differential_privacy: bool = False
    blind: bool = False
    members_only: bool = False
    terms: Terms = field(init=False)
    told: Plain = field(init=False)

    def __post_init__(self) -> None:
        self.terms = Terms(
            session=named_bytes(f"{self.name}/session", 16),
            max_colluders=self.max_colluders,
            min_cohort=self.min_cohort,
            differential_privacy=self.differential_privacy,
            blind=self.blind,
            members_only=self.members_only,
        )
        unsorted = [named_bytes(f"{self.name}/identity/{i}", 32) for i in range(self.size)]
        seeds = sorted(unsorted, key=lambda seed: Identity.from_bytes(seed).key)
        self.sites = [
            Site(Identity.from_bytes(seed), Stream(f"{self.name}/member/{rank}"))
            for rank, seed in enumerate(seeds)
        ]
        self.archive_secrets = [
            named_bytes(f"{self.name}/archive/{rank}", KEM_SECRET_BYTES)
            for rank in range(self.size)
        ]
        names = ["Aachen", "Bergen", "Córdoba", "Debrecen", "Évora"]
        # One more than take part, and names in another order than keys.
        absent = Identity.from_bytes(named_bytes(f"{self.name}/absent", 32))
        self.roster = Roster(
            (
                Member("Žilina", absent.key),
                *(
                    Member(names[self.size - 1 - rank], site.identity.key)
                    for rank, site in enumerate(self.sites)
                ),
            )
        )
        self.names = {member.key: member.name for member in self.roster.members}
        self.pins = Pins({member.name: member.key for member in self.roster.members})
        self.coordinator = Coordinator(
            self.terms,
            run=named_bytes(f"{self.name}/run", 16),
            number=NUMBER,
            roster=self.roster,
        )
        self.epoch_name = (self.terms.session, self.coordinator.run, NUMBER)
        self.told = {"name": self.name}
        self._open()

    # -- the epoch

    def secret(self, rank: int, entry: str, kind: Any) -> Any:
        return kind.decode(bytes(self.sites[rank].vault[entry]))

    def _open(self) -> None:
        here = epoch_entry(self.epoch_name)
        opening = self.coordinator.opening()
        members: list[Plain] = []
        for rank, site in enumerate(self.sites):
            site.persist(site.client.join(self.terms))
            archive = self.archive_secrets[rank] if self.members_only else None
            archive_key = NO_ARCHIVE if archive is None else public_key(archive)
            step = site.client.advertise(opening, SOURCE, SOFTWARE, archive_key)
            site.persist(step)
            self.coordinator.add_advert(step.message)
            members.append(
                {
                    "rank": rank,
                    "name": self.names[site.identity.key],
                    "identity_secret": site.identity.to_bytes().hex(),
                    "identity": site.identity.key.hex(),
                    "fingerprint": site.identity.fingerprint,
                    "kem_secret": self.secret(rank, here, AdvertSecrets).kem_secret.hex(),
                    "archive_secret": None if archive is None else archive.hex(),
                    "advert": step.message.encode().hex(),
                }
            )
        self.adverts: Adverts = self.coordinator.close_adverts()
        for rank, site in enumerate(self.sites):
            agreed = site.client.agree(self.adverts, self.roster, self.pins)
            site.persist(agreed)
            assert agreed.message is not None
            self.coordinator.add_boxes(agreed.message)
            secrets = self.secret(rank, here, SealSecrets)
            members[rank] |= {
                "seeds": {
                    str(to): seed.hex()
                    for to, seed in zip(secrets.receivers, secrets.seeds, strict=True)
                },
                "group_part": secrets.part.hex(),
                "group_commitment": agreed.message.boxes[0].commitment.hex(),
                "boxes": agreed.message.encode().hex(),
            }
        deliveries = [self.coordinator.delivery(rank) for rank in range(self.size)]
        for site, delivery in zip(self.sites, deliveries, strict=True):
            site.persist(site.client.receive(delivery))
        assert self.coordinator.epoch is not None
        self.epoch = self.coordinator.epoch
        self.group = self.secret(0, group_entry(self.epoch_name), GroupSecrets)
        self.pairs = {}
        for rank in range(self.size):
            kept = self.secret(rank, here, PairsSecrets)
            for other, seed, channel in zip(kept.others, kept.seeds, kept.channels, strict=True):
                self.pairs[rank, other] = (seed, channel)
        self.told |= {
            "terms": {
                "session": self.terms.session.hex(),
                "max_colluders": self.max_colluders,
                "min_cohort": self.min_cohort,
                "differential_privacy": self.differential_privacy,
                "blind": self.blind,
                "members_only": self.members_only,
            },
            "terms_encoded": self.terms.encode().hex(),
            "run": self.coordinator.run.hex(),
            "number": NUMBER,
            "quorum": self.epoch.quorum,
            "opening": opening.encode().hex(),
            "roster": [
                {"name": member.name, "key": member.key.hex()} for member in self.roster.members
            ],
            "roster_digest": self.roster.digest().hex(),
            "members": members,
            "epoch_id": self.epoch.epoch_id.hex(),
            "delivery": deliveries[0].encode().hex(),
            "pairs": [
                {"ranks": [a, b], "seed": seed.hex(), "channel": channel.hex()}
                for (a, b), (seed, channel) in sorted(self.pairs.items())
                if a < b
            ],
            "commitments": self.group.commitments.hex(),
            "group_key": self.group.key.hex(),
            "slots": [],
        }

    # -- a sum

    def sum(self, what: Sum) -> Plain:
        """Run one slot, and add all of it to the story."""
        stored = f"{self.name}: the state before sum {what.sum_index}".encode()
        state = position_digest(0, what.sum_index, stored)
        length = next(len(vector) for vector in what.vectors if vector is not None)
        encoding = UNNAMED if what.encoding is None else what.encoding.digest()
        parameters = rfc8785.dumps(
            {
                "program": hashlib.sha256(PROGRAM.encode()).hexdigest(),
                "run_kind": "update",
                "parent": PARENT,
                "stage": 0,
                "sum_index": what.sum_index,
            }
        )
        about: Plain = {"statistic": "vectors/1", "parameters": parameters, "length": length}
        told: Plain = {
            "slot": self.coordinator.next_slot,
            "stored_state": stored.hex(),
            "stage": 0,
            "sum_index": what.sum_index,
            "state": state.hex(),
            "encoding": None if what.encoding is None else what.encoding.to_bytes().hex(),
            "encoding_digest": encoding.hex(),
        }
        if self.blind:
            claimed = position_digest(0, what.sum_index, b"a lie") if what.lie else state
            request = self.coordinator.author_request()
            site = self.sites[what.author]
            step = site.client.draft(
                request, **about, state=claimed, encoding=what.encoding, applied=what.applied
            )
            site.persist(step)
            task = self.coordinator.begin_drafted(step.message)
            told |= {
                "author_request": request.encode().hex(),
                "author": what.author,
                "author_state": claimed.hex(),
                "draft": step.message.encode().hex(),
                "state_value": site.client.named_in(
                    self.epoch.epoch_id, task.slot, state, what.encoding
                )[0].hex(),
            }
        else:
            task = self.coordinator.begin(**about, state=state, encoding=encoding)
        told |= {
            "task": task.encode().hex(),
            "context": self.coordinator.slot.context.hex(),
            "active": list(task.active),
        }
        self.told["slots"].append(told)
        if self.blind and what.lie:
            return self._object(task, told)
        if self.blind:
            self._seal_state(task, told, stored)
        self._upload(task, what, told, state)
        self._certify(what, told)
        self._unmask(task, what, told)
        return told

    def _seal_state(self, task: Task, told: Plain, stored: bytes) -> None:
        author = self.sites[task.authors[0]].client
        header, box = author.seal_state(self.epoch.epoch_id, task.slot, stored)
        told["sealed_state"] = {"content": stored.hex(), "header": _hex(header), "box": box.hex()}

    def _object(self, task: Task, told: Plain) -> Plain:
        """Let all but the author object, and abandon the slot."""
        self._seal_state(task, told, b"a lie")
        others = [rank for rank in range(self.size) if rank not in task.authors]
        told["objections"] = [
            _hex(self.sites[rank].client.object_to(task).message) for rank in others
        ]
        request = self.coordinator.slot.abandon_request()
        told |= {"abandon_request": _hex(request), "abandonments": []}
        for site in self.sites:
            step = site.client.abandon(request)
            site.persist(step)
            self.coordinator.slot.add_abandonment(step.message)
            told["abandonments"].append(_hex(step.message))
        proof = self.coordinator.slot.abandon_proof
        assert proof is not None
        told["abandon_proof"] = _hex(proof)
        for site in self.sites:
            site.persist(site.client.close(proof))
        return told

    def _upload(self, task: Task, what: Sum, told: Plain, state: bytes) -> None:
        context, slot = self.coordinator.slot.context, self.coordinator.slot
        told["vectors"] = [
            None if vector is None else [str(number) for number in vector]
            for vector in what.vectors
        ]
        told["pair_keys"] = []
        for (a, b), (seed, _) in sorted(self.pairs.items()):
            if a < b:
                key = pair_key(PairSecrets(seed, bytes(32)), context)
                told["pair_keys"].append(
                    {
                        "ranks": [a, b],
                        "pair_key": key.hex(),
                        "mask_key": mask_key(key).hex(),
                        "tag_mask_key": tag_mask_key(key).hex(),
                        "residue_masks": residue_masks(tag_mask_key(key)).tolist(),
                    }
                )
        told |= {
            "tag_key": tag_key(self.group.key, context).hex(),
            "failed_tag_key": failed_tag_key(self.group.key, context).hex(),
            "pad_key": None,
            "pad": None,
            "residue_pad_key": None,
            "residue_pad": None,
        }
        if self.blind:
            pad = np.zeros(task.length, dtype="<u8")
            key = derive(self.group.key, Label.BLIND, context)
            apply_masks(pad, add=[key])
            told |= {
                "pad_key": key.hex(),
                "pad": pad.tobytes().hex(),
                "residue_pad_key": derive(self.group.key, Label.BLIND_TAGS, context).hex(),
                "residue_pad": blind_residues(self.group.key, context).tolist(),
            }
        told["uploads"] = []
        for rank, vector in enumerate(what.vectors):
            if rank in what.missing:
                continue
            site = self.sites[rank]
            step = site.client.upload(
                task,
                self._failed(task, rank)
                if vector is None
                else np.array(vector, dtype="<i8").view("<u8"),
                table=TABLE,
                state=state,
                encoding=what.encoding,
                noise=named_bytes(f"noise/{task.slot}", 16) if self.differential_privacy else b"",
            )
            site.persist(step)
            slot.add_upload(step.message, step.body)
            told["uploads"].append(self._told_upload(rank, vector, task, step, context))

    def _failed(self, task: Task, rank: int) -> FailedVector:
        drawn = named_bytes(f"failed/{task.slot}/{rank}", 8 * task.length)
        return FailedVector.drawn(task.length, lambda _: drawn)

    def _told_upload(
        self, rank: int, vector: Sequence[int] | None, task: Task, step: Any, context: bytes
    ) -> Plain:
        self_key = self.secret(rank, slot_entry(self.epoch_name), SlotSecrets).self_key
        residues = None
        if vector is not None:
            tags = data_tags(tag_key(self.group.key, context), np.array(vector, dtype="<i8"), 1)
            residues = [0, *tags, *failed_tags(failed_tag_key(self.group.key, context), 0, 1)]
        others = [other for other in task.active if other != rank]
        keys = {other: pair_key(PairSecrets(*self.pairs[rank, other]), context) for other in others}
        plain = np.frombuffer(step.body, dtype="<u8").copy()
        apply_masks(
            plain,
            add=[mask_key(keys[other]) for other in others if other < rank],
            subtract=[self_key, *(mask_key(keys[other]) for other in others if other > rank)],
        )
        masked = np.delete(plain[task.length :], 1).astype(np.int64)
        if residues is not None:
            signs = [(1 if other > rank else -1, keys[other]) for other in others]
            again = np.array(residues, dtype=np.int64)
            again += sum(sign * residue_masks(tag_mask_key(key)) for sign, key in signs)
            if self.blind and rank == task.active[0]:
                again += blind_residues(self.group.key, context)
            assert (again % np.array(RESIDUE_PRIMES)).tolist() == masked.tolist()
        shares = {}
        for other, sealed, hashed in zip(
            step.message.receivers,
            step.message.sealed_shares,
            step.message.share_hashes,
            strict=True,
        ):
            pair = PairSecrets(*self.pairs[rank, other])
            share = open_share(sealed, hashed, pair, context, rank, other)
            assert share is not None
            shares[str(other)] = share.hex()
        return {
            "rank": rank,
            "self_key": self_key.hex(),
            "residues": residues,
            "masked_residues": masked.tolist(),
            "shares": shares,
            "header": _hex(step.message),
            "body": bytes(step.body).hex(),
        }

    def _certify(self, what: Sum, told: Plain) -> None:
        slot = self.coordinator.slot
        proposal = slot.propose()
        told |= {"proposal": _hex(proposal), "certifications": []}
        for rank in proposal.survivors:
            step = self.sites[rank].client.certify(proposal)
            self.sites[rank].persist(step)
            slot.add_certification(step.message)
            told["certifications"].append(_hex(step.message))
        certificate = slot.certificate
        assert certificate is not None
        told |= {
            "survivors": list(certificate.survivors),
            "certificate": _hex(certificate),
            "reveals": [],
        }
        for rank in certificate.survivors:
            if rank in what.silent:
                continue
            reveal = self.sites[rank].client.reveal(certificate)
            self.sites[rank].persist(reveal)
            slot.add_reveal(reveal.message)
            told["reveals"].append(_hex(reveal.message))
        told["repairs"] = []
        for rank in certificate.survivors:
            if what.silent and rank not in what.silent:
                request = slot.repair_request(rank)
                repair = self.sites[rank].client.repair(request)
                slot.add_repair(repair.message)
                told["repairs"].append(
                    {"rank": rank, "request": _hex(request), "repair": _hex(repair.message)}
                )

    def _unmask(self, task: Task, what: Sum, told: Plain) -> None:
        slot = self.coordinator.slot
        total, body = slot.total_message()
        assert slot.certificate is not None
        told |= {
            "total": _hex(total),
            "total_body": bytes(body).hex(),
            "total_residues": [total.failed, *total.residues],
        }
        outcomes: set[tuple[str, ...] | None] = set()
        for site in self.sites:
            try:
                step = site.client.verify_total(total, body, slot.certificate)
            except SiteFailed:
                outcomes.add(None)
            else:
                site.persist(step)
                outcomes.add(tuple(str(number) for number in step.message.values.tolist()))
        (found,) = outcomes
        told["outcome"] = "total.site_failed" if found is None else "verified"
        told["values"] = None if found is None else list(found)
        assert task.length + EXTRA == len(bytes.fromhex(told["uploads"][0]["body"])) // 8

    # -- the model

    def finish(self, signers: Iterable[int]) -> Plain:
        """Endorse a model after the newest sum, certify it, and seal it if it is for members."""
        certificate = self.coordinator.slot.certificate
        assert certificate is not None
        data, results = b"the model section of " + self.name.encode(), b'{"rows":120}'
        stored = f"{self.name}: the state after the last sum".encode()
        sums = self.told["slots"][-1]["sum_index"] + 1
        state = position_digest(0, sums, stored)
        endorsements: list[Endorsement] = []
        for rank in signers:
            site = self.sites[rank]
            step = site.client.endorse(
                certificate,
                program=hashlib.sha256(PROGRAM.encode()).digest(),
                parent=PARENT,
                data=data,
                state=state,
                results=results,
            )
            site.persist(step)
            endorsements.append(step.message)
        statement = endorsements[0].statement
        salt = self.sites[0].client.model_salt(self.epoch.epoch_id, certificate.context)
        certified = ModelCertificate.of(endorsements, self.epoch.members)
        told: Plain = {
            "program": PROGRAM,
            "program_digest": hashlib.sha256(PROGRAM.encode()).hexdigest(),
            "parent": PARENT,
            "data": data.hex(),
            "final_state": state.hex(),
            "results": results.hex(),
            "context": certificate.context.hex(),
            "salt": salt.hex(),
            "statement": _hex(statement),
            "endorsements": [_hex(each) for each in endorsements],
            "certificate": _hex(certified),
            "certificate_with_salt": _hex(certified.with_salt(salt)),
        }
        if self.members_only:
            parts = {
                "certificate": certified.with_salt(salt).encode(),
                "card": rfc8785.dumps({"salt": salt.hex(), "version": 4}),
                "model": data,
            }
            content = b"".join(bytes(piece) for piece in pieces({}, parts))
            header, sealed = self.sites[endorsements[0].rank].client.seal_archive(
                self.adverts, self.roster, model=statement.model, content=content
            )
            told |= {"content": content.hex(), "archive": _hex(header), "sealed": sealed.hex()}
        self.told["model"] = told
        return told


def _hex(message: Any) -> str:
    return message.encode().hex()  # type: ignore[no-any-return]
