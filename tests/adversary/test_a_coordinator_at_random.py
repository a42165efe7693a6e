"""A coordinator that sends random requests gets one statement per slot, and no single vector.

Five members with differential privacy, so that any four or five of them may be certified. Member 4
colludes: it signs everything, as often as requested.
"""

import random
from collections import defaultdict
from itertools import combinations

import pytest

from privacy.errors import PrivacyError
from privacy.framing import Label
from privacy.securesum.certificates import abandon_parts, certify_parts
from privacy.securesum.messages import AbandonProof, Certificate, Certification, Proposal, Task

from .coordinator import Attacker, certificate_of, is_noise

HONEST, COLLUDER, EVERYONE = (0, 1, 2, 3), 4, (0, 1, 2, 3, 4)
SETS = [*combinations(EVERYONE, 4), EVERYONE]


class Schemer:
    """Sends random requests, keeps every signature, and continues as soon as a proof allows it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lair = Attacker(private=True, seed=seed).open()
        self.lair.corrupt(COLLUDER)
        self.slot, self.proof = 0, b""
        self.tasks: dict[tuple[int, str], Task] = {}
        self.signed: dict[Proposal, dict[int, Certification]] = defaultdict(dict)
        self.given_up: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.certificates: dict[int, set[Certificate]] = defaultdict(set)
        self.proofs: dict[int, AbandonProof] = {}
        self.refused = 0
        self.plan()

    def plan(self) -> None:
        """Choose a plan for a slot: one list or two, and whether to abandon the slot as well."""
        self.lists = self.dice.sample(SETS, self.dice.choice([1, 1, 2]))
        self.restlessness = self.dice.choice([0.0, 0.0, 0.05, 0.4])

    def task(self) -> Task:
        """Return usually the one task of the current slot, and sometimes another."""
        name = "crafted" if self.dice.random() < 0.02 else "moments"
        fresh = self.lair.task(self.slot, statistic=name, proof=self.proof)
        return self.tasks.setdefault((self.slot, name), fresh)

    def upload(self, rank: int) -> None:
        self.lair.upload(self.task(), rank)

    def certify(self, rank: int) -> None:
        proposal = self.lair.proposal(self.task(), self.dice.choice(self.lists))
        self.signed[proposal][rank] = self.lair.certify(proposal, rank)
        own = self.lair.members[COLLUDER].identity.sign(
            Label.CERTIFY, *certify_parts(self.lair.epoch, proposal)
        )
        signed = {
            **self.signed[proposal],
            COLLUDER: Certification(proposal.epoch_id, self.slot, COLLUDER, own),
        }
        counted = [signed[r] for r in sorted(signed) if r in proposal.survivors]
        if len(counted) >= self.lair.epoch.quorum:
            self.certificates[self.slot].add(certificate_of(proposal, counted))

    def abandon(self, rank: int) -> None:
        message = self.lair.abandon(rank, self.slot, self.proof)
        self.given_up[self.slot][rank] = message.signature
        parts = abandon_parts(self.lair.epoch, self.slot)
        own = self.lair.members[COLLUDER].identity.sign(Label.ABANDON, *parts)
        signed = sorted({**self.given_up[self.slot], COLLUDER: own}.items())
        if len(signed) >= self.lair.epoch.quorum:
            ranks, signatures = zip(*signed, strict=True)
            self.proofs[self.slot] = AbandonProof(
                self.lair.epoch.epoch_id, self.slot, ranks, signatures
            )

    def reveal(self, rank: int) -> None:
        for certificate in sorted(self.certificates[self.slot], key=Certificate.encode):
            self.lair.reveal(certificate, rank)

    def repair(self, rank: int) -> None:
        self.lair.repair(self.task(), rank, self.dice.choice([r for r in HONEST if r != rank]))

    def crash(self, rank: int) -> None:
        self.lair.members[rank].crash()

    def go_on(self, rank: int) -> None:
        proofs = [*sorted(self.certificates[self.slot], key=Certificate.encode)]
        proofs += [self.proofs[self.slot]] if self.slot in self.proofs else []
        if proofs and self.dice.random() < 0.2:
            self.slot, self.proof = self.slot + 1, self.dice.choice(proofs).encode()
            self.plan()

    def scheme(self, steps: int) -> None:
        """Send any request to any member; a refusal is a declared error."""
        for _ in range(steps):
            asks = [self.upload] * 3 + [self.certify] * 3 + [self.reveal] * 3
            asks += [self.repair] * 2 + [self.crash, self.go_on]
            ask = self.abandon if self.dice.random() < self.restlessness else self.dice.choice(asks)
            try:
                ask(self.dice.choice(HONEST))
            except (
                PrivacyError,
                KeyError,
            ):  # KeyError: nothing is uploaded yet that could be repaired
                self.refused += 1


@pytest.fixture(scope="module")
def schemers() -> list[Schemer]:
    made = [Schemer(seed) for seed in range(16)]
    for schemer in made:
        schemer.scheme(150)
    return made


def test_a_slot_is_certified_once_or_abandoned(schemers):
    for schemer in schemers:
        for slot in range(schemer.slot + 1):
            claims = {(c.context, c.survivors) for c in schemer.certificates[slot]}
            assert len(claims) + (slot in schemer.proofs) <= 1


def test_a_random_coordinator_never_unmasks_one_member_or_two(schemers):
    for schemer in schemers:
        for task in schemer.tasks.values():
            there = [r for r in HONEST if (schemer.lair.context(task), r) in schemer.lair.bodies]
            for few in (*combinations(there, 1), *combinations(there, 2)):
                assert is_noise(schemer.lair.unmask(task, few))


def test_the_random_coordinators_get_far_enough_to_mean_something(schemers):
    assert sum(len(schemer.proofs) for schemer in schemers) >= 5
    assert sum(len(schemer.certificates[0]) for schemer in schemers) >= 3
    assert sum(len(schemer.lair.self_keys) for schemer in schemers) >= 15
    assert sum(len(schemer.lair.shares) for schemer in schemers) >= 8
    assert sum(schemer.refused for schemer in schemers) >= 500
