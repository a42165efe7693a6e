"""The disclosure says what the coordinator reads, as the session's terms have it."""

from dataclasses import replace

from client_sdk.gate.disclosure import Disclosure, known_under
from privacy.securesum.terms import default_terms
from tests.kernels.rounds import private
from tests.kernels.rounds.tables import program as program_with

PROGRAM = program_with()


def text(**terms: bool) -> str:
    return str(Disclosure.of(PROGRAM, default_terms(bytes(16), 5, **terms)))


def test_with_open_sums_the_coordinator_reads_all_of_them() -> None:
    said = text()
    assert "every sum (sums are open)" in said
    assert "becomes known, to the coordinator and to every member" in said
    assert "given to the coordinator" in said


def test_with_blind_sums_it_reads_the_model_only() -> None:
    said = text(blind=True)
    assert "what the coordinator reads: no sum" in said
    assert "becomes known, to every member" in said
    assert "given to the coordinator" in said
    assert "ends blindness" in said


def test_a_model_for_members_only_is_not_read_either() -> None:
    said = text(blind=True, members_only=True)
    assert "for members only" in said
    assert "given to the coordinator" not in said


def test_fewer_numbers_become_known_to_the_coordinator_and_as_many_to_hospitals() -> None:
    sessions: list[dict[str, bool]] = [{}, {"blind": True}, {"blind": True, "members_only": True}]
    counted = [known_under(default_terms(bytes(16), 5, **each), PROGRAM) for each in sessions]
    opened, blind, members = counted
    assert opened.coordinator > blind.coordinator > members.coordinator
    assert len({each.hospitals for each in counted}) == 1


def test_with_noise_it_says_what_the_hospital_spends_its_budget_for() -> None:
    terms = default_terms(bytes(16), 5, differential_privacy=True)
    hopeless = replace(private.program(*private.LAYER, multiplier=1e4), least_rows=200)
    said = str(Disclosure.of(hopeless, terms))
    assert "Expected with 200 training rows over all hospitals: for stay, share of" in said
    assert "NO BETTER THAN PREDICTING THE MEAN" in said
    assert "Expected with" not in text()
