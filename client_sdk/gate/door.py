"""The door: the only place through which numbers leave a hospital.

    check that the task is the one that the run's program has at this position
    → the site's policy → try the state on made-up rows → draw noise → write the charge to disk
    → contribute → encode with the noise → wait for the answer time → mask
    → write the journal to disk → send

Everything that can be refused is refused before the first row is read, and a refusal changes
nothing. From the charge on a vector leaves in any case, whatever the rows are (docs/threats.md A24,
A26). Without differential privacy a site that cannot compute its numbers answers with a vector that
makes the sum unusable and names nobody (`privacy.securesum`); what failed is shown and stored here.
With differential privacy the charge is on disk before a row is read. After a crash in between, the
vector is computed again under the same charge, with fresh noise: nothing has left.

A task that was answered before gets the same bytes again, without being computed or charged again.
For every vector the journal has a line for people: which numbers, how many, and the SHA-256 of the
bytes exactly as they are sent.

Only one thing leaves without a mask, and only if the site's policy allows it: see
`unmasked_samples`.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.error_origin import Origin, mark
from client_sdk.errors import WrongTask
from client_sdk.events import AnswerLate, CouldNotCompute, EventWatch, VectorLeft
from client_sdk.gate.policy import Policy
from client_sdk.gate.refusal_report import about_own_rows, about_totals
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.gate.unmasked_samples import drawn_samples
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import Charge, Departure, Failure, Holding, UnmaskedSamples
from client_sdk.network.exchange import Effects, Exchange, Pause, SendResult
from client_sdk.tables.hospital_table import HospitalTable
from kernels.errors import ComputationFailed
from kernels.rounds.algorithm import Algorithm, computing, rehearsed
from kernels.rounds.broadcast import checked
from kernels.rounds.plan import planned, release_plan
from kernels.rounds.position import Position
from kernels.rounds.task import noise_multiplier, statistic_of
from privacy.accounting.promises import released
from privacy.encoding import Encoding
from privacy.ledger import Entry
from privacy.noise import Draw, draw
from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import SameTable, TableChanged
from privacy.securesum.journal import EpochEntry
from privacy.securesum.masking import FailedVector
from privacy.securesum.messages import UNNAMED, Task

_LENGTH_BYTES = 4


@dataclass(frozen=True)
class _Answer:
    """What leaves for a task.

    began: when the first row was read.
    """

    vector: NDArray[np.uint64] | FailedVector
    encoding: Encoding | None = None
    began: float = 0.0
    noise: bytes = b""
    samples: UnmaskedSamples | None = None
    failure: Failure | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of its blocks."""
        blocks = () if self.encoding is None else self.encoding.layout.blocks
        return tuple(block.name for block in blocks)


@dataclass(frozen=True)
class Door:
    """The exit for a hospital's numbers in one run.

    answer_times: for each stage, the seconds after which an answer leaves; empty for no wait.
    """

    home: OpenHome
    exchange: Exchange
    policy: Policy
    table: HospitalTable
    run: RunInHand
    watch: EventWatch
    answer_times: tuple[float, ...] = ()

    def has_answered(self, task: Task) -> bool:
        """Whether a vector was computed for a task's slot: the same bytes are sent again."""
        entry, _ = self.home.client.journal.entry(task.epoch_id)
        slot = entry.slots.get(task.slot)
        return slot is not None and slot.uploaded is not None

    def send_masked_vector(self, task: Task, holding: Holding | None) -> Effects[SendResult]:
        """Answer a task from the newest position. Masked numbers leave in no other way.

        holding: where this hospital is in the run; None if it has answered the task.
        """
        client, today = self.home.client, self.exchange.clock.now().date()
        entry, _ = client.journal.entry(task.epoch_id)
        stage, sum_index = self.run.place(task)
        algorithm = self._check_task(task, stage, entry)
        again = self.has_answered(task)
        computed = self.home.store.disclosures(entry.source, rows=self.table.rows).vectors
        self.policy.check_task(
            self.run.program,
            stage,
            confirmed=len(task.active),
            sums=computed if again else computed + 1,
            today=today,
        )
        answer = _Answer(np.zeros(0, dtype=np.uint64))
        state = UNNAMED
        if not again:
            position = self._check_position(holding, stage, sum_index)
            answer, state = self._computed(task, algorithm, position), position.digest
            yield from self._wait(stage, algorithm, answer.began)
        step = client.upload(
            task,
            answer.vector,
            table=self.table.digest,
            state=state,
            encoding=answer.encoding,
            noise=answer.noise,
        )
        header = step.message.encode()
        parts = (len(header).to_bytes(_LENGTH_BYTES, "big"), header, step.body)
        departure = self._departure(entry, task, answer.blocks, parts)
        self.home.store.commit(
            step,
            departure=None if again else departure,
            samples=answer.samples,
            failure=answer.failure,
            holding=holding,
        )
        if answer.failure is not None:
            private = self.run.program.privacy is not None
            self.watch(CouldNotCompute(stage, algorithm.NAME, answer.failure.reason, private))
        sent = yield from self.exchange.send(
            f"/sessions/{self.run.session}/runs/{self.run.run}/vectors", *parts
        )
        if sent.conflict is None:
            self.watch(
                VectorLeft(
                    stage,
                    len(self.run.program.stages),
                    algorithm.NAME,
                    departure.sum_number,
                    task.length,
                    departure.octets,
                    departure.sha256,
                )
            )
        return sent

    def _computed(self, task: Task, algorithm: Algorithm, position: Position) -> "_Answer":
        """Compute this site's vector; nothing is refused once the first row is read."""
        client, today = self.home.client, self.exchange.clock.now().date()
        entry, epoch = client.journal.entry(task.epoch_id)
        stage = position.stage
        with about_totals(hidden=epoch.terms.blind and position.sum_index > 0):
            state = checked(position.state, self.run.program, stage)
            ready = rehearsed(algorithm, state)
        encoding = self._encoding(task, stage, algorithm, state, epoch)
        try:
            client.check_upload(
                task, table=self.table.digest, state=position.digest, encoding=encoding
            )
        except (SameTable, TableChanged) as error:
            mark(error, Origin.OWN_ROWS)
            raise
        noise = draw(encoding) if encoding.share_deviations else None
        if noise is not None:
            self._charge(encoding, noise, task, stage)
        vector: NDArray[np.uint64] | FailedVector
        samples: UnmaskedSamples | None = None
        failures: list[ComputationFailed] = []
        began = self.exchange.clock.monotonic()
        with about_own_rows():
            try:
                contribution = ready.contributed(self.table.site, failures.append)
                with computing(f"the numbers of {algorithm.NAME} cannot be sent"):
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
            except ComputationFailed as failed:
                if noise is not None:  # the source of noise is broken: nothing leaves
                    raise
                vector, samples = FailedVector.drawn(task.length, os.urandom), None
                failures.append(failed)
        return _Answer(
            vector,
            encoding,
            began=began,
            noise=b"" if noise is None else noise.name,
            samples=samples,
            failure=self._failure(entry, task, failures[0]) if failures else None,
        )

    def _wait(self, stage: int, algorithm: Algorithm, began: float) -> Effects[None]:
        """Wait until the stage's answer time has passed since the first row was read.

        What comes before and after does not depend on the rows.
        """
        answer_s = self.answer_times[stage] if self.answer_times else 0.0
        left_s = began + answer_s - self.exchange.clock.monotonic()
        if left_s > 0:
            yield Pause(left_s)
        elif answer_s > 0:
            self.watch(AnswerLate(stage, algorithm.NAME, answer_s, -left_s))

    def _check_task(self, task: Task, stage: int, entry: EpochEntry) -> Algorithm:
        """Refuse a task of another run, or one that differs from the program at this stage."""
        if entry.name[:2] != (self.run.session.bytes, self.run.run.bytes):
            raise WrongTask("the task belongs to an epoch of another session or run")
        algorithm, _ = list(self.run.program.algorithms())[stage]
        statistic = statistic_of(algorithm)
        if task.statistic != statistic:
            raise WrongTask(
                f"the task's statistic is not {statistic}, which the program has at stage {stage}"
            )
        return algorithm

    def _check_position(self, holding: Holding | None, stage: int, sum_index: int) -> Position:
        """Return this hospital's position, if it is where the task says that the run is.

        The secure sum's client compares its state with the task's before a row is read.
        """
        position = None if holding is None else holding.newest
        if position is None or (position.stage, position.sum_index) != (stage, sum_index):
            raise WrongTask("the task is to be answered from another state than this hospital's")
        return position

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
        # With blind sums a keyed value covers the encoding: the secure sum's client compares it.
        named = UNNAMED if epoch.terms.blind else encoding.digest()
        if task.encoding != named or task.length != encoding.layout.length:
            raise WrongTask(
                f"the task's encoding is not the {'noisy' if noisy else 'finest'} encoding of "
                f"{algorithm.NAME} for {epoch.size} members"
            )
        return encoding

    def _charge(self, encoding: Encoding, noise: Draw, task: Task, stage: int) -> None:
        """Write this vector's cost to disk, by the noise drawn; refuse it beyond the budget.

        If it was charged before a crash, and nothing was journalled, the same charge holds: but
        only for the same cost, because the coordinator may send another task for the slot.
        """
        entry, epoch = self.home.client.journal.entry(task.epoch_id)
        program, store = self.run.program, self.home.store
        if not planned(program)[stage].sums:
            raise WrongTask("the task requests a sum at a stage for which the program plans none")
        plan = release_plan(program, self.table.dealing)
        release = released(plan, encoding, stage=stage, honest=epoch.terms.honest)
        at = self.exchange.clock.now().timestamp()
        session, run = str(self.run.session), str(self.run.run)
        entered = Entry(at, session, run, entry.name[2], task.slot, release)
        charge = Charge.of(entry.source, entered, rows=self.table.rows, noise=noise.name)
        before = store.charge_of(session, run, entry.name[2], task.slot)
        if before is None:
            ledger = store.ledger(entry.source, self.policy.budget, rows=self.table.rows)
            self.policy.check_spending(ledger, [release])
        elif not before.covers(charge):
            raise WrongTask(
                "before it was interrupted, this hospital was charged for another task of this sum"
            )
        store.charge(charge)

    def _failure(self, entry: EpochEntry, task: Task, failed: ComputationFailed) -> Failure:
        stage, sum_index = self.run.place(task)
        return Failure(
            at=self.exchange.clock.now().isoformat(timespec="seconds"),
            session=str(self.run.session),
            run=str(self.run.run),
            epoch=entry.name[2],
            slot=task.slot,
            stage=stage,
            algorithm=task.statistic,
            reason=str(failed),
            sum_number=sum_index + 1,
            rows=self.table.journalled.hex(),
        )

    def _departure(
        self,
        entry: EpochEntry,
        task: Task,
        blocks: tuple[str, ...],
        parts: tuple[bytes | memoryview, ...],
    ) -> Departure:
        stage, sum_index = self.run.place(task)
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
            sum_number=sum_index + 1,
            rows=self.table.journalled.hex(),
        )
