"""Differential privacy between the real coordinator and the real SDK, in one process.

One study of four hospitals whose budget allows two runs: in the first run a hospital falls silent,
in the second one has reached its own limit, and a third run does not start.
"""

import asyncio
import math
from pathlib import Path

import numpy as np

from benchmarks import hospitals
from client_sdk.errors import BudgetSpent
from client_sdk.events import Event, VectorLeft
from tests.e2e import sessions
from tests.e2e.private_study import Study

DELTA = 1e-5
NAMES = [mix.name for mix in hospitals.MIXES[:4]]
TABLES = {
    mix.name: {
        **hospitals.patients(mix, 160, 3),
        "patient": np.array([f"{mix.name}-{i // 2}" for i in range(160)]),
    }
    for mix in hospitals.MIXES[:4]
}
STAGES = [
    {"algorithm": "moments", "parameters": {"from_bounds": True}},
    {"algorithm": "linear"},
    {"algorithm": "recalibration"},
    {"algorithm": "evaluation"},
]
NEW = {
    **sessions.NEW,
    "schema": {**hospitals.SCHEMA, "patient": "patient"},
    "kernel": {"architecture": "rbf", "samples": 10, "seed": 1},
    "stages": STAGES,
    "members": 4,
    "privacy": {
        "differential_privacy": True,
        "epsilon": 8.0,
        "delta": DELTA,
        "runs": 2,
        "max_rows_per_patient": 2,
        "max_colluders": 1,
        "min_cohort": 3,
    },
}


async def whole_study(folder: Path) -> None:
    study = Study(folder, NEW, TABLES)
    async with study.app.router.lifespan_context(study.app):
        await study.begin()
        budget = study.session["budget"]
        assert (budget["epsilon"], budget["runs"]) == (8.0, 2)
        once = budget["run_costs"]
        assert once < 8.0
        await _one_falls_silent(study)
        await _one_reaches_its_own_cap(study, cap=1.05 * once)
        await _nothing_is_left(study, once)


async def _one_falls_silent(study: Study) -> None:
    events: list[Event] = []
    silent = study.joined(NAMES[0], events=events)
    others = [study.joined(name) for name in NAMES[1:]]
    await study.approve()
    run = await study.start()
    while not any(isinstance(event, VectorLeft) for event in events):
        await asyncio.sleep(0.01)
    silent.cancel()
    done, _ = await asyncio.wait(others, timeout=120)
    ended = await study.admin("GET", f"/runs/{run}")
    assert len(done) == len(others), str(ended)
    models = [task.result() for task in done]
    assert len({model.id for model in models}) == 1
    assert (ended["status"], ended["progress"]["sums"]) == ("done", 3)
    card = models[0].artifact.card.privacy
    assert (card.unit, card.releases, card.delta) == ("patient", 3, DELTA)
    assert card.epsilon is not None
    assert card.epsilon <= study.session["budget"]["run_costs"]
    assert "e^" in card.meaning
    assert np.isfinite(models[0].predict(TABLES[NAMES[0]]).mean).all()
    await asyncio.gather(silent, return_exceptions=True)
    returned = await study.joined(NAMES[0])
    assert returned.id == models[0].id, "who comes back gets the model all the same"
    assert 1 <= study.spent(NAMES[0])[0] < 3
    assert study.spent(NAMES[1])[0] == 3


async def _one_reaches_its_own_cap(study: Study, *, cap: float) -> None:
    """The site's own budget allows one run; the session's allows two."""
    run = await study.start()
    capped = study.joined(NAMES[1], epsilon=cap)
    others = [study.joined(name) for name in (NAMES[0], *NAMES[2:])]
    await asyncio.wait([capped], timeout=120)
    assert isinstance(capped.exception(), BudgetSpent)
    done, _ = await asyncio.wait(others, timeout=120)
    ended = await study.admin("GET", f"/runs/{run}")
    assert (len(done), ended["status"]) == (3, "done"), str(ended)
    assert len({task.result().id for task in done}) == 1
    members = {each["name"]: each for each in await study.admin("GET", f"{study.path}/members")}
    assert members[NAMES[1]]["refusal"]["code"] == "policy.budget"
    assert study.spent(NAMES[1])[0] == 3
    assert study.spent(NAMES[2])[0] == 6


async def _nothing_is_left(study: Study, once: float) -> None:
    refused = await study.asked("POST", f"{study.path}/runs", {"kind": "train"})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (409, "ledger.budget_exceeded")
    assert "above the budget of 8" in problem["detail"]
    report = await study.admin("GET", f"{study.path}/privacy")
    assert len(report["releases"]) == 6
    assert once < report["spent"] <= 8.0 < report["after_another_run"]
    assert math.isclose(report["over_time"][-1]["epsilon"], report["spent"])
    curve = [each["epsilon"] for each in report["over_time"]]
    assert curve == sorted(curve)
    assert (report["unit"], report["honest"]) == ("patient", 2)
    assert {each["part"] for each in report["releases"]} == {"training", "calibration"}


def test_a_dropout_a_sites_own_cap_and_a_budget_that_runs_out(tmp_path: Path) -> None:
    asyncio.run(whole_study(tmp_path))
