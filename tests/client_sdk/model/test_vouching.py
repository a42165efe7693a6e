"""A model from elsewhere is loaded only if hospitals that are known here vouch for it."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk import GlobalModel
from client_sdk.errors import CardNotSigned, ModelNotCertified, ModelNotVouched
from client_sdk.home.home import Home
from client_sdk.home.remembered import KnownRun
from client_sdk.model.known_members import KnownMembers, known_members
from client_sdk.model.vouching import read_certificate, vouched_for
from kernels.errors import ArtifactError, DamagedArtifact, KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card import digest
from kernels.model.results import Results, released, said
from privacy.identity import Identity, Pins
from privacy.members.endorsement import NO_SALT, ModelCertificate
from privacy.securesum.errors import ForgedEndorsement, NotTheEndorsedModel, TooFewEndorsements
from privacy.securesum.records import Step
from privacy.securesum.terms import Terms
from tests.certified import HOSPITALS, NAMES, ROSTER, certificate_of, signable
from tests.kernels.rounds.artifacts import PLAIN, PROGRAM, STUDENTS, artifact

ARTIFACT = signable(artifact())
CERTIFICATE = certificate_of(ARTIFACT)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("VEILGP_HOME", str(path))
    return path


def saved(folder: Path, certificate: ModelCertificate | None, found: Artifact = ARTIFACT) -> Path:
    GlobalModel(found, certificate).save(folder / "model")
    return folder / "model"


def roster_of(*names: str) -> dict[str, bytes]:
    return {name: ROSTER[name] for name in names}


@pytest.mark.parametrize("program", [PROGRAM, PLAIN, STUDENTS])
def test_a_signed_model_is_loaded_and_keeps_its_certificate(tmp_path: Path, program: Any) -> None:
    found = signable(artifact(program))
    certificate = certificate_of(found)
    folder = saved(tmp_path, certificate, found)
    model = GlobalModel.load(folder, roster=ROSTER)
    assert model.certificate == certificate
    model.save(tmp_path / "copy")
    assert GlobalModel.load(tmp_path / "copy", roster=ROSTER).certificate == certificate


def test_a_roster_file_does_as_well(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    members = [{"name": name, "key": key.hex()} for name, key in ROSTER.items()]
    path.write_text(json.dumps({"members": members}))
    folder = saved(tmp_path, CERTIFICATE)
    assert GlobalModel.load(folder, roster=path).id == ARTIFACT.id


def test_a_model_without_a_certificate_is_loaded_only_if_one_says_so(tmp_path: Path) -> None:
    folder = saved(tmp_path, None)
    with pytest.raises(ModelNotCertified, match="--uncertified"):
        GlobalModel.load(folder, roster=ROSTER)
    with pytest.raises(ModelNotCertified):
        GlobalModel.load(folder)
    assert GlobalModel.load(folder, uncertified=True).certificate is None


def test_too_few_known_signers_are_refused_and_what_to_do_is_said(tmp_path: Path) -> None:
    folder = saved(tmp_path, CERTIFICATE)
    assert CERTIFICATE.statement.quorum == 4
    with pytest.raises(ModelNotVouched, match="3 of the members known here") as refused:
        GlobalModel.load(folder, roster=roster_of(*NAMES[:3]))
    assert "--roster" in str(refused.value)
    assert GlobalModel.load(folder, roster=roster_of(*NAMES[:4])).id == ARTIFACT.id
    with pytest.raises(ModelNotVouched):
        GlobalModel.load(folder)  # there is no home, so nobody is known
    with pytest.raises(ModelNotVouched):
        GlobalModel.load(folder, roster={})


def test_loading_creates_no_home(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ModelNotVouched):
        GlobalModel.load(saved(tmp_path, CERTIFICATE))
    assert not home.exists()


def test_strangers_who_sign_do_not_vouch(tmp_path: Path) -> None:
    strangers = [Identity.generate() for _ in range(5)]
    certificate = certificate_of(ARTIFACT, strangers)
    with pytest.raises(ModelNotVouched, match="0 of the members"):
        GlobalModel.load(saved(tmp_path, certificate), roster=ROSTER)


def test_a_certificate_of_another_model_is_refused(tmp_path: Path) -> None:
    foreign = certificate_of(signable(artifact(PLAIN)))
    with pytest.raises(NotTheEndorsedModel):
        GlobalModel.load(saved(tmp_path, foreign), roster=ROSTER)
    assert GlobalModel.load(tmp_path / "model", uncertified=True).certificate is None


def test_one_changed_byte_of_the_model_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, CERTIFICATE)
    path = folder / f"{ARTIFACT.card.artifact}.safetensors"
    data = _one_byte_changed(path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(DamagedArtifact):
        GlobalModel.load(folder, roster=ROSTER)
    # With a card that is made to fit, as someone would do it on purpose:
    path.unlink()
    card = replace(ARTIFACT.card, artifact=digest(data))
    (folder / f"{card.artifact}.safetensors").write_bytes(data)
    (folder / "card.json").write_text(card.to_json())
    (folder / f"{ARTIFACT.id}.certificate").rename(folder / f"{card.id}.certificate")
    with pytest.raises(NotTheEndorsedModel):
        GlobalModel.load(folder, roster=ROSTER)


def _one_byte_changed(whole: bytes) -> bytes:
    """Return the bytes of another model, which can be read and fits the card."""
    for position in range(len(whole) // 2, len(whole)):
        data = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        with suppress(KernelsError):
            Artifact.from_bytes(data, replace(ARTIFACT.card, artifact=digest(data)))
            return data
    raise AssertionError


@pytest.mark.parametrize("which", ["signatures", "results_signatures"])
def test_a_forged_signature_is_refused(tmp_path: Path, which: str) -> None:
    signatures = list(getattr(CERTIFICATE, which))
    signatures[0] = signatures[1]
    changed: dict[str, Any] = {which: tuple(signatures)}
    with pytest.raises(ForgedEndorsement):
        GlobalModel.load(saved(tmp_path, replace(CERTIFICATE, **changed)), roster=ROSTER)


def test_a_hospital_whose_key_is_claimed_has_not_signed(tmp_path: Path) -> None:
    strangers = [Identity.generate() for _ in range(5)]
    made = certificate_of(ARTIFACT, strangers)
    claimed = replace(made, signers=tuple(each.key for each in HOSPITALS))
    with pytest.raises(ForgedEndorsement):
        GlobalModel.load(saved(tmp_path, claimed), roster=ROSTER)


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_damaged_certificate_is_named(tmp_path: Path, length: int) -> None:
    folder = saved(tmp_path, CERTIFICATE)
    path = folder / f"{ARTIFACT.id}.certificate"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelNotCertified, match="damaged"):
        GlobalModel.load(folder, roster=ROSTER)


def test_a_certificate_under_laxer_terms_counts_no_more_than_its_own(tmp_path: Path) -> None:
    """One hospital states that nobody colludes, or that it was alone, and signs what it likes."""
    alone = signable(artifact(), members=3, colluders=0)
    certificate = certificate_of(alone, HOSPITALS[:1])
    with pytest.raises(TooFewEndorsements, match="at least 2"):
        GlobalModel.load(saved(tmp_path, certificate, alone), roster=ROSTER)
    folder = saved(tmp_path, certificate, alone)
    path = folder / f"{alone.id}.certificate"
    said = path.read_bytes()
    path.write_bytes(said[:66] + (1).to_bytes(2, "big") + said[68:])
    with pytest.raises(ModelNotCertified, match="at least 3 members"):
        GlobalModel.load(folder, roster=ROSTER)
    lax = signable(artifact(), members=3, colluders=0)
    certificate = certificate_of(lax, HOSPITALS[:2])
    read = read_certificate(certificate.encode(), lax)
    names = {key: name for name, key in ROSTER.items()}
    assert len(vouched_for(read, KnownMembers(names, "")).vouching) == 2
    for members in (
        KnownMembers(names, "", {"00000000-0000-0000-0000-000000000000": 2}),
        KnownMembers(names, "", {"00000000-0000-0000-0000-000000000009": 2}),
    ):
        with pytest.raises(ModelNotVouched, match="at least 3"):
            vouched_for(read, members)
    with pytest.raises(ModelNotVouched, match="at least 3"):
        vouched_for(read, KnownMembers(names, ""), max_colluders=2)


def test_more_signers_than_members_are_refused(tmp_path: Path) -> None:
    crowded = signable(artifact(), members=3)
    certificate = certificate_of(crowded)
    with pytest.raises(TooFewEndorsements):
        GlobalModel.load(saved(tmp_path, certificate, crowded), roster=ROSTER)


_CHANGES: dict[str, Callable[[Artifact], dict[str, Any]]] = {
    "program": lambda _: {
        "program": PLAIN.to_json(),
        "program_digest": digest(PLAIN.to_json().encode()),
    },
    "parent": lambda _: {"parent": "f" * 64},
    "members": lambda _: {"members": 50},
    "max_colluders": lambda own: {"privacy": replace(own.card.privacy, max_colluders=0)},
    "recalibration": lambda own: {
        "recalibration": tuple(
            replace(law, scale=law.scale * 1.01) for law in own.card.recalibration or ()
        )
    },
    "evaluation": lambda own: {
        "evaluation": replace(
            own.card.evaluation,  # type: ignore[type-var]
            gaussian=tuple(
                replace(each, rmse=each.rmse * 0.9)
                for each in own.card.evaluation.gaussian  # type: ignore[union-attr]
            ),
        )
    },
}


@pytest.mark.parametrize("changed", _CHANGES)
def test_a_card_that_says_more_than_was_signed_is_refused(changed: str) -> None:
    card = replace(ARTIFACT.card, **_CHANGES[changed](ARTIFACT))
    forged = Artifact(ARTIFACT.model, ARTIFACT.data, card)
    with pytest.raises(CardNotSigned, match=changed):
        read_certificate(CERTIFICATE.encode(), forged)


def test_signed_results_that_differ_from_the_card_are_refused() -> None:
    results = Results.read(released(ARTIFACT.model))
    assert results is not None
    other = released(ARTIFACT.model).replace(b'"rows":%d' % results.rows, b'"rows":7')
    with pytest.raises(CardNotSigned, match="evaluation or rows"):
        read_certificate(certificate_of(ARTIFACT, results=other).encode(), ARTIFACT)
    with pytest.raises(CardNotSigned, match="cannot be read"):
        read_certificate(certificate_of(ARTIFACT, results=b"{}").encode(), ARTIFACT)
    assert read_certificate(certificate_of(ARTIFACT, results=b"").encode(), ARTIFACT)


def test_results_that_are_read_are_those_released() -> None:
    """Rounded, so that hospitals with other rounding sign the same text; once, not twice."""
    results = Results.read(released(ARTIFACT.model))
    evaluation = ARTIFACT.card.evaluation
    assert results is not None
    assert evaluation is not None
    assert said(results.evaluation, results.rows) == released(ARTIFACT.model)
    assert (results.rows, results.evaluation.rows) == (ARTIFACT.card.rows, evaluation.rows)
    for own, true in zip(results.evaluation.gaussian, evaluation.gaussian, strict=True):
        assert (own.rmse, own.nll) == pytest.approx((true.rmse, true.nll), rel=1e-8)
    assert released(artifact(PLAIN).model) == b""
    assert Results.read(b"") is None
    for wrong in (b"[", b"[]", b'{"rows":1}', b"\xff"):
        with pytest.raises(ArtifactError):
            Results.read(wrong)


def test_a_certificate_without_its_salt_is_completed_from_the_card() -> None:
    bare = CERTIFICATE.with_salt(NO_SALT)
    assert read_certificate(bare.encode(), ARTIFACT) == CERTIFICATE


def joined(home: Path, *, session: bytes = bytes(16), colluders: int = 1) -> None:
    with Home(home).open() as opened:
        terms = Terms(session, colluders, 5, differential_privacy=False)
        opened.keep(opened.client.join(terms))


def test_the_confirmed_pins_of_a_home_are_known_and_met_keys_are_not(
    tmp_path: Path, home: Path
) -> None:
    joined(home)
    folder, session = saved(tmp_path, CERTIFICATE), "00000000-0000-0000-0000-000000000000"
    store = Home(home).read()
    store.keep_pins(session, Pins(met=ROSTER))
    with pytest.raises(ModelNotVouched, match="0 of the members"):
        GlobalModel.load(folder)
    store.keep_pins(session, Pins(confirmed=ROSTER))
    store.close()
    assert "Aarhus" in repr(GlobalModel.load(folder).card)
    assert GlobalModel.load(folder, home=home).id == ARTIFACT.id
    members = known_members(None, home)
    assert set(ROSTER.values()) < set(members.names)
    assert known_members(roster_of("Cork"), home).colluders == members.colluders


def test_a_model_that_this_home_has_computed_needs_no_certificate(
    tmp_path: Path, home: Path
) -> None:
    joined(home)
    folder = saved(tmp_path, None)
    store = Home(home).read()
    run = KnownRun(run="r", session="s", kind="train", program="", model=ARTIFACT.id)
    store.commit(Step(None), run=run)
    with pytest.raises(ModelNotCertified):
        GlobalModel.load(folder)
    store.commit(Step(None), run=replace(run, replayed=True))
    store.close()
    assert GlobalModel.load(folder).id == ARTIFACT.id
    with pytest.raises(ModelNotCertified):
        GlobalModel.load(folder, roster=ROSTER)


def test_the_card_says_who_signed(tmp_path: Path) -> None:
    folder = saved(tmp_path, CERTIFICATE)
    card = GlobalModel.load(folder, roster=roster_of(*NAMES[:4])).card
    for text in (repr(card), card._repr_html_()):
        assert "5 of 5 hospitals" in text
        assert "Aarhus" in text
        assert "Évora" not in text
    assert HOSPITALS[4].fingerprint[:11] in repr(card)
    assert "no certificate" in repr(GlobalModel(ARTIFACT).card)
    assert dict(card) == ARTIFACT.card.to_plain()
    hostile = GlobalModel(ARTIFACT, CERTIFICATE, names={HOSPITALS[0].key: "<b>\x1b[2J"}).card
    assert "<b>\x1b" not in hostile._repr_html_()
    assert "\x1b" not in repr(hostile)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("nth", range(6))
def test_an_interrupted_save_never_mixes_a_model_with_another_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    other = signable(artifact(PLAIN))
    saved(tmp_path, certificate_of(other), other)
    real, calls = os.fsync, 0

    def interrupted(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > nth:
            raise Killed
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(Killed):
            saved(tmp_path, CERTIFICATE)
    found = GlobalModel.load(tmp_path / "model", roster=ROSTER).id
    assert found == (ARTIFACT.id if nth == 5 else other.id)
    saved(tmp_path, CERTIFICATE)
    assert GlobalModel.load(tmp_path / "model", roster=ROSTER).id == ARTIFACT.id


def test_saving_over_a_signed_model_leaves_no_trace_of_it(tmp_path: Path) -> None:
    other = signable(artifact(PLAIN))
    saved(tmp_path, certificate_of(other), other)
    folder = saved(tmp_path, CERTIFICATE)
    assert len(list(folder.iterdir())) == 3
    saved(tmp_path, None)
    assert len(list(folder.iterdir())) == 2


def test_what_a_coordinator_serves_must_be_covered_by_its_certificate() -> None:
    card, data = ARTIFACT.card.to_plain(), ARTIFACT.data
    got = GlobalModel.from_artifact(data, card, certificate=CERTIFICATE.encode())
    assert got.certificate == CERTIFICATE
    foreign = certificate_of(signable(artifact(PLAIN)))
    with pytest.raises(NotTheEndorsedModel):
        GlobalModel.from_artifact(data, card, certificate=foreign.encode())
