"""Whatever a coordinator sends, a hospital answers what it agreed to or raises a named error."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from client_sdk.conversation.polling import Polling
from client_sdk.errors import (
    AlgorithmForbidden,
    AnotherRun,
    ClientError,
    CohortTooSmall,
    MalformedAnswer,
    PolicyError,
    PolicyExpired,
    RunFailed,
    SessionChanged,
    TooFewColluders,
    TooManyRuns,
    WrongRun,
    WrongTask,
)
from client_sdk.events import RefusalReported, Unpinned
from client_sdk.gate.disclosure import Disclosure
from client_sdk.home.home import Home
from client_sdk.network.exchange import ITEM_LIMITS, Call, Lost, Pause, Reply
from kernels.errors import KernelsError, StateDiffers, StateError, TableRefused
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.strict_json import encode_json
from privacy.encoding import Encoding
from privacy.errors import PinConflict, PrivacyError
from privacy.identity import Identity
from privacy.securesum.errors import TableChanged
from privacy.securesum.messages import Certificate, Opening, Proposal, Task
from privacy.securesum.terms import default_terms
from tests.client_sdk.conftest import Make
from tests.client_sdk.coordinator import SmallCoordinator, item_of, said, said_item
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.kernels.rounds.tables import table

Change = Callable[[dict[str, Any]], None]


def meddling(coordinator: SmallCoordinator, kind: str, change: Change) -> None:
    """Make the coordinator change items of one kind, or "membership"."""

    def meddle(what: str, reply: Reply) -> Reply:
        if what not in ("next", "membership") or reply.status != 200:
            return reply
        plain = item_of(reply.body) if what == "next" else json.loads(reply.body)
        if plain.get("kind", what) == kind:
            change(plain)
        return said_item(plain) if what == "next" else said(plain)

    coordinator.meddle = meddle


def with_message(plain: dict[str, Any], message: bytes) -> None:
    plain["message"] = message


def changed_task(**changes: Any) -> Change:
    def change(plain: dict[str, Any]) -> None:
        task = Task.decode(plain["message"])
        with_message(plain, replace(task, **changes).encode())

    return change


def refused(
    hospitals: list[Hospital], coordinator: SmallCoordinator, network: Any = None
) -> Exception:
    """Run the first hospital until it refuses; the other two get honest messages."""
    honest = coordinator.meddle

    def split(i: int, call: Call) -> Reply | Lost:
        coordinator.meddle = honest if i == 0 else None
        if network is not None:
            return network(i, call)
        return coordinator.answer(call)

    drive(hospitals, coordinator, split, first_error=True)
    assert hospitals[0].error is not None
    return hospitals[0].error


def left(path: Path) -> int:
    store = Home(path).read()
    try:
        return len(list(store.departures()))
    finally:
        store.close()


def placed(**changes: Any) -> Change:
    """Change a task's parameters."""

    def change(plain: dict[str, Any]) -> None:
        task = Task.decode(plain["message"])
        parameters = encode_json({**json.loads(task.parameters), **changes}).encode()
        changed_task(parameters=parameters)(plain)

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed_task(statistic="linear/1"),
        changed_task(statistic="moments/9"),
        changed_task(parameters=b"{}"),
        placed(stage=99),
        placed(stage=-1),
        placed(run_kind="linear"),
    ],
)
def test_a_task_that_is_not_the_programs_is_refused_and_nothing_leaves(
    make: Make, change: Change
) -> None:
    coordinator, hospitals = make()
    meddling(coordinator, "task", change)
    error = refused(hospitals, coordinator)
    assert isinstance(error, WrongTask)
    assert left(hospitals[0].path) == 0
    assert coordinator.refusals == [
        {
            "run": str(coordinator.run),
            "code": "session.wrong_task",
            "detail": "The task differs from the one that the run's program has at that stage.",
        }
    ]
    assert RefusalReported("session.wrong_task", heard=True) in hospitals[0].events
    # The run is over for this hospital: its secrets are gone, and it waits for the next one.
    with Home(hospitals[0].path).open() as home:
        run = home.store.last_run(str(coordinator.session))
        assert run is not None
        assert run.status == "refused"
        assert all(entry.ended for entry in home.client.journal.epochs.values())
        assert set(home.store.journal()[1]) == {"head"}


def test_another_encoding_is_refused(make: Make) -> None:
    coordinator, hospitals = make()

    def change(plain: dict[str, Any]) -> None:
        task = Task.decode(plain["message"])
        coarse = Encoding.finest(coordinator.encoding.layout, max_clients=100)
        with_message(plain, replace(task, encoding=coarse.digest()).encode())

    meddling(coordinator, "task", change)
    assert isinstance(refused(hospitals, coordinator), WrongTask)
    assert left(hospitals[0].path) == 0


def crafted(coordinator: SmallCoordinator, craft: Callable[[Any], Any]) -> None:
    """Let the coordinator ask everyone to answer from crafted states."""
    begin = coordinator._begin

    def begin_crafted() -> None:
        state = craft(coordinator.state)
        coordinator.position = replace(coordinator.position, state=state)
        begin()

    coordinator._begin = begin_crafted  # type: ignore[method-assign]


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xff" * 100])
def test_bytes_that_are_no_state_are_refused(make: Make, junk: bytes) -> None:
    coordinator, hospitals = make()
    crafted(coordinator, lambda state: replace(state, model=replace(state.model, max_rows=999)))

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and "/states/" in call.target:
            return Reply(200, {"veilgp-protocol": "2"}, junk)
        return coordinator.answer(call)

    assert isinstance(refused(hospitals, coordinator, network), StateError)
    assert left(hospitals[0].path) == 0


JUNK: tuple[Any, ...] = (
    None,
    3.5,
    -1,
    True,
    "",
    "x" * 50,
    [],
    {},
    [{}],
    {"a": [None]},
    2**53 - 1,
    1e300,
    b"junk",
)


@pytest.mark.parametrize("kind", ["opening", "adverts", "task", "ended"])
def test_any_field_of_any_item_may_be_junk(make: Make, kind: str) -> None:
    """Every field in turn, every kind of junk: a named error, or a correct answer."""
    coordinator, hospitals = make()
    items: list[dict[str, Any]] = []
    meddling(coordinator, kind, lambda plain: items.append(copy.deepcopy(plain)))
    drive(hospitals, coordinator)
    assert [h.error for h in hospitals] == [None] * 3
    item = items[0]
    with hospitals[0].open() as side:
        for name in item:
            for junk in JUNK:
                if isinstance(junk, bytes) and name not in ITEM_LIMITS.parts:
                    continue
                reply = said_item({**item, name: junk})
                before = side.home.store.journal()
                try:
                    talk = Polling(side.exchange, side.session).next(None)
                    next(talk)
                    parsed = _finish(talk, reply)
                    if parsed is not None and name == "roster":
                        _ = parsed.roster
                    if parsed is not None and name == "delivery":
                        _ = parsed.delivery
                except (ClientError, KernelsError, PrivacyError):
                    pass
                assert side.home.store.journal() == before


def _finish(talk: Any, reply: Reply) -> Any:
    try:
        while True:
            talk.send(reply)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("name", ["id", "program", "terms", "name"])
@pytest.mark.parametrize("junk", [each for each in JUNK if not isinstance(each, bytes)])
def test_a_membership_of_junk_is_a_named_error_and_enters_nothing(
    make: Make, name: str, junk: Any
) -> None:
    coordinator, hospitals = make()
    meddling(coordinator, "membership", lambda plain: plain["session"].update({name: junk}))
    if isinstance(junk, bytes) or (name == "name" and isinstance(junk, str)):
        return
    drive(hospitals[:1], coordinator)
    assert isinstance(hospitals[0].error, ClientError | KernelsError | PrivacyError)
    with Home(hospitals[0].path).open() as home:
        assert home.client.journal.count == 1


def test_a_session_whose_program_changes_is_refused(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    other = replace(program, held_out=program.held_out + 1e-4).to_json()
    coordinator.run = None

    def stop_after_membership(i: int, call: Call) -> Reply | Lost:
        if call.target.split("?")[0].endswith("/next"):
            raise KeyError("stopped by the test")
        return coordinator.answer(call)

    drive(hospitals[:1], coordinator, stop_after_membership)
    meddling(coordinator, "membership", lambda plain: plain["session"].update(program=other))
    drive(hospitals[:1], coordinator)
    assert isinstance(hospitals[0].error, SessionChanged)


@pytest.mark.parametrize(
    "change",
    [
        {"run_kind": "evaluate"},
        {"run_kind": "anything"},
        {"run_kind": "linear"},
    ],
)
def test_a_run_that_is_not_the_sessions_is_refused_before_anything_is_signed(
    make: Make, change: dict[str, Any]
) -> None:
    coordinator, hospitals = make()
    meddling(coordinator, "opening", lambda plain: plain.update(change))
    assert isinstance(refused(hospitals, coordinator), WrongRun)
    with Home(hospitals[0].path).open() as home:
        assert not home.client.journal.epochs


def test_a_run_over_another_program_is_refused(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    other = replace(program, stages=(linear.Spec(),), max_rows=999)
    meddling(
        coordinator,
        "opening",
        lambda plain: plain.update(program=other.to_json(), run_kind="linear"),
    )
    assert isinstance(refused(hospitals, coordinator), WrongRun)


def test_terms_of_another_session_or_other_terms_are_refused(make: Make) -> None:
    coordinator, hospitals = make()
    foreign = default_terms(bytes(16), 3).encode().hex()
    meddling(coordinator, "membership", lambda plain: plain["session"].update(terms=foreign))
    assert isinstance(refused(hospitals, coordinator), MalformedAnswer)

    def change(plain: dict[str, Any]) -> None:
        opening = Opening.decode(plain["message"])
        other = replace(opening.terms, max_colluders=1)
        with_message(plain, replace(opening, terms=other).encode())

    meddling(coordinator, "opening", change)
    hospitals[0].error = None
    error = refused(hospitals[:1], coordinator)
    assert getattr(error, "code", "") == "terms.changed"


def test_differential_privacy_is_not_pretended(make: Make) -> None:
    coordinator, hospitals = make()
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, differential_privacy=True)
    assert isinstance(refused(hospitals, coordinator), WrongRun)


# -- the site's policy and table


def test_a_forbidden_algorithm_is_refused_with_a_code_that_the_admin_sees(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    names = tuple(a.NAME for a, _ in program.algorithms() if a.NAME != "exact")
    hospitals[0].policy = permissive(program, algorithms=names)
    error = refused(hospitals[:1], coordinator)
    assert isinstance(error, AlgorithmForbidden)
    assert coordinator.refusals == [
        {
            "run": None,
            "code": "policy.algorithm",
            "detail": "the site does not allow the algorithm exact",
        }
    ]
    assert coordinator.uploads == []


def test_a_cohort_below_the_sites_least_is_refused_before_seeds_are_sealed(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    hospitals[0].policy = permissive(program, least_cohort=5, least_colluders=0)
    error = refused(hospitals, coordinator)
    assert isinstance(error, CohortTooSmall)
    assert coordinator.refusals[0]["run"] == str(coordinator.run)
    assert coordinator.refusals[0]["code"] == "policy.cohort"
    assert coordinator.uploads == []


def test_a_coordinator_that_asks_for_more_sums_than_the_program_has_is_refused(
    make: Make, program: Program
) -> None:
    asked = Disclosure.of(program, default_terms(bytes(16), 3)).sums
    coordinator, hospitals = make(permissive(program, max_sums=asked))
    coordinator.repeats = 5
    error = refused(hospitals, coordinator)
    assert isinstance(error, StateDiffers)
    assert left(hospitals[0].path) == 2  # of the first stage; then it would begin again


def test_one_join_answers_one_run_however_many_are_opened(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    allowed = Disclosure.of(program, default_terms(bytes(16), 3)).sums
    runs = 1

    def network(_: int, call: Call) -> Reply | Lost:
        nonlocal runs
        # Never reports the end of a run; opens the next one before the limit is reached.
        if coordinator.done_sums == allowed - 1 and runs < 4:
            runs += 1
            coordinator.start()
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert max(left(h.path) for h in hospitals) <= allowed
    assert any(isinstance(h.error, AnotherRun) for h in hospitals)
    assert "session.another_run" in {told["code"] for told in coordinator.refusals}


def test_a_session_does_not_sum_one_table_in_more_runs_than_the_policy_allows(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make(permissive(program, max_runs=1))
    drive(hospitals, coordinator)
    before = left(hospitals[0].path)
    coordinator.start()
    coordinator.sums.seen = frozenset(coordinator.members.values())
    assert isinstance(refused(hospitals, coordinator), TooManyRuns)
    assert left(hospitals[0].path) == before


def test_a_run_with_more_members_than_its_terms_have_colluders_for_is_not_agreed_to(
    make: Make,
) -> None:
    coordinator, hospitals = make(names=("A", "B", "C", "D"))
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, max_colluders=0, min_cohort=3)
    coordinator.start()
    assert isinstance(refused(hospitals, coordinator), TooFewColluders)
    assert coordinator.refusals[0]["code"] == "policy.colluders"
    assert coordinator.uploads == []


@pytest.mark.parametrize(
    ("kind", "message"), [("proposal", Proposal), ("certificate", Certificate)]
)
def test_survivors_below_the_sites_least_are_neither_certified_nor_unmasked(
    make: Make, program: Program, kind: str, message: Any
) -> None:
    policy = permissive(program, least_cohort=4)
    coordinator, hospitals = make(policy, names=("A", "B", "C", "D"))
    assert coordinator.terms is not None
    coordinator.terms = replace(coordinator.terms, min_cohort=3)
    coordinator.start()

    def change(plain: dict[str, Any]) -> None:
        claim = message.decode(plain["message"])
        with_message(plain, replace(claim, survivors=claim.survivors[:3]).encode())

    meddling(coordinator, kind, change)
    assert isinstance(refused(hospitals, coordinator), CohortTooSmall)
    with Home(hospitals[0].path).open() as home:
        (entry,) = home.client.journal.epochs.values()
        assert entry.slots[0].certified is None
        assert (entry.slots[0].certify is None) == (kind == "proposal")


def test_an_expired_policy_answers_nothing(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    hospitals[0].policy = permissive(program, expires=date(2020, 1, 1))
    assert isinstance(refused(hospitals[:1], coordinator), PolicyExpired)
    assert coordinator.uploads == []


def test_a_table_that_does_not_fit_is_refused_before_anything_leaves_without_a_word_about_it(
    make: Make,
) -> None:
    coordinator, hospitals = make()
    spoiled = {name: column.copy() for name, column in table(40).items()}
    spoiled["age"][7] = 1234.5
    del spoiled["stay"]
    hospitals[0].data = spoiled
    error = refused(hospitals[:1], coordinator)
    assert isinstance(error, TableRefused)
    assert len(error.problems) == 2
    paths = [path.rsplit("/", 1)[-1] for _, path in coordinator.log]
    assert paths == ["members", "membership"]
    assert coordinator.refusals == []


@pytest.mark.parametrize(
    "line", [{"least_rows": 10**6}, {"rows_per_feature": 1e6}, {"least_level_rows": 10**6}]
)
def test_a_refusal_that_depends_on_the_rows_looks_like_absence(
    make: Make, program: Program, line: dict[str, Any]
) -> None:
    coordinator, hospitals = make()
    hospitals[0].policy = permissive(program, **line)
    assert isinstance(refused(hospitals[:1], coordinator), PolicyError)
    assert coordinator.refusals == []


def test_a_crafted_state_is_refused_by_all_in_the_same_words(make: Make) -> None:
    """With a power of two below a hospital's largest value: nobody computes anything from it."""
    coordinator, hospitals = make()

    def craft(state: Any) -> Any:
        if not isinstance(state, moments.State) or state.bounded is None:
            return state
        stay = replace(state.bounded.targets[0], lower=-(2.0**-20), upper=2.0**-20)
        targets = (stay, *state.bounded.targets[1:])
        return replace(state, bounded=replace(state.bounded, targets=targets))

    crafted(coordinator, craft)
    drive(hospitals, coordinator)
    assert all(isinstance(h.error, StateDiffers | RunFailed) for h in hospitals)
    assert {refusal["code"] for refusal in coordinator.refusals} == {StateDiffers.code}


def test_another_table_in_the_same_source_needs_the_operators_approval(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    coordinator.start()
    coordinator.sums.seen = frozenset(coordinator.members.values())
    hospitals[0].data = table(41)
    error = refused(hospitals, coordinator)
    assert isinstance(error, TableChanged)
    assert coordinator.refusals == []
    assert Home(hospitals[0].path).identity().key not in coordinator.sums.advertised


def test_a_second_session_that_deals_the_same_rows_otherwise_gets_none_of_them(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    other = replace(program, held_out=program.held_out + 1e-4)
    second = SmallCoordinator(other, coordinator.names)
    second.members.update(coordinator.members)
    second.start()
    for i, hospital in enumerate(hospitals):
        hospital.link, hospital.policy = second.link(i), permissive(other)
    assert isinstance(refused(hospitals, second), TableChanged)
    assert second.uploads == []


# -- time


def waits_of(hospital: Hospital, coordinator: SmallCoordinator, effects: int) -> list[float]:
    """Poll a coordinator that responds immediately; return the hospital's waits."""
    talk, answer, waits = hospital.conversation(), None, list[float]()
    for _ in range(effects):
        effect = talk.send(answer)
        answer = None if isinstance(effect, Pause) else coordinator.answer(effect)
        waits += [effect.seconds] if isinstance(effect, Pause) else []
    talk.close()
    return waits


def test_a_coordinator_that_has_nothing_to_say_at_once_is_not_asked_in_a_hurry(make: Make) -> None:
    coordinator, hospitals = make()
    coordinator.run = None
    waits = waits_of(hospitals[0], coordinator, 40)
    polls = sum(path.endswith("/next") for _, path in coordinator.log)
    assert polls - len(waits) <= 1, "every empty answer but the last is followed by a wait"
    assert waits == sorted(waits)
    assert waits[0] > 0
    assert waits[-1] == 5.0


def test_a_coordinator_that_never_decides_is_not_asked_in_a_hurry(make: Make) -> None:
    coordinator, hospitals = make()
    coordinator.approve = False
    numbers = iter(range(1000))
    meddling(coordinator, "membership", lambda plain: plain.update(another=next(numbers)))
    waits = waits_of(hospitals[0], coordinator, 40)
    asked = sum(path.endswith("/membership") for _, path in coordinator.log)
    assert asked - len(waits) <= 2, "all but the first and the last are followed by a wait"
    assert waits == sorted(waits)
    assert waits[-1] == 5.0


# -- pins


def test_no_member_is_unconfirmed_unless_the_policy_trusts_first_use(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make(pinned=False)
    error = refused(hospitals, coordinator)
    assert getattr(error, "code", "") == "epoch.unpinned"
    assert Unpinned(("B", "C")) in hospitals[0].events or any(
        isinstance(e, Unpinned) and set(e.names) == {"B", "C"} for e in hospitals[0].events
    )
    coordinator.start()
    coordinator.sums.seen = frozenset(coordinator.members.values())
    for hospital in hospitals:
        hospital.error = None
        hospital.policy = permissive(program, trust_first_use=True)
    coordinator.meddle = None
    drive(hospitals, coordinator)
    assert [h.error for h in hospitals] == [None] * 3


def test_a_roster_with_another_key_than_the_pinned_one_is_refused(make: Make) -> None:
    coordinator, hospitals = make()
    assert hospitals[0].roster is not None
    hospitals[0].roster = {**hospitals[0].roster, "B": Identity.generate().key}
    assert isinstance(refused(hospitals, coordinator), PinConflict)
    assert coordinator.uploads == []
