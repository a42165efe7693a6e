"""Whole conversations: hospitals with different rows join one session with a hostile program.

All of them hear the same from the coordinator, so the same must be heard of all of them: the same
requests of the same sizes, the same reports. The one difference that is allowed is absence before a
run is entered, and with noise not even that. Polls are left out: how often a hospital asks what is
next follows from the order in which the test lets hospitals speak.

The coordinator goes on when a hospital refuses, so that it is seen whether the others do. Half of
the time nothing is tried on a hospital's own rows before it enters, as if the trial had not found
what fails.
"""

import json
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from client_sdk.conversation import entry
from client_sdk.error_origin import Origin, origins_of
from client_sdk.errors import ClientError
from client_sdk.gate.policy import Policy
from client_sdk.gate.recipes import Recipes
from client_sdk.gate.refusal_report import REPORTABLE
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Pause, Reply
from client_sdk.tables.hospital_table import Changes
from kernels.errors import KernelsError
from kernels.features.spec import Architecture
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.model import Model
from kernels.rounds import position as positions
from kernels.rounds.plan import declared
from kernels.rounds.program import Program
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site import site as sites_module
from kernels.rounds.site.site import Site
from kernels.rounds.task import program_digest
from tests.adversary.fuzz.sites import IN_MEMORY, Table
from tests.client_sdk.coordinator import SmallCoordinator, said
from tests.client_sdk.hospitals import Hospital, permissive

NAMES = ("A", "B", "C")
MOST_SUMS = 3
"""After so many sums the coordinator says nothing more."""
BUDGET = {"epsilon": 1000.0, "delta": 1e-5}
_ANYTHING = 1e-300, 1e300


@dataclass(frozen=True)
class Heard:
    """What is heard of a hospital: its requests without polls, and how it ended, if it has.

    how: waiting, finished, told (the coordinator ended the run), refused, silent (the schema
    contradicts the policy's dictionary, whatever the rows are), absent or escaped.
    """

    requests: tuple[tuple[str, str, int], ...]
    how: str
    code: str = ""

    @property
    def entered(self) -> bool:
        """Whether it has entered a run."""
        return any(what == "messages" for _, what, _ in self.requests)


def differences(heard: Mapping[str, Heard], *, noisy: bool) -> Iterator[str]:
    """Yield what tells hospitals apart that differ only in their rows."""
    for name, own in heard.items():
        if own.how == "escaped":
            yield f"an error escapes at {name}"
        if own.how == "absent" and noisy:
            yield f"with noise {name} is absent"
        if own.how == "absent" and own.entered:
            yield f"{name} is absent after it has entered"
    there = {own for own in heard.values() if own.how != "absent"}
    if len(there) > 1:
        yield "what is heard depends on the rows"
    for own in heard.values():
        for other in there if own.how == "absent" else ():
            if other.requests[: len(own.requests)] != own.requests:
                yield "what is heard before absence depends on the rows"


@dataclass
class PatientCoordinator(SmallCoordinator):
    """Serves any text as a session's program, goes on after refusals, and stops after some sums."""

    offered: str = ""
    earlier: Artifact | None = None
    reported: list[str] = field(default_factory=list)

    def start(self, kind: str = "train") -> None:
        super().start(kind)
        self.position = self.entered = positions.settled(self.position)

    def _membership(self, key: bytes) -> Reply:
        plain = json.loads(super()._membership(key).body)
        plain["session"]["program"] = self.offered
        return said(plain)

    def _answer(self, method: str, path: str, *given: Any) -> Reply:
        if path.endswith("/refusals"):
            self.reported.append(json.loads(given[1])["code"])
            return said(status=204)
        if self.earlier is not None and path.startswith(f"/models/{self.earlier.id}"):
            if path.endswith("/artifact"):
                return Reply(200, said().headers, self.earlier.to_bytes())
            if not path.endswith("/certificate"):  # nobody has signed it
                return said(self.earlier.card.to_plain())
        return super()._answer(method, path, *given)

    def _next(self, *given: Any, **named: Any) -> dict[str, Any] | None:
        if self.run is not None and self.outcome is None and self.done_sums >= MOST_SUMS:
            return None
        return super()._next(*given, **named)

    def _advance(self) -> None:
        try:
            super()._advance()
        except KernelsError as error:
            ended = {"status": "failed", "code": error.code, "model": None}
            self.outcome = {**ended, "detail": error.public_detail}


def conversation(
    session: Program,
    text: str,
    kind: Kind,
    parent: Model | None,
    given: Mapping[str, Table],
    chance: random.Random,
) -> Mapping[str, Heard]:
    """Let three hospitals with these tables join a session; return what is heard of each.

    text: the session's program as it is sent. May raise `KernelsError` if there is no such run.
    """
    run = program_of(kind, session)
    memory = Path("/dev/shm")  # noqa: S108
    with ExitStack() as stack:
        stack.enter_context(_streaming())
        if chance.random() < 0.5:
            stack.enter_context(mock.patch.object(entry, "tried", return_value=()))
        where = memory if memory.is_dir() else None
        homes = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
        earlier = None if parent is None else _artifact(parent, session)
        base = None if earlier is None else earlier.model
        coordinator = PatientCoordinator(run, NAMES, offered=text, earlier=earlier, base=base)
        noisy = session.privacy is not None
        assert coordinator.terms is not None
        coordinator.terms = replace(coordinator.terms, differential_privacy=noisy)
        coordinator.parent = None if earlier is None else earlier.id
        policy = _policy(session, text, run, coordinator.parent, strict=chance.random() < 0.1)
        keys = {name: Home(homes / name).identity().key for name in NAMES}
        coordinator.members.update(keys)
        coordinator.start(kind)
        changes = [_changes(table, run, chance) for table in given.values()]
        hospitals = [
            Hospital(
                coordinator.link(i), homes / name, table, policy, roster=keys, changes=changes[i]
            )
            for i, (name, table) in enumerate(zip(NAMES, given.values(), strict=True))
        ]
        heard = _driven(hospitals, coordinator)
    if _contradicts_dictionary(policy, text):
        heard = [replace(own, how="silent") if own.how == "absent" else own for own in heard]
    return dict(zip(given, heard, strict=True))


@contextmanager
def _streaming() -> Iterator[None]:
    """Let small tables be streamed, as those of more than 200,000 rows are."""
    defaults: dict[str, Any] = Site.of_stream.__func__.__kwdefaults__  # type: ignore[attr-defined]
    with (
        mock.patch.dict(defaults, rows_in_memory=IN_MEMORY),
        mock.patch.object(sites_module, "ROWS_IN_MEMORY", IN_MEMORY),
    ):
        yield


def _artifact(parent: Model, session: Program) -> Artifact:
    return Artifact.of(
        parent,
        program=replace(session, schema=parent.schema, kernel=parent.kernel),
        members=3,
        sums=1,
        privacy=Privacy.of(parent.schema, min_cohort=3, max_colluders=0),
        created=datetime(2026, 11, 18, tzinfo=UTC),
    )


def _policy(
    session: Program, text: str, run: Program, parent: str | None, *, strict: bool
) -> Policy:
    """Return a policy that allows the session, or (strict) one with the standard recipes."""
    recipes = Recipes(
        kernels=tuple(Architecture),
        lengthscale=_ANYTHING,
        frequency_scale=_ANYTHING,
        replication_scale=_ANYTHING,
        max_rate_times_steps=1e300,
        max_local_passes=10**9,
        max_rows=(1, 1e12),
        held_out=(0.0, 1.0),
        public_sets=tuple(
            own.public_set for each in (session, run) for own in declared(each) if own.public_set
        ),
    )
    noisy = session.privacy is not None
    return permissive(
        session,
        programs=(program_digest(text),),
        algorithms=tuple(ALGORITHMS),
        consents=tuple(ALGORITHMS),
        parents=() if parent is None else (parent,),
        least_rows=0,
        max_sums=10**6,
        without_differential_privacy=not noisy,
        open_ensemble=True,
        **({} if strict else {"recipes": recipes}),
        **(BUDGET if noisy else {}),
    )


def _contradicts_dictionary(policy: Policy, text: str) -> bool:
    """Return whether every hospital with this policy must leave before it opens its table."""
    try:
        schema = Program.from_json(text).schema
    except KernelsError:
        return False
    return any(policy.dictionary.problems(schema))


def _changes(table: Table, run: Program, chance: random.Random) -> Changes | None:
    """Return rows to add or remove, for some hospitals of a run that updates a model."""
    if not any(own.needs_consent for own in declared(run)) or chance.random() < 0.3:
        return None
    some = {name: cells[: chance.choice((1, 3))] for name, cells in table.items()}
    if run.privacy is not None or chance.random() < 0.5:
        return Changes(added=some)
    return Changes(removed=some)


def _driven(hospitals: Sequence[Hospital], coordinator: SmallCoordinator) -> list[Heard]:
    """Run hospitals in turn, until each has ended or all of them only wait."""
    talks = {i: hospital.conversation() for i, hospital in enumerate(hospitals)}
    answers: dict[int, Any] = dict.fromkeys(talks)
    requests: list[list[tuple[str, str, int]]] = [[] for _ in hospitals]
    ends = [("waiting", "")] * len(hospitals)
    idle = 0
    while talks and idle < 4:
        idle += 1
        for i in list(talks):
            try:
                effect = talks[i].send(answers[i])
            except StopIteration:
                ends[i] = "finished", ""
                del talks[i]
                idle = 0
                continue
            except Exception as error:  # noqa: BLE001
                ends[i] = _how(error)
                del talks[i]
                idle = 0
                continue
            if isinstance(effect, Pause):
                answers[i] = None
                continue
            answers[i] = coordinator.answer(effect)
            if not _is_poll(effect):
                requests[i].append(_request(effect))
            if not _is_poll(effect) or answers[i].status != 204:
                idle = 0
    for talk in talks.values():
        talk.close()
    return [Heard(tuple(own), *end) for own, end in zip(requests, ends, strict=True)]


def _how(error: Exception) -> tuple[str, str]:
    if Origin.OWN_ROWS in origins_of(error):
        return "absent", ""
    if isinstance(error, REPORTABLE):
        return "refused", error.code
    if isinstance(error, ClientError):
        return "told", error.code
    return "escaped", f"{type(error).__name__}: {error}"[:200]


def _is_poll(call: Call) -> bool:
    return "/next?" in call.target


_ID = re.compile(r"[0-9a-f-]{32,}|[0-9]+")


def _request(call: Call) -> tuple[str, str, int]:
    """Return a request's method, its path's last word, and its size; a report with its text."""
    words = [each for each in call.target.split("?")[0].split("/") if not _ID.fullmatch(each)]
    size = sum(memoryview(part).nbytes for part in call.parts)
    if words[-1] == "refusals":
        body = json.loads(b"".join(bytes(part) for part in call.parts))
        return call.method, f"refusals {body['code']}: {body['detail']}", 0
    return call.method, words[-1], size
