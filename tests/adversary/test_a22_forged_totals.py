"""A22: a total that the coordinator has changed is used by nobody, and a failed site stays unnamed.

The coordinator here is honest until it has the total, which is when it can start to lie. What it
tries is what anyone without the group key can try; where a test takes the key from a vault, it
shows that only the key was missing.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privacy.securesum import masking
from privacy.securesum.client import Client
from privacy.securesum.errors import (
    DifferentTask,
    ForgedSignature,
    SecretsLost,
    SiteFailed,
    StaleSlot,
    SumFailed,
    TotalNotVerified,
    WrongVector,
)
from privacy.securesum.masking import tag_key
from privacy.securesum.messages import Certificate, Total
from privacy.securesum.records import GroupSecrets
from privacy.securesum.simulator import TABLE, Fault, Point, Simulation
from privacy.securesum.terms import Terms
from privacy.tags import DATA_PRIMES, PRIMES, ROWS, data_tags

from .coordinator import is_noise

N, LENGTH = 5, 6
Told = tuple[Total, bytes, Certificate]


def session(*, private: bool = False, colluders: int = 1, n: int = N, seed: int = 0) -> Simulation:
    terms = Terms(bytes(16), colluders, max(3, colluders + 2), private)
    simulation = Simulation(n, terms=terms, random=random.Random(seed).randbytes)
    simulation.open_epoch()
    return simulation


@pytest.fixture
def strict() -> Simulation:
    return session()


def vectors(n: int = N, *, seed: int = 0, length: int = LENGTH) -> list[np.ndarray]:
    """Return signed integers of both signs, as ring elements."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-(2**56), 2**56, length, "<i8").view("<u8") for _ in range(n)]


def told(simulation: Simulation) -> Told:
    """Return what an honest coordinator sends to every member after a sum."""
    slot = simulation.coordinator.slot
    total, body = slot.total_message()
    assert slot.certificate is not None
    return total, bytes(body), slot.certificate


def clients(simulation: Simulation) -> list[Client]:
    return [site.client for site in simulation.sites]


def refused_by_all(simulation: Simulation, total: Total, body: bytes, proof: Certificate) -> None:
    said = set()
    for client in clients(simulation):
        with pytest.raises(TotalNotVerified) as refused:
            client.verify_total(total, body, proof)
        said.add((refused.value.code, str(refused.value)))
    assert len(said) == 1


def changed(body: bytes, change: Callable[[np.ndarray], object]) -> bytes:
    values = np.frombuffer(body, "<i8").copy()
    change(values)
    return values.tobytes()


def packed(residues: list[int]) -> bytes:
    return b"".join(residue.to_bytes(4, "big") for residue in residues)


def group_key(simulation: Simulation, site: int = 0) -> bytes:
    vault = simulation.sites[site].vault
    (stored,) = [content for name, content in vault.items() if name.startswith("group/")]
    return GroupSecrets.decode(bytes(stored)).key


def test_every_member_gets_the_same_total_and_knows_it(strict):
    given = vectors()
    outcome = strict.sum(given)
    total, body, certificate = told(strict)
    for client in clients(strict):
        result = client.verify_total(total, body, certificate).message
        np.testing.assert_array_equal(result.values.view("<u8"), outcome.total)
        np.testing.assert_array_equal(result.values, sum(v.view("<i8") for v in given))
        assert result.contributors == N


@pytest.mark.parametrize("prime", PRIMES)
def test_a_multiple_of_one_prime_cannot_be_added(strict, prime):
    strict.sum(vectors())
    total, body, certificate = told(strict)
    for place in (0, LENGTH - 1):
        wrong = changed(body, lambda v, place=place: v.__setitem__(place, v[place] + prime))
        refused_by_all(strict, total, wrong, certificate)


def test_one_bit_cannot_be_flipped(strict):
    strict.sum(vectors())
    total, body, certificate = told(strict)
    for bit in (0, 31, 60, 63, 8 * len(body) - 1):
        wrong = bytearray(body)
        wrong[bit // 8] ^= 1 << bit % 8
        refused_by_all(strict, total, bytes(wrong), certificate)
    for wrong in (body[:-8], body + bytes(8), body[:-1], body + bytes(1), b""):
        refused_by_all(strict, total, wrong, certificate)


@pytest.mark.parametrize("factor", [0, 2, -1])
def test_a_multiple_of_the_total_with_the_same_multiple_of_its_tags_is_refused(strict, factor):
    strict.sum(vectors())
    total, body, certificate = told(strict)
    tags = [factor * t % p for t, p in zip(total.residues[:ROWS], DATA_PRIMES, strict=True)]
    forged = replace(total, tags=packed(tags) + total.tags[4 * ROWS :])
    wrong = changed(body, lambda values: np.multiply(values, factor, out=values))
    refused_by_all(strict, forged, wrong, certificate)
    refused_by_all(strict, total, bytes(len(body)), certificate)


def test_totals_of_two_slots_are_neither_exchanged_nor_added():
    """One pair of seeds serves both slots; their tags have nothing in common."""
    simulation = session(private=True)
    simulation.sum(vectors(seed=1))
    first = told(simulation)
    simulation.sum(vectors(seed=1))
    second = told(simulation)
    assert first[1] == second[1]
    assert not set(first[0].residues) & set(second[0].residues)
    total, body, certificate = second
    for forged in (
        replace(total, tags=first[0].tags),
        replace(first[0], slot=1),
        replace(first[0], slot=1, context=total.context),
        replace(total, slot=0),
        replace(total, context=first[0].context),
        replace(total, survivors=total.survivors[1:]),
        replace(total, epoch_id=bytes(32)),
    ):
        refused_by_all(simulation, forged, body, certificate)
    both = zip(total.residues[:ROWS], first[0].residues[:ROWS], DATA_PRIMES, strict=True)
    tags = packed([(a + b) % p for a, b, p in both]) + total.tags[4 * ROWS :]
    twice = changed(body, lambda values: np.multiply(values, 2, out=values))
    refused_by_all(simulation, replace(total, tags=tags), twice, certificate)
    with pytest.raises(StaleSlot):  # it is right, but late: a later one was used
        clients(simulation)[0].verify_total(*first)


def test_the_total_of_a_lost_slot_cannot_be_made_up():
    """A silent survivor owes its pair keys with a dropped member: nobody ever learns the total."""
    simulation = session(private=True, n=7)
    simulation.faults[0, Point.UPLOAD] = Fault.GONE
    simulation.faults[1, Point.REVEAL] = Fault.GONE
    given = vectors(7)
    assert simulation.sum(given).total is None
    slot = simulation.coordinator.slot
    true = sum(v.view("<i8") for v in given[1:])
    made_up = Total(
        simulation.epoch.epoch_id, 0, slot.context, slot.uploaded, 0, bytes(4 * 2 * ROWS)
    )
    refused_by_all(simulation, made_up, true.tobytes(), slot.certificate)


def test_beyond_the_bound_tags_prove_nothing_and_the_error_does_not_say_so(strict):
    """T + p·p' has the right tags. Only the bound refuses it, with the words of a wrong tag."""
    strict.sum(vectors())
    total, body, certificate = told(strict)
    step = PRIMES[0] * PRIMES[1]
    wrong = changed(body, lambda values: values.__setitem__(0, values[0] + step))
    key = tag_key(group_key(strict), total.context)
    assert data_tags(key, np.frombuffer(wrong, "<i8"), N) == total.residues[:ROWS]
    said = []
    for bad in (wrong, changed(body, lambda values: values.__setitem__(0, values[0] + 1))):
        with pytest.raises(TotalNotVerified) as refused:
            clients(strict)[0].verify_total(total, bad, certificate)
        said.append((type(refused.value), refused.value.code, str(refused.value)))
    assert said[0] == said[1]


def test_with_the_group_key_a_total_can_be_forged(strict):
    """This is what a colluding member gives the coordinator, and why all members are pinned."""
    strict.sum(vectors())
    total, body, certificate = told(strict)
    wrong = changed(body, lambda values: values.__setitem__(0, 42))
    tags = data_tags(
        tag_key(group_key(strict), total.context), np.frombuffer(wrong, "<i8").copy(), N
    )
    forged = replace(total, tags=packed(list(tags)) + total.tags[4 * ROWS :])
    assert clients(strict)[0].verify_total(forged, wrong, certificate).message.values[0] == 42


def test_a_tag_computed_before_the_noise_does_not_fit(monkeypatch):
    """It would also reveal the vector without noise to whoever knows the coefficients."""
    simulation = session(private=True)
    real = masking.data_tags
    noise = np.arange(1, LENGTH + 1)
    monkeypatch.setattr(masking, "data_tags", lambda key, x, one: real(key, x - noise, one))
    with pytest.raises(TotalNotVerified):
        simulation.sum(vectors())


# -- who was in the sum


def test_a_member_that_dropped_out_verifies_the_others_total():
    simulation = session(private=True, n=7)
    simulation.faults[3, Point.UPLOAD] = Fault.GONE
    given = vectors(7)
    simulation.sum(given)
    total, body, certificate = told(simulation)
    result = simulation.sites[3].client.verify_total(total, body, certificate).message
    expected = sum(v.view("<i8") for i, v in enumerate(given) if i != 3)
    np.testing.assert_array_equal(result.values, expected)
    forged = replace(certificate, signatures=(bytes(64), *certificate.signatures[1:]))
    with pytest.raises(ForgedSignature):
        simulation.sites[3].client.verify_total(total, body, forged)


def test_without_the_dropped_members_tag_masks_nothing_verifies():
    simulation = session(private=True, n=7)
    simulation.faults[3, Point.UPLOAD] = Fault.GONE
    simulation.sum(vectors(7))
    total, body, certificate = told(simulation)
    slot = simulation.coordinator.slot
    sums = np.delete(slot._total[LENGTH:], 1)
    kept = packed([int(s) % p for s, p in zip(sums[1:9], DATA_PRIMES, strict=True)])
    forged = replace(total, tags=kept + total.tags[4 * ROWS :])
    refused_by_all(simulation, forged, body, certificate)


def test_a_total_of_another_task_than_the_members_own_is_refused():
    simulation = session(private=True, n=7)
    task = simulation.coordinator.begin(statistic="s", length=LENGTH)
    simulation.sites[6].client.upload(
        replace(task, statistic="t"), vectors(7)[6], table=TABLE, noise=b"1"
    )
    simulation.faults[6, Point.UPLOAD] = Fault.GONE
    simulation.upload(task, vectors(7))
    with pytest.raises(DifferentTask):
        simulation.finish(simulation.coordinator.slot.propose())


def sums_of_tags(given: Callable[[np.random.Generator], list[np.ndarray]]) -> list[int]:
    """Return the integers that the tags add up to before they are reduced, over many slots."""
    simulation, rng = session(), np.random.default_rng(0)
    found: list[int] = []
    for _ in range(12):
        simulation.sum(given(rng))
        found += map(int, simulation.coordinator.slot._total[-2 * ROWS :])
    return found


def test_how_often_tags_wrap_does_not_depend_on_who_contributed_what():
    """All zero: every tag is the same number, and unmasked sums would be multiples of N."""
    zero = np.zeros(1, dtype="<u8")

    def at_one(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.integers(-(2**56), 2**56, 1, "<i8").view("<u8"), zero, zero, zero, zero]

    def spread(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.integers(-(2**56), 2**56, 1, "<i8").view("<u8") for _ in range(N)]

    none = sums_of_tags(lambda _: [zero] * N)
    assert 0.1 < np.mean([s % N == 0 for s in none]) < 0.3
    counts = [
        np.bincount([s // PRIMES[0] for s in sums], minlength=N)[1 : N - 1]
        for sums in (none, sums_of_tags(at_one), sums_of_tags(spread))
    ]
    assert stats.chi2_contingency(counts).pvalue > 1e-4


# -- failure


@pytest.mark.parametrize("failing", [(2,), (0, 1, 2, 3)])
def test_a_failed_site_is_not_named_and_leaves_noise(failing):
    simulation = session()
    given: list[np.ndarray | None] = list(vectors(length=4096))
    for site in failing:
        given[site] = None
    outcome = simulation.sum(given)
    assert outcome.failed
    assert outcome.total is None
    total, body, certificate = told(simulation)
    said = set()
    for client in clients(simulation):
        with pytest.raises(SiteFailed) as refused:
            client.verify_total(total, body, certificate)
        said.add(str(refused.value))
    assert len(said) == 1
    assert is_noise(np.frombuffer(body, "<u8"))
    with pytest.raises(SumFailed, match="One site could not compute") as ended:
        simulation.coordinator.slot.ring_total()
    assert ended.value.code == "run.site_failed"


def test_how_many_sites_failed_cannot_be_seen():
    """The sum is a residue: one failed site or four, it is uniform below the prime."""
    found = []
    for count in (1, 4):
        simulation = session()
        given = [None] * count + vectors(N - count, length=1)
        failed = []
        for _ in range(12):
            simulation.sum(given)
            failed.append(told(simulation)[0].failed)
        found.append(failed)
    assert stats.ks_2samp(*found).pvalue > 1e-4
    assert all(0 < value < PRIMES[0] for value in (*found[0], *found[1]))


def test_a_failure_can_be_neither_hidden_nor_invented(strict):
    strict.sum([*vectors(N - 1), None])
    total, body, certificate = told(strict)
    refused_by_all(strict, replace(total, failed=0), body, certificate)
    refused_by_all(strict, replace(total, failed=total.failed + 1), body, certificate)
    strict.sum(vectors())
    total, body, certificate = told(strict)
    for invented in (1, PRIMES[0]):
        refused_by_all(strict, replace(total, failed=invented), body, certificate)


def test_with_differential_privacy_a_site_never_fails_openly():
    simulation = session(private=True)
    with pytest.raises(WrongVector, match="differential privacy"):
        simulation.sum([None, *vectors(N - 1)])


# -- the group key outlives the epoch, as long as it is needed


@pytest.mark.parametrize("receivers", [0, 1, 2, 3])
def test_after_a_crash_those_without_the_total_can_still_verify_it(receivers, monkeypatch):
    """Between certificate and T all crash; 0, 1, m or m + 1 members had it. A new epoch opens."""
    simulation = session(colluders=2, n=7)
    given = vectors(7)
    monkeypatch.setattr(simulation, "verify", lambda *_: None)
    simulation.sum(given)
    total, body, certificate = told(simulation)
    for site in simulation.sites[:receivers]:
        site.persist(site.client.verify_total(total, body, certificate))
    for site in simulation.sites:
        site.crash()
    simulation.restart_coordinator()
    assert told(simulation)[:2] == (total, body)
    simulation.open_epoch()
    for number, site in enumerate(simulation.sites):
        held = [name for name in site.vault if name.startswith("group/") and name.endswith("/0")]
        assert len(held) == (number >= receivers)
        site.crash()
        if not held:
            continue
        result = site.client.verify_total(total, body, certificate)
        np.testing.assert_array_equal(result.message.values, sum(v.view("<i8") for v in given))
        site.persist(result)
        assert not [n for n in site.vault if n.startswith("group/") and n.endswith("/0")]
        with pytest.raises(SecretsLost):
            site.client.verify_total(total, body, certificate)


def test_when_the_run_is_over_the_group_key_goes(strict, monkeypatch):
    monkeypatch.setattr(strict, "verify", lambda *_: None)
    strict.sum(vectors())
    site = strict.sites[0]
    name = next(iter(site.client.journal.epochs))
    site.persist(site.client.forget_group(name[1]))
    assert group_key(strict)  # the epoch is open
    site.persist(site.client.end(name))
    assert group_key(strict)  # its last total is not verified
    site.persist(site.client.forget_group(name[1]))
    assert set(site.vault) == {"head"}
