"""Our secure sum in one process, with CPU seconds and bytes charged to the party that spends them.

Messages are passed as their canonical bytes: the sender is charged for encoding, the receiver for
decoding and checking. A client's sum begins with encoding its numbers; the coordinator's sum ends
with decoding the total. The limit is sampled in between, so that both see the same machine.

What tags cost is charged to phases of its own: making them is measured again beside each upload,
which contains it, and verifying the total is a further step.
"""

import math
import os
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.cells import Cell
from benchmarks.secure_sum.limit import Limit, Probe
from privacy.encoding import Encoding
from privacy.identity import Identity, Member, Pins, Roster
from privacy.layout import Block, Layout, SecureTotal
from privacy.securesum.client import Client
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.masking import tag_mask_key
from privacy.securesum.messages import (
    Adverts,
    Boxes,
    Certificate,
    Delivery,
    Opening,
    Proposal,
    RepairRequest,
    Task,
    Total,
)
from privacy.securesum.terms import default_terms
from privacy.tags import RESIDUE_PRIMES, data_tags, failed_tags, residue_masks

Answer = TypeVar("Answer")

SESSION, RUN, TABLE = bytes(16), bytes(range(16)), bytes(32)
BOUND = 1.0
RESOLUTION = 2.0**-40


def quorum(members: int) -> int:
    """Return the quorum, which is also the share threshold, of a full cohort with default terms."""
    return default_terms(SESSION, members).quorum(members)


@dataclass
class Account:
    """What one party has spent in one phase."""

    cpu_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass
class Party:
    """A client or the coordinator, with its accounts by phase."""

    accounts: dict[str, Account] = field(default_factory=dict)

    @contextmanager
    def pays(self, phase: str) -> Iterator[Account]:
        """Charge the CPU seconds of the `with` block to a phase."""
        account = self.accounts.setdefault(phase, Account())
        start = time.process_time()
        yield account
        account.cpu_s += time.process_time() - start


@dataclass
class Memory:
    """Memory allocated by the coordinator's calls while `on`: what they keep, and the peak."""

    on: bool = False
    kept: int = 0
    peak: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Add the memory that the `with` block allocates and does not free; update the peak."""
        if not self.on:
            yield
            return
        tracemalloc.start()
        yield
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.peak = max(self.peak, self.kept + peak)
        self.kept += kept


class Cohort:
    """n clients and a coordinator, each charged for every call it makes."""

    def __init__(self, members: int, length: int) -> None:
        identities = sorted((Identity.generate() for _ in range(members)), key=lambda i: i.key)
        named = tuple(Member(f"h{rank}", one.key) for rank, one in enumerate(identities))
        self.roster = Roster(named)
        self.pins = Pins(confirmed={member.name: member.key for member in named})
        # Dropouts require terms that allow them; nothing else depends on this choice. Tasks carry
        # no encoding, because noise is not measured here.
        terms = default_terms(SESSION, members, differential_privacy=True)
        self.clients = []
        for identity in identities:
            client, _ = Client.begin(identity)
            client.join(terms)
            self.clients.append(client)
        self.coordinator = Coordinator(terms, run=RUN, number=1, roster=self.roster)
        self.probe = Probe(length)
        self.phases: list[str] = []
        self.spent = [Party() for _ in identities]
        self.coordinator_spent = Party()
        self.memory = Memory()
        layout = Layout((Block("x", (length,), bound=BOUND, resolution=RESOLUTION),))
        self.encoding = Encoding.finest(layout, max_clients=members)

    @contextmanager
    def coordinating(self, phase: str) -> Iterator[Account]:
        """Charge the time and memory of the `with` block to the coordinator."""
        with self.memory.watched(), self.coordinator_spent.pays(phase) as account:
            yield account

    def open_epoch(self) -> None:
        """Advertise, agree and seal: establish keys for many sums."""
        with self.coordinating("epoch"):
            opening = self.coordinator.opening().encode()
        for client, party in zip(self.clients, self.spent, strict=True):
            with party.pays("epoch") as account:
                advert = client.advertise(Opening.decode(opening), "rows").message
                sent = advert.encode()
                account.bytes_down += len(opening)
                account.bytes_up += len(sent)
            with self.coordinating("epoch"):
                self.coordinator.add_advert(type(advert).decode(sent))
        with self.coordinating("epoch"):
            adverts = self.coordinator.close_adverts().encode()
        for client, party in zip(self.clients, self.spent, strict=True):
            with party.pays("epoch") as account:
                boxes = client.agree(Adverts.decode(adverts), self.roster, self.pins).message
                sent = _present(boxes).encode()
                account.bytes_down += len(adverts)
                account.bytes_up += len(sent)
            with self.coordinating("epoch"):
                self.coordinator.add_boxes(Boxes.decode(sent))
        for rank, (client, party) in enumerate(zip(self.clients, self.spent, strict=True)):
            with self.coordinating("epoch"):
                delivery = self.coordinator.delivery(rank).encode()
            with party.pays("epoch") as account:
                client.receive(Delivery.decode(delivery))
                account.bytes_down += len(delivery)

    def sum(self, values: list[NDArray[np.float64]], *, dropped: int, silent: int) -> SecureTotal:
        """Sum the clients' values.

        The last `dropped` clients drop out; the `silent` clients before them fall silent.
        """
        phase = f"sum {len(self.phases)}"
        self.phases.append(phase)
        uploading = range(len(self.clients) - dropped)
        revealing = range(len(uploading) - silent)
        with self.coordinating(phase):
            task = self.coordinator.begin(
                statistic="benchmark",
                parameters=b"",
                length=self.encoding.layout.length,
            ).encode()
            slot = self.coordinator.slot
        for rank in uploading:
            draw = os.urandom(16)  # noise itself is not part of what is measured
            with self.spent[rank].pays(phase) as account:
                vector = self.encoding.encode({"x": values[rank]})
                step = self.clients[rank].upload(Task.decode(task), vector, table=TABLE, noise=draw)
                header, body = step.message, step.body
                sent = header.encode()
                account.bytes_down += len(task)
                account.bytes_up += len(sent) + len(body)
            with self.coordinating(phase):
                slot.add_upload(type(header).decode(sent), body)
            with self.spent[rank].pays(f"{phase}, tags"):
                _tags_of(vector, others=len(self.clients) - 1)
            with self.spent[rank].pays(f"{phase}, data tags"):
                data_tags(TABLE, vector.view("<i8"), 1)
            self.probe.sample()
        with self.coordinating(phase):
            proposal = slot.propose().encode()
        for rank in uploading:
            with self.spent[rank].pays(phase) as account:
                certification = self.clients[rank].certify(Proposal.decode(proposal)).message
                sent = certification.encode()
                account.bytes_down += len(proposal)
                account.bytes_up += len(sent)
            with self.coordinating(phase):
                slot.add_certification(type(certification).decode(sent))
        with self.coordinating(phase):
            certificate = _present(slot.certificate).encode()
        for rank in revealing:
            with self.spent[rank].pays(phase) as account:
                reveal = self.clients[rank].reveal(Certificate.decode(certificate)).message
                sent = reveal.encode()
                account.bytes_down += len(certificate)
                account.bytes_up += len(sent)
            with self.coordinating(phase):
                slot.add_reveal(type(reveal).decode(sent))
        for rank in revealing if silent else ():
            with self.coordinating(phase):
                request = slot.repair_request(rank).encode()
            with self.spent[rank].pays(phase) as account:
                repair = self.clients[rank].repair(RepairRequest.decode(request)).message
                sent = repair.encode()
                account.bytes_down += len(request)
                account.bytes_up += len(sent)
            with self.coordinating(phase):
                slot.add_repair(type(repair).decode(sent))
        with self.coordinating(phase):
            total = slot.ring_total()
            decoded = self.encoding.decode(total, contributors=len(uploading))
            message, numbers = slot.total_message()
            sent = message.encode()
        for rank in uploading:
            with self.spent[rank].pays(f"{phase}, verify") as account:
                self.clients[rank].verify_total(
                    Total.decode(sent), numbers, Certificate.decode(certificate)
                )
                account.bytes_down += len(sent) + len(numbers) + len(certificate)
        return decoded


def _tags_of(vector: NDArray[np.uint64], *, others: int) -> None:
    """Do once more what an upload does for its tags: all residues and their pair masks."""
    data_tags(TABLE, vector.view("<i8"), 1)
    failed_tags(TABLE, 0, 1)
    residues = np.zeros(len(RESIDUE_PRIMES), dtype=np.int64)
    for _ in range(others):
        residues += residue_masks(tag_mask_key(TABLE))


def _present(message: Answer | None) -> Answer:
    if message is None:
        raise RuntimeError("a party had nothing to say where the protocol has a message")
    return message


def measure_cohort(
    members: int,
    length: int,
    faults: Mapping[str, tuple[int, int]],
    *,
    sums: int = 1,
    memory: bool = False,
) -> dict[str, Cell]:
    """Open an epoch and sum in it, `sums` times with each kind of fault.

    `faults` contains, by name, how many members drop out before their upload and how many fall
    silent before their reveal. Seconds are medians over the clients that stay and over the sums;
    bytes are maxima (the first sum of an epoch carries no proof that the previous sum ended).
    """
    generator = np.random.default_rng(members * length)
    values = [generator.uniform(-BOUND, BOUND, length) for _ in range(members)]
    cohort = Cohort(members, length)
    cohort.open_epoch()
    cells: dict[str, Cell] = {}
    for fault, (dropped, silent) in faults.items():
        cohort.probe = Probe(length)
        staying = cohort.spent[: members - dropped - silent]
        first = len(cohort.phases)
        for _ in range(sums):
            total = cohort.sum(values, dropped=dropped, silent=silent)
        limit = cohort.probe.limit()
        cell = {
            "relative_error": _relative_error(total, values[: members - dropped]),
            "limit_keystream_s": limit.keystream_s,
            "limit_addition_s": limit.addition_s,
        }
        for name, phases in (("epoch", ["epoch"]), ("sum", cohort.phases[first:])):
            cell |= _typical(f"coordinator_{name}", [cohort.coordinator_spent], phases)
            cell |= _typical(f"client_{name}", staying, phases)
        for name in ("tags", "data tags", "verify"):
            phases = [f"{phase}, {name}" for phase in cohort.phases[first:]]
            cell |= _typical(f"client_{name.replace(' ', '_')}", staying, phases)
        cells[fault] = cell
    if memory:
        cohort.memory.on = True
        cohort.sum(values, dropped=0, silent=0)
        kept = {
            "coordinator_kept_bytes": cohort.memory.kept,
            "coordinator_peak_bytes": cohort.memory.peak,
        }
        cells = {fault: {**cell, **kept} for fault, cell in cells.items()}
    return cells


def measure_steady(*, sums: int, members: int = 10, length: int = 20_000) -> Cell:
    """Compute `sums` sums in one epoch, whose keys are used for all of them."""
    cell = measure_cohort(members, length, {"none": (0, 0)}, sums=sums)["none"]
    limit = Limit(cell["limit_keystream_s"], cell["limit_addition_s"])
    return {**cell, "sums": sums, "masking_s": limit.client(members)}


def _relative_error(total: SecureTotal, values: list[NDArray[np.float64]]) -> float:
    """Return the largest error of about 10,000 elements, relative to the largest of them."""
    sample = slice(None, None, -(-values[0].size // 10_000))
    columns = zip(*(value[sample] for value in values), strict=True)
    exact = np.array([math.fsum(column) for column in columns])
    return float(np.max(np.abs(total["x"][sample] - exact)) / np.max(np.abs(exact)))


def _typical(name: str, parties: list[Party], phases: list[str]) -> dict[str, float]:
    accounts = [party.accounts[phase] for party in parties for phase in phases]
    return {
        f"{name}_s": float(np.median([account.cpu_s for account in accounts])),
        f"{name}_bytes_up": max(account.bytes_up for account in accounts),
        f"{name}_bytes_down": max(account.bytes_down for account in accounts),
    }
