"""Hospitals of a test: each is its own conversation, all run in turn in one thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_sdk.conversation.hospital_side import HospitalSide
from client_sdk.conversation.session import Finished, take_part
from client_sdk.events import Event
from client_sdk.gate.dictionary import Dictionary
from client_sdk.gate.disclosure import Disclosure
from client_sdk.gate.policy import Policy
from client_sdk.gate.policy_draft import draft
from client_sdk.gate.recipes import Recipes
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Clock, Exchange, Lost, Patience, Pause, Reply
from client_sdk.network.links import SessionLink
from client_sdk.tables.hospital_table import Changes
from kernels.rounds.plan import algorithms_of, columns_read, declared
from kernels.rounds.program import Program
from kernels.rounds.task import program_digest
from privacy.securesum.terms import Terms, default_terms
from tests.client_sdk.coordinator import HOST, SmallCoordinator
from tests.dealing import put_dealing


def permissive(program: Program, **changes: Any) -> Policy:
    """Return a policy that allows everything a small program requests."""
    allowed: dict[str, Any] = {
        "least_cohort": 3,
        "least_rows": 10,
        "least_rows_held_out": 0,
        "rows_per_feature": 0.0,
        "rows_per_feature_held_out": 0.0,
        "least_level_rows": 0,
        "algorithms": tuple(
            {name for n in range(len(program.stages)) for name in algorithms_of(program, n)}
        ),
        "columns": columns_read(program.schema),
        "max_sums": 4 * Disclosure.of(program, default_terms(bytes(16), 3)).sums,
        "without_differential_privacy": True,
        "open_sums": True,
        "served_model": True,
        "programs": (program_digest(program.to_json()),),
        "parents": ("model-1",),
        "coordinator_ratio": 1e12,
        "hospital_ratio": 1e12,
        "dictionary": Dictionary.containing(program.schema),
        "recipes": Recipes(
            max_rows=(1, 10**9),
            held_out=(0.0, 1.0),
            public_sets=tuple(own.public_set for own in declared(program) if own.public_set),
        ),
        "least_answer_s": 0.0,
    }
    return Policy(**{**allowed, **changes})


def drafted(program: Program, terms: Terms, *, delta: float | None = None) -> Policy:
    """Return the policy that `veilgp policy draft` writes, with a dictionary of the schema."""
    dictionary = Dictionary.containing(program.schema)
    return Policy.from_toml(draft(program, terms, delta=delta, dictionary=dictionary))


@dataclass
class Hospital:
    """One member: its home on disk, its table, and the state of its conversation."""

    link: str
    path: Path
    data: object
    policy: Policy
    roster: dict[str, bytes] | None = None
    source: str = "table"
    changes: Changes | None = None
    clock: Clock | None = None
    events: list[Event] = field(default_factory=list)
    finished: Finished | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        if not (self.path / "dealing.key").exists():
            put_dealing(self.path)

    @contextmanager
    def open(self) -> Iterator[HospitalSide]:
        with Home(self.path).open() as home:
            yield HospitalSide(
                home,
                Exchange(
                    home.identity, host=HOST, patience=Patience(outage_s=60), clock=self.clock
                ),
                SessionLink.parse(self.link),
                policy=self.policy,
                data=self.data,
                changes=self.changes or Changes(),
                source=self.source,
                roster=self.roster or {},
                watch=self.events.append,
            )

    def conversation(self) -> Any:
        with self.open() as side:
            yield from take_part(
                side, once=True, finished=lambda done: setattr(self, "finished", done)
            )


Network = Callable[[int, Call], Reply | Lost]


def drive(
    hospitals: list[Hospital],
    coordinator: SmallCoordinator,
    network: Network | None = None,
    *,
    turns: int = 5000,
    first_error: bool = False,
) -> None:
    """Run hospitals in turn until each is done or has failed; errors are kept, not raised.

    `first_error`: stop when the first hospital has an error.

    `network` is called between a hospital and the coordinator. It may raise `Killed`: the hospital
    then stops immediately and starts again from its home, as after kill -9.
    """
    talks = {i: hospital.conversation() for i, hospital in enumerate(hospitals)}
    answers: dict[int, Any] = dict.fromkeys(talks)
    for _ in range(turns):
        for i in list(talks):
            try:
                effect = talks[i].send(answers[i])
                if isinstance(effect, Pause):
                    answers[i] = None
                elif network is None:
                    answers[i] = coordinator.answer(effect)
                else:
                    answers[i] = network(i, effect)
            except Killed:
                talks[i].close()
                talks[i], answers[i] = hospitals[i].conversation(), None
            except StopIteration:
                del talks[i]
            except Exception as error:  # noqa: BLE001
                hospitals[i].error = error
                del talks[i]
        if not talks or (first_error and hospitals[0].error is not None):
            break
    for talk in talks.values():
        talk.close()
    if talks and not first_error:
        errors = [hospital.error for hospital in hospitals]
        raise AssertionError(f"{sorted(talks)} are not done after {turns} turns: {errors}")


class Killed(Exception):
    """The hospital's process ends here."""
