"""A24: a refusal is an answer. "Which hospital exceeds this bound?" was one task in version 1.

After a hospital has entered a run, one that cannot compute its numbers, or has a number beyond its
bound, answers as all others do: with a masked vector. The sum is then noise, the run ends, and what
the others read names nobody. The site's own log says what failed.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import RunFailed
from client_sdk.events import CouldNotCompute
from client_sdk.gate.door import Door
from client_sdk.home.home import Home
from kernels.errors import ComputationFailed, TooManyRows
from kernels.rounds.kernel import exact
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from privacy.securesum import masking
from privacy.securesum.masking import FailedVector
from privacy.tags import data_tags
from tests.client_sdk.conftest import NAMES
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.dealing import home_keys
from tests.kernels.rounds.tables import program as program_with
from tests.kernels.rounds.tables import tables

PROGRAM = Program.from_json(program_with(exact.Spec(steps=1, penalties=(3.0,))).to_json())
NOBODY = "one site could not compute; each site's log says whether it was it"


@pytest.fixture
def make(homes: Path) -> Callable[..., tuple[SmallCoordinator, list[Hospital]]]:
    def made(program: Program = PROGRAM) -> tuple[SmallCoordinator, list[Hospital]]:
        coordinator = SmallCoordinator(program, NAMES)
        keys = home_keys(homes, NAMES)
        coordinator.members.update(keys)
        coordinator.start()
        hospitals = [
            Hospital(coordinator.link(i), homes / name, table, permissive(program), roster=keys)
            for i, (name, table) in enumerate(zip(NAMES, tables(3), strict=True))
        ]
        return coordinator, hospitals

    return made


def failing(
    where: set[int], hospitals: list[Hospital], how: Callable[[Any], Any], patch: Any
) -> None:
    """Let `linear` fail at some hospitals, once they have entered the run."""
    sizes = set()
    for i in where:
        rows = 39 - i
        hospitals[i].data = {name: cells[:rows] for name, cells in hospitals[i].data.items()}  # type: ignore[attr-defined]
        sizes.add(rows)
    contribute = linear.contribute

    def spoiled(state: Any, site: Site) -> Any:
        own = contribute(state, site)
        trying = state.spec is not PROGRAM.stages[-1] and not entered(hospitals)
        return own if trying or sum(map(len, site.parts.values())) not in sizes else how(own)

    patch.setattr(linear, "contribute", spoiled)


def entered(hospitals: list[Hospital]) -> bool:
    """Return whether every hospital has entered the run: what is computed now is for a task."""
    return all(any("has begun" in str(event) for event in h.events) for h in hospitals)


def _raises(_: Any) -> Any:
    raise ZeroDivisionError("of this hospital's rows")


def _beyond_its_bound(own: Any) -> Any:
    return {**own, "scatter": own["scatter"] * 1e9}


def _not_finite(own: Any) -> Any:
    return {**own, "cross": np.full_like(own["cross"], np.nan)}


HOW = {"raises": _raises, "beyond its bound": _beyond_its_bound, "NaN": _not_finite}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_one_failing_site_answers_and_the_run_names_nobody(
    make: Any, how: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = make()
    failing({1}, hospitals, how, monkeypatch)
    drive(hospitals, coordinator)
    assert coordinator.refusals == []
    assert coordinator.outcome is not None
    assert (coordinator.outcome["code"], coordinator.outcome["detail"]) == (
        "run.site_failed",
        NOBODY,
    )
    for hospital in hospitals:
        assert isinstance(hospital.error, RunFailed)
        assert NOBODY in str(hospital.error)
    told = [[e for e in h.events if isinstance(e, CouldNotCompute)] for h in hospitals]
    assert [len(each) for each in told] == [0, 1, 0]
    assert failures(hospitals) == [0, 1, 0]
    assert len({len(body) for body in coordinator.uploads[-3:]}) == 1


def test_a_failing_site_does_the_same_work_after_the_wait(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of an upload must not tell who failed: 10⁶ tags take tens of milliseconds."""
    coordinator, hospitals = make()
    done: list[tuple[str, int]] = []

    def noted(name: str, function: Callable[..., Any], size: Callable[..., int]) -> Any:
        def called(*given: Any, **named: Any) -> Any:
            done.append((name, size(*given)))
            return function(*given, **named)

        return called

    wait = Door._wait
    monkeypatch.setattr(Door, "_wait", noted("wait", wait, lambda *_: 0))
    monkeypatch.setattr(masking, "data_tags", noted("tags", data_tags, lambda _, x, __: x.size))
    drawn = FailedVector.drawn
    monkeypatch.setattr(FailedVector, "drawn", noted("draw", drawn, lambda length, _: length))
    failing({1}, hospitals, _raises, monkeypatch)
    drive(hospitals, coordinator)
    assert failures(hospitals) == [0, 1, 0]
    assert [name for name, _ in done].count("draw") == 1
    assert done[done.index(next(each for each in done if each[0] == "draw")) + 1][0] == "wait"
    tags = [size for name, size in done if name == "tags"]
    assert len(tags) == len(coordinator.uploads)
    assert len(set(tags[-3:])) == 1


def failures(hospitals: list[Hospital]) -> list[int]:
    found = []
    for hospital in hospitals:
        store = Home(hospital.path).read()
        found.append(len(store.failures()))
        store.close()
    return found


def test_all_but_one_failing_leave_nothing_of_the_one(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The total is noise: the failing sites' random numbers hide the vector of the other."""
    coordinator, hospitals = make()
    failing({1, 2}, hospitals, _raises, monkeypatch)
    drive(hospitals, coordinator)
    assert coordinator.outcome is not None
    assert coordinator.outcome["code"] == "run.site_failed"
    assert failures(hospitals) == [0, 1, 1]
    assert coordinator.refusals == []


def test_max_rows_is_no_question_about_one_hospital(make: Any) -> None:
    """A hospital with more rows than `max_rows` is absent, and says why only at home."""
    seen = []
    for most in (10, 25):
        program = replace(PROGRAM, max_rows=most)
        coordinator, hospitals = make(program)
        drive(hospitals[:1], coordinator, first_error=True)
        assert isinstance(hospitals[0].error, TooManyRows)
        assert coordinator.refusals == []
        seen.append([path for _, path in coordinator.log if "membership" not in path])
    assert [len(each) for each in seen] == [1, 1], "it enrolled, and nothing else was heard of it"


def test_what_a_stage_does_over_the_rows_is_found_before_the_run_is_entered(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, hospitals = make()
    contribute = linear.contribute

    def spoiled(state: Any, site: Site) -> Any:
        own = contribute(state, site)
        return _raises(own) if sum(map(len, site.parts.values())) == 40 else own

    monkeypatch.setattr(linear, "contribute", spoiled)
    drive(hospitals[:1], coordinator, first_error=True)
    assert isinstance(hospitals[0].error, ComputationFailed)
    assert "stage 3, linear" in str(hospitals[0].error)
    assert coordinator.refusals == []
    assert coordinator.sums.advertised == frozenset()
