"""Key material appears in no repr, error or journal, cannot be pickled, and no other user of the
machine can read it from the home.
"""

import os
import pickle
import sqlite3
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.conversation.finishing import FetchedModel
from client_sdk.errors import HomeExposed
from client_sdk.home.home import Home
from client_sdk.network.exchange import Call, Lost, Reply
from privacy.identity import Identity
from privacy.members.endorsement import Endorsement
from privacy.securesum.errors import SecureSumError
from privacy.securesum.records import (
    AdvertSecrets,
    GroupSecrets,
    PairsSecrets,
    SealSecrets,
    SlotSecrets,
    Step,
)
from tests.certified import SALT, certificate_of, signable
from tests.client_sdk.conftest import Make
from tests.client_sdk.conftest import homes as homes
from tests.client_sdk.conftest import make as make
from tests.client_sdk.conftest import program as program
from tests.client_sdk.hospitals import drive
from tests.kernels.rounds.artifacts import artifact

from .coordinator import Attacker, Lair

KINDS = {
    kind.kind: kind
    for kind in (AdvertSecrets, SealSecrets, PairsSecrets, SlotSecrets, GroupSecrets)
}


@pytest.fixture
def lair() -> Lair:
    lair = Attacker().open()
    lair.uploads(lair.task())
    return lair


def secrets_of(lair: Lair, rank: int) -> list[bytes]:
    """Return a member's secrets: private key, self key, pair seeds and channel keys."""
    found = [lair.members[rank].identity.to_bytes(), lair.stolen_self_key(rank)]
    lair.corrupt(rank)
    for pair in lair.corrupted[rank].values():
        found += [pair.seed, pair.channel]
    return found


def shows(text: str, secret: bytes) -> bool:
    return any(form in text for form in (repr(secret), repr(secret)[2:-1], secret.hex()))


def test_reprs_show_no_secret(lair):
    secrets = secrets_of(lair, 0)
    client, vault = lair.members[0].client, lair.members[0].vault
    certificate = lair.certificate(lair.proposal(lair.task()))
    step = client.reveal(certificate)
    shown = [repr(x) for x in (client, lair.members[0].identity, step, step.message)]
    lair.reveal(certificate, 1)
    repair = lair.members[1].client.repair(lair.repair_request(lair.task(), 1, 0))
    shown += [repr(repair), repr(client.upload), repr(client.journal)]
    shown += [repr(pair) for pair in lair.corrupted[0].values()]
    for content in vault.values():
        kind = KINDS.get(bytes(content[:2])[1])
        if kind is not None:
            shown.append(repr(kind.decode(bytes(content))))
    secrets += repair.message.shares
    for text in shown:
        assert not any(shows(text, secret) for secret in secrets)


def test_reprs_show_no_salt_of_a_model_for_members():
    """Whoever has it can compare guesses of the model with the commitment that is public."""
    found = signable(artifact())
    certificate = certificate_of(found)
    fetched = FetchedModel(found.id, found.data, found.card.to_plain(), certificate)
    endorsement = Endorsement.signed(
        Identity.generate(), rank=0, statement=certificate.statement, salt=SALT, results=b""
    )
    shown = [certificate, certificate.with_salt(SALT), endorsement, Step(endorsement)]
    shown += [fetched, found.card, found]
    assert certificate.salt == SALT
    assert found.card.salt == SALT.hex()
    assert not any(shows(repr(each), SALT) for each in shown)


def test_errors_show_no_secret(lair):
    secrets, errors = secrets_of(lair, 0), []
    certificate = lair.certificate(lair.proposal(lair.task()))
    for ask in (
        lambda: lair.reveal(replace(certificate, context=bytes(32)), 0),
        lambda: lair.reveal(replace(certificate, signatures=(bytes(64),) * 4), 0),
        lambda: lair.upload(lair.task(statistic="other"), 0),
        lambda: lair.upload(lair.task(1, proof=certificate.encode()), 0, vector=[1]),
        lambda: lair.repair(lair.task(), 0, 1),
    ):
        with pytest.raises(SecureSumError) as caught:
            ask()
        errors.append("".join(traceback.format_exception(caught.value)))
    for text in errors:
        assert not any(shows(text, secret) for secret in secrets)


def test_a_client_and_its_identity_cannot_be_pickled(lair):
    for thing in (lair.members[0].client, lair.members[0].identity):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_journals_hold_no_secret(lair):
    secrets = secrets_of(lair, 0)
    certificate = lair.certificate(lair.proposal(lair.task()))
    lair.reveal(certificate, 0)
    journal = b"".join(lair.members[0].records)
    assert not any(secret in journal for secret in secrets)


# -- the files of a home, and other users of its machine


def readable_by_others(home: Path) -> dict[str, bytes]:
    """Return what another user of the machine reads: of an open folder, its open files."""
    if not home.stat().st_mode & 0o077:
        return {}
    return {each.name: each.read_bytes() for each in home.iterdir() if each.stat().st_mode & 0o077}


@pytest.fixture
def careless() -> Iterator[None]:
    """Run with a umask that keeps nothing from anyone."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_while_a_run_is_open_no_file_of_a_home_can_be_read_by_others(
    make: Make, careless: None
) -> None:
    """The vault then has the keys that unmask this hospital's numbers."""
    coordinator, hospitals = make()
    home, kept, seen = hospitals[0].path, 0, set()

    def network(i: int, call: Call) -> Reply | Lost:
        nonlocal kept
        if i == 0:
            with sqlite3.connect(f"file:{home / 'journal.sqlite'}?mode=ro", uri=True) as db:
                kept = max(kept, db.execute("SELECT COUNT(*) FROM vault").fetchone()[0])
            db.close()
            seen.update(each.name for each in home.iterdir())
            home.chmod(0o755)  # as if somebody had opened the folder
            assert readable_by_others(home) == {}
            home.chmod(0o700)
        return coordinator.answer(call)

    drive(hospitals, coordinator, network)
    assert [hospital.error for hospital in hospitals] == [None] * 3
    assert kept > 1, "there was something to steal"
    assert seen >= {"identity.key", "dealing.key", "journal.sqlite", "journal.sqlite-wal"}


USES: dict[str, Callable[[Home], object]] = {
    "take part": lambda home: home.open().__enter__(),
    "read the journal": lambda home: home.read(),
    "show the identity": lambda home: home.identity(),
}


@pytest.mark.parametrize("mode", [0o040, 0o004, 0o020, 0o001])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    "name",
    [
        ".",
        "identity.key",
        "dealing.key",
        "journal.sqlite",
        "journal.sqlite-wal",
        "journal.sqlite-shm",
        "lock",
    ],
)
def test_a_home_that_others_can_read_or_change_is_refused_by_name(
    tmp_path: Path, name: str, use: Callable[[Home], object], mode: int
) -> None:
    path = tmp_path / "home"
    home = Home(path)
    home.identity()
    opened = path / name
    if not opened.exists():
        opened.touch(mode=0o600)
    opened.chmod(opened.stat().st_mode | mode)
    with pytest.raises(HomeExposed) as refused:
        use(home)
    assert str(opened) in str(refused.value)
    assert f"chmod {'700' if name == '.' else '600'}" in str(refused.value)


def test_a_hospital_whose_journal_others_can_read_sends_nothing(make: Make) -> None:
    coordinator, hospitals = make()
    (hospitals[0].path / "journal.sqlite").chmod(0o644)
    calls = []

    def network(i: int, call: Call) -> Reply | Lost:
        calls.append(i)
        return coordinator.answer(call)

    drive(hospitals, coordinator, network, first_error=True)
    assert isinstance(hospitals[0].error, HomeExposed)
    assert 0 not in calls
