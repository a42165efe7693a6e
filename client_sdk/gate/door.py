"""The door: the only place through which numbers leave a hospital.

    check that the task, with its broadcast, is the one that the run's program has at this stage
    → the site's policy → draw noise → contribute → encode with the noise → mask
    → write the journal and the charge to disk → send

A refusal at any step changes nothing. A task that was answered before gets the same bytes again,
without being computed or charged again. With differential privacy, the noise of a task is derived
here from the run's program and its cost from what is drawn, both before the table is read. For
every vector the journal has a line for people: which numbers, how many, and the SHA-256 of the
bytes exactly as they are sent.

Only one thing leaves without a mask, and only if the site's policy allows it: see
`unmasked_samples`.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from client_sdk.errors import WrongTask
from client_sdk.events import EventWatch, VectorLeft
from client_sdk.gate.policy import Policy
from client_sdk.gate.refusal_report import about_own_rows
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.gate.unmasked_samples import drawn_samples
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import Charge, Departure, UnmaskedSamples
from client_sdk.network.exchange import Effects, Exchange, SendResult
from client_sdk.tables.hospital_table import HospitalTable
from kernels.rounds.algorithm import Algorithm, contributed
from kernels.rounds.broadcast import received
from kernels.rounds.plan import planned, release_plan
from kernels.rounds.task import noise_multiplier, statistic_of
from privacy.accounting.promises import released
from privacy.encoding import Encoding
from privacy.ledger import Entry
from privacy.noise import Draw, draw
from privacy.securesum.checks import check_broadcast
from privacy.securesum.epoch import Epoch
from privacy.securesum.journal import EpochEntry, Journal
from privacy.securesum.messages import Task
from privacy.securesum.steady import bind_for_upload

_LENGTH_BYTES = 4


def runs_of(journal: Journal, source: str, session: UUID) -> frozenset[bytes]:
    """Return the runs of a session in which a data source was summed, without abandoned sums."""
    return frozenset(
        entry.name[1]
        for entry in journal.of_session(session.bytes)
        if entry.source == source
        and any(slot.uploaded is not None and not slot.abandoned for slot in entry.slots.values())
    )


@dataclass(frozen=True)
class Door:
    """The exit for a hospital's numbers in one run."""

    home: OpenHome
    exchange: Exchange
    policy: Policy
    table: HospitalTable
    run: RunInHand
    watch: EventWatch

    def send_masked_vector(
        self, task: Task, stage: int, fetch: Callable[[], Effects[bytes]]
    ) -> Effects[SendResult]:
        """Answer a task; `fetch` gets its broadcast. Masked numbers leave in no other way."""
        client, today = self.home.client, self.exchange.clock.now().date()
        entry, epoch = client.journal.entry(task.epoch_id)
        algorithm = self._check_task(task, stage, entry)
        self.policy.check_task(
            self.run.program,
            stage,
            confirmed=len(entry.trusted.intersection(task.active)),
            sums=self._sums(entry, task.slot),
            runs=len(runs_of(client.journal, entry.source, self.run.session) | {entry.name[1]}),
            today=today,
        )
        slot = entry.slots.get(task.slot)
        again = slot is not None and slot.uploaded is not None
        broadcast, vector = b"", np.zeros(0, dtype=np.uint64)
        blocks: tuple[str, ...] = ()
        noise: Draw | None = None
        charge: Charge | None = None
        samples: UnmaskedSamples | None = None
        if not again:
            broadcast = yield from fetch()
            check_broadcast(task, broadcast)
            state = received(broadcast, self.run.program, stage)
            encoding = self._encoding(task, stage, algorithm, state, epoch)
            charge = self._charge(encoding, entry, epoch, task, stage)
            # Checks that do not depend on the rows come before the rows are read: which of two
            # refusals is reported must not depend on the rows.
            bind_for_upload(client.journal, entry, epoch, task.active, self.table.digest)
            noise = draw(encoding) if encoding.share_deviations else None
            with about_own_rows():
                contribution = contributed(algorithm, state, self.table.site)
                integers = None if noise is None else noise.once()
                vector = encoding.encode(contribution, noise=integers)
                samples = drawn_samples(
                    self.policy,
                    self.table,
                    self.run,
                    stage=stage,
                    state=state,
                    epoch=entry.name[2],
                    slot=task.slot,
                    today=today,
                )
            blocks = tuple(block.name for block in encoding.layout.blocks)
        step = client.upload(
            task,
            vector,
            table=self.table.digest,
            broadcast=broadcast,
            noise=b"" if noise is None else noise.name,
        )
        header = step.message.encode()
        parts = (len(header).to_bytes(_LENGTH_BYTES, "big"), header, step.body)
        departure = self._departure(entry, task, stage, blocks, parts)
        self.home.store.commit(
            step, departure=None if again else departure, charge=charge, samples=samples
        )
        sent = yield from self.exchange.send(
            f"/sessions/{self.run.session}/runs/{self.run.run}/vectors", *parts
        )
        if sent.conflict is None:
            self.watch(
                VectorLeft(
                    stage,
                    len(self.run.program.stages),
                    algorithm.NAME,
                    self._sums(entry, task.slot),
                    task.length,
                    departure.octets,
                    departure.sha256,
                )
            )
        return sent

    def _check_task(self, task: Task, stage: int, entry: EpochEntry) -> Algorithm:
        """Refuse a task of another run, or one that differs from the program at this stage."""
        if entry.name[:2] != (self.run.session.bytes, self.run.run.bytes):
            raise WrongTask("the task belongs to an epoch of another session or run")
        if stage >= len(self.run.program.stages):
            raise WrongTask(
                f"the task is for stage {stage} (counted from 0), but the program has only "
                f"{len(self.run.program.stages)} stages"
            )
        algorithm, _ = list(self.run.program.algorithms())[stage]
        statistic = statistic_of(algorithm)
        if task.statistic != statistic:
            raise WrongTask(
                f"the task's statistic is not {statistic}, which the program has at stage {stage}"
            )
        if task.parameters != self.run.parameters(stage):
            raise WrongTask("the task's program, kind, seed or stage differs from the run's")
        if task.noise:
            raise WrongTask("the task requests noise in addition to that of its encoding")
        return algorithm

    def _encoding(
        self, task: Task, stage: int, algorithm: Algorithm, state: Any, epoch: Epoch
    ) -> Encoding:
        """Derive the encoding that every member must use; refuse a task with another one.

        Whether there is noise follows from the run's program, never from the task.
        """
        layout, noisy = algorithm.layout(state), self.run.program.privacy is not None
        if epoch.terms.differential_privacy != noisy:
            raise WrongTask("the session's terms and the run's program disagree about noise")
        encoding = Encoding.of_sum(
            layout,
            multiplier=noise_multiplier(self.run.program, stage),
            honest=epoch.terms.honest,
            members=epoch.size,
        )
        if task.encoding != encoding.to_bytes() or task.length != encoding.layout.length:
            raise WrongTask(
                f"the task's encoding is not the {'noisy' if noisy else 'finest'} encoding of "
                f"{algorithm.NAME} for {epoch.size} members"
            )
        return encoding

    def _charge(
        self, encoding: Encoding, entry: EpochEntry, epoch: Epoch, task: Task, stage: int
    ) -> Charge | None:
        """Return this vector's cost, by the noise to be drawn; refuse it beyond the budget."""
        if not encoding.share_deviations:
            return None
        program = self.run.program
        if not planned(program)[stage].sums:
            raise WrongTask("the task requests a sum at a stage for which the program plans none")
        plan = release_plan(program, self.run.seed, table=self.table.digest)
        release = released(plan, encoding, stage=stage, honest=epoch.terms.honest)
        ledger = self.home.store.ledger(entry.source, self.policy.budget, rows=self.table.rows)
        self.policy.check_spending(ledger, [release])
        at = self.exchange.clock.now().timestamp()
        session, run = str(self.run.session), str(self.run.run)
        charged = Entry(at, session, run, entry.name[2], task.slot, release)
        return Charge.of(entry.source, charged, rows=self.table.rows)

    def _sums(self, entry: EpochEntry, slot: int) -> int:
        """Count the sums of the run that this hospital has answered, including this one."""
        epochs = self.home.client.journal.epochs.values()
        answered = {
            (other.name, number)
            for other in epochs
            if other.name[:2] == entry.name[:2]
            for number, known in other.slots.items()
            if known.uploaded is not None and not known.abandoned
        }
        return len(answered | {(entry.name, slot)})

    def _departure(
        self,
        entry: EpochEntry,
        task: Task,
        stage: int,
        blocks: tuple[str, ...],
        parts: tuple[bytes | memoryview, ...],
    ) -> Departure:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return Departure(
            at=self.exchange.clock.now().isoformat(timespec="seconds"),
            session=str(self.run.session),
            run=str(self.run.run),
            epoch=entry.name[2],
            slot=task.slot,
            stage=stage,
            algorithm=task.statistic,
            blocks=json.dumps(blocks),
            elements=task.length,
            octets=sum(memoryview(part).nbytes for part in parts),
            sha256=digest.hexdigest(),
            rows=self.table.journalled.hex(),
        )
