"""Hostile states and programs at random: what is seen of a site does not depend on its rows.

The long form is `python -m tests.adversary.fuzz --minutes 10`.
"""

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import pytest

from client_sdk.gate.door import Door
from kernels.errors import ChangedTable, ComputationFailed, StateError
from kernels.rounds.algorithm import Algorithm, Rehearsed
from kernels.rounds.registry import ALGORITHMS
from kernels.rounds.site.site import Site
from tests.adversary.fuzz.campaign import Campaign
from tests.adversary.fuzz.honest import honest_runs
from tests.adversary.fuzz.observing import Entrance, entrances
from tests.adversary.fuzz.sites import MANY, sites

SECONDS = 6.0
"""For each of two seeds; the honest runs before them take as long as one."""
FIXED = 17

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
            answers = {doors[noisy].seen(*place, every[own]) for own in ("no rows", "many rows")}
            assert len(answers) == 1, (name, answers)
            (answer,) = answers
            assert (answer.how, len(answer.requests), answer.charges) == ("answered", 1, noisy)
    assert {name for name, _ in seen} == set(ALGORITHMS)
    assert {noisy for _, noisy in seen} == {False, True}


@pytest.mark.parametrize("seed", [FIXED, None], ids=["fixed", "fresh"])
def test_what_is_seen_of_a_site_does_not_depend_on_its_rows(doors: Doors, seed: int | None) -> None:
    campaign = Campaign(secrets.randbelow(2**32) if seed is None else seed, doors)
    sys.stdout.write(f"seed {campaign.seed}\n")
    campaign.run(SECONDS, most_findings=3)
    assert not campaign.findings, "\n".join(map(str, campaign.findings))
    assert campaign.counts["vectors"] > 0


def test_a_case_is_repeated_by_its_seed_and_number(doors: Doors) -> None:
    first, again = Campaign(FIXED, doors), Campaign(FIXED, doors)
    for number in range(12):
        first.case(number)
    for number in reversed(range(12)):
        again.case(number)
    assert (first.counts, first.reached) == (again.counts, again.reached)


# -- broken twins


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


def _contributed(self: Rehearsed, site: Site, *noted: Any) -> Any:
    if _rows(site):
        raise StateError("there is a row")
    return CONTRIBUTED(self, site, *noted)


def _raised_with_noise(self: Rehearsed, site: Site, *_: Any) -> Any:
    def noted(failed: ComputationFailed) -> None:
        raise failed

    return CONTRIBUTED(self, site, noted)


def _charged(self: Door, *given: Any) -> None:
    if _rows(self.table.site):
        CHARGED(self, *given)


CONTRIBUTED, CHARGED = Rehearsed.contributed, Door._charge


def first_finding(doors: Doors, twin: Callable[[Algorithm], Any] = lambda own: own) -> str:
    campaign = Campaign(FIXED, doors, twin)
    campaign.run(60.0, most_findings=1)
    assert campaign.findings, "the fuzzer does not find this"
    return str(campaign.findings[0])


def test_what_fails_over_the_rows_is_answered_alike(doors: Doors) -> None:
    campaign = Campaign(FIXED, doors, FailsOverManyRows)
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


def test_a_refusal_by_rows_is_found(doors: Doors) -> None:
    with mock.patch.object(Rehearsed, "contributed", _contributed):
        assert "depends on the rows" in first_finding(doors)


def test_a_charge_that_depends_on_the_rows_is_found(doors: Doors) -> None:
    with mock.patch.object(Door, "_charge", _charged):
        found = first_finding(doors)
    assert "depends on the rows" in found
    assert "at the door" in found
