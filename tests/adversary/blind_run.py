"""A blind run between real clients and real replays, without a network: for attacks on its parts.

The coordinator of the secure sum is the real one, too, and does what a test says: `item` is what it
sends to a hospital. Members are known by their ranks.
"""

from collections.abc import Generator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from client_sdk.conversation.answers import Item
from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.participation import Participation
from client_sdk.conversation.replay import Downloads, Needed, Replay, encoding_at
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.home import OpenHome
from client_sdk.home.remembered import Holding
from client_sdk.network.exchange import SendResult
from kernels.rounds.algorithm import rehearsed
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation
from kernels.rounds.layer import linear
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.task import statistic_of
from privacy.frames import Frame
from privacy.securesum.client import Client
from privacy.securesum.epoch import Epoch
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.memory import group_entry
from privacy.securesum.messages import AuthorRequest, Certificate, Task, Witnesses
from privacy.securesum.records import GroupSecrets
from privacy.securesum.simulator import Simulation, Site
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Message
from tests.kernels.rounds import tables

SESSION = UUID("0e1a3c5b-0000-4000-8000-000000000001")
PROGRAM = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (moments.Spec(), linear.Spec(), evaluation.Spec(recalibrated=False)),
    max_rows=1000,
    held_out=0.25,
)


def result(steps: Generator[Any, Any, Any]) -> Any:
    """Run a conversation that needs nothing from outside."""
    try:
        asked = next(steps)
    except StopIteration as done:
        return done.value
    raise AssertionError(f"nothing was to be sent or fetched: {asked}")


class BlindRun:
    """Four hospitals, of whom one may collude, in the first epoch of a blind run."""

    def __init__(self, program: Program = PROGRAM, *, members_only: bool = False) -> None:
        terms = Terms(
            SESSION.bytes,
            1,
            4,
            differential_privacy=False,
            blind=True,
            members_only=members_only,
        )
        self.simulation = Simulation(4, terms=terms)
        self.simulation.open_epoch()
        text = program.to_json()
        self.run = RunInHand(
            session=SESSION,
            run=UUID(bytes=self.simulation.coordinator.run),
            kind="train",
            text=text,
            program=Program.from_json(text),
            parent=None,
        )
        self.replays = [self.replay(rank) for rank in range(4)]
        self.closed: dict[str, bytes] = {}
        """The newest closed sum, as items describe it."""

    @property
    def epoch(self) -> Epoch:
        """The epoch."""
        return self.simulation.epoch

    def site(self, rank: int) -> Site:
        """Return a hospital's machine."""
        return self.simulation.sites[rank]

    def client(self, rank: int) -> Client:
        """Return a hospital's client."""
        return self.site(rank).client

    def replay(self, rank: int) -> Replay:
        """Return a hospital's replay, which remembers nothing."""
        return Replay(self.home(rank), self.run, cast(Downloads, None), lambda _: None)

    def home(self, rank: int, holding: Holding | None = None) -> OpenHome:
        """Return a home that has this hospital's client, and a position or none."""
        site = self.site(rank)
        store = SimpleNamespace(
            holding=lambda *_: holding, commit=lambda step, **_: site.persist(step)
        )
        found: Any = SimpleNamespace(
            client=site.client, identity=site.identity, store=store, keep=site.persist
        )
        return cast(OpenHome, found)

    def item(self, kind: ItemKind, message: Message, **parts: bytes) -> Item:
        """Return what the coordinator sends."""
        views = {name: memoryview(part) for name, part in parts.items()}
        return Item(kind, self.run.run, 0, message.encode(), Frame({}, views))

    def newest(self, rank: int) -> Holding:
        """Return a hospital's newest position, as it would write a task from it."""
        request = self.simulation.coordinator.author_request()
        item = self.item(ItemKind.AUTHOR, request, **self.closed)
        holding: Holding | None = result(self.replays[rank].newest(request, item))
        assert holding is not None
        return holding

    def draft(self, rank: int, position: Position, **said: Any) -> Task:
        """Let a member write the next task, from a position, with other words if it lies."""
        request: AuthorRequest = self.simulation.coordinator.author_request()
        encoding = encoding_at(position, self.epoch)
        honest = {
            "statistic": statistic_of(position.algorithm),
            "parameters": self.run.parameters(position.stage, position.sum_index),
            "length": encoding.layout.length,
            "state": position.digest,
            "encoding": encoding,
            "applied": None,
        }
        step = self.client(rank).draft(request, **(honest | said))
        self.site(rank).persist(step)
        return self.simulation.coordinator.begin_drafted(step.message)

    def answering(
        self, rank: int, task: Task, *, replay: Replay | None = None, **parts: bytes
    ) -> Holding | Needed:
        """Return what a hospital answers a task from, or what it needs first."""
        item = self.item(ItemKind.TASK, task, **(self.closed | parts))
        found: Holding | Needed = result((replay or self.replays[rank]).answering(task, item))
        return found

    def upload(self, task: Task, position: Position) -> None:
        """Let every hospital answer a task, as the door would."""
        state, encoding = position.state, encoding_at(position, self.epoch)
        ready = rehearsed(position.algorithm, state)
        vectors = [encoding.encode(ready.contributed(tables.site(seed=rank))) for rank in range(4)]
        self.simulation.upload(task, vectors, encoding=encoding, state=position.digest)

    def sum(self) -> None:
        """Run the next sum to its end."""
        holdings = [self.newest(rank) for rank in range(4)]
        task = self.draft(0, holdings[0].newest)
        self.upload(task, holdings[0].newest)
        slot = self.simulation.coordinator.slot
        self.simulation.finish(slot.propose())
        certificate, (total, body) = slot.certificate, slot.total_message()
        assert certificate is not None
        self.closed = {
            "last_task": task.encode(),
            "last_certificate": certificate.encode(),
            "total": total.encode(),
            "total_body": bytes(body),
        }

    def finish(self) -> Holding:
        """Run all sums; return the position at the end."""
        while not (holding := self.newest(0)).newest.finished:
            self.sum()
        return holding

    @property
    def last(self) -> Certificate:
        """The certificate of the newest closed sum."""
        return Certificate.decode(self.closed["last_certificate"])

    def witnesses(self, ranks: tuple[int, ...]) -> bytes:
        """Return the headers by which these members have answered the current task."""
        headers = self.simulation.coordinator.slot.headers
        return Witnesses(tuple(each for each in headers if each.rank in ranks)).encode()

    def group_key(self, rank: int) -> bytes:
        """Return the group key, which a colluding member gives away."""
        name = group_entry((SESSION.bytes, self.run.run.bytes, 0))
        return GroupSecrets.decode(bytes(self.site(rank).vault[name])).key


def side_of(run: BlindRun, rank: int, sent: list[Any], holding: Holding | None) -> HospitalSide:
    """Return a hospital's side of the conversation; what it sends is kept."""

    def send(*given: Any, **_: Any) -> Any:
        sent.append(given)
        return SendResult()
        yield

    clock = SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    side: Any = SimpleNamespace(
        home=run.home(rank, holding),
        link=SimpleNamespace(session=SESSION),
        session=str(SESSION),
        exchange=SimpleNamespace(send=send, clock=clock),
        watch=lambda _: None,
    )
    return cast(HospitalSide, side)


def participation(
    run: BlindRun, rank: int, sent: list[Any], holding: Holding | None = None
) -> Participation:
    """Return a hospital's part of the run, at a stored position or none."""
    offer: Any = SimpleNamespace(terms=run.simulation.terms)
    part = Participation(side_of(run, rank, sent, holding), offer, cast(Any, None))
    part._replay = run.replays[rank]
    return part
