"""A22: a coordinator that withholds, swaps, forges or repeats what a replay rests on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.conversation.replay import is_named
from client_sdk.errors import ModelDiffers, OldState, WrongRun, WrongSum
from client_sdk.events import Waiting
from client_sdk.home.home import Home
from client_sdk.home.remembered import Holding
from client_sdk.network.exchange import Call, Lost, Reply
from kernels.errors import StateDiffers
from kernels.rounds import position as positions
from kernels.rounds.agreement import agreement
from kernels.rounds.kernel import exact
from kernels.rounds.position import Position
from kernels.rounds.program import Program
from kernels.rounds.shared.pooled import EVIDENCE_STEP
from kernels.rounds.task import task_parameters
from kernels.storage import encode
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.errors import TooFewWitnesses, TotalNotVerified
from privacy.securesum.messages import Task, Total
from privacy.securesum.records import Step
from tests.client_sdk.conftest import NAMES, Make
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.conftest import make as make
from tests.client_sdk.conftest import program as program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.client_sdk.replaying import absent_for, at_sum, crafted, four, stalls, vectors
from tests.dealing import home_keys
from tests.kernels.rounds.artifacts import PLAIN, artifact
from tests.kernels.rounds.tables import program as program_with
from tests.kernels.rounds.tables import tables

from .coordinator import Attacker


def moved_standardiser(position: Position) -> Position:
    """Return a position whose first target is scaled a little differently."""
    model = position.state.model
    first, *others = model.standardiser.targets
    moved = replace(model.standardiser, targets=(replace(first, scale=2 * first.scale), *others))
    model = replace(model, standardiser=moved)
    return replace(position, state=replace(position.state, model=model))


def moved_weights(position: Position) -> Position:
    model = position.state.model
    return replace(
        position, state=replace(position.state, model=replace(model, weights=model.weights * 1.01))
    )


def test_a_run_that_is_over_is_not_entered_again(make: Make) -> None:
    """It would be replayed outside the ledger, and could end with another model than before."""
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    run, sent = coordinator.run, [vectors(hospital) for hospital in hospitals]
    assert run is not None
    coordinator.start()
    coordinator.run = run
    coordinator.sums = Coordinator(
        coordinator.sums.terms, run=run.bytes, number=1, roster=coordinator.roster
    )
    drive(hospitals, coordinator)
    assert all(isinstance(hospital.error, WrongRun) for hospital in hospitals)
    assert not coordinator.sums.advertised
    assert [vectors(hospital) for hospital in hospitals] == sent


def test_what_was_replayed_under_one_name_is_never_another_model(make: Make) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    store = Home(hospitals[0].path).read()
    known = store.last_run(str(coordinator.session))
    assert known is not None
    store.commit(Step(None), run=replace(known, replayed=True))
    store.commit(Step(None), run=replace(known, replayed=True, model="crafted"))
    assert not store.obtained("crafted")
    store.close()


@pytest.mark.parametrize(
    "craft", [moved_weights, moved_standardiser, lambda p: replace(p, sum_index=p.sum_index + 1)]
)
def test_a_crafted_state_is_refused_by_name(make: Make, craft: Any) -> None:
    coordinator, hospitals = make()
    crafted(coordinator, 2, craft)
    drive(hospitals, coordinator)
    assert isinstance(hospitals[0].error, StateDiffers)
    assert {told["code"] for told in coordinator.refusals} == {StateDiffers.code}
    assert [vectors(hospital) for hospital in hospitals] == [2, 2, 2]


def test_a_walk_of_single_steps_ends_at_the_runs_budget(homes: Path) -> None:
    """Each state is a step of rounding away from the true one: the run has a budget for that."""
    start = program_with(exact.Spec(steps=30, penalties=(3.0,)))
    walked = Program.from_json(start.to_json())
    coordinator, keys = SmallCoordinator(walked, NAMES), home_keys(homes, NAMES)
    coordinator.members.update(keys)
    coordinator.start()
    policy = permissive(walked, max_sums=200)
    hospitals = [
        Hospital(coordinator.link(i), homes / name, table, policy, roster=keys)
        for i, (name, table) in enumerate(zip(NAMES, tables(len(NAMES)), strict=True))
    ]
    begin, moved = coordinator._begin, 0

    def begin_moved() -> None:
        nonlocal moved
        state = coordinator.position.state
        if getattr(state, "evidence", None) is not None:
            moved += 1
            state = replace(state, evidence=state.evidence + EVIDENCE_STEP)
            coordinator.position = replace(coordinator.position, state=state)
        begin()

    coordinator._begin = begin_moved  # type: ignore[method-assign]
    drive(hospitals, coordinator)
    budget = agreement(walked).budget
    assert isinstance(hospitals[0].error, StateDiffers)
    assert "rounding does not explain that many" in str(hospitals[0].error)
    assert moved == budget + 1


def test_the_sums_are_in_the_programs_order(make: Make, program: Program) -> None:
    """The second stage is skipped: its first state is no state of the stage after it."""
    coordinator, hospitals = make()

    def skipped(position: Position) -> Position:
        return positions.next_stage(position)

    crafted(coordinator, 2, skipped)
    drive(hospitals, coordinator)
    assert isinstance(hospitals[0].error, StateDiffers)
    assert vectors(hospitals[0]) == 2


def changed_total(said: dict[str, Any]) -> None:
    body = bytearray(said["total_body"])
    body[0] ^= 1
    said["total_body"] = bytes(body)


def failed_total(said: dict[str, Any]) -> None:
    total = Total.decode(said["total"])
    said["total"] = replace(total, tags=bytes(len(total.tags))).encode()


@pytest.mark.parametrize("change", [changed_total, failed_total])
def test_a_forged_total_is_refused(make: Make, change: Any) -> None:
    coordinator, hospitals = make()
    at_sum(coordinator, 1, change)
    drive(hospitals, coordinator)
    assert isinstance(hospitals[0].error, TotalNotVerified)
    assert [vectors(hospital) for hospital in hospitals] == [1, 1, 1]


def test_the_total_of_an_earlier_sum_is_not_applied(make: Make) -> None:
    coordinator, hospitals = make()
    first: dict[str, Any] = {}

    def older(said: dict[str, Any]) -> None:
        if not first:
            first.update(said)
        said.update(first)

    at_sum(coordinator, 1, older)
    stalls(hospitals, coordinator)
    assert [vectors(hospital) for hospital in hospitals] == [2, 2, 2]


def test_without_a_total_nobody_answers(make: Make) -> None:
    coordinator, hospitals = make()
    at_sum(coordinator, 1, lambda said: said.clear())
    stalls(hospitals, coordinator)
    assert [vectors(hospital) for hospital in hospitals] == [1, 1, 1]
    assert any(isinstance(event, Waiting) for event in hospitals[0].events)


def test_a_task_does_not_go_back(make: Make) -> None:
    coordinator, hospitals = make()
    start = coordinator.position
    crafted(coordinator, 2, lambda _: start)
    drive(hospitals, coordinator)
    assert isinstance(hospitals[0].error, OldState)
    assert coordinator.refusals[0]["code"] == "replay.old_state"
    assert vectors(hospitals[0]) == 2


def test_another_model_than_the_replayed_one_is_no_model(make: Make, program: Program) -> None:
    coordinator, hospitals = make()

    def network(_: int, call: Call) -> Reply | Lost:
        if call.target.endswith("/artifact"):
            model = coordinator.model
            coordinator.artifact = encode(replace(model, weights=model.weights * 1.01))
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    for hospital in hospitals:
        assert isinstance(hospital.error, ModelDiffers)
        assert hospital.finished is None
    with Home(hospitals[0].path).open() as home:
        run = home.store.last_run(str(coordinator.session))
        assert run is not None
        assert (run.model, run.replayed) == (None, False)


def test_a_run_that_ends_early_gives_no_model(make: Make) -> None:
    coordinator, hospitals = make()

    def early(said: dict[str, Any]) -> None:
        done = {"status": "done", "code": None, "detail": None}
        coordinator.outcome = {**done, "model": coordinator.model_id}

    at_sum(coordinator, 2, early)
    drive(hospitals, coordinator)
    assert all(isinstance(hospital.error, WrongSum) for hospital in hospitals)


def test_a_run_that_ends_without_its_last_total_gives_no_model(make: Make) -> None:
    coordinator, hospitals = make()

    def without(said: dict[str, Any]) -> None:
        if coordinator.position.finished:
            said.clear()

    at_sum(coordinator, 2, without)
    drive(hospitals, coordinator)
    assert all(isinstance(hospital.error, WrongSum) for hospital in hospitals)


def test_at_the_end_the_total_of_a_repeated_sum_is_not_that_of_its_first_try(
    make: Make, program: Program
) -> None:
    coordinator, hospitals = make(permissive(program, max_sums=20))
    held, first = [(coordinator.position, coordinator.last)], dict[str, Any]()

    def network(_: int, call: Call) -> Reply | Lost:
        over = coordinator.outcome is not None
        reply = coordinator.answer(call)
        if coordinator.done_sums > held[-1][0].sum_index:
            held.append((coordinator.position, coordinator.last))
        if coordinator.outcome is not None and not over and not first:
            first.update(coordinator.last)
            coordinator.outcome = None
            coordinator.position, coordinator.last = held[-2]
            coordinator._begin()
        elif coordinator.outcome is not None and not over:
            coordinator.last = first
        return reply

    drive(hospitals, coordinator, network)
    assert first
    assert all(isinstance(hospital.error, WrongSum) for hospital in hospitals)


def test_an_id_stands_for_the_bytes_that_were_compared() -> None:
    own = artifact(PLAIN)
    data, card = own.to_bytes(), own.card.to_plain()
    assert is_named(own.id, data, card)
    assert not is_named("0" * len(own.id), data, card)
    assert not is_named(own.id, data + b"0", card)
    assert not is_named(own.id, data, {"card": 1})


def test_the_states_of_a_run_that_is_over_are_forgotten(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    with Home(hospitals[0].path).open() as home:
        assert home.store.holding(str(coordinator.run), program) is None
        assert set(home.store.journal()[1]) == {"head"}
        # The coordinator's id is not that of the model that was replayed: it stands for nothing.
        assert not home.store.obtained(coordinator.model_id)


def test_a_lost_total_is_not_used_later(make: Make, program: Program) -> None:
    """The sum is repeated in a new epoch; afterwards its first total leads nowhere."""
    coordinator, hospitals = make(permissive(program, max_sums=20))
    held, lost = [(coordinator.position, coordinator.last)], dict[str, Any]()

    def network(_: int, call: Call) -> Reply | Lost:
        reply = coordinator.answer(call)
        if coordinator.done_sums > held[-1][0].sum_index:
            held.append((coordinator.position, coordinator.last))
        if coordinator.done_sums == 2 and not lost:
            lost.update(coordinator.last)
            coordinator.position, coordinator.last = held[1]
            coordinator.restart()
        elif coordinator.done_sums == 2:
            coordinator.last = lost
        return reply

    stalls(hospitals, coordinator, network)
    assert [vectors(hospital) for hospital in hospitals] == [3, 3, 3]


def test_as_many_witnesses_as_may_collude_are_too_few(homes: Path) -> None:
    coordinator, hospitals = four(homes)
    absent_for(coordinator, (0, 1))
    coordinator.witnesses = 1
    stalls(hospitals, coordinator)
    assert vectors(hospitals[3]) == 0


def test_witnesses_vouch_for_their_own_task_only(homes: Path) -> None:
    coordinator, hospitals = four(homes)
    absent_for(coordinator, (0, 1))
    answer = coordinator.answer

    def network(i: int, call: Call) -> Reply | Lost:
        if i != 3:
            return answer(call)
        begun = coordinator.in_sum and coordinator.done_sums == 2
        task = coordinator.sums.slot.task if begun else None
        if task is not None:
            other = replace(task, state=coordinator.position.digest[::-1])
            coordinator.sums.slot.task = other
        try:
            return answer(call)
        finally:
            if task is not None:
                coordinator.sums.slot.task = task

    stalls(hospitals, coordinator, network)
    assert vectors(hospitals[3]) == 0


def test_in_one_epoch_a_task_does_not_go_back_by_one_sum_either(make: Make) -> None:
    coordinator, hospitals = make()
    held: list[Position] = []

    def network(_: int, call: Call) -> Reply | Lost:
        if len(held) <= coordinator.done_sums:
            held.append(coordinator.position)
        return coordinator.answer(call)

    crafted(coordinator, 3, lambda _: held[1])
    drive(hospitals, coordinator, network)
    assert isinstance(hospitals[0].error, OldState)
    assert vectors(hospitals[0]) == 3


def test_a_state_is_the_one_that_witnesses_have_answered_from(homes: Path) -> None:
    """They vouch for the task's digest, and the coordinator sends another state."""
    coordinator, hospitals = four(homes)
    absent_for(coordinator, (0, 1))

    def network(_: int, call: Call) -> Reply | Lost:
        reply = coordinator.answer(call)
        if "/states/" not in call.target:
            return reply
        state = coordinator.state
        statistics = replace(state.model.statistics, count=state.model.statistics.count + 1)
        other = replace(state, model=replace(state.model, statistics=statistics))
        return Reply(200, {"veilgp-protocol": "2"}, encode(other))

    drive(hospitals, coordinator, network)
    assert isinstance(hospitals[3].error, StateDiffers)
    assert vectors(hospitals[3]) == 0


def test_a_total_is_not_applied_to_a_state_that_it_was_not_summed_from(homes: Path) -> None:
    """The task of the closed sum is forged, so that it seems to start where the victim is."""
    coordinator, hospitals = four(homes)
    absent_for(coordinator, (0, 1))
    start = coordinator.position

    def forged(said: dict[str, Any]) -> None:
        task = Task.decode(said["last_task"])
        told = parameters_of(task)
        parameters = task_parameters(**{**told, "stage": 0, "sum_index": 0})
        said["last_task"] = replace(task, state=start.digest, parameters=parameters).encode()

    at_sum(coordinator, 2, forged)
    coordinator.witnesses = 1
    stalls(hospitals, coordinator)
    assert hospitals[3].error is None
    assert vectors(hospitals[3]) == 0


def parameters_of(task: Task) -> dict[str, Any]:
    parameters: dict[str, Any] = json.loads(task.parameters)
    return parameters


# -- witnesses


def test_only_answers_of_others_to_this_very_task_count_as_witnesses() -> None:
    lair = Attacker(private=True).open()
    assert lair.epoch.terms.max_colluders == 1
    task, other = lair.task(), lair.task(statistic="other")
    victim = lair.members[0].client
    headers = {rank: lair.upload(task, rank).message for rank in (1, 2)}
    victim.check_witnesses(task, headers.values())
    good, second = headers[1], headers[2]
    forged = replace(second, commitment=bytes(32))
    own = replace(second, rank=0)
    outside = replace(second, rank=4, context=good.context)
    for bad in ([], [good], [good, good], [good, forged], [good, own], [good, outside]):
        with pytest.raises(TooFewWitnesses):
            victim.check_witnesses(task, bad)
    with pytest.raises(TooFewWitnesses):
        victim.check_witnesses(other, headers.values())


def test_repeating_a_sum_does_not_give_deviations_back(tmp_path: Path, program: Program) -> None:
    """A run has one budget of roundings: a repeated sum and a restart do not renew it."""
    start = positions.start(program, None)
    run, later = "00000000-0000-0000-0000-000000000001", replace(start, sum_index=1)
    with Home(tmp_path / "home").open() as home:
        home.store.commit(Step(None), holding=Holding(run, start))
        home.store.commit(Step(None), holding=Holding(run, later, start, (0, 0), deviations=9))
        home.store.commit(Step(None), holding=Holding(run, start, deviations=9))
        found = home.store.holding(run, program)
    assert found is not None
    assert (found.newest.sum_index, found.before, found.deviations) == (0, None, 9)
