"""Hospitals of one session that answer a coordinator in this process, as the SDK would.

Each is a real client of the secure sum with its journal, and computes with the real algorithms; its
requests are signed and sent as bytes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from httpx import Response
from sqlalchemy import insert

from kernels.model.model import Model
from kernels.model.results import released
from kernels.rounds.algorithm import contributed
from kernels.rounds.broadcast import received
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of, restore
from kernels.rounds.site.site import Site as Rows
from kernels.rounds.task import place_in
from kernels.strict_json import encode_json
from privacy.encoding import Encoding
from privacy.frames import MEDIA_TYPE, Frame, Limits
from privacy.identity import Identity, Member, Pins, Roster
from privacy.noise import draw
from privacy.securesum.client import Client
from privacy.securesum.messages import (
    AbandonRequest,
    Adverts,
    Certificate,
    Delivery,
    Opening,
    Proposal,
    RepairRequest,
    Task,
)
from privacy.securesum.records import Step
from privacy.securesum.terms import Terms
from privacy.securesum.wire import Message
from service import models
from service.database.tables import members, sessions
from service.http.wakeups import Wakeups
from service.runs import loading
from service.runs.machine.run import Run
from service.runs.runs import Runs
from service.sessions.sessions import NewPrivacy, private
from tests.dealing import DEALING
from tests.service.coordinator import Coordinator, Hospital
from tests.service.programs import TABLES, TINY

OCTETS = {"Content-Type": "application/octet-stream"}
Table = Mapping[str, Any]


@dataclass
class Site(Hospital):
    """One hospital: identity, journal, table."""

    name: str = ""
    session: str = ""
    table: Table = field(default_factory=dict)
    run: str | None = None
    outcome: Mapping[str, Any] | None = None
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    """Targets and bodies of all posted requests."""
    steps: int = 0

    def __post_init__(self) -> None:
        self.client, _ = Client.begin(self.identity)
        self.program: Program | None = None
        self.opened: dict[str, Any] = {}
        self.answers: dict[str, Callable[[Any], None]] = {
            "opening": self._advertise,
            "adverts": self._agree,
            "task": self._upload,
            "proposal": lambda item: self._say(item, self._ask(item, Proposal, "certify")),
            "certificate": lambda item: self._say(item, self._ask(item, Certificate, "reveal")),
            "repair": lambda item: self._say(item, self._ask(item, RepairRequest, "repair")),
            "abandon": lambda item: self._say(item, self._ask(item, AbandonRequest, "abandon")),
            "endorse": self._endorse,
            "ended": self._end,
        }

    # -- the wire

    def next(self, wait: float = 0) -> dict[str, Any] | None:
        """Request the next item."""
        query = f"?wait={wait}" + (f"&run={self.run}" if self.run else "")
        response = self.send("GET", f"/sessions/{self.session}/next{query}")
        assert response.status_code in (200, 204), response.text
        return item_of(response) if response.status_code == 200 else None

    def work(self, wait: float = 0) -> bool:
        """Work on the next item, if there is one."""
        item = self.next(wait)
        if item is not None:
            self.answer(item)
        return item is not None

    def answer(self, item: Mapping[str, Any]) -> None:
        self.answers[item["kind"]](item)
        self.steps += 1

    def post(self, target: str, body: bytes, **headers: str) -> Response:
        """Post bytes, signed."""
        authorised = {"Authorization": self.header("POST", target, body), **OCTETS, **headers}
        return self.coordinator.request("POST", target, headers=authorised, content=body)

    def sends(self, target: str, body: bytes) -> None:
        self.sent.append((target, body))
        response = self.post(target, body)
        assert response.status_code == 204, response.text

    def fetch(self, item: Mapping[str, Any]) -> bytes:
        state = Task.decode(item["message"]).state.hex()
        target = f"/sessions/{self.session}/runs/{item['run']}/states/{state}"
        response = self.send("GET", target)
        assert response.status_code == 200, response.text
        return response.content

    # -- items

    def _ask(self, item: Mapping[str, Any], kind: type[Message], method: str) -> Message | None:
        step: Step[Any] = getattr(self.client, method)(kind.decode(item["message"]))
        message: Message | None = step.message
        return message

    def _say(self, item: Mapping[str, Any], message: Message | None) -> None:
        if message is not None:
            target = f"/sessions/{self.session}/runs/{item['run']}/messages"
            self.sends(target, message.encode())

    def _advertise(self, item: Mapping[str, Any]) -> None:
        self.run, self.opened = item["run"], dict(item)
        self.program = Program.from_json(item["program"])
        opening = Opening.decode(item["message"])
        assert opening.run == UUID(item["run"]).bytes
        self.client.join(opening.terms)
        self._say(item, self.client.advertise(opening, "table").message)

    def _agree(self, item: Mapping[str, Any]) -> None:
        roster = Roster(
            tuple(Member(each["name"], bytes.fromhex(each["key"])) for each in item["roster"])
        )
        pins = Pins({member.name: member.key for member in roster.members})
        adverts = Adverts.decode(item["message"])
        self._say(item, self.client.agree(adverts, roster, pins).message)

    def _upload(self, item: Mapping[str, Any]) -> None:
        target = f"/sessions/{self.session}/runs/{item['run']}/vectors"
        self.sends(target, self.vector(item))

    def vector(self, item: Mapping[str, Any]) -> bytes:
        """Compute the vector of a task, after the checks that the protocol requires."""
        assert self.program is not None
        if "delivery" in item:
            self.client.receive(Delivery.decode(item["delivery"]))
        task = Task.decode(item["message"])
        stage, sum_index = place_in(task.parameters)
        algorithm = algorithm_of(self.program.stages[stage])
        state = received(self.fetch(item), self.program, stage)
        assert Position(self.program, stage, sum_index, state).digest == task.state
        _, epoch = self.client.journal.entry(task.epoch_id)
        layout, privacy, noise = algorithm.layout(state), self.program.privacy, None
        if privacy is None:
            encoding = Encoding.finest(layout, max_clients=epoch.size)
        else:
            encoding = Encoding.noisy(
                layout,
                multiplier=privacy.multipliers[stage],
                honest=epoch.terms.honest,
                max_clients=epoch.size,
            )
            noise = draw(encoding)
        assert task.statistic == f"{algorithm.NAME}/{algorithm.VERSION}"
        assert task.encoding == encoding.digest()
        expected = {
            "program": hashlib.sha256(self.opened["program"].encode()).hexdigest(),
            "run_kind": self.opened["run_kind"],
            "parent": self.opened["parent"],
            "stage": stage,
            "sum_index": sum_index,
        }
        assert task.parameters == encode_json(expected).encode()
        step = self.client.upload(
            task,
            encoding.encode(
                contributed(algorithm, state, self.rows),
                noise=None if noise is None else noise.once(),
            ),
            table=hashlib.sha256(self.name.encode()).digest(),
            state=task.state,
            encoding=encoding,
            noise=b"" if noise is None else noise.name,
        )
        header = step.message.encode()
        return len(header).to_bytes(4, "big") + header + bytes(step.body)

    @cached_property
    def rows(self) -> Rows:
        assert self.program is not None
        return Rows.of_table(
            self.program.schema,
            self.table,
            held_out=self.program.held_out,
            dealing=DEALING,
        )

    def _endorse(self, item: Mapping[str, Any]) -> None:
        """Sign the coordinator's model as it is; the SDK compares it with its own replay."""
        target = f"/sessions/{self.session}/runs/{item['run']}/model"
        section = self.send("GET", target).content
        assert hashlib.sha256(section).hexdigest() == item["model_digest"]
        model = restore(section)
        assert isinstance(model, Model)
        step = self.client.endorse(
            Certificate.decode(item["last_certificate"]),
            program=hashlib.sha256(self.opened["program"].encode()).digest(),
            parent=self.opened["parent"],
            data=section,
            state=bytes(32),
            results=released(model),
        )
        self._say(item, step.message)

    def _end(self, item: Mapping[str, Any]) -> None:
        self.outcome, ended, self.run = item["outcome"], item["run"], None
        name = (UUID(self.session).bytes, UUID(ended).bytes, item["number"])
        if name in self.client.journal.epochs:
            self.client.end(name)


def session_of(
    coordinator: Coordinator,
    program: Program = TINY,
    tables: Sequence[Table] = TABLES,
    *,
    site: type["Site"] = Site,
    epsilon: float | None = None,
    runs: int = 1,
    **terms: Any,
) -> list[Site]:
    """Create a session with one approved hospital for each table, without using the API.

    epsilon: with differential privacy, the budget of its runs; δ is 1e-5.
    """
    session = uuid4()
    fixed = {
        "max_colluders": 0,
        "min_cohort": 3,
        "differential_privacy": epsilon is not None,
    }
    if epsilon is not None:
        wanted = NewPrivacy(differential_privacy=True, epsilon=epsilon, delta=1e-5, runs=runs)
        program = private(program, wanted)
    sites = [
        site(coordinator, Identity.generate(), f"site-{i}", str(session), table)
        for i, table in enumerate(tables)
    ]
    with coordinator.context.database.changing() as connection:
        connection.execute(
            insert(sessions).values(
                id=str(session),
                name=str(session),
                program=program.to_json(),
                terms=Terms(session=session.bytes, **{**fixed, **terms}).encode(),
                planned_members=len(sites),
                created_at=coordinator.clock(),
                epsilon=epsilon,
                delta=None if epsilon is None else 1e-5,
                planned_runs=None if epsilon is None else runs,
            )
        )
        connection.execute(
            insert(members),
            [
                {
                    "session_id": str(session),
                    "key": each.identity.key,
                    "name": each.name,
                    "status": "approved",
                    "enrolled_at": coordinator.clock(),
                }
                for each in sites
            ],
        )
    return sites


def start(coordinator: Coordinator, session: str, kind: str = "train", **more: Any) -> str:
    """Start a run through the API."""
    response = coordinator.admin("POST", f"/sessions/{session}/runs", {"kind": kind, **more})
    assert response.status_code == 201, response.text
    run: str = response.json()["id"]
    return run


def work(sites: Sequence[Site]) -> None:
    """Let all sites work in turn until the run has ended for each of them."""
    for site in sites:
        site.outcome = None
    while any(site.outcome is None for site in sites):
        waiting = [site for site in sites if site.outcome is None]
        worked = [site.work() for site in waiting]
        if not any(worked):
            waiting[0].work(wait=0.2)


def until(sites: Sequence[Site], kind: str, run: str) -> None:
    """Let all sites work until each has an item of this kind."""
    while True:
        items = [site.next() for site in sites]
        if all(item is not None and item["kind"] == kind for item in items):
            return
        for site, item in zip(sites, items, strict=True):
            if item is not None and item["kind"] != kind:
                site.answer(item)
        advance(sites[0].coordinator, run)


def stop_engine(coordinator: Coordinator) -> None:
    """Stop the engine, so that the test decides when the coordinator advances a run."""
    coordinator.app.state.engine.stop()  # and once more when the application closes


def advance(coordinator: Coordinator, run: str, *, seconds: float = 0.0) -> None:
    """Let time pass, and the coordinator do the due work."""
    coordinator.clock.now += seconds
    runs_of(coordinator).advance(run)


def runs_of(coordinator: Coordinator) -> Runs:
    runs: Runs = coordinator.app.state.runs
    return runs


def lose_memory(coordinator: Coordinator) -> None:
    """Lose all state in memory, as if the process died: only the database is left."""
    state, context = coordinator.app.state, coordinator.context
    context.database.close()
    state.runs = Runs(context.database, context.settings, Wakeups(), context.clock)


def loaded(coordinator: Coordinator, run: str) -> Run:
    """Read a run from its rows."""
    with coordinator.context.database.reading() as connection:
        return loading.load(connection, run, coordinator.context.settings)[0]


def shown(coordinator: Coordinator, run: str) -> dict[str, Any]:
    """Return the run as the admin sees it."""
    response = coordinator.admin("GET", f"/runs/{run}")
    assert response.status_code == 200, response.text
    plain: dict[str, Any] = response.json()
    return plain


def stored_model(coordinator: Coordinator, site: Site) -> bytes:
    """Return the bytes of a run's model."""
    assert site.outcome is not None
    assert site.outcome["status"] == "done", site.outcome
    with coordinator.context.database.reading() as connection:
        return models.artifact(connection, site.outcome["model"])


def item_of(response: Response) -> dict[str, Any]:
    """Return the fields and the parts of an item in one dictionary."""
    assert response.headers["content-type"] == MEDIA_TYPE
    closed = ("last_task", "last_certificate", "total", "total_body", "witnesses", "certificate")
    most = dict.fromkeys(("message", "delivery", *closed), 1 << 20)
    frame = Frame.read(response.content, Limits(1 << 20, most))
    return {**frame.content, **{name: bytes(part) for name, part in frame.parts.items()}}
