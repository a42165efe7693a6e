"""Lying members of blind sums: they delay a run, and cannot change what others sign or send."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.conversation.participation import Participation
from client_sdk.conversation.replay import Needed, Replay
from client_sdk.home.home import Home
from client_sdk.home.remembered import Holding
from kernels.model.artifact import published
from kernels.storage import encode
from privacy.members.endorsement import Endorsement, statement_of
from privacy.securesum.messages import AuthorRequest, Certificate
from tests.client_sdk.conversation.blind_study import BlindStudy, lies

Lie = Callable[[Holding], Holding | None]


def first_author(study: BlindStudy) -> bytes:
    """Return the key of rank 0, which is asked first."""
    return min(study.roster.values())


def writes(monkeypatch: pytest.MonkeyPatch, key: bytes, lie: Lie) -> set[int]:
    """Let a hospital write one task from a false position, answer it, and seal that position.

    It answers the others' tasks honestly. Returns the slots for which it has sealed a false state.
    """
    newest, answering = Replay.newest, Replay.answering
    told: dict[int, Holding] = {}
    sealed: set[int] = set()

    def write(self: Any, request: AuthorRequest, item: Any) -> Any:
        holding = yield from newest(self, request, item)
        false = None if holding is None or told else lie(holding)
        if self._home.identity.key != key or false is None:
            return holding
        told[request.slot] = false
        self._held = holding
        return replace(false, vault={})

    def answer(self: Any, task: Any, item: Any) -> Any:
        if self._home.identity.key == key and task.slot in told:
            if item.kind == "seal":
                sealed.add(task.slot)
            return told[task.slot]
        return (yield from answering(self, task, item))

    monkeypatch.setattr(Replay, "newest", write)
    monkeypatch.setattr(Replay, "answering", answer)
    return sealed


def a_later_sum(holding: Holding) -> Holding | None:
    position = holding.newest
    return replace(holding, newest=replace(position, sum_index=position.sum_index + 1))


def an_earlier_sum(holding: Holding) -> Holding | None:
    return None if holding.before is None else replace(holding, newest=holding.before)


def after_the_end(holding: Holding) -> Holding | None:
    if not holding.newest.finished or holding.before is None:
        return None
    place = holding.newest.sum_index
    return replace(holding, newest=replace(holding.before, sum_index=place))


def another_model(holding: Holding) -> Holding | None:
    position = holding.newest
    if position.state.model.standardiser is None or position.finished:
        return None
    standardiser = position.state.model.standardiser
    first, *others = standardiser.targets
    false = replace(standardiser, targets=(replace(first, mean=first.mean + 1), *others))
    state = replace(position.state, model=replace(position.state.model, standardiser=false))
    return replace(holding, newest=replace(position, state=state))


async def undisturbed(
    folder: Path, begin: Callable[[BlindStudy], object], *, members: int = 3
) -> BlindStudy:
    """Run a study in which somebody lies; its model is that of a study in which nobody does."""
    study = BlindStudy(folder / "lies", members=members)
    begin(study)
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served")
        found = await study.run()
        (run,) = await study.runs()
        assert run["status"] == "done", run
    models = {encode(model.artifact.model) for model in found.values()}
    assert models == {await honest(folder, members)}
    return study


def abandoned(study: BlindStudy) -> set[int]:
    """Return the slots that an honest hospital knows to be abandoned: others' tasks were false."""
    name = max(study.names, key=lambda each: study.roster[each])
    with Home(study.folder / name).open() as home:
        epochs = home.client.journal.epochs.values()
        return {number for each in epochs for number, slot in each.slots.items() if slot.abandoned}


async def honest(folder: Path, members: int) -> bytes:
    study = BlindStudy(folder / "honest", members=members)
    async with study.app.router.lifespan_context(study.app):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Replay, "newest", _HONEST[0])
            patched.setattr(Replay, "answering", _HONEST[1])
            await study.begin(model="served")
            (first, *_) = (await study.run()).values()
    return encode(first.artifact.model)


_HONEST = Replay.newest, Replay.answering


@pytest.mark.parametrize(
    "lie",
    [
        # Without a network: tests/adversary/test_a32_lying_authors.py.
        *(
            pytest.param(lie, marks=pytest.mark.slow)
            for lie in (a_later_sum, an_earlier_sum, after_the_end)
        ),
        another_model,
    ],
)
def test_a_task_from_a_false_position_is_answered_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    told: list[Any] = []

    def begin(study: BlindStudy) -> None:
        told.append(writes(monkeypatch, first_author(study), lie))

    study = asyncio.run(undisturbed(tmp_path, begin))
    assert abandoned(study) == told[0]
    assert told[0]


def test_a_task_for_a_state_that_nobody_holds_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts: list[int] = []

    def begin(study: BlindStudy) -> None:
        def other_state(draft: Any, request: Any, **said: Any) -> Any:
            drafts.append(request.slot)
            return draft(request, **(said | {"state": bytes(32)} if len(drafts) == 1 else said))

        lies(monkeypatch, "draft", first_author(study), other_state)

    study = asyncio.run(undisturbed(tmp_path, begin))
    assert drafts[0] == 0
    assert abandoned(study) == {0}


def test_an_endorsement_before_the_end_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def begin(study: BlindStudy) -> None:
        key, author = first_author(study), Participation._author

        def early(self: Any, item: Any, known: Any) -> Any:
            last = item.part("last_certificate")
            if self._home.identity.key != key or last is None or told:
                return (yield from author(self, item, known))
            told.append(item.number)
            run = self._in_hand(known)
            request = AuthorRequest.decode(item.message)
            holding = yield from self._replayed(run).newest(request, item)
            certificate, client = Certificate.decode(last), self._client
            _, epoch = client.journal.entry(certificate.epoch_id)
            salt = client.model_salt(epoch.epoch_id, certificate.context)
            statement = statement_of(
                epoch.terms,
                run=epoch.run,
                epoch_id=epoch.epoch_id,
                members=epoch.size,
                program=hashlib.sha256(run.text.encode()).digest(),
                roster=epoch.roster,
                parent=None,
                salt=salt,
                data=encode(published(holding.newest.state.model)),
                state_salt=bytes(32),
                state=holding.newest.digest,
                context=certificate.context,
            )
            endorsement = Endorsement.signed(
                self._home.identity,
                rank=epoch.rank(key),
                statement=statement,
                salt=salt,
                results=b"",
            )
            yield from self._send(item, endorsement)

        monkeypatch.setattr(Participation, "_author", early)

    asyncio.run(undisturbed(tmp_path, begin))
    assert told


def test_a_needless_objection_delays_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objected: set[int] = set()

    def begin(study: BlindStudy) -> None:
        key, answering = max(study.roster.values()), Replay.answering

        def objecting(self: Any, task: Any, item: Any) -> Any:
            if self._home.identity.key == key and task.slot not in objected:
                objected.add(task.slot)
                return Needed(objection=True)
            return (yield from answering(self, task, item))

        monkeypatch.setattr(Replay, "answering", objecting)

    asyncio.run(undisturbed(tmp_path, begin, members=4))
    assert len(objected) == 4
