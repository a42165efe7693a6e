"""What leaves a client looks random; secrets appear nowhere else and are erased."""

import logging
import random
import re

import numpy as np
import pytest
from scipy import stats

from privacy.errors import PrivacyError
from privacy.securesum.errors import EpochEnded, SecretsLost
from privacy.securesum.masking import body_bytes
from privacy.securesum.messages import Certificate, Reveal
from privacy.securesum.records import GroupSecrets, PairsSecrets, SealSecrets, SlotSecrets
from privacy.securesum.simulator import TABLE, Fault, Point, Simulation
from privacy.securesum.wire import Message

N = 5


def bodies(simulation, vectors):
    """Return what each site uploads to one sum."""
    task = simulation.coordinator.begin(statistic="s", length=len(vectors[0]))
    simulation.upload(task, vectors)
    seen = [
        bytes(content)
        for site in simulation.sites
        for name, content in site.vault.items()
        if name.startswith("body/")
    ]
    assert simulation.finish(simulation.coordinator.slot.propose()).total is not None
    return seen


def test_masked_vectors_look_uniform_whatever_is_in_them(private):
    simulation = private(N, seed=7)
    simulation.open_epoch()
    for body in bodies(simulation, [np.zeros(20_000, dtype=np.uint64)] * N):
        counts = np.bincount(np.frombuffer(body, dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


def test_without_a_self_mask_the_same_test_would_fail(private):
    """The broken counterpart: a vector that is not masked is not uniform."""
    counts = np.bincount(np.arange(20_000, dtype=np.uint64).view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue < 1e-4


def test_two_uploads_of_the_same_vector_share_nothing(private):
    simulation = private(N, seed=8)
    simulation.open_epoch()
    vectors = [np.full(5_000, 42, dtype=np.uint64)] * N
    seen = [
        np.frombuffer(body, dtype="<u8") for _ in range(2) for body in bodies(simulation, vectors)
    ]
    words = np.concatenate(seen)
    assert len(np.unique(words)) == len(words)
    for i, one in enumerate(seen):
        for other in seen[:i]:
            difference = (one - other).view(np.uint8)
            counts = np.bincount(difference, minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-5


def test_the_sum_of_all_uploads_but_one_is_still_masked(private):
    simulation = private(N, seed=9)
    simulation.open_epoch()
    total = np.zeros(body_bytes(20_000) // 8, dtype=np.uint64)
    for body in bodies(simulation, [np.zeros(20_000, dtype=np.uint64)] * N):
        total += np.frombuffer(body, dtype="<u8")
        counts = np.bincount(total.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


def secrets_of(simulation: Simulation) -> set[bytes]:
    """Return everything in the vaults that must stay secret."""
    found = set()
    for site in simulation.sites:
        found.add(site.identity.to_bytes())
        for name, content in site.vault.items():
            for cls in (SealSecrets, PairsSecrets, SlotSecrets, GroupSecrets):
                if content[1] == cls.kind and not name.startswith("body/"):
                    entry = cls.decode(bytes(content))
                    for value in vars(entry).values():
                        if isinstance(value, bytes) and len(value) in (32, 96):
                            found.add(value)
                        if isinstance(value, tuple):
                            found |= {row for row in value if isinstance(row, bytes)}
    return found


def shows(text: str, secrets: set[bytes]) -> bool:
    return any(
        secret.hex() in text or repr(secret)[2:-1] in text or str(list(secret)) in text
        for secret in secrets
    )


def test_no_repr_error_or_log_shows_key_material(private, markers, caplog):
    caplog.set_level(logging.DEBUG)
    simulation = private(N)
    texts: list[str] = []
    for site in simulation.sites:
        answer = site.answer

        def watched(data, ask, answer=answer, site=site):
            step = answer(data, ask)
            texts.extend((repr(step), repr(step.message), repr(site.client)))
            texts.append(repr(site.client.journal))
            return step

        site.answer = watched
    simulation.advertise()
    simulation.agree()
    secrets = secrets_of(simulation)
    simulation.deliver()
    simulation.faults[0, Point.REVEAL] = Fault.GONE
    simulation.sum(markers.vectors(N))
    secrets |= secrets_of(simulation)
    for site in simulation.sites:
        texts.append(repr(site.identity))
        texts.extend(record.hex() for record in site.records)
        for message in (simulation.coordinator.slot.certificate, simulation.coordinator.slot.task):
            for cls in (Certificate, Reveal, SlotSecrets):
                with pytest.raises(PrivacyError) as caught:
                    cls.decode(message.encode()[:-1])
                texts.append(repr(caught.value))
    texts.append(repr(simulation.coordinator.slot))
    assert len(secrets) > 3 * N
    assert not any(shows(text, secrets) for text in texts)
    assert not shows(caplog.text, secrets)


def test_the_watch_would_see_a_key_in_a_repr(private):
    """The broken counterpart of the test above."""
    secrets = {random.Random(0).randbytes(32)}
    assert shows(f"Reveal(self_key={next(iter(secrets))!r})", secrets)


def test_epoch_secrets_are_erased_when_the_epoch_ends(private, markers):
    simulation = private(N)
    simulation.open_epoch()
    simulation.sum(markers.vectors(N))
    site = simulation.sites[0]
    name = next(iter(site.client.journal.epochs))
    secrets = secrets_of(simulation)
    certificate = simulation.coordinator.slot.certificate
    assert set(site.vault) > {"head"}
    site.persist(site.client.end(name))
    assert set(site.vault) == {"head"}
    memory = repr(vars(site.client)) + repr(vars(site.client._memory))
    assert not shows(memory, secrets - {site.identity.to_bytes()})
    with pytest.raises(EpochEnded):
        site.client.reveal(certificate)
    site.crash()
    with pytest.raises(EpochEnded):
        site.client.reveal(certificate)


def test_a_newer_epoch_of_the_run_erases_the_older(private, markers):
    simulation = private(N)
    simulation.open_epoch()
    simulation.sum(markers.vectors(N))
    simulation.open_epoch()
    for site in simulation.sites:
        assert sum(name.startswith("epoch/") for name in site.vault) == 1
        assert not any(name.startswith(("slot/", "body/")) for name in site.vault)


def test_the_kem_key_and_own_seeds_go_as_soon_as_all_boxes_are_open(private):
    simulation = private(N)
    simulation.advertise()
    simulation.agree()
    early = secrets_of(simulation) - {site.identity.to_bytes() for site in simulation.sites}
    simulation.deliver()
    assert early
    assert not early & secrets_of(simulation)


def test_slot_secrets_go_when_the_slot_is_abandoned(private, markers):
    simulation = private(N)
    simulation.open_epoch()
    for site in range(3):
        simulation.faults[site, Point.UPLOAD] = Fault.LATE
    vectors = markers.vectors(N)
    assert simulation.sum(vectors).proof is not None
    site = simulation.sites[4]
    assert not any(name.startswith(("slot/", "body/")) for name in site.vault)
    task = simulation.coordinator.slot.task
    with pytest.raises((SecretsLost, PrivacyError)):
        site.client.upload(task, vectors[4], table=TABLE, noise=b"x" * 16)


def test_records_hold_no_secrets_by_construction():
    """Journal records are permanent and in backups: their fields are names, hashes and sets."""
    from privacy.securesum.records import RECORDS

    for record in RECORDS.values():
        assert issubclass(record, Message)
        for name, _ in record._codecs():
            assert not re.search("secret|seed|channel|self_key|share", name), (record, name)
