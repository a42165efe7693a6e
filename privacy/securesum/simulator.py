"""n clients and a coordinator in one process, with scripted faults; for tests and benchmarks.

Only the network and the disks are simulated: clients and coordinator are the real classes, every
message is sent as bytes, every step is made durable before anything is sent, and a crash loses
everything that was not durable. Every total is verified at every site that has the group key, also
at sites that dropped out. Without faults:

>>> simulation = Simulation(5)
>>> simulation.open_epoch()
>>> outcome = simulation.sum([np.full(3, i, dtype=np.uint64) for i in range(5)])
>>> outcome.total
array([10, 10, 10], dtype=uint64)

A fault is given by a site, a point of the protocol and what happens there:

>>> simulation.faults[2, Point.REVEAL] = Fault.GONE
>>> outcome = simulation.sum([np.full(3, i, dtype=np.uint64) for i in range(5)])
>>> outcome.total, outcome.silent
(array([10, 10, 10], dtype=uint64), (2,))
"""

import os
import random as shuffling
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privacy.encoding import Encoding
from privacy.identity import Identity, Member, Pins, Randomness, Roster
from privacy.layout import SecureTotal
from privacy.noise import Source, draw, exact
from privacy.securesum.client import Client
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    AlreadySigned,
    InconsistentMasks,
    KeysMissing,
    OutOfOrder,
    PairKeysOwed,
    SiteFailed,
    TooFewSurvivors,
)
from privacy.securesum.masking import FailedVector
from privacy.securesum.memory import group_entry
from privacy.securesum.messages import (
    NO_ARCHIVE,
    UNNAMED,
    Abandonment,
    AbandonProof,
    AbandonRequest,
    Advert,
    Adverts,
    AuthorRequest,
    Boxes,
    Certificate,
    Certification,
    Delivery,
    Draft,
    Opening,
    Proposal,
    Repair,
    RepairRequest,
    Reveal,
    Task,
    Total,
    Upload,
)
from privacy.securesum.records import Step, UploadStep
from privacy.securesum.sealing import KEM_SECRET_BYTES, public_key
from privacy.securesum.terms import Terms, default_terms
from privacy.securesum.wire import Message

TABLE = bytes(32)
"""The digest of every site's table, unless a test uses another one."""
SOURCE = "table"
"""The name of every site's data source."""


class Point(Enum):
    """The points of the protocol at which a client gets a request."""

    ADVERT = auto()
    BOXES = auto()
    DELIVERY = auto()
    UPLOAD = auto()
    CERTIFY = auto()
    REVEAL = auto()
    REPAIR = auto()
    ABANDON = auto()


class Fault(Enum):
    """What happens at a point, once."""

    GONE = auto()
    """The site stops answering before it answers, and stays silent until `wake`."""
    LATE = auto()
    """The request is lost; the site answers the next one."""
    CRASH_BEFORE = auto()
    """The site crashes before the request, and is restored."""
    CRASH_AFTER = auto()
    """The site crashes after its step is durable, before sending; the request is repeated."""
    ANSWER_LOST = auto()
    """The answer is lost on its way; the request is repeated."""
    ANSWER_TWICE = auto()
    """The answer arrives twice."""
    COORDINATOR_CRASH = auto()
    """The coordinator takes the answer, crashes before acknowledging it, and is restored."""


@dataclass
class Site:
    """A hospital: its machine, and its disk, which survives a crash."""

    identity: Identity
    random: Randomness
    records: list[bytes] = field(default_factory=list)
    vault: dict[str, bytes | memoryview] = field(default_factory=dict)
    cpu_s: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client, step = Client.begin(self.identity, self.random)
        self.persist(step)

    def persist(self, step: Step[Any]) -> None:
        """Make a step durable."""
        self.records.extend(step.records)
        for name, content in step.vault.items():
            if content is None:
                self.vault.pop(name, None)
            else:
                self.vault[name] = content

    def answer(self, data: bytes, ask: Callable[[Client, bytes], Step[Any]]) -> Step[Any]:
        """Return the step for a message, after making it durable."""
        began = time.process_time()
        step = ask(self.client, data)
        self.persist(step)
        self.cpu_s += time.process_time() - began
        self.received_bytes += len(data)
        return step

    def crash(self) -> None:
        """Lose the machine's memory; continue from the disk."""
        self.client = Client.restore(self.identity, self.records, self.vault, self.random)


@dataclass(frozen=True)
class Outcome:
    """How a sum ended: with a total, with a proof of abandonment, or with neither.

    `failed`: a site could not compute, and every site knows that one could not.
    """

    total: NDArray[np.uint64] | None
    survivors: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    proof: AbandonProof | None = None
    failed: bool = False


class Simulation:
    """A session of some sites, new or existing, and one coordinator; sites ascend by key."""

    def __init__(
        self,
        sites: int | Sequence[Site],
        *,
        terms: Terms | None = None,
        random: Randomness = os.urandom,
        order: shuffling.Random | None = None,
    ) -> None:
        if isinstance(sites, int):
            sites = [Site(Identity.generate(random), random) for _ in range(sites)]
        self.sites = sorted(sites, key=lambda site: site.identity.key)
        self.terms = default_terms(random(16), len(sites)) if terms is None else terms
        self.roster = Roster(
            tuple(Member(f"site-{i}", site.identity.key) for i, site in enumerate(self.sites))
        )
        self.pins = Pins({member.name: member.key for member in self.roster.members})
        self.coordinator = Coordinator(self.terms, run=random(16), number=0, roster=self.roster)
        self.faults: dict[tuple[int, Point], Fault] = {}
        self.gone: set[int] = set()
        self.coordinator_cpu_s = 0.0
        self.random = random
        self._order = order
        for site in self.sites:
            site.persist(site.client.join(self.terms))

    def wake(self) -> None:
        """Let all silent sites answer again."""
        self.gone.clear()

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        if self.coordinator.epoch is None:
            raise OutOfOrder("No epoch is open; call `open_epoch` first.")
        return self.coordinator.epoch

    def rank(self, site: int) -> int:
        """Return a site's rank in the current epoch."""
        return self.epoch.rank(self.sites[site].identity.key)

    # -- epoch

    def open_epoch(self) -> None:
        """Open epochs until one has the boxes of all its members."""
        while True:
            if self.coordinator.advertised:
                self.coordinator = self.coordinator.restart()
            self.advertise()
            self.agree()
            if not self.coordinator.missing_boxes:
                return self.deliver()

    @property
    def _archive_key(self) -> bytes:
        """A key that nobody can open archives with, where members must have one."""
        secret = bytes(range(KEM_SECRET_BYTES))
        return public_key(secret) if self.terms.members_only else NO_ARCHIVE

    def advertise(self) -> None:
        """Collect adverts."""
        opening = self.coordinator.opening()
        for site in self._in_order(range(len(self.sites))):
            self._exchange(
                site,
                Point.ADVERT,
                opening,
                lambda client, data: client.advertise(
                    Opening.decode(data), SOURCE, archive_key=self._archive_key
                ),
                lambda data, _: self.coordinator.add_advert(Advert.decode(data)),
            )

    def agree(self) -> None:
        """Close the list of members and collect their boxes."""
        with self._coordinating():
            adverts = self.coordinator.close_adverts()
        for site in self._in_order(self._sites(self.epoch.everyone)):
            self._exchange(
                site,
                Point.BOXES,
                adverts,
                lambda client, data: client.agree(Adverts.decode(data), self.roster, self.pins),
                lambda data, _: self.coordinator.add_boxes(Boxes.decode(data)),
            )

    def deliver(self) -> None:
        """Deliver everyone's boxes."""
        for site in self._in_order(self._sites(self.epoch.everyone)):
            with self._coordinating():
                delivery = self.coordinator.delivery(self.rank(site))
            self._exchange(
                site,
                Point.DELIVERY,
                delivery,
                lambda client, data: client.receive(Delivery.decode(data)),
            )

    # -- sums

    def total(
        self,
        encoding: Encoding,
        contributions: Sequence[Mapping[str, ArrayLike]],
        *,
        statistic: str = "simulated",
        state: bytes = UNNAMED,
        source: Source = exact,
    ) -> SecureTotal:
        """Return the decoded sum of one contribution per site; raise if it does not complete.

        If the encoding has noise, each site draws its own from `source`.
        """
        noisy = bool(encoding.share_deviations)
        noises = [draw(encoding, source=source).once() if noisy else None for _ in contributions]
        outcome = self.sum(
            [
                encoding.encode(values, noise=noise)
                for values, noise in zip(contributions, noises, strict=True)
            ],
            statistic=statistic,
            encoding=encoding,
            state=state,
        )
        if outcome.total is None:
            raise KeysMissing("The sum did not complete.", ranks=())
        return encoding.decode(outcome.total, contributors=len(outcome.survivors))

    def sum(
        self,
        vectors: Sequence[NDArray[np.uint64] | None],
        *,
        active: Sequence[int] | None = None,
        statistic: str = "simulated",
        encoding: Encoding | None = None,
        state: bytes = UNNAMED,
        noise: bytes = b"",
    ) -> Outcome:
        """Sum one vector per site over the active sites, by default all the epoch's members.

        A site whose vector is None could not compute it.
        """
        length = next(len(vector) for vector in vectors if vector is not None)
        if self.terms.blind:
            task = self.draft(statistic=statistic, length=length, encoding=encoding, state=state)
        else:
            with self._coordinating():
                task = self.coordinator.begin(
                    statistic=statistic,
                    length=length,
                    state=state,
                    encoding=UNNAMED if encoding is None else encoding.digest(),
                    active=None if active is None else tuple(sorted(self.rank(s) for s in active)),
                )
        self.upload(task, vectors, encoding=encoding, state=state, noise=noise)
        try:
            with self._coordinating():
                proposal = self.coordinator.slot.propose()
        except TooFewSurvivors:
            return self.abandon()
        return self.finish(proposal)

    def draft(
        self, *, statistic: str, length: int, encoding: Encoding | None, state: bytes
    ) -> Task:
        """Let the first site that is not silent write the next task, and begin its sum."""
        with self._coordinating():
            request = self.coordinator.author_request().encode()
        author = next(site for site in self._sites(self.epoch.everyone) if site not in self.gone)
        step = self.sites[author].answer(
            request,
            lambda client, data: client.draft(
                AuthorRequest.decode(data),
                statistic=statistic,
                parameters=b"",
                length=length,
                state=state,
                encoding=encoding,
                applied=None,
            ),
        )
        with self._coordinating():
            return self.coordinator.begin_drafted(Draft.decode(step.message.encode()))

    def upload(
        self,
        task: Task,
        vectors: Sequence[NDArray[np.uint64] | None],
        *,
        encoding: Encoding | None = None,
        state: bytes = UNNAMED,
        noise: bytes = b"",
    ) -> None:
        """Collect the vectors of the active sites."""
        for site in self._in_order(self._sites(task.active)):
            drawn = self.random(16) if self.terms.differential_privacy else noise
            self._exchange(
                site,
                Point.UPLOAD,
                task,
                partial(_upload, vector=vectors[site], encoding=encoding, state=state, noise=drawn),
                lambda data, body: self.coordinator.slot.add_upload(Upload.decode(data), body),
            )

    def finish(self, proposal: Proposal) -> Outcome:
        """Certify, reveal, repair and unmask; or abandon the slot if too few certify."""
        for site in self._in_order(self._sites(proposal.survivors)):
            self._exchange(
                site,
                Point.CERTIFY,
                proposal,
                lambda client, data: client.certify(Proposal.decode(data)),
                lambda data, _: self.coordinator.slot.add_certification(Certification.decode(data)),
            )
        certificate = self.coordinator.slot.certificate
        return self.abandon() if certificate is None else self.unmask(certificate)

    def unmask(self, certificate: Certificate) -> Outcome:
        """Collect keys, from shares if their owner is silent, and remove the masks."""
        survivors = self._sites(certificate.survivors)
        for site in self._in_order(survivors):
            self._exchange(
                site,
                Point.REVEAL,
                certificate,
                lambda client, data: client.reveal(Certificate.decode(data)),
                lambda data, _: self.coordinator.slot.add_reveal(Reveal.decode(data)),
            )
        silent = self._sites(self.coordinator.slot.silent)
        if silent:
            self.repair()
        try:
            with self._coordinating():
                total, body = self.coordinator.slot.total_message()
        except (KeysMissing, PairKeysOwed):
            return Outcome(None, survivors, silent)
        values = self.verify(total.encode(), body, certificate)
        return Outcome(values, survivors, silent, failed=values is None)

    def verify(
        self, total: bytes, body: memoryview, certificate: Certificate
    ) -> NDArray[np.uint64] | None:
        """Let every site that has the group key verify a total; return it, or None if one failed.

        All sites must find the same.
        """
        found: list[NDArray[np.uint64] | None] = []
        for site in self._sites(self.epoch.everyone):
            here = self.sites[site]
            name = (self.terms.session, self.coordinator.run, self.coordinator.number)
            if group_entry(name) not in here.vault:  # it has not received its boxes
                continue
            here.received_bytes += len(total) + body.nbytes
            message = Total.decode(total)
            try:
                step = here.client.verify_total(message, body, certificate)
            except SiteFailed:
                found.append(None)
            else:
                here.persist(step)
                found.append(step.message.values.view("<u8"))
        first = found[0]
        if any((one is None) != (first is None) for one in found):
            raise InconsistentMasks("Some sites read that a site has failed, and others do not.")
        return first

    def repair(self) -> None:
        """Collect shares of the silent survivors' self keys."""
        slot = self.coordinator.slot
        for site in self._in_order(self._sites(slot.uploaded)):
            with self._coordinating():
                request = self.coordinator.slot.repair_request(self.rank(site))
            self._exchange(
                site,
                Point.REPAIR,
                request,
                lambda client, data: client.repair(RepairRequest.decode(data)),
                lambda data, _: self.coordinator.slot.add_repair(Repair.decode(data)),
            )

    def abandon(self) -> Outcome:
        """Abandon the current sum, and tell all sites that are not silent."""
        with self._coordinating():
            request = self.coordinator.slot.abandon_request()
        everyone = self._sites(self.epoch.everyone)
        for site in self._in_order(everyone):
            self._exchange(
                site,
                Point.ABANDON,
                request,
                _abandon,
                lambda data, _: self.coordinator.slot.add_abandonment(Abandonment.decode(data)),
            )
        proof = self.coordinator.slot.abandon_proof
        if proof is not None:
            for site in everyone:
                if site not in self.gone:
                    self.sites[site].persist(self.sites[site].client.close(proof))
        return Outcome(None, proof=proof)

    def restart_coordinator(self) -> None:
        """Lose the coordinator's memory; continue from what it saved."""
        self.coordinator = Coordinator.restore(self.coordinator.save())

    # -- the network

    def _exchange(
        self,
        site: int,
        point: Point,
        request: Message,
        ask: Callable[[Client, bytes], Step[Any]],
        take: Callable[[bytes, memoryview], object] | None = None,
    ) -> None:
        """Send a request to a site and its answer to the coordinator, with the scripted fault."""
        fault = None if site in self.gone else self.faults.pop((site, point), None)
        if fault is Fault.GONE:
            self.gone.add(site)
        if site in self.gone or fault is Fault.LATE:
            return
        here = self.sites[site]
        if fault is Fault.CRASH_BEFORE:
            here.crash()
        with self._coordinating():
            data = request.encode()
        step = here.answer(data, ask)
        if fault is Fault.CRASH_AFTER:
            here.crash()
        if fault in (Fault.CRASH_AFTER, Fault.ANSWER_LOST):
            step = here.answer(data, ask)
        if step.message is None or take is None:
            return
        answer = step.message.encode()
        body = step.body if isinstance(step, UploadStep) else memoryview(b"")
        here.sent_bytes += len(answer) + body.nbytes
        with self._coordinating():
            take(answer, body)
        if fault is Fault.COORDINATOR_CRASH:
            self.restart_coordinator()
        if fault in (Fault.COORDINATOR_CRASH, Fault.ANSWER_TWICE):
            take(answer, body)

    @contextmanager
    def _coordinating(self) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self.coordinator_cpu_s += time.process_time() - began

    def _sites(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the sites with these ranks in the current epoch."""
        places = {site.identity.key: i for i, site in enumerate(self.sites)}
        return tuple(places[self.epoch.members[rank]] for rank in ranks)

    def _in_order(self, sites: Iterable[int]) -> list[int]:
        """Return sites in the order in which the network serves them."""
        listed = list(sites)
        if self._order is not None:
            self._order.shuffle(listed)
        return listed


def _upload(
    client: Client,
    data: bytes,
    *,
    vector: NDArray[np.uint64] | None,
    encoding: Encoding | None,
    state: bytes,
    noise: bytes,
) -> UploadStep:
    task = Task.decode(data)
    sent = FailedVector.drawn(task.length, os.urandom) if vector is None else vector
    return client.upload(task, sent, table=TABLE, encoding=encoding, state=state, noise=noise)


def _abandon(client: Client, data: bytes) -> Step[Abandonment | None]:
    try:
        return client.abandon(AbandonRequest.decode(data))
    except AlreadySigned:  # it has certified the slot, so it rightly refuses
        return Step(None)
