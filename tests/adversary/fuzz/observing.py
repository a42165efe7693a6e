"""What is seen of a site from outside when it gets a state: straight from rows, and at its door.

Refusals before the first row are the same for all sites, because no row was looked at. Without
noise a vector that says that a site has failed and a good one look the same until they are summed.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import numpy as np

from client_sdk.error_origin import origins_of
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.door import Door
from client_sdk.gate.policy import Policy
from client_sdk.gate.refusal_report import REPORTABLE, public_code
from client_sdk.gate.run_in_hand import RunInHand
from client_sdk.home.home import Home
from client_sdk.home.remembered import Holding
from client_sdk.network.exchange import Call, Exchange, Pause, Reply
from client_sdk.tables.hospital_table import HospitalTable, site_of
from kernels.errors import ComputationFailed, KernelsError
from kernels.rounds.algorithm import Algorithm, Rehearsed, computing, rehearsed
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.plan import columns_read
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.run_kinds import Kind
from kernels.rounds.site.site import Site
from kernels.rounds.task import noise_multiplier, program_digest, statistic_of, task_parameters
from privacy.encoding import Encoding
from privacy.errors import PrivacyError
from privacy.ledger import Budget
from privacy.securesum.messages import Task
from privacy.securesum.terms import default_terms
from tests.client_sdk.conftest import NAMES
from tests.client_sdk.coordinator import HOST, PROTOCOL, SmallCoordinator
from tests.client_sdk.hospitals import Hospital, permissive
from tests.dealing import DEALING, home_keys
from tests.kernels.rounds import private, tables

MEMBERS = 3
DECLARED = (KernelsError, PrivacyError)
"""What may be raised before a row is read; the coordinator is told its code."""
BUDGET = {"epsilon": 1000.0, "delta": 1e-5}


@dataclass(frozen=True)
class Seen:
    """What the coordinator, and whoever watches the network, sees of a site.

    how: answered, refused, absent, or escaped for an error that nothing expects.
    requests: method, the last part of the path, and the size of each.
    """

    how: str
    code: str = ""
    requests: tuple[tuple[str, str, int], ...] = ()
    charges: int = 0

    @property
    def expected(self) -> bool:
        """Whether a site may behave like this at all."""
        return self.how in ("answered", "refused")


def escaped(error: BaseException) -> Seen:
    """Return what is seen of an error that nothing handles: the conversation ends there."""
    return Seen("escaped", f"{type(error).__name__}: {error}"[:200])


# -- straight from the rows


@dataclass(frozen=True)
class Accepted:
    """A state that was accepted before a row was read, and the encoding of its sum."""

    ready: Rehearsed
    encoding: Encoding


def before_rows(algorithm: Algorithm, state: Any, program: Program, stage: int) -> Accepted | Seen:
    """Return the state ready for rows, or what is seen of its refusal."""
    try:
        ready = rehearsed(algorithm, state)
        encoding = Encoding.of_sum(
            ready.layout,
            multiplier=noise_multiplier(program, stage),
            honest=MEMBERS,
            members=MEMBERS,
        )
    except DECLARED as error:
        return Seen("refused", error.code)
    except Exception as error:  # noqa: BLE001
        return escaped(error)
    return Accepted(ready, encoding)


def from_rows(accepted: Accepted, site: Site) -> tuple[Seen, Any]:
    """Return what is seen of one site, and its vector: None if it failed."""
    encoding = accepted.encoding
    private = bool(encoding.share_deviations)
    silent = np.zeros(encoding.layout.length, dtype="<i8") if private else None
    try:
        blocks = accepted.ready.contributed(site)
        with computing("encoding"):
            vector = encoding.encode(blocks, noise=silent)
    except ComputationFailed as failed:
        return (escaped(failed) if private else Seen("answered")), None
    except Exception as error:  # noqa: BLE001
        return escaped(error), None
    return Seen("answered"), vector


# -- at the door


class _AtTheDoor(Exception):
    """A hospital has arrived at its door with a task."""


@dataclass(frozen=True)
class Entrance:
    """A hospital's home in the epoch of a run, before its first task is answered."""

    path: Path
    task: Task
    session: UUID
    run: UUID
    table: HospitalTable

    def seen(
        self, program: Program, kind: Kind, stage: int, sum_index: int, state: Any, site: Site
    ) -> Seen:
        """Give the state to a copy of this hospital with other rows; return what is seen of it."""
        position = Position(program, stage, sum_index, state)
        text, parent = program.to_json(), None if kind is Kind.TRAIN else "model-1"
        run = RunInHand(self.session, self.run, kind, text, program, parent)
        try:
            task = self._task(position, run)
        except Exception:  # noqa: BLE001
            return Seen("no task")
        policy = _policy(program)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            shutil.copytree(self.path, Path(folder) / "home")
            with Home(Path(folder) / "home").open() as home:
                table = replace(self.table, site=site)
                exchange = Exchange(home.identity, host=HOST)
                door = Door(home, exchange, policy, table, run, lambda _: None)
                seen = _answer(door, task, position)
                ledger = home.store.ledger("table", Budget(**BUDGET))
                return replace(seen, charges=len(ledger.entries))

    def _task(self, position: Position, run: RunInHand) -> Task:
        """Return the task that a hostile author writes for a state."""
        encoding = Encoding.of_sum(
            position.algorithm.layout(position.state),
            multiplier=noise_multiplier(position.program, position.stage),
            honest=self._honest,
            members=MEMBERS,
        )
        return replace(
            self.task,
            statistic=statistic_of(position.algorithm),
            parameters=task_parameters(
                program=program_digest(run.text),
                run_kind=run.kind,
                parent=run.parent,
                stage=position.stage,
                sum_index=position.sum_index,
            ),
            state=position.digest,
            encoding=encoding.digest(),
            length=encoding.layout.length,
        )

    @property
    def _honest(self) -> int:
        return default_terms(self.session.bytes, MEMBERS).honest


def _policy(program: Program) -> Policy:
    """Return a policy that allows every program that is tried."""
    return replace(
        _allowing(noisy=program.privacy is not None),
        programs=(program_digest(program.to_json()),),
        columns=columns_read(program.schema),
        dictionary=Dictionary.containing(program.schema),
    )


@cache
def _allowing(*, noisy: bool) -> Policy:
    return permissive(
        _entrance_program(noisy=noisy),
        algorithms=tuple(ALGORITHMS),
        max_sums=10_000,
        open_ensemble=True,
        without_differential_privacy=not noisy,
        **(BUDGET if noisy else {}),
    )


def _entrance_program(*, noisy: bool) -> Program:
    stages = moments.Spec(), linear.Spec()
    program = private.program(*stages, multiplier=8.0) if noisy else tables.program()
    return Program.from_json(program.to_json())


def _answer(door: Door, task: Task, position: Position) -> Seen:
    calls: list[tuple[str, str, int]] = []
    try:
        talk, reply = door.send_masked_vector(task, Holding(str(door.run.run), position)), None
        with suppress(StopIteration):
            while True:
                effect = talk.send(reply)
                reply = None
                if isinstance(effect, Call):
                    size = sum(memoryview(part).nbytes for part in effect.parts)
                    calls.append((effect.method, effect.target.rsplit("/", 1)[-1], size))
                    reply = Reply(204, PROTOCOL, b"")
                else:
                    assert isinstance(effect, Pause)
    except REPORTABLE as error:
        if origins_of(error):
            return Seen("absent", requests=tuple(calls))
        return Seen("refused", public_code(error), tuple(calls))
    except Exception as error:  # noqa: BLE001
        return escaped(error)
    return Seen("answered", requests=tuple(calls))


@contextmanager
def entrances() -> Iterator[Mapping[bool, Entrance]]:
    """Return a hospital in a run without noise (False) and one with differential privacy (True)."""
    memory = Path("/dev/shm")  # noqa: S108
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        yield {noisy: _entered(Path(folder) / str(noisy), noisy=noisy) for noisy in (False, True)}


def _entered(homes: Path, *, noisy: bool) -> Entrance:
    """Let three hospitals enter a run, until the first of them has a task."""
    program = _entrance_program(noisy=noisy)
    data = [private.table(60, seed=s) if noisy else tables.table(60, seed=s) for s in range(3)]
    coordinator = SmallCoordinator(program, NAMES)
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, differential_privacy=noisy)
    policy = _policy(program)
    coordinator.members.update(home_keys(homes, NAMES))
    hospitals = [
        Hospital(coordinator.link(i), homes / name, table, policy, roster=dict(coordinator.members))
        for i, (name, table) in enumerate(zip(NAMES, data, strict=True))
    ]
    coordinator.start()
    found: list[Task] = []

    def stop(_: Door, task: Task, *__: Any) -> Any:
        found.append(task)
        raise _AtTheDoor

    with mock.patch.object(Door, "send_masked_vector", stop):
        _until_the_door(hospitals, coordinator)
    assert coordinator.run is not None
    table = site_of(program, data[0], DEALING)
    return Entrance(homes / NAMES[0], found[0], coordinator.session, coordinator.run, table)


def _until_the_door(hospitals: list[Hospital], coordinator: SmallCoordinator) -> None:
    talks = [hospital.conversation() for hospital in hospitals]
    answers: list[Any] = [None] * len(talks)
    try:
        for _ in range(500):
            for i, talk in reversed(list(enumerate(talks))):
                try:
                    effect = talk.send(answers[i])
                except _AtTheDoor:
                    if i == 0:
                        return
                    talks[i], answers[i] = _waiting(), None
                    continue
                answers[i] = None if isinstance(effect, Pause) else coordinator.answer(effect)
    finally:
        for talk in talks:
            talk.close()
    raise AssertionError("the first hospital has no task")


def _waiting() -> Any:
    """Wait, as a hospital that does not answer."""
    while True:
        yield Pause(1.0)
