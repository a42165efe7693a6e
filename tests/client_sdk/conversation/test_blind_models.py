"""The end of a blind run: archives and certificates that somebody has changed, and parents."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.conversation import session as conversation
from client_sdk.errors import ParentForbidden
from client_sdk.events import OwnModel, ParentNotCertified
from kernels.storage import encode
from privacy.members.endorsement import ModelCertificate
from privacy.securesum.errors import ForgedEndorsement, NotTheEndorsedModel, SecureSumError
from tests.client_sdk.conversation.blind_study import BlindStudy, lies


class Changing(httpx.ASGITransport):
    """A coordinator that changes its responses to requests whose path ends in `ending`."""

    def __init__(self, app: Any, ending: str, change: Callable[[bytes], bytes]) -> None:
        super().__init__(app)
        self._ending, self._change = ending, change

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if not request.url.path.endswith(self._ending) or response.status_code != 200:
            return response
        headers = dict(response.headers)
        headers.pop("content-length", None)
        stream = httpx.ByteStream(self._change(await response.aread()))
        return httpx.Response(200, headers=headers, stream=stream)


def last_bit(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """Return the certificates with which runs finish at hospitals."""
    made: list[bytes | None] = []

    class Finished(conversation.Finished):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self.certificate)

    monkeypatch.setattr(conversation, "Finished", Finished)
    return made


async def damaged_archive(folder: Path, certificates: list[bytes | None]) -> None:
    study = BlindStudy(folder)
    victim = study.names[1]
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="members")
        found = await study.run(
            transports={victim: lambda app: Changing(app, "/archive", last_bit)}
        )
    (event,) = study.seen(victim, OwnModel)
    assert isinstance(event, OwnModel)
    assert found[victim].id == event.own != event.model
    assert {encode(model.artifact.model) for model in found.values()} == {
        encode(found[victim].artifact.model)
    }
    # Its own model is as certified as the others'.
    for data in certificates:
        assert data is not None
        certificate = ModelCertificate.decode(data)
        certificate.check_covers(found[victim].artifact.data)
        vouching = certificate.vouched_by(study.roster.values(), max_colluders=0)
        assert len(vouching) >= certificate.statement.quorum
    assert found[victim].artifact.card.salt == certificate.salt.hex()


def test_a_hospital_whose_archive_is_damaged_returns_its_own_model(
    tmp_path: Path, certificates: list[bytes | None]
) -> None:
    asyncio.run(damaged_archive(tmp_path, certificates))


async def false_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The member that seals the archive seals other bytes than the signed ones."""
    study = BlindStudy(folder)
    author = min(study.roster.values())

    def other_content(seal: Any, adverts: Any, roster: Any, *, model: bytes, content: bytes) -> Any:
        return seal(adverts, roster, model=model, content=last_bit(content))

    lies(monkeypatch, "seal_archive", author, other_content)
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="members")
        found = await study.run()
    assert all(study.seen(name, OwnModel) for name in study.names)
    assert len({encode(model.artifact.model) for model in found.values()}) == 1


def test_a_member_that_seals_another_model_deceives_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(false_archive(tmp_path, monkeypatch))


async def changed_certificate(folder: Path, change: Callable[[bytes], bytes]) -> BaseException:
    study = BlindStudy(folder)
    victim = study.names[0]
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served")
        with pytest.raises(SecureSumError) as caught:
            await study.run(transports={victim: lambda app: Changing(app, "/certificate", change)})
    return caught.value


def other_signature(data: bytes) -> bytes:
    said = ModelCertificate.decode(data)
    first, *others = said.signatures
    fields = {**vars(said), "signatures": (last_bit(first), *others)}
    return ModelCertificate(**fields).encode()


def other_salt(data: bytes) -> bytes:
    said = ModelCertificate.decode(data)
    return said.with_salt(last_bit(said.salt)).encode()


@pytest.mark.parametrize(
    ("change", "error"),
    [(other_signature, ForgedEndorsement), (other_salt, NotTheEndorsedModel)],
)
def test_a_forged_certificate_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    assert isinstance(asyncio.run(changed_certificate(tmp_path, change)), error)


async def parents(folder: Path, model: str) -> None:
    study = BlindStudy(folder)
    forgetful = study.names[2]
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model=model)
        first = (await study.run())[forgetful]
        for name in study.names:  # as if it had not taken part: the certificate must suffice
            forget(study, name)
        body = {"kind": "linear", "model": first.id}
        again = (await study.run(body))[forgetful]
        assert encode(again.artifact.model) == encode(first.artifact.model)
        for name in study.names:
            forget(study, name)
        victim = study.names[0]
        ending = "/archive" if model == "members" else "/certificate"
        with pytest.raises(ParentForbidden):
            await study.run(body, transports={victim: lambda app: Changing(app, ending, last_bit)})
        assert study.seen(victim, ParentNotCertified)


def forget(study: BlindStudy, name: str) -> None:
    """Make a hospital forget which models it has computed itself."""
    db = sqlite3.connect(study.folder / name / "journal.sqlite")
    with db:
        db.execute("UPDATE runs SET replayed = 0")
    db.close()


@pytest.mark.parametrize("model", ["served", "members"])
def test_a_run_starts_from_a_model_that_known_members_have_signed(
    tmp_path: Path, model: str
) -> None:
    asyncio.run(parents(tmp_path, model))
