"""Hostile states, totals and programs at random: what is seen of a site says nothing of its rows.

The long form is `python -m tests.adversary.fuzz --minutes 10`.
"""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest

from client_sdk.conversation import offer, participation
from client_sdk.conversation.participation import Participation
from client_sdk.gate.door import Door
from client_sdk.gate.refusal_report import about_own_rows
from client_sdk.gate.trial import tried
from client_sdk.network.exchange import Pause
from kernels.errors import ChangedTable, ComputationFailed, StateError
from kernels.rounds.algorithm import Algorithm, Rehearsed
from kernels.rounds.kernel import elbo
from kernels.rounds.layer import linear
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.run_kinds import Kind
from kernels.rounds.site.site import Site
from tests.adversary.fuzz.campaign import WAYS, Campaign
from tests.adversary.fuzz.honest import honest_runs
from tests.adversary.fuzz.observing import Entrance, entrances
from tests.adversary.fuzz.sites import MANY, sites

SECONDS = 5.0
"""Of this process's own time, for each of four seeds: two processes share 20 seconds."""
REACHED = {
    "vectors": "state",
    "totals": "total",
    "programs accepted": "program",
    "vectors in conversation": "conversation",
}
"""What every seed must reach, and the way to it."""
MOST_TRIES = 100
FIXED = 17
FINDS_TWINS_SOON = 8

Doors = Mapping[bool, Entrance]


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    with entrances() as found:
        yield found


def test_every_algorithm_is_answered_at_the_door_whatever_the_rows(doors: Doors) -> None:
    """The fuzzer starts from states that sites answer, so that it reaches their rows."""
    seen = set()
    for run in honest_runs():
        every, noisy = sites(run.program.schema), run.program.privacy is not None
        for position in run.positions:
            name = position.algorithm.NAME, noisy
            if name in seen:
                continue
            seen.add(name)
            place = run.program, run.kind, position.stage, position.sum_index, position.state
            answers = {
                doors[noisy].seen(*place, every[own])
                for own in ("no rows", "many rows", "streamed")
            }
            assert len(answers) == 1, (name, answers)
            (answer,) = answers
            assert (answer.how, len(answer.requests), answer.charges) == ("answered", 1, noisy)
    assert {name for name, _ in seen} == set(ALGORITHMS)
    assert {noisy for _, noisy in seen} == {False, True}
    kinds = {(run.kind, run.program.privacy is not None) for run in honest_runs()}
    assert kinds == {(kind, noisy) for kind in Kind for noisy in (False, True)}


@pytest.mark.parametrize("seed", [FIXED, FIXED + 1, "new", "another"])
def test_what_is_seen_of_a_site_does_not_depend_on_its_rows(doors: Doors, seed: int | str) -> None:
    campaign = Campaign(seed if isinstance(seed, int) else secrets.randbelow(2**32), doors)
    sys.stdout.write(f"seed {campaign.seed}\n")
    campaign.run(SECONDS, most_findings=3, clock=time.process_time)
    for reached, way in REACHED.items():
        # A slow machine tries few cases in this time: it goes on until each way was tried.
        campaign.ways, tries = {way: 1.0}, iter(range(10**6, 10**6 + MOST_TRIES))
        while campaign.counts[reached] == 0:
            campaign.case(next(tries))
    assert not campaign.findings, "\n".join(map(str, campaign.findings))


def test_a_case_is_repeated_by_its_seed_and_number(doors: Doors) -> None:
    first, again = Campaign(FIXED, doors), Campaign(FIXED, doors)
    for number in range(12):
        first.case(number)
    for number in reversed(range(12)):
        again.case(number)
    assert (first.counts, first.reached) == (again.counts, again.reached)


# -- broken twins: each rule about answers, broken, is found


class FailsOverManyRows:
    """An algorithm that cannot be computed over many rows, which is no fault."""

    error: Exception = AttributeError("inside the loop over rows")

    def __init__(self, own: Algorithm) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def contribute(self, state: Any, site: Site) -> Any:
        if _rows(site) >= MANY:
            raise self.error
        return self._own.contribute(state, site)


class RaisesOutsideTheWrapper(FailsOverManyRows):
    """An algorithm whose failure over many rows is taken for one of the machine."""

    error = ChangedTable("many rows")


def _rows(site: Site) -> int:
    return max(map(len, site.parts.values()))


CONTRIBUTED, CHARGED, TASK = Rehearsed.contributed, Door._charge, Participation._task


def _refused(self: Rehearsed, site: Site, *noted: Any) -> Any:
    if _rows(site) > MANY // 2:
        raise StateError("there are rows")
    return CONTRIBUTED(self, site, *noted)


def _raised_with_noise(self: Rehearsed, site: Site, *_: Any) -> Any:
    def noted(failed: ComputationFailed) -> None:
        raise failed

    return CONTRIBUTED(self, site, noted)


def _threefold(self: Rehearsed, site: Site, *noted: Any) -> Any:
    return {name: 3 * np.asarray(own) for name, own in CONTRIBUTED(self, site, *noted).items()}


def _charged(self: Door, *given: Any) -> None:
    if _rows(self.table.site):
        CHARGED(self, *given)


def _raised(*_: Any) -> Any:
    raise ComputationFailed("instead of a vector that says so")


def _divided(*_: Any) -> Any:
    raise ZeroDivisionError("in an update")


def _asked_twice(self: Participation, *given: Any) -> Any:
    if _rows(self._table.site) > MANY // 2:
        yield from self._side.exchange.get_json(f"/sessions/{self._side.session}/membership")
    yield from TASK(self, *given)


def first_finding(
    doors: Doors, twin: Callable[[Algorithm], Any] = lambda own: own, way: str | None = None
) -> str:
    campaign = Campaign(FINDS_TWINS_SOON, doors, twin, WAYS if way is None else {way: 1.0})
    campaign.run(60.0, most_findings=1)
    assert campaign.findings, "the fuzzer does not find this"
    return str(campaign.findings[0])


def test_what_fails_over_the_rows_is_answered_alike(doors: Doors) -> None:
    campaign = Campaign(FIXED, doors, FailsOverManyRows, {"state": 1.0})
    for number in range(60):
        campaign.case(number)
    assert not campaign.findings
    assert campaign.counts["vectors of sites that failed"] > 0


def test_a_failure_that_is_not_answered_by_zero_under_noise_is_found(doors: Doors) -> None:
    with mock.patch.object(Rehearsed, "contributed", _raised_with_noise):
        found = first_finding(doors, FailsOverManyRows)
    assert "depends on the rows" in found
    assert "private" in found


def test_an_error_that_passes_the_wrapper_is_found(doors: Doors) -> None:
    found = first_finding(doors, RaisesOutsideTheWrapper)
    assert "depends on the rows" in found
    assert "ChangedTable" in found


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_by_rows_is_found(doors: Doors, way: str) -> None:
    with mock.patch.object(Rehearsed, "contributed", _refused):
        found = first_finding(doors, way=way)
    assert "depends on the rows" in found or "is absent" in found


def test_a_charge_that_depends_on_the_rows_is_found(doors: Doors) -> None:
    with mock.patch.object(Door, "_charge", _charged):
        found = first_finding(doors, way="state")
    assert "depends on the rows" in found
    assert "at the door" in found


@pytest.mark.parametrize("way", ["state", "conversation"])
def test_a_site_that_does_not_answer_because_it_failed_is_found(doors: Doors, way: str) -> None:
    with mock.patch.object(Door, "_failure", _raised):
        found = first_finding(doors, way=way)
    assert "depends on the rows" in found or "is absent" in found


def test_a_further_request_by_rows_is_found(doors: Doors) -> None:
    with mock.patch.object(Participation, "_task", _asked_twice):
        assert "what is heard depends on the rows" in first_finding(doors, way="conversation")


def test_a_table_whose_refusal_is_reported_is_found(doors: Doors) -> None:
    with mock.patch.object(offer, "about_own_rows", nullcontext):
        assert "what is heard depends on the rows" in first_finding(doors, way="conversation")


def test_a_trial_on_own_rows_with_noise_is_found(doors: Doors) -> None:
    """With noise a trial before entry would make absence depend on the rows."""
    contribute = linear.contribute

    def fails(state: Any, site: Site) -> Any:
        return _divided() if _rows(site) > MANY // 2 else contribute(state, site)

    def tried_anyway(_: Any, program: Any, table: Any) -> Any:
        with about_own_rows():
            yield from (Pause(0.0) for _ in tried(program, lambda _: table.site))

    with (
        mock.patch.object(linear, "contribute", fails),
        mock.patch.object(participation, "try_before_entry", tried_anyway),
    ):
        assert "with noise" in first_finding(doors, way="conversation")


def test_a_unit_that_changes_more_than_the_noise_covers_is_found(doors: Doors) -> None:
    with mock.patch.object(Rehearsed, "contributed", _threefold):
        assert "one unit changes more than is declared" in first_finding(doors, way="state")


@pytest.mark.parametrize("algorithm", [linear, elbo], ids=["linear", "elbo"])
def test_an_error_that_escapes_from_an_update_is_found(doors: Doors, algorithm: Any) -> None:
    with mock.patch.object(algorithm, "update", _divided):
        assert "an error escapes from an update" in first_finding(doors, way="total")
