"""A23: rows are dealt by each site's own secret, so no choice of a session deals one patient apart.

The attack: an attacker who knows who may be a patient of a hospital searches for a seed and a share
held out under which a part is empty unless one of them is there. Whether the part is empty then
says whether that person is treated there. A session has no seed any more; what is left to choose is
`held_out`, and guesses of the secret.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from client_sdk.errors import DealingLost, HomeExposed
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Lost, Reply
from client_sdk.simulation import simulate
from client_sdk.tables.hospital_table import site_of
from kernels import storage
from kernels.rounds.plan import site_dealing
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from kernels.tables.row_hashes import row_keys
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from privacy.securesum.errors import TableChanged
from tests.client_sdk.conftest import Make, homes, make, program
from tests.client_sdk.coordinator import SmallCoordinator, item_of, said, said_item
from tests.client_sdk.hospitals import Hospital, drive, permissive
from tests.dealing import DEALING, dealing_of, put_dealing
from tests.kernels.rounds.tables import table, tables

__all__ = ["homes", "make", "program"]

GUESSES, STEPS = 500, 200  # 100,000 pairs of a guess and a share
HOMES = 2000
OTHERS = 20
SCHEMA = Schema((Numeric("age", "a"),), (Target("stay", "d"),), patient="who")


def patients(count: int) -> list[bytes]:
    """Return the keys of patients whose identifiers the attacker knows; the first is the victim."""
    rows = {"age": range(count), "stay": range(count), "who": [f"p{i}" for i in range(count)]}
    own = Site.of_table(SCHEMA, rows, held_out=0.0, dealing=DEALING)
    (records,) = (each for each in own.records.values() if len(each))
    return row_keys(records)


KEYS = patients(1 + OTHERS)


def least_share(dealing: Dealing, keys: Sequence[bytes]) -> float:
    """Return the least share, in steps, under which one of the patients is held out."""

    def held_out(step: int) -> bool:
        return says_present(dealing, (step + 1) / STEPS, keys)

    return (bisect_left(range(STEPS), True, key=held_out) + 1) / STEPS


def best_choice() -> tuple[Dealing, float]:
    """Search for the guess and share that hold out the victim with the most room around it."""
    found, margin = (DEALING, 0.5), 0.0
    for number in range(GUESSES):
        guess = dealing_of(number)
        victim, others = least_share(guess, KEYS[:1]), least_share(guess, KEYS[1:])
        if others - victim > margin:
            found, margin = (guess, victim), others - victim
    return found


def says_present(dealing: Dealing, share: float, keys: Sequence[bytes]) -> bool:
    return bool((dealing.parts(keys, held_out=share) > 0).any())


def advantage(secrets: Sequence[Dealing], share: float) -> float:
    """Return P(part not empty | the victim is there) − P(part not empty | it is not)."""
    there, away = (
        np.mean([says_present(secret, share, keys) for secret in secrets])
        for keys in (KEYS, KEYS[1:])
    )
    return float(there - away)


def test_the_best_of_many_choices_tells_nothing_about_a_chosen_patient() -> None:
    guess, share = best_choice()
    assert advantage([guess], share) == 1.0, "with a seed of the coordinator's the attack works"
    # Under an unknown secret, one more patient fills an empty part with probability
    # share·(1 − share)^n, as any other patient would.
    found = advantage([dealing_of(10**6 + i) for i in range(HOMES)], share)
    assert found <= share * (1 - share) ** OTHERS + 4 * np.sqrt(0.25 / HOMES)
    assert found < 0.1


def test_a_patients_part_is_a_fresh_draw_at_every_site() -> None:
    """Neither one's parts elsewhere nor the parts of all others at a site predict it."""
    parts = np.stack([dealing_of(i).parts(KEYS, held_out=0.5) > 0 for i in range(HOMES)])
    assert parts[:, 0].mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / HOMES))
    fitted, tested = np.split(parts.astype(float), 2)
    weights = np.linalg.lstsq(fitted[:, 1:] - 0.5, fitted[:, 0] - 0.5)[0]
    right = np.mean(((tested[:, 1:] - 0.5) @ weights > 0) == (tested[:, 0] > 0.5))
    assert right == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / len(tested)))


def test_a_seed_that_a_coordinator_still_sends_deals_nothing(make: Make, program: Program) -> None:
    coordinator, hospitals = make()

    def meddle(what: str, reply: Reply) -> Reply:
        if what not in ("next", "membership") or reply.status != 200:
            return reply
        plain = item_of(reply.body) if what == "next" else json.loads(reply.body)
        plain.get("session", plain)["seed"] = 8
        return said_item(plain) if what == "next" else said(plain)

    coordinator.meddle = meddle
    drive(hospitals, coordinator)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    expected = simulate(program, tables(3), DEALING, secure=False).states[-1]
    assert storage.encode(coordinator.state) == storage.encode(expected)


def asked_again(program: Program, coordinator: SmallCoordinator, own: list[Hospital]) -> Exception:
    """Return the first hospital's refusal of another session over the same table."""
    second = SmallCoordinator(program, coordinator.names)
    second.members.update(coordinator.members)
    second.start()
    for i, hospital in enumerate(own):
        hospital.link, hospital.policy = second.link(i), permissive(program)
    drive(own, second, first_error=True)
    assert second.uploads == []
    assert own[0].error is not None
    return own[0].error


def test_a_share_moved_by_a_ten_thousandth_is_another_table(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    moved = replace(program, held_out=program.held_out + 1e-4)
    assert isinstance(asked_again(moved, coordinator, hospitals), TableChanged)


def test_another_secret_is_another_table(make: Make, program: Program) -> None:
    coordinator, hospitals = make()
    drive(hospitals, coordinator)
    for hospital in hospitals:
        put_dealing(hospital.path, dealing_of(3))
    assert isinstance(asked_again(program, coordinator, hospitals), TableChanged)


def test_another_secret_or_share_is_another_dealing_to_the_ledger(program: Program) -> None:
    """Otherwise a unit that moved would pay in one part only."""
    named = replace(program, schema=replace(program.schema, patient="who"))
    own = {"commitment": DEALING.commitment, "table": b""}
    other = {**own, "commitment": dealing_of(3).commitment}
    moved = replace(named, held_out=named.held_out + 1e-4)
    found = {site_dealing(named, **own), site_dealing(named, **other), site_dealing(moved, **own)}
    assert len(found) == 3
    assert (
        site_of(program, table(20), DEALING).dealing
        != site_of(program, table(20), dealing_of(3)).dealing
    )


@pytest.mark.parametrize("left", [None, b"", bytes(31)])
def test_a_home_whose_secret_is_lost_is_refused_and_makes_no_other(
    homes: Path, left: bytes | None
) -> None:
    home, file = Home(homes), homes / "dealing.key"
    secret = home.dealing().secret
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left)
    for use in (home.dealing, lambda: home.open().__enter__()):
        with pytest.raises(DealingLost, match="Put the file back"):
            use()
    assert (file.read_bytes() if file.exists() else None) == left
    put_dealing(homes, Dealing(secret))
    assert home.dealing().secret == secret


def test_a_new_identity_keeps_the_dealing_that_is_there(homes: Path) -> None:
    """After a crash while the home was made, or if an operator has put a copy there."""
    put_dealing(homes)
    first = Home(homes).identity()
    assert Home(homes).dealing() == DEALING
    for name in ("identity.key", "journal.sqlite"):
        (homes / name).unlink()
    assert Home(homes).identity().key != first.key
    assert Home(homes).dealing() == DEALING


def test_a_secret_that_others_can_read_is_refused(homes: Path) -> None:
    home = Home(homes)
    home.identity()
    (homes / "dealing.key").chmod(0o640)
    with pytest.raises(HomeExposed, match=r"dealing\.key"), home.open():
        pass


def test_nothing_that_leaves_or_is_shown_contains_the_secret_or_its_commitment(make: Make) -> None:
    coordinator, hospitals = make()
    sent = []

    def network(_: int, call: Call) -> Reply | Lost:
        sent.append(b"".join([f"{call}{call.headers}".encode(), *call.parts]))
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    for hospital in hospitals:
        with Home(hospital.path).open() as home:
            dealing = home.dealing
            shown = [repr(home), repr(dealing), str(dealing), f"{hospital.events}"]
        for hidden in (dealing.secret, dealing.commitment):
            texts = hidden, hidden.hex().encode(), repr(hidden).encode()
            assert not any(text in each for each in sent for text in texts)
        journal = (hospital.path / "journal.sqlite").read_bytes()
        assert dealing.secret not in journal
        assert not any(dealing.secret.hex() in each for each in shown)
        assert not any(repr(dealing.secret) in each for each in shown)


def test_a_commitment_is_not_a_draw_and_does_not_show_the_secret() -> None:
    one, other = DEALING, Dealing(DEALING.secret[:-1] + bytes([DEALING.secret[-1] ^ 1]))
    changed = np.unpackbits(
        np.frombuffer(one.commitment, np.uint8) ^ np.frombuffer(other.commitment, np.uint8)
    )
    assert 80 < changed.sum() < 176, "one bit of the secret changes half of all bits"
    assert one.commitment != one.secret
