"""A31: a coordinator that wants to read the totals of blind sums, alone or with one member."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from privacy.blinding import blind, blind_residues, state_value, unblind
from privacy.masks import apply_masks
from privacy.securesum.epoch import PairSecrets
from privacy.securesum.errors import TotalNotVerified
from privacy.securesum.masking import mask_key, pair_key
from privacy.securesum.memory import epoch_entry, group_entry
from privacy.securesum.messages import Total
from privacy.securesum.records import GroupSecrets, PairsSecrets
from privacy.securesum.simulator import Fault, Point, Simulation
from privacy.securesum.terms import Terms
from privacy.tags import RESIDUE_PRIMES

from .coordinator import is_noise

N, LENGTH = 5, 4096
TERMS = Terms(bytes(16), 1, 5, differential_privacy=False, blind=True)
Vector = NDArray[np.uint64]


def opened() -> Simulation:
    simulation = Simulation(N, terms=TERMS)
    simulation.open_epoch()
    return simulation


def vectors() -> list[Vector]:
    """Return small numbers that identify each hospital in any sum."""
    return [np.arange(LENGTH, dtype="<u8") + np.uint64(10_000 * (i + 1)) for i in range(N)]


TOTAL: Vector = np.sum(vectors(), axis=0, dtype=np.uint64)


def unmasked(simulation: Simulation) -> tuple[Vector, tuple[int, ...]]:
    """Return what the coordinator has after a sum: the data, and `failed` with all tags."""
    total, body = simulation.coordinator.slot.total_message()
    return np.frombuffer(body, "<u8").copy(), (total.failed, *total.residues)


def test_what_the_coordinator_unmasks_is_uniform() -> None:
    simulation, seen = opened(), []
    for _ in range(3):
        simulation.sum(vectors())
        data, residues = unmasked(simulation)
        assert not is_noise(TOTAL)
        assert is_noise(data)
        assert is_noise(data - TOTAL)
        seen.append(residues)
    assert len({residue for each in seen for residue in each}) == 3 * len(RESIDUE_PRIMES)


def test_no_pad_is_used_for_a_sum_and_its_repetition() -> None:
    """The same vectors once more, after an abandoned slot and in a new epoch.

    With one pad for two totals their difference would be that of the totals, here 0.
    """
    simulation = opened()
    assert simulation.sum(vectors()).total is not None
    blinded = [unmasked(simulation)]
    simulation.faults[2, Point.UPLOAD] = Fault.LATE
    assert simulation.sum(vectors()).proof is not None
    assert simulation.sum(vectors()).total is not None
    blinded.append(unmasked(simulation))
    simulation.open_epoch()
    assert simulation.epoch.number == 1
    assert simulation.sum(vectors()).total is not None
    blinded.append(unmasked(simulation))
    for i, (first, residues) in enumerate(blinded):
        for second, others in blinded[:i]:
            assert is_noise(first - second)
            assert all(a != b for a, b in zip(residues, others, strict=True))


def test_pads_and_what_a_task_says_of_its_state_need_the_group_key() -> None:
    """Whoever has everything but K, the digest of the state included, cannot compare guesses."""
    context, epoch_id, guess = bytes(32), bytes(32), bytes(range(32))
    pads, residues, values = set(), set(), set()
    for key in (bytes(32), bytes(31) + b"\1"):
        pad = np.zeros(8, dtype="<u8")
        blind(pad, key, context)
        pads.add(pad.tobytes())
        residues.add(tuple(blind_residues(key, context).tolist()))
        values.add(state_value(key, epoch_id, 0, state=guess, encoding=guess))
        values.add(state_value(key, epoch_id, 1, state=guess, encoding=guess))
    assert (len(pads), len(residues), len(values)) == (2, 2, 4)


def forged(total: Total, body: bytes) -> Iterator[tuple[Total, bytes]]:
    """Yield totals that are wrong in all ways: by little, beyond 2⁶⁰, in a tag, in their length."""
    for added in (1, 2**31 - 1, 2**59, 2**60, 2**61, 2**63):
        changed = np.frombuffer(body, "<u8").copy()
        changed[7:8] += np.uint64(added)
        yield total, changed.tobytes()
    yield total, body[:-8]
    yield total, body + bytes(8)
    yield Total(**{**vars(total), "failed": (total.failed + 1) % RESIDUE_PRIMES[0]}), body
    tags = bytearray(total.tags)
    tags[3] ^= 1
    yield Total(**{**vars(total), "tags": bytes(tags)}), body


def test_one_error_for_every_way_in_which_a_blind_total_is_wrong() -> None:
    """A bound that were checked first would answer questions about a total that is not readable.

    The coordinator adds numbers of its choice to T + B, and sees which of them cross the bound.
    """
    simulation = opened()
    simulation.sum(vectors())
    slot = simulation.coordinator.slot
    total, body = slot.total_message()
    assert slot.certificate is not None
    told = set()
    for message, data in forged(total, bytes(body)):
        with pytest.raises(TotalNotVerified) as refused:
            simulation.sites[3].client.verify_total(message, data, slot.certificate)
        told.add((type(refused.value), str(refused.value), refused.value.public_detail))
    assert len(told) == 1


def test_with_a_colluding_member_the_coordinator_reads_totals_and_no_vector() -> None:
    """Rank 4 gives away K, its pair seeds and its vector: part 1 of the protocol still holds."""
    simulation = opened()
    own, colluder = vectors(), 4
    bodies: dict[int, Vector] = {}
    task = simulation.draft(statistic="s", length=LENGTH, encoding=None, state=bytes(32))
    for rank, site in enumerate(simulation.sites):
        step = site.client.upload(task, own[rank], table=bytes(32), state=bytes(32))
        site.persist(step)
        bodies[rank] = np.frombuffer(step.body, "<u8")[:LENGTH].copy()
        simulation.coordinator.slot.add_upload(step.message, step.body)
    simulation.finish(simulation.coordinator.slot.propose())
    certificate = simulation.coordinator.slot.certificate
    assert certificate is not None
    name = TERMS.session, simulation.coordinator.run, 0
    vault = simulation.sites[colluder].vault
    key = GroupSecrets.decode(bytes(vault[group_entry(name)])).key
    kept = PairsSecrets.decode(bytes(vault[epoch_entry(name)]))
    data, _ = unmasked(simulation)
    unblind(data, key, certificate.context)
    assert np.array_equal(data, TOTAL)
    for rank in range(4):
        vector = bodies[rank]
        self_key = simulation.sites[rank].client.reveal(certificate).message.self_key
        at = kept.others.index(rank)
        shared = PairSecrets(kept.seeds[at], kept.channels[at])
        with_colluder = mask_key(pair_key(shared, certificate.context))
        apply_masks(vector, subtract=[self_key, with_colluder])
        if rank == 0:
            unblind(vector, key, certificate.context)
        assert is_noise(vector)
        assert is_noise(vector - own[rank])
