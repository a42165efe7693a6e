"""Members come and go at random: every private run ends, and no sum is below the minimum.

Only the state machine, with real members of the secure sum: no network, no database, no rows.
"""

from typing import Any
from uuid import UUID

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rounds import position as positions
from privacy.errors import LayoutError
from privacy.identity import Identity, Member, Pins, Roster
from privacy.ledger import Budget, Ledger
from privacy.noise import draw
from privacy.securesum.client import Client
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.errors import BadDealer, OutOfOrder
from privacy.securesum.messages import Certificate, Delivery, Task
from privacy.securesum.terms import Terms
from service.runs.machine.attendance import least
from service.runs.machine.items import item_for
from service.runs.machine.plan import Plan, Status
from service.runs.machine.run import Run
from service.runs.machine.stages import encoding_of
from service.sessions.sessions import NewPrivacy, private
from tests.service.programs import PRIVATE

MEMBERS = 5
SESSION = UUID(int=1)
TERMS = Terms(SESSION.bytes, 1, 3, differential_privacy=True)
PROGRAM = private(PRIVATE, NewPrivacy(differential_privacy=True, epsilon=50.0, delta=1e-5, runs=50))
IDENTITIES = [Identity.generate() for _ in range(MEMBERS)]
ROSTER = Roster(tuple(Member(f"site-{i}", each.key) for i, each in enumerate(IDENTITIES)))
PINS = Pins({member.name: member.key for member in ROSTER.members})


def opened(number: int) -> Run:
    run_id = UUID(int=number + 2)
    plan = Plan(
        id=str(run_id),
        session_id=str(SESSION),
        kind="train",
        program=PROGRAM,
        text=PROGRAM.to_json(),
        base_model=None,
        deadline_at=5000.0,
        repair_after_s=20.0,
        restart_after_s=300.0,
        author_after_s=10.0,
        gather_s=60.0,
        leave_out_after_s=120.0,
        max_vector=1 << 20,
    )
    epoch = Coordinator(TERMS, run=run_id.bytes, number=0, roster=ROSTER)
    ledger = Ledger(Budget(50.0, 1e-5))
    position = positions.start(PROGRAM, None)
    where = {"stage": position.stage, "sums": 0}
    return Run(plan, epoch, position, **where, since=0.0, ledger=ledger)


class Hospital:
    """A member whose rows are all zero: what it sends is its noise."""

    def __init__(self, identity: Identity) -> None:
        self.key = identity.key
        self.client, _ = Client.begin(identity)
        self.client.join(TERMS)

    def work(self, run: Run, now: float) -> None:
        if run.returns(self.key):
            run.note_return(self.key)
        item = item_for(run, self.key)
        if item is None:
            return
        message: Any = item.message
        match item.kind:
            case "opening":
                said: Any = self.client.advertise(message, "table").message
            case "adverts":
                said = self.client.agree(message, ROSTER, PINS).message
            case "task":
                self._upload(run, message, item.parts.get("delivery"))
                return
            case "proposal":
                said = self.client.certify(message).message
            case "certificate":
                said = self.client.reveal(message).message
            case "endorse":
                said = self.client.endorse(
                    Certificate.decode(item.parts["last_certificate"]),
                    program=bytes.fromhex(run.plan.digest),
                    parent=None,
                    data=run.section,
                    state=bytes(32),
                    results=b"",
                ).message
            case other:
                assert other == "repair"
                said = self.client.repair(message).message
        run.take(self.key, said, now)

    def _upload(self, run: Run, task: Task, delivered: object) -> None:
        rank = run.epoch.epoch.rank(self.key) if run.epoch.epoch else 0
        if delivered is not None:
            self.client.receive(Delivery.decode(run.epoch.delivery(rank).encode()))
        assert run.epoch.epoch is not None
        honest = run.epoch.terms.honest
        encoding = encoding_of(run.position, members=run.epoch.epoch.size, honest=honest)
        zeros = {block.name: np.zeros(block.shape) for block in encoding.layout.blocks}
        noise = draw(encoding)
        step = self.client.upload(
            task,
            encoding.encode(zeros, noise=noise.once()),
            table=bytes(32),
            state=task.state,
            encoding=encoding,
            noise=noise.name,
        )
        run.epoch.slot.add_upload(step.message, step.body)


def compute(run: Run, now: float) -> None:
    while run.work_due:
        before = run.ledger
        run.settle(run.prepare(now), now)
        if run.slot is not None and run.ending is None and not run.is_finished:
            assert before is not None
            assert run.ledger is not None
            assert len(run.ledger.entries) == len(before.entries) + 1, "every sum is charged"
            assert len(run.slot.task.active) >= least(run.slot.epoch)


@settings(max_examples=12, deadline=None)
@given(st.data(), st.integers(0, 10**6))
def test_whoever_stays_and_whoever_leaves_every_run_ends(data: st.DataObject, number: int) -> None:
    run, now = opened(number), 0.0
    hospitals = [Hospital(identity) for identity in IDENTITIES]
    for turn in range(400):
        random = turn < 40
        for hospital in hospitals:
            if not random or data.draw(st.booleans()):
                try:
                    hospital.work(run, now)
                except OutOfOrder:
                    continue
        if random:
            now += data.draw(st.sampled_from([0.0, 0.0, 30.0, 130.0]))
        elif turn % 10 == 0:
            now += 61.0
        run.advance(now)
        if run.slot is not None and run.slot.proposal is not None:
            assert len(run.slot.proposal.survivors) >= least(run.slot.epoch)
        compute(run, now)
        assert run.due_at > now or run.ending is not None, "nothing that is due is left undone"
        if run.ending is not None:
            break
    assert run.ending is not None
    assert run.status is Status.DONE or run.ending.code == "run.deadline", run.ending


def test_with_everyone_there_a_machine_ends_done() -> None:
    run = opened(0)
    hospitals = [Hospital(identity) for identity in IDENTITIES]
    while run.ending is None:
        for hospital in hospitals:
            hospital.work(run, 0.0)
        run.advance(0.0)
        compute(run, 0.0)
    assert run.status is Status.DONE


def test_a_sum_that_fails_because_of_members_names_them() -> None:
    run = opened(0)
    for identity in IDENTITIES:
        Hospital(identity).work(run, 0.0)
    run.advance(0.0)
    assert run.epoch.epoch is not None
    key = run.epoch.epoch.members[2]
    (member,) = run.named([key])
    run.fail_by(BadDealer("The shares that rank 2 dealt do not give its key.", ranks=(2,)))
    assert run.ending is not None
    assert run.ending.code == "collection.dealer"
    assert run.ending.detail is not None
    assert run.ending.detail.endswith(f"(rank 2 is {member.name}.)")


def test_a_sentence_that_only_looks_as_if_it_spoke_of_a_rank_names_nobody() -> None:
    run = opened(0)
    for identity in IDENTITIES:
        Hospital(identity).work(run, 0.0)
    run.advance(0.0)
    run.fail_by(LayoutError("A matrix of rank 2 has too many numbers."))
    assert run.ending is not None
    assert run.ending.detail == "A matrix of rank 2 has too many numbers."
