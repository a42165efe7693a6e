"""Random histories: joins, uploads, dropouts, silences, repairs, abandonments, crashes, epochs.

Messages are delivered, delayed, repeated and reordered; clients and coordinator crash between any
two. The model knows only who uploaded which marked vector to which slot, and who has signed what.
Whatever happens, a total is the sum of its survivors' vectors, each counted once; a slot never has
both a certificate and a proof of abandonment; and no site signs two different statements about one
slot.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from privacy.securesum.errors import (
    AlreadySigned,
    CohortChanged,
    CollectionError,
    DifferentTask,
    KeysMissing,
    PairKeysOwed,
    PartialCohort,
    TooFewMembers,
    TooFewSurvivors,
)
from privacy.securesum.journal import SlotEntry
from privacy.securesum.messages import Abandonment, Certification, Upload
from privacy.securesum.simulator import TABLE, Fault, Point, Simulation
from privacy.securesum.terms import Terms

N, COLLUDERS, LEAST = 5, 1, 3
SITES = st.integers(0, N - 1)
SOME = st.permutations(range(N)).flatmap(
    lambda order: st.sampled_from([N, N, N - 1, 2]).map(lambda count: order[:count])
)
"""Some sites, in some order; usually enough of them to continue."""
FEW = st.one_of(st.just(set()), st.just(set()), st.sets(SITES, max_size=2))
STATEMENTS = (Upload, Certification, Abandonment)


WHAT = ["next"] * 12 + [
    "upload", "certify", "reveal", "repair", "abandon", "abandon",
    "open_epoch", "crash_site", "crash_coordinator", "deliver_late",
]  # fmt: skip


class SecureSums(RuleBasedStateMachine):
    """The real clients and coordinator, driven one message at a time."""

    @initialize(dp=st.booleans())
    def join(self, dp):
        terms = Terms(bytes(16), COLLUDERS, LEAST, dp)
        self.dp = dp
        self.simulation = Simulation(N, terms=terms, random=random.Random(1).randbytes)
        self.count = 0
        self.vectors: dict[tuple[bytes, int, int], np.ndarray] = {}
        self.said: dict[tuple, bytes] = {}
        self.delayed: list[Callable[[], None]] = []
        self.bound: dict[int, frozenset[bytes]] = {}
        self.exposed: dict[int, set[tuple[bytes, int]]] = {site: set() for site in range(N)}
        self.simulation.open_epoch()
        self.epoch_opened = True

    # -- helpers

    @property
    def slot(self):
        return self.simulation.coordinator.slot

    @property
    def under_way(self) -> bool:
        return self.epoch_opened and self.simulation.coordinator._summation is not None

    @property
    def closed(self) -> bool:
        return self.slot.certificate is not None or self.slot.abandon_proof is not None

    @property
    def place(self) -> tuple[bytes, int]:
        """The current slot."""
        return self.simulation.epoch.epoch_id, self.slot.task.slot

    def member(self, site: int) -> bool:
        return self.simulation.sites[site].identity.key in self.simulation.epoch.members

    def active(self, site: int) -> bool:
        return self.member(site) and self.simulation.rank(site) in self.slot.task.active

    def survivor(self, site: int) -> bool:
        return self.member(site) and self.simulation.rank(site) in self.slot.uploaded

    def entry(self, site: int) -> SlotEntry:
        """Return what a site remembers about the current slot."""
        epoch_id, slot = self.place
        agreed = self.simulation.sites[site].client.journal.agreed[epoch_id]
        return agreed.slots.get(slot, SlotEntry())

    def say(self, site: int, step, take, *, late: bool) -> None:
        """Make a step durable; deliver its message now, later, or never."""
        self.simulation.sites[site].persist(step)
        message, body = step.message, getattr(step, "body", None)
        if isinstance(message, STATEMENTS):
            kind = "upload" if isinstance(message, Upload) else "statement"
            said = message.encode() if kind == "statement" else message.encode() + bytes(body)
            known = self.said.setdefault((kind, *self.place, site), said)
            assert known == said, "a site said two different things about one slot"

        def deliver():
            add = getattr(self.slot, take)
            add(message, body) if body is not None else add(message)

        if late:
            self.delayed.append(deliver)
        else:
            deliver()

    # -- epochs

    def open_epoch(self, absent, late):
        self.simulation.wake()
        self.simulation.faults = {
            **{(site, Point.BOXES): Fault.GONE for site in late},
            **{(site, Point.ADVERT): Fault.GONE for site in absent},
        }
        try:
            self.simulation.open_epoch()
        except TooFewMembers:
            assert len(absent | late) > N - LEAST
            self.epoch_opened = False
        else:
            self.epoch_opened = True

    # -- a sum

    @rule(sites=SOME, late=FEW, left_out=FEW, what=st.sampled_from(WHAT), which=st.integers(0, 999))
    def go_on(self, sites, late, left_out, what, which):
        """Take the next step with some sites, or an unusual one, or cause a fault."""
        if what == "next":
            what = self.next_action() if self.epoch_opened else "open_epoch"
        event(what)
        match what:
            case "open_epoch":
                self.open_epoch(left_out, late)
            case "crash_site":
                self.simulation.sites[which % N].crash()
            case "crash_coordinator":
                self.simulation.restart_coordinator()
            case "deliver_late":
                self.deliver_late(which)
            case "upload" if self.epoch_opened:
                self.upload(sites, late, left_out)
            case _ if self.under_way:
                getattr(self, what)(sites, late)

    def next_action(self) -> str:
        if not self.under_way or (self.closed and not self.wanting()):
            return "upload"
        if self.slot.certificate is not None:
            return "repair" if self.slot._reveals else "reveal"
        if self.slot._abandoning:
            return "abandon"
        least = len(self.slot.task.active) - (1 if self.dp else 0)
        return "certify" if len(self.slot.uploaded) >= least else "upload"

    def wanting(self) -> bool:
        """Return whether a certified sum still waits for keys."""
        return self.slot.certificate is not None and not self.slot._unmasked

    def upload(self, sites, late, left_out):
        if not self.under_way or self.closed:
            self.begin(left_out)
        if not self.under_way or self.slot._proposal is not None or self.slot._abandoning:
            return
        for site in filter(self.active, sites):
            self.upload_one(site, late=site in late)

    def begin(self, left_out):
        epoch = self.simulation.epoch
        active = [s for s in range(N) if self.member(s) and not (self.dp and s in left_out)]
        if len(active) >= max(epoch.quorum, LEAST):
            self.simulation.coordinator.begin(
                statistic="markers",
                length=N + 1,
                state=b"state" * 6 + b"st",
                active=tuple(sorted(self.simulation.rank(site) for site in active)),
            )

    def upload_one(self, site, *, late):
        self.count += 1
        vector = np.zeros(N + 1, dtype=np.uint64)
        vector[site] = vector[N] = self.count
        members = frozenset(self.simulation.epoch.members)
        again = (*self.place, site) in self.vectors
        refused = not (
            self.dp or again or self.bound.get(site, members) == members or not self.exposed[site]
        )
        try:
            step = self.simulation.sites[site].client.upload(
                self.slot.task, vector, table=TABLE, state=b"state" * 6 + b"st",
                noise=self.count.to_bytes(16, "big") if self.dp else b"",
            )  # fmt: skip
        except CohortChanged:
            assert refused
            event("another cohort refused")
            return
        assert not refused
        self.vectors.setdefault((*self.place, site), vector)
        if not again:
            self.bound[site] = members
            self.exposed[site].add(self.place)
        self.say(site, step, "add_upload", late=late)

    def certify(self, sites, late):
        if self.slot._proposal is None and self.slot._abandoning:
            return
        try:
            proposal = self.slot.propose()
        except TooFewSurvivors:
            return
        for site in filter(self.survivor, sites):
            client = self.simulation.sites[site].client
            if not self.dp and proposal.survivors != proposal.active:
                with pytest.raises(PartialCohort):
                    client.certify(proposal)
            elif self.entry(site).abandon is not None:
                with pytest.raises(AlreadySigned):
                    client.certify(proposal)
            else:
                step = client.certify(proposal)
                self.say(site, step, "add_certification", late=site in late)

    def reveal(self, sites, late):
        if self.slot.certificate is not None:
            for site in filter(self.survivor, sites):
                step = self.simulation.sites[site].client.reveal(self.slot.certificate)
                self.say(site, step, "add_reveal", late=site in late)
            self.check_total()

    def repair(self, sites, late):
        if self.slot.certificate is not None:
            for site in filter(self.survivor, sites):
                client = self.simulation.sites[site].client
                if self.entry(site).certified is not None:
                    request = self.slot.repair_request(self.simulation.rank(site))
                    self.say(site, client.repair(request), "add_repair", late=site in late)
            self.check_total()

    def check_total(self):
        silent, dropped = self.slot.silent, self.slot.dropped
        try:
            total = self.slot.ring_total()
        except PairKeysOwed:
            assert silent
            assert dropped
            return
        except KeysMissing:
            assert silent
            return
        survivors = self.simulation._sites(self.slot.uploaded)
        expected = sum(self.vectors[*self.place, site] for site in survivors)
        np.testing.assert_array_equal(total, expected)
        self.simulation.restart_coordinator()
        np.testing.assert_array_equal(self.slot.ring_total(), expected)
        event(f"total, {len(silent)} silent, {len(dropped)} dropped")

    # -- a sum that is abandoned

    def abandon(self, sites, late):
        if self.slot.certificate is not None:
            return
        request = self.slot.abandon_request()
        for site in filter(self.member, sites):
            client = self.simulation.sites[site].client
            if self.entry(site).certify is not None:
                with pytest.raises(AlreadySigned):
                    client.abandon(request)
            else:
                self.say(site, client.abandon(request), "add_abandonment", late=site in late)
        for site in filter(self.member, sites):
            if self.slot.abandon_proof is not None:
                here = self.simulation.sites[site]
                here.persist(here.client.close(self.slot.abandon_proof))
                self.exposed[site].discard(self.place)
                event("abandoned")

    # -- faults of networks and machines

    def deliver_late(self, which):
        """Deliver a message late, out of order, perhaps for an old slot, perhaps twice."""
        if self.delayed and self.under_way:
            deliver = self.delayed[which % len(self.delayed)]
            if which % 2:
                self.delayed.remove(deliver)
            with suppress(CollectionError, DifferentTask):
                deliver()

    # -- what always holds

    @invariant()
    def never_both_certified_and_abandoned(self):
        if getattr(self, "epoch_opened", False) and self.under_way:
            assert self.slot.certificate is None or self.slot.abandon_proof is None


SecureSums.TestCase.settings = settings(max_examples=30, stateful_step_count=50)
TestSecureSums = SecureSums.TestCase
