"""A22 by way of a finished run: its mark "replayed" is moved to a model of the coordinator's own.

A hospital starts runs only from models that it has replayed, which it remembers with the run that
made them. So a hostile coordinator opens a finished run once more, lets it be replayed to its end,
and then names another model as its result. In another session it opens a run of kind `linear` from
that model, whose first feature is nonzero for one patient only: one exact sum reads the patient.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from client_sdk.errors import ParentForbidden, WrongRun
from client_sdk.gate.policy import Policy
from client_sdk.home.home import Home
from client_sdk.home.remembered import KnownRun
from client_sdk.network.exchange import Call, Lost, Reply
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.rounds.position import Position
from kernels.rounds.run_kinds import Kind, program_of
from kernels.rounds.site.site import Part
from privacy.securesum.coordinator import Coordinator
from tests.adversary.test_a22_crafted_states import (
    KERNEL,
    NAMES,
    PROGRAM,
    SCHEMA,
    TABLES,
    box,
    honest,
    row_of,
)
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.coordinator import PROTOCOL, SmallCoordinator, problem, said, said_item
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.client_sdk.replaying import vectors
from tests.dealing import put_dealing

LINEAR = program_of(Kind.LINEAR, PROGRAM)


def as_artifact(position: Position) -> Artifact:
    return Artifact.of(
        position.state.model,
        program=PROGRAM,
        members=len(NAMES),
        sums=position.sum_index,
        privacy=Privacy.of(SCHEMA, min_cohort=3, max_colluders=0),
        created=datetime(2026, 11, 18, tzinfo=UTC),
    )


LAST = honest(3)
VICTIM, OUTCOME = row_of(Part.TRAINING, LAST)
TRUE = as_artifact(honest(3, sums=1))
CRAFTED = as_artifact(box(honest(3, sums=1), VICTIM, height=math.pi / 2))


class Thief(SmallCoordinator):
    """Serves both models by their ids."""

    withholds = False
    """Whether it does not serve the crafted model."""

    def _answer(self, method: str, path: str, *more: Any) -> Reply:
        for model in (TRUE, CRAFTED):
            if model is CRAFTED and self.withholds:
                continue
            if path == f"/models/{model.id}":
                return said(model.card.to_plain())
            if path == f"/models/{model.id}/artifact":
                return Reply(200, PROTOCOL, model.to_bytes())
        if path.startswith("/models/") and not path.endswith("/certificate"):
            return problem(404, "not_found")
        return super()._answer(method, path, *more)

    def _next(self, key: bytes, asked: str, *, witnesses: bool) -> dict[str, Any] | None:
        """Announce the end of its run also to those that do not ask for it."""
        return super()._next(key, str(self.run), witnesses=witnesses)

    def opens_again(self, run: UUID, number: int) -> None:
        """Open a run that is over for its hospitals."""
        self.start()
        self.run = run
        self.sums = Coordinator(self.sums.terms, run=run.bytes, number=number, roster=self.roster)

    @property
    def reading(self) -> tuple[float, float] | None:
        """The number of rows in the box and their outcome, if there was a sum at crafted states."""
        if self.kind != "linear" or not self.done_sums:
            return None
        found = self.state.model.statistics
        sines = CRAFTED.model.urk.features(VICTIM[None])[0, KERNEL.samples :].detach().numpy()
        squares = np.diagonal(found.scatter.numpy())[KERNEL.samples :]
        cross = found.cross.numpy()[KERNEL.samples :, 0]
        return float((squares / sines**2).mean()), float((cross / sines).mean())


def session(folder: Path, policy: Policy) -> tuple[Thief, list[Hospital]]:
    """Return another session of the same hospitals and tables, with a run of kind train."""
    thief = Thief(PROGRAM, NAMES, model_id=TRUE.id)
    for name in NAMES:
        put_dealing(folder / name)
    keys = {name: Home(folder / name).identity().key for name in NAMES}
    thief.members.update(keys)
    thief.start()
    return thief, [
        Hospital(thief.link(i), folder / name, own, policy, roster=keys)
        for i, (name, own) in enumerate(zip(NAMES, TABLES, strict=True))
    ]


def policy_of(**changes: Any) -> Policy:
    return permissive(PROGRAM, parents=(), max_sums=1000, **changes)


def trained(folder: Path) -> tuple[Thief, list[Hospital]]:
    """Return a session after an honest run, whose model every hospital has replayed."""
    thief, hospitals = session(folder, policy_of())
    drive(hospitals, thief)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert obtained(hospitals, TRUE) == [True] * 3
    return thief, hospitals


def obtained(hospitals: list[Hospital], model: Artifact) -> list[bool]:
    found = []
    for hospital in hospitals:
        store = Home(hospital.path).read()
        found.append(store.obtained(model.id))
        store.close()
    return found


def remembered(hospital: Hospital, run: UUID | None) -> KnownRun | None:
    store = Home(hospital.path).read()
    try:
        return store.run(str(run))
    finally:
        store.close()


def reads_from_crafted(folder: Path, policy: Policy) -> tuple[Thief, list[Hospital]]:
    """Let a linear run start from the crafted model, in a session of its own."""
    thief, hospitals = session(folder, policy)
    thief.opened, thief.parent, thief.base = LINEAR, CRAFTED.id, CRAFTED.model
    thief.start("linear")
    drive(hospitals, thief)
    return thief, hospitals


def test_believed_a_crafted_model_reads_the_patient(homes: Path) -> None:
    """The second half of the attack, at hospitals whose operators have approved the model."""
    approved = replace(policy_of(), parents=(CRAFTED.id,))
    thief, _ = reads_from_crafted(homes, approved)
    assert thief.reading is not None
    rows, outcome = thief.reading
    assert rows == pytest.approx(1.0, abs=1e-6)
    assert outcome == pytest.approx(OUTCOME, abs=1e-6)


def test_a_finished_run_lends_its_mark_to_no_crafted_model(homes: Path) -> None:
    thief, hospitals = trained(homes)
    assert thief.run is not None
    thief.opens_again(thief.run, 1)
    thief.model_id, thief.withholds = CRAFTED.id, True
    for hospital in hospitals:
        hospital.error = None
    drive(hospitals, thief)
    last, hospitals = reads_from_crafted(homes, policy_of())
    assert last.reading is None, "one patient was read"
    assert last.uploads == []
    assert all(isinstance(hospital.error, ParentForbidden) for hospital in hospitals)
    assert obtained(hospitals, CRAFTED) == [False] * 3
    assert obtained(hospitals, TRUE) == [True] * 3


def once(item: Callable[[], dict[str, Any]], thief: Thief) -> Callable[[int, Call], Reply | Lost]:
    """Return a network whose answers to `next` are one item."""

    def network(_: int, call: Call) -> Reply | Lost:
        return said_item(item()) if "/next" in call.target else thief.answer(call)

    return network


def test_the_end_of_a_run_that_is_over_changes_nothing(homes: Path) -> None:
    thief, hospitals = trained(homes)
    before = [remembered(hospital, thief.run) for hospital in hospitals]
    outcome = {"status": "done", "code": None, "detail": None, "model": CRAFTED.id}

    def ended() -> dict[str, Any]:
        return {"kind": "ended", "run": str(thief.run), "outcome": outcome, **thief.last}

    drive(hospitals, thief, once(ended, thief))
    assert all(isinstance(hospital.error, WrongRun) for hospital in hospitals)
    assert [remembered(hospital, thief.run) for hospital in hospitals] == before


def test_no_item_of_a_run_that_is_over_is_answered(homes: Path) -> None:
    """The last task again: without its replay it would be compared with the run's start."""
    thief, hospitals = trained(homes)
    task = thief.sums.slot.task.encode()
    sent, told = [vectors(hospital) for hospital in hospitals], len(thief.uploads)
    drive(hospitals, thief, once(lambda: thief._item("task", task, **thief.last), thief))
    assert all(isinstance(hospital.error, WrongRun) for hospital in hospitals)
    assert ([vectors(hospital) for hospital in hospitals], len(thief.uploads)) == (sent, told)
