"""Altered, foreign or misplaced input at every message is a declared error and changes nothing."""

import random
from contextlib import suppress

import pytest

from privacy.errors import PrivacyError
from privacy.securesum.coordinator import Coordinator
from privacy.securesum.simulator import Fault, Point, Simulation

N = 5
FLIPS = 6


def memory(site) -> tuple:
    """Return the state on which everything that a client does next depends."""
    journal = site.client.journal
    return journal.count, journal.chain, site.client._memory.entries()


def everything(simulation: Simulation, site: int | None) -> object:
    """Return the memory of a site, or of the coordinator."""
    return simulation.coordinator.save() if site is None else memory(simulation.sites[site])


def altered(data: bytes, chance: random.Random) -> bytes:
    """Return some bytes flipped, cut, extended or repeated."""
    place = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            return data[:place]
        case 1:
            return data + data[:place]
        case 2:
            return data[:place] + chance.randbytes(4) + data[place + 4 :]
        case _:
            return (
                data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
            )


def besieged(simulation: Simulation, chance: random.Random) -> dict[str, int]:
    """Send altered messages before every message, in both directions; count the refusals."""
    refused: dict[str, int] = {}
    exchange = simulation._exchange

    def attack_client(site, data, ask):
        for bad in [altered(data, chance) for _ in range(FLIPS)]:
            before = memory(site)
            try:
                ask(site.client, bad)
            except PrivacyError as error:
                assert memory(site) == before
                refused[error.code] = refused.get(error.code, 0) + 1
            else:
                site.crash()  # it was another valid request; undo it

    def attack_coordinator(take, data, body):
        for bad in [altered(data, chance) for _ in range(FLIPS)]:
            before = simulation.coordinator.save()
            try:
                take(bad, body)
            except PrivacyError as error:
                assert simulation.coordinator.save() == before
                refused[error.code] = refused.get(error.code, 0) + 1
            else:
                simulation.coordinator = Coordinator.restore(before)

    def under_attack(site, point, request, ask, take=None):
        def ask_after_attacks(client, data):
            attack_client(simulation.sites[site], data, ask)
            return ask(simulation.sites[site].client, data)

        def take_after_attacks(data, body):
            attack_coordinator(take, data, body)
            take(data, body)

        exchange(
            site, point, request, ask_after_attacks, None if take is None else take_after_attacks
        )

    simulation._exchange = under_attack
    return refused


@pytest.mark.parametrize("seed", range(3))
def test_altered_messages_are_refused_by_name_and_the_sum_comes_out_right(private, markers, seed):
    chance = random.Random(seed)
    simulation = private(N, least=3, seed=seed)
    refused = besieged(simulation, chance)
    simulation.open_epoch()
    for silent in (0, 1):
        simulation.faults[silent, Point.REVEAL] = Fault.GONE
        vectors = markers.vectors(N)
        markers.check(simulation.sum(vectors), vectors)
        simulation.wake()
    for site in range(3):
        simulation.faults[site, Point.UPLOAD] = Fault.LATE
    assert simulation.sum(markers.vectors(N)).proof is not None
    assert sum(refused.values()) > 200
    assert len(refused) > 15


def test_messages_of_every_kind_are_refused_where_another_is_expected(private, markers):
    """Sending every earlier message again to everyone at the end changes nothing."""
    simulation = private(N, least=3)
    said = []
    exchange = simulation._exchange

    def recorded(site, point, request, ask, take=None):
        def remember(data, body):
            said.append((None, lambda: take(data, body)))
            take(data, body)

        said.append((site, lambda: ask(simulation.sites[site].client, request.encode())))
        exchange(site, point, request, ask, None if take is None else remember)

    simulation._exchange = recorded
    simulation.open_epoch()
    simulation.faults[0, Point.REVEAL] = Fault.GONE
    for _ in range(2):
        vectors = markers.vectors(N)
        markers.check(simulation.sum(vectors), vectors)
        simulation.wake()
    simulation.open_epoch()
    said_before = list(said)
    for target, again in said_before:
        before = everything(simulation, target)
        with suppress(PrivacyError):
            again()
        assert everything(simulation, target) == before
    vectors = markers.vectors(N)
    markers.check(simulation.sum(vectors), vectors)
