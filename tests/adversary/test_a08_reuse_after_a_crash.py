"""A8: a crash, a retry or a lost disk never makes a client answer twice with the same masks."""

from dataclasses import replace

import pytest

from privacy.securesum.client import Client
from privacy.securesum.errors import (
    AlreadySigned,
    JournalError,
    JournalLost,
    JournalOfAnotherVersion,
    JournalRolledBack,
    NoiseMissing,
    NoiseReused,
    SecondTask,
    SecretsLost,
    TooFewSigners,
    UnknownEpoch,
    VaultLost,
)
from privacy.securesum.messages import AbandonRequest
from privacy.securesum.records import Joined

from .coordinator import Attacker, Hospital, Lair, certificate_of, disk_of, is_noise, marker


@pytest.fixture
def lair() -> Lair:
    return Attacker().open()


def restored(hospital: Hospital, records, vault) -> Client:
    return Client.restore(hospital.identity, records, vault, hospital.random)


def test_a_retry_sends_the_same_bytes_whatever_the_vector_is_now(lair):
    task, victim = lair.task(), lair.members[0]
    first = lair.upload(task, 0)
    again = lair.upload(task, 0, vector=marker(6))
    victim.crash()
    after = lair.upload(task, 0, vector=marker(6), table=bytes([9]) * 32)
    for step in (again, after):
        assert step.message.encode() == first.message.encode()
        assert bytes(step.body) == bytes(first.body)
        assert not step.records


def test_after_a_crash_the_slot_is_still_answered_for_one_task_only(lair):
    lair.upload(lair.task(), 0)
    lair.members[0].crash()
    with pytest.raises(SecondTask):
        lair.upload(lair.task(statistic="other"), 0)


def test_after_a_crash_one_statement_is_still_all_that_is_signed():
    lair = Attacker(private=True).open()
    task = lair.task()
    lair.uploads(task)
    first = lair.certify(lair.proposal(task), 0)
    lair.members[0].crash()
    assert lair.certify(lair.proposal(task), 0) == first
    with pytest.raises(AlreadySigned):
        lair.certify(lair.proposal(task, (0, 1, 2, 3)), 0)
    with pytest.raises(AlreadySigned):
        lair.abandon(0)


def test_what_was_uploaded_and_is_gone_from_the_vault_is_not_made_again(lair):
    """A client that masked again would send two vectors under the same pair masks."""
    task, victim = lair.task(), lair.members[0]
    lair.upload(task, 0)
    for lost in ("body/", "slot/"):
        vault = {n: content for n, content in victim.vault.items() if not n.startswith(lost)}
        victim.client = restored(victim, victim.records, vault)
        with pytest.raises(SecretsLost):
            lair.upload(task, 0)
    # Nor is a key revealed that is not in the vault.
    lair.uploads(task, (1, 2, 3, 4))
    certificate = lair.certificate(lair.proposal(task))
    with pytest.raises(SecretsLost):
        lair.reveal(certificate, 0)


def test_secrets_that_are_older_than_the_journal_are_lost():
    attacker = Attacker()
    adverts = attacker.adverts(attacker.opening(), attacker.hospitals)
    victim, lair = attacker.hospitals[0], attacker.lair(adverts)
    _, young = disk_of(victim)
    for rank in lair.everyone:
        lair.agree(rank)
    victim.client = restored(victim, victim.records, {**young, "head": victim.vault["head"]})
    with pytest.raises(SecretsLost):
        lair.agree(0)
    with pytest.raises(SecretsLost):
        lair.deliver(0)


def test_a_key_of_another_slot_is_not_revealed(lair):
    """The vault's entry of the abandoned slot 0 is put back: its key must not be revealed."""
    lair.uploads(lair.task())
    victim = lair.members[0]
    (name,) = [name for name in victim.vault if name.startswith("slot/")]
    old = victim.vault[name]
    proof = lair.abandonment(lair.everyone)
    second = lair.task(1, proof=proof.encode())
    lair.uploads(second)
    certificate = lair.certificate(lair.proposal(second))
    victim.client = restored(victim, victim.records, {**victim.vault, name: old})
    with pytest.raises(SecretsLost):
        lair.reveal(certificate, 0)
    with pytest.raises(SecretsLost):
        lair.upload(second, 0)


# -- journals


def test_a_journal_from_a_backup_is_refused(lair):
    """A backup from between upload and signature has no vault: it would sign a second time."""
    lair.uploads(lair.task())
    victim = lair.members[0]
    backup, _ = disk_of(victim)
    lair.certify(lair.proposal(lair.task()), 0)
    with pytest.raises(VaultLost):
        restored(victim, backup, {})
    with pytest.raises(JournalRolledBack):
        restored(victim, backup, victim.vault)
    with pytest.raises(JournalRolledBack):
        restored(victim, [*backup, victim.records[2]], victim.vault)


def test_an_empty_a_foreign_and_a_damaged_journal_are_refused(lair):
    victim, other = lair.members[0], lair.members[1]
    for vault in (victim.vault, {}):
        with pytest.raises(JournalLost):
            restored(victim, [], vault)
    with pytest.raises(JournalError):
        restored(victim, other.records, other.vault)
    for bad in (victim.records[1:], [b"", *victim.records], [*victim.records, victim.records[0]]):
        with pytest.raises(JournalError):
            restored(victim, bad, victim.vault)
    with pytest.raises(JournalError):
        restored(victim, [*victim.records[:2], *victim.records[3:]], victim.vault)


def test_a_journal_that_was_rewritten_is_refused(lair):
    """The journal has the length of the real one and is consistent, but its terms are weaker."""
    victim = lair.members[0]
    weaker = Joined(replace(lair.epoch.terms, max_colluders=0)).encode()
    rewritten = [victim.records[0], weaker, *victim.records[2:]]
    with pytest.raises(JournalRolledBack):
        restored(victim, rewritten, victim.vault)


def test_a_member_that_lost_its_journal_says_nothing_about_old_epochs(lair):
    task = lair.task()
    lair.uploads(task)
    victim = lair.members[0]
    victim.client, _ = Client.begin(victim.identity, victim.random)
    victim.client.join(lair.epoch.terms)
    for ask in (
        lambda: lair.upload(task, 0),
        lambda: lair.certify(lair.proposal(task), 0),
        lambda: victim.client.abandon(AbandonRequest(lair.epoch.epoch_id, 0, b"")),
        lambda: lair.repair(task, 0, 1),
    ):
        with pytest.raises(UnknownEpoch):
            ask()


def test_a_member_that_lost_its_journal_refuses_the_session(lair):
    victim = lair.members[0]
    victim.client, _ = Client.begin(victim.identity, victim.random)
    victim.client.join(lair.epoch.terms)
    opening = replace(lair.attacker.opening(1), seen=(victim.key,))
    with pytest.raises(JournalLost):
        victim.client.advertise(opening, "table")
    # A member that has its journal continues.
    other = lair.members[1]
    other.client.advertise(replace(opening, seen=(other.key,)), "table")


def test_one_disk_rolled_back_as_a_whole_is_one_colluder():
    """The client cannot notice it; it signs both lists, and counts as one of the m colluders."""
    lair = Attacker(private=True).open()
    task = lair.task()
    lair.uploads(task)
    liar = lair.members[1]
    snapshot = disk_of(liar)
    everyone, fewer = lair.proposal(task), lair.proposal(task, (1, 2, 3, 4))
    certificate = lair.certificate(everyone, signers=(0, 1, 2, 3))
    liar.client = restored(liar, *snapshot)
    liar.records, liar.vault = list(snapshot[0]), dict(snapshot[1])
    signed = [lair.certify(fewer, 1), lair.certify(fewer, 4)]
    for rank in (2, 3):
        with pytest.raises(AlreadySigned):
            lair.certify(fewer, rank)
    with pytest.raises(TooFewSigners):
        lair.reveal(certificate_of(fewer, signed), 1)
    lair.corrupt(1)
    for rank in lair.everyone:
        lair.reveal(certificate, rank)
    assert is_noise(lair.unmask(task, [0]))


# -- noise


def test_a_draw_of_noise_covers_one_upload():
    attacker = Attacker(private=True)
    lair = attacker.open()
    lair.uploads(lair.task(), (1, 2, 3, 4))
    lair.upload(lair.task(), 0, noise=b"first draw")
    proof = lair.abandonment(lair.everyone)
    second = lair.task(1, proof=proof.encode())
    with pytest.raises(NoiseReused):
        lair.upload(second, 0, noise=b"first draw")
    lair.members[0].crash()
    with pytest.raises(NoiseReused):
        lair.upload(second, 0, noise=b"first draw")
    with pytest.raises(NoiseMissing):
        lair.upload(second, 0, noise=b"")
    other = attacker.open(number=1)
    with pytest.raises(NoiseReused):
        other.upload(other.task(), 0, noise=b"first draw")


def test_noise_is_not_named_where_the_session_has_none(lair):
    with pytest.raises(NoiseMissing):
        lair.upload(lair.task(), 0, noise=b"a draw")


# -- keys


def test_every_self_key_is_new(lair):
    lair.uploads(lair.task())
    keys = [lair.stolen_self_key(rank) for rank in lair.everyone]
    proof = lair.abandonment(lair.everyone)
    lair.uploads(lair.task(1, proof=proof.encode()))
    keys += [lair.stolen_self_key(rank) for rank in lair.everyone]
    assert len({*keys, bytes(32)}) == 11


# -- erasure


def test_secrets_go_when_they_are_no_longer_needed():
    attacker = Attacker()
    lair = attacker.open()
    task, victim = lair.task(), lair.members[0]
    lair.uploads(task)
    certificate = lair.certificate(lair.proposal(task))
    pairs = [bytes(c) for n, c in victim.vault.items() if n.startswith("epoch/")]
    self_key = lair.stolen_self_key(0)
    lair.reveal(certificate, 0)
    assert not [name for name in victim.vault if name.startswith("body/")]
    lair.end()
    assert {name.partition("/")[0] for name in victim.vault} == {"head", "group"}
    victim.does(victim.client.forget_group(lair.epoch.run))
    assert set(victim.vault) == {"head"}
    assert set(victim.client._memory.entries()) == {"head"}
    journal = b"".join(victim.records)
    assert self_key not in journal
    assert not any(pair[4 + 32 * i : 36 + 32 * i] in journal for pair in pairs for i in range(4))


def test_an_abandoned_slots_key_is_erased(lair):
    lair.uploads(lair.task())
    lair.abandonment(lair.everyone)
    for hospital in lair.members.values():
        assert not [n for n in hospital.vault if n.startswith(("slot/", "body/"))]


def test_a_new_epoch_of_the_run_erases_the_old_ones_secrets():
    attacker = Attacker()
    attacker.open()
    attacker.open(number=1)
    for hospital in attacker.hospitals:
        (name,) = [name for name in hospital.vault if name.startswith("epoch/")]
        assert name.endswith("/1")


def test_a_journal_of_another_version_is_refused_by_name(lair):
    """Version 1 had other contexts and no group key: none of its slots can be continued."""
    victim = lair.members[0]
    older = [b"\1" + record[1:] for record in victim.records]
    for records, vault in (
        (older, victim.vault),
        (victim.records, {**victim.vault, "head": b"\1" + bytes(victim.vault["head"])[1:]}),
    ):
        with pytest.raises(JournalOfAnotherVersion, match="version 1"):
            restored(victim, records, vault)
