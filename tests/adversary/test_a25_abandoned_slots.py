"""A25: abandoned slots as free questions.

Only the victim gets tasks, and as soon as it has computed its vector the slot is abandoned by
everyone's signatures: nothing was released, so the next task may ask something else. In a review
280 such questions gave a row count, although the policy allowed 100 sums. Every computed vector
counts, over all runs and sessions of a data source; sending the same bytes again counts nothing.
"""

from client_sdk.errors import TooManySums
from client_sdk.gate.disclosure import Disclosure
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Lost, Reply
from kernels.rounds.program import Program
from privacy.securesum.terms import default_terms
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import SmallCoordinator
from tests.client_sdk.hospitals import Hospital, Killed, drive, permissive

__all__ = ["homes", "make", "program"]

MORE = 20
"""How many slots the coordinator abandons, more than the policy allows."""


def computed(hospital: Hospital) -> int:
    store = Home(hospital.path).read()
    try:
        return store.disclosures(hospital.source).vectors
    finally:
        store.close()


def needed(program: Program) -> int:
    return Disclosure.of(program, default_terms(bytes(16), 3)).sums


def test_a_vector_counts_whether_its_slot_is_abandoned_or_not(make: Make, program: Program) -> None:
    allowed = needed(program)
    coordinator, hospitals = make(permissive(program, max_sums=allowed))
    coordinator.abandons = MORE
    drive(hospitals, coordinator, first_error=True)
    assert isinstance(hospitals[0].error, TooManySums)
    assert computed(hospitals[0]) == len(coordinator.uploads) == allowed


def test_a_drafted_allowance_survives_some_abandoned_slots(make: Make, program: Program) -> None:
    coordinator, hospitals = make(permissive(program, max_sums=2 * needed(program)))
    coordinator.abandons = 2
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert computed(hospitals[0]) == needed(program) + 2


def test_bytes_that_are_sent_again_count_once(make: Make, program: Program) -> None:
    coordinator, hospitals = make(permissive(program, max_sums=needed(program)))
    killed = set[int]()

    def network(i: int, call: Call) -> Reply | Lost:
        if i == 0 and "/vectors" in call.target and len(coordinator.uploads) not in killed:
            killed.add(len(coordinator.uploads))
            raise Killed  # after the vector was computed and written, before it is sent
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert hospitals[0].error is None
    assert killed
    assert computed(hospitals[0]) == needed(program)


def test_a_new_session_over_the_same_table_resets_nothing(make: Make, program: Program) -> None:
    coordinator, hospitals = make(permissive(program, max_sums=needed(program)))
    drive(hospitals, coordinator)
    assert coordinator.uploads
    second = SmallCoordinator(program, coordinator.names)
    second.members.update(coordinator.members)
    second.start()
    for i, hospital in enumerate(hospitals):
        hospital.link, hospital.source = second.link(i), "another name for it"
    drive(hospitals, second, first_error=True)
    assert isinstance(hospitals[0].error, TooManySums)
    assert second.uploads == []
